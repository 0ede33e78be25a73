"""A receiver of webhooks on loopback: it checks signatures by itself, and fails in every way that it is told to."""

import base64
import hashlib
import hmac
import json
import random
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple

from backstay.clock import SystemClock

SECRET = b"a secret of the tests, long enough"
PATIENCE = 90.0


class Got(NamedTuple):
    """An accepted request."""

    id: str
    body: dict[str, Any]
    attempt: int


class FakeReceiver:
    """What the receiver got, and how it answers: `plan` has the next answers, then it accepts everything."""

    def __init__(self, chance: float, seed: int) -> None:
        self.url = ""
        self.accepted: list[Got] = []
        self.attempts: dict[str, int] = {}
        self.forged = self.cut = 0
        self.plan: list[int] = []
        self._chance, self._random = chance, random.Random(seed)
        self._changed = threading.Condition()

    def wait_for(self, reached: Callable[[], bool]) -> None:
        """Wait until this holds; it is asked after every request."""
        with self._changed:
            assert self._changed.wait_for(reached, PATIENCE), (self.accepted, self.attempts)

    def bodies(self, kind: str) -> list[dict[str, Any]]:
        """The accepted bodies of a kind, each id once: as a receiver that is idempotent sees them."""
        return list({got.id: got.body for got in self.accepted if got.body["type"] == kind}.values())

    def answer(self, headers: Any, content: bytes) -> int | None:
        """The status for a request; None: the connection is cut after the request was accepted."""
        with self._changed:
            status = self._status(headers, content)
            self._changed.notify_all()
            return status

    def _status(self, headers: Any, content: bytes) -> int | None:
        name, timestamp = headers["webhook-id"], headers["webhook-timestamp"]
        mac = hmac.new(SECRET, f"{name}.{timestamp}.".encode() + content, hashlib.sha256).digest()
        late = abs(SystemClock().now() / 1000 - int(timestamp)) > 60
        if late or headers["webhook-signature"] != "v1," + base64.b64encode(mac).decode():
            self.forged += 1
            return 401
        self.attempts[name] = attempt = self.attempts.get(name, 0) + 1
        status = self.plan.pop(0) if self.plan else 204
        if self._random.random() < self._chance:
            status = self._random.choice([0, 429, 500, 503])
        if status in (0, 204):
            self.accepted.append(Got(name, json.loads(content), attempt))
        self.cut += status == 0
        return status or None


@contextmanager
def fake_receiver(*, chance: float = 0.0, seed: int = 0) -> Iterator[FakeReceiver]:
    """A receiver that answers; with `chance`, it fails now and then."""
    receiver = FakeReceiver(chance, seed)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            size = int(self.headers["content-length"])
            content = self.rfile.read(size)
            if len(content) < size:
                return  # The sender was killed.
            status = receiver.answer(self.headers, content)
            if status is None:
                self.close_connection = True
                return
            self.send_response(status)
            if 300 <= status < 400:
                self.send_header("location", receiver.url + "/elsewhere")
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            pass

    class Server(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, request: object, client_address: object) -> None:
            """A sender that is killed cuts its connection."""

    with Server(("127.0.0.1", 0), Handler) as server:
        receiver.url = f"http://127.0.0.1:{server.server_address[1]}/hook"
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        try:
            yield receiver
        finally:
            server.shutdown()
            thread.join()
