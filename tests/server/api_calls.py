"""API calls of tests to a server."""

import errno
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import httpx2

from tests.server.running_server import PATIENCE, RunningServer
from tests.server.stream_reader import Frame, Reader


def new_session(client: httpx2.Client) -> str:
    """A session of the client's owner."""
    made = client.post("/api/sessions", json={})
    assert made.status_code == 201, made.text
    return str(made.json()["id"])


def say(client: httpx2.Client, session: str, text: str, *, key: str | None = None, **more: Any) -> httpx2.Response:
    """Submit a message."""
    headers = {} if key is None else {"idempotency-key": key}
    return client.post(f"/api/sessions/{session}/turns", json={"text": text} | more, headers=headers)


def accepted(client: httpx2.Client, session: str, text: str, **more: Any) -> str:
    """The turn that was accepted."""
    response = say(client, session, text, **more)
    assert response.status_code == 202, response.text
    return str(response.json()["id"])


def token_of(client: httpx2.Client) -> str:
    """The token of a client."""
    return str(client.headers["authorization"]).removeprefix("Bearer ")


def port_of(client: httpx2.Client) -> int:
    """The port that it connects to."""
    port = client.base_url.port
    assert port is not None
    return port


def until_ended(client: httpx2.Client, session: str, turn: str) -> list[Frame]:
    """The session's events up to the end of this turn."""
    with Reader(port_of(client), token_of(client), f"sessions={session}") as reader:
        heard: list[Frame] = []
        for frame in reader.frames():
            heard.append(frame)
            body = frame.data.get("body", {})
            if frame.data.get("turn") == turn and body.get("kind") in ("turn_ended", "turn_folded"):
                return heard
    raise AssertionError(f"{turn} did not end: {heard}")


def answered(client: httpx2.Client, session: str, text: str, **more: Any) -> str:
    """Send a message and wait for the end of the answer; returns the turn."""
    turn = accepted(client, session, text, **more)
    until_ended(client, session, turn)
    return turn


def until_said(client: httpx2.Client, session: str, words: str) -> None:
    """Wait until this text is streamed."""
    with Reader(port_of(client), token_of(client), f"sessions={session}") as reader:
        reader.until("event", kind="text_delta", text=words)


def read(client: httpx2.Client, session: str) -> list[dict[str, Any]]:
    """The messages of a session."""
    found: list[dict[str, Any]] = client.get(f"/api/sessions/{session}/messages").json()["messages"]
    return found


def text_of(message: dict[str, Any]) -> str:
    """The words of a message."""
    return "".join(part["text"] for part in message["parts"] if part["type"] == "text")


def log_of(server: RunningServer, client: httpx2.Client, session: str) -> list[dict[str, Any]]:
    """All events as the store has them."""
    events: list[dict[str, Any]] = []
    while True:
        after = events[-1]["last"] if events else 0
        page = client.get(f"/api/sessions/{session}/events", params={"after": after, "limit": 1000}).json()
        events += page["events"]
        if not page["more"]:
            return events


def raw_answer(port: int, *pieces: bytes) -> bytes:
    """The response of the server to these bytes, until it closes the connection."""
    heard = b""
    with socket.create_connection(("127.0.0.1", port), PATIENCE) as plain:
        # A server that rejects a request may close before it has read all of it. Its response can still be read.
        with _closed_by_server():
            for piece in pieces:
                plain.sendall(piece)
            plain.shutdown(socket.SHUT_WR)
        with _closed_by_server():
            while piece := plain.recv(65_536):
                heard += piece
    return heard


@contextmanager
def _closed_by_server() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.EPIPE, errno.ECONNRESET, errno.ENOTCONN):
            raise


def until(tried: Callable[[], bool], what: str) -> None:
    """Poll until the condition holds, within a limit. Other processes run between two polls."""
    late = time.monotonic() + PATIENCE
    while time.monotonic() < late:
        if tried():
            return
        threading.Event().wait(0.01)
    raise AssertionError(f"never: {what}")
