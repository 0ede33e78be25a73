"""A model that answers from a script, on a free port of this machine, in the formats of three providers."""

import json
import socket
import threading
from collections import deque
from collections.abc import Iterator, Sequence
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Self

from backstay.errors import ConfigError
from backstay.model.content import Json, Usage
from backstay.testing.model_formats import FoundFormat, OpenAIFormat, Said, format_of, streamed
from backstay.testing.model_script import (
    FixedAnswer,
    ModelAnswer,
    ModelCut,
    ModelHold,
    ModelRefusal,
    ModelRequest,
    StreamedPart,
    check_answer,
    parts_of_answer,
)

# No provider uses these statuses, and agents do not retry them.
_NO_ANSWER_LEFT = 418
_NO_SUCH_API = 404


class ScriptedModel:
    """A server on this machine that answers each request with the next answer of a script. Use it with `with`.

    It speaks the Chat Completions API, Anthropic's Messages API and the Gemini API, streamed or not, so an agent is
    tested unchanged: give its URL to `OpenAICompatible`, `AnthropicAgent`, `GeminiAgent` or a provider's own client. It
    runs on threads of its own, for asynchronous tests, blocking tests and child processes.

    An answer is a text, a part of an answer, or a list of these: `Text`, `Thought`, `ToolCall`, `Usage`, `ModelHold`
    (stop until the test continues) and `ModelCut` (cut the connection). `ModelRefusal` is an error of the provider. A
    function receives the `ModelRequest` and returns the answer. A request after the last answer fails its turn.

    Args:
        answers: The answers, in the order of the requests.

    Raises:
        ConfigError: A value is not an answer.
    """

    def __init__(self, *answers: ModelAnswer) -> None:
        for answer in answers:
            check_answer(answer)
        self._answers = deque(answers)
        self._requests: list[ModelRequest] = []
        self._holds: list[ModelHold] = []
        self._connections: set[socket.socket] = set()
        self._lock = threading.Lock()
        self._server: _ModelServer | None = None
        self._closed = False

    def __enter__(self) -> Self:
        if self._server is not None or self._closed:
            raise ConfigError("the scripted model was opened before", hint="Make another one.")
        self._server = _ModelServer(("127.0.0.1", 0), partial(_Handler, self))
        serving = partial(self._server.serve_forever, 0.05)
        threading.Thread(target=serving, name="backstay scripted model", daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        server, self._server = self._server, None
        if server is None:
            return
        server.shutdown()
        with self._lock:
            self._closed = True
            # Connections first: an answer that a hold stopped must not be sent to its end.
            for connection in self._connections:
                _shut(connection)
            for hold in self._holds:
                hold.release()
        server.server_close()

    @property
    def openai_url(self) -> str:
        """The base URL of the Chat Completions API."""
        return f"{self._url}/v1"

    @property
    def anthropic_url(self) -> str:
        """The base URL of Anthropic's API."""
        return self._url

    @property
    def gemini_url(self) -> str:
        """The base URL of the Gemini API."""
        return f"{self._url}/v1beta"

    @property
    def requests(self) -> Sequence[ModelRequest]:
        """The requests so far, in the order of their arrival."""
        with self._lock:
            return tuple(self._requests)

    @property
    def answers_left(self) -> int:
        """How many answers of the script were not used yet."""
        with self._lock:
            return len(self._answers)

    @property
    def _url(self) -> str:
        if self._server is None:
            raise ConfigError("the scripted model is not open", hint="Use it inside `with ScriptedModel(…) as model:`.")
        return f"http://127.0.0.1:{self._server.server_port}"

    def next_answer(self, request: ModelRequest) -> ModelRefusal | list[StreamedPart]:
        """Take the answer to a request. The threads of the server call it."""
        with self._lock:
            self._requests.append(request)
            number = len(self._requests)
            answer = self._answers.popleft() if self._answers else None
        if answer is None:
            return ModelRefusal(status=_NO_ANSWER_LEFT, message=f"the script has no answer to request {number}")
        fixed: FixedAnswer = answer(request) if callable(answer) else answer
        parts = parts_of_answer(fixed)
        if not isinstance(parts, ModelRefusal):
            with self._lock:
                self._holds += [part for part in parts if isinstance(part, ModelHold)]
                if self._closed:
                    raise ConnectionAbortedError("the scripted model was closed")
        return parts

    def connected(self, connection: socket.socket) -> None:
        """Note an open connection. The threads of the server call it."""
        with self._lock:
            self._connections.add(connection)

    def disconnected(self, connection: socket.socket) -> None:
        """Forget a connection. The threads of the server call it."""
        with self._lock:
            self._connections.discard(connection)


class _ModelServer(ThreadingHTTPServer):
    """Waits for its threads when it is closed: no connection outlives the test."""

    daemon_threads = False
    block_on_close = True
    request_queue_size = 128


class _CutHere(Exception):
    """The script cuts the connection."""


class _Handler(BaseHTTPRequestHandler):
    """One connection of an agent."""

    protocol_version = "HTTP/1.1"

    def __init__(self, model: ScriptedModel, *about: object) -> None:
        self._model = model
        super().__init__(*about)  # type: ignore[arg-type]  # what the server passes to every handler

    def setup(self) -> None:
        super().setup()
        self._model.connected(self.connection)

    def finish(self) -> None:
        self._model.disconnected(self.connection)
        try:
            super().finish()
        except OSError:
            return  # the agent was killed, or the model was closed

    def handle(self) -> None:
        try:
            super().handle()
        except (OSError, _CutHere):
            _shut(self.connection)

    def do_POST(self) -> None:
        raw = self.rfile.read(int(self.headers.get("content-length") or 0))
        body: Json = json.loads(raw)
        headers = {name.lower(): value for name, value in self.headers.items()}
        found = format_of(self.path, body)
        if found is None:
            message = f"{self.path} is not a path of a known API"
            self._send(_NO_SUCH_API, OpenAIFormat().error(_NO_SUCH_API, message), {})
            return
        answer = self._model.next_answer(ModelRequest(path=self.path, headers=headers, body=body, raw=raw))
        if isinstance(answer, ModelRefusal):
            wait = {} if answer.retry_after is None else {"retry-after": str(answer.retry_after)}
            self._send(answer.status, found.format.error(answer.status, answer.message), wait)
        else:
            self._answer(found, answer)

    def _answer(self, found: FoundFormat, parts: list[StreamedPart]) -> None:
        usage = sum((part for part in parts if isinstance(part, Usage)), Usage())
        if not found.streamed:
            self._send(200, found.format.whole(list(_said(parts)), usage), {})
            return
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        for piece in streamed(found.format, _said(parts), usage):
            if piece:
                self.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))
        self.wfile.write(b"0\r\n\r\n")

    def _send(self, status: int, body: Json, headers: dict[str, str]) -> None:
        data = json.dumps(body, ensure_ascii=False).encode()
        self.send_response(status)
        for name, value in {"content-type": "application/json", "content-length": str(len(data)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: object) -> None:
        """Write nothing to the terminal: the requests are in `ScriptedModel.requests`."""


def _said(parts: list[StreamedPart]) -> Iterator[Said]:
    """The output among these parts. It stops at a hold, and ends at a cut."""
    for part in parts:
        match part:
            case ModelHold():
                part.stop_here()
            case ModelCut():
                raise _CutHere
            case Usage():
                pass  # it is sent at the end
            case _:
                yield part


def _shut(connection: socket.socket) -> None:
    try:
        connection.shutdown(socket.SHUT_RDWR)
    except OSError:
        return  # the other side was faster
