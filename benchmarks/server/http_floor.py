"""The floor of a turn over HTTP: the smallest server on the same stack that stores the same words with the same syncs.

Starlette under uvicorn, SQL written by hand on the loop's own thread, no leases, no limits, no recovery. A turn is two
synced transactions, as ours: the question before it is acknowledged, the answer before its end is sent.
"""

import asyncio
import hashlib
import json
import secrets
import socket
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path

import apsw
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from benchmarks.instruments.sample_turns import DELTAS

_SCHEMA = """
PRAGMA journal_mode = WAL;
PRAGMA synchronous = FULL;
CREATE TABLE tokens (hash BLOB PRIMARY KEY, owner TEXT);
CREATE TABLE sessions (id TEXT PRIMARY KEY, owner TEXT, last_event INTEGER, activity INTEGER);
CREATE TABLE turns (id TEXT PRIMARY KEY, session TEXT, state TEXT, at INTEGER);
CREATE TABLE messages (id TEXT PRIMARY KEY, session TEXT, turn TEXT, role TEXT, content TEXT);
CREATE TABLE events (session TEXT, number INTEGER, kind TEXT, body TEXT, PRIMARY KEY (session, number)) WITHOUT ROWID;
"""


class Floor:
    """The whole server."""

    def __init__(self, path: Path, token: str) -> None:
        self._database = apsw.Connection(str(path))
        self._database.execute(_SCHEMA).fetchall()
        self._database.execute("INSERT INTO tokens VALUES (?, 'local')", (hashlib.sha256(token.encode()).digest(),))
        self._readers: dict[str, list[asyncio.Queue[bytes]]] = {}
        self._running: set[asyncio.Task[None]] = set()

    def application(self) -> Starlette:
        """The three paths that the benchmark uses."""
        return Starlette(
            routes=[
                Route("/api/sessions", self._create, methods=["POST"]),
                Route("/api/sessions/{session}/turns", self._submit, methods=["POST"]),
                Route("/api/events", self._follow),
            ]
        )

    def _owner(self, request: Request) -> str:
        secret = request.headers["authorization"].removeprefix("Bearer ")
        found = self._database.execute(
            "SELECT owner FROM tokens WHERE hash = ?", (hashlib.sha256(secret.encode()).digest(),)
        ).fetchone()
        if found is None:
            raise PermissionError(secret)
        return str(found[0])

    async def _create(self, request: Request) -> Response:
        session = secrets.token_hex(13)
        self._database.execute("INSERT INTO sessions VALUES (?, ?, 0, 0)", (session, self._owner(request)))
        return JSONResponse({"id": session})

    async def _submit(self, request: Request) -> Response:
        owner, session = self._owner(request), request.path_params["session"]
        text, turn = json.loads(await request.body())["text"], secrets.token_hex(13)
        execute = self._database.execute
        execute("BEGIN IMMEDIATE")
        number = self._advance(
            "UPDATE sessions SET last_event = last_event + 1, activity = ?"
            " WHERE id = ? AND owner = ? RETURNING last_event",
            (time.time_ns(), session, owner),
        )
        execute("INSERT INTO turns VALUES (?, ?, 'running', ?)", (turn, session, time.time_ns()))
        execute("INSERT INTO messages VALUES (?, ?, ?, 'user', ?)", (secrets.token_hex(13), session, turn, text))
        execute("INSERT INTO events VALUES (?, ?, 'turn_started', ?)", (session, number, turn))
        execute("COMMIT")
        self._send(session, number, {"type": "turn_started", "turn": turn, "text": text})
        running = asyncio.create_task(self._answer(session, turn))
        self._running.add(running)
        running.add_done_callback(self._running.discard)
        return JSONResponse({"id": turn, "session": session}, status_code=202)

    async def _answer(self, session: str, turn: str) -> None:
        execute = self._database.execute
        answer = "".join(DELTAS)
        execute("BEGIN IMMEDIATE")
        last = self._advance(
            "UPDATE sessions SET last_event = last_event + 2 WHERE id = ? RETURNING last_event", (session,)
        )
        execute("UPDATE turns SET state = 'completed' WHERE id = ?", (turn,))
        execute("INSERT INTO messages VALUES (?, ?, ?, 'assistant', ?)", (secrets.token_hex(13), session, turn, answer))
        execute("INSERT INTO events VALUES (?, ?, 'text_delta', ?)", (session, last - 1, answer))
        execute("INSERT INTO events VALUES (?, ?, 'turn_ended', ?)", (session, last, turn))
        execute("COMMIT")
        self._send(session, last - 1, {"type": "text_delta", "turn": turn, "text": answer})
        self._send(session, last, {"type": "turn_ended", "turn": turn})

    def _advance(self, update: str, parameters: tuple[str | int, ...]) -> int:
        """Take the next event numbers; returns the last of them."""
        ((number,),) = self._database.execute(update, parameters).fetchall()
        return int(str(number))

    def _send(self, session: str, number: int, event: dict[str, str]) -> None:
        frame = _frame(number, event)
        for reader in self._readers.get(session, ()):
            reader.put_nowait(frame)

    async def _follow(self, request: Request) -> Response:
        self._owner(request)
        session, frames = request.query_params["sessions"], asyncio.Queue[bytes]()
        for kind, number, stored in self._database.execute(
            "SELECT kind, number, body FROM events WHERE session = ? ORDER BY number", (session,)
        ).fetchall():
            frames.put_nowait(_frame(int(str(number)), {"type": str(kind), "body": str(stored)}))
        self._readers.setdefault(session, []).append(frames)

        async def body() -> AsyncIterator[bytes]:
            while True:
                yield await frames.get()

        return StreamingResponse(body(), media_type="text/event-stream")


def _frame(number: int, event: dict[str, str]) -> bytes:
    return b"id: %d\nevent: event\ndata: %s\n\n" % (number, json.dumps(event, separators=(",", ":")).encode())


def main() -> None:
    """Serve on a free port, and print it: the arguments are the file and the token."""
    path, token = sys.argv[1:]
    # With the protocol named, asyncio sends small packets at once.
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP) as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        print(listener.getsockname()[1], flush=True)
        config = uvicorn.Config(Floor(Path(path), token).application(), log_level="error", access_log=False)
        asyncio.run(uvicorn.Server(config).serve([listener]))


if __name__ == "__main__":
    main()
