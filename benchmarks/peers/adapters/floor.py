"""The floor: hand-written SQL for exactly these workloads, SQLite in WAL mode with `synchronous=FULL`.

Variant `grouped` puts the turns of many callers into one transaction: what a group commit can reach at best.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import cast

import apsw

from benchmarks.peers.adapter import Adapter
from benchmarks.peers.workload.content import Said

_SCHEMA = """
CREATE TABLE IF NOT EXISTS sessions (
    id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, length INTEGER NOT NULL DEFAULT 0,
    active INTEGER NOT NULL DEFAULT 0) STRICT;
CREATE INDEX IF NOT EXISTS newest ON sessions (active DESC);
CREATE TABLE IF NOT EXISTS messages (place INTEGER PRIMARY KEY, body TEXT NOT NULL) STRICT;
"""
# The place of a message is its session times 2^32 plus its position: one B-tree, read in order without an index.
_GROW = """
UPDATE sessions SET length = length + ?, active = (SELECT max(active) + 1 FROM sessions)
 WHERE name = ? RETURNING id, length
"""
_SHRINK = "UPDATE sessions SET length = length - 2 WHERE name = ? RETURNING id, length"
_INSERT = "INSERT INTO messages VALUES ((? << 32) + ?, ?)"
_CREATE = "INSERT INTO sessions (name) VALUES (?)"
_FIND = "SELECT id, length, active FROM sessions WHERE name = ?"
_ALL = "SELECT body FROM messages WHERE place BETWEEN (? << 32) AND (? << 32) + 0xffffffff ORDER BY place"
_LAST = """
SELECT body FROM messages WHERE place BETWEEN (? << 32) AND (? << 32) + 0xffffffff ORDER BY place DESC LIMIT ?
"""
_NEWEST = "SELECT id, name, length, active FROM sessions ORDER BY active DESC LIMIT ?"
_COPY_SESSION = """
INSERT INTO sessions (name, length, active) SELECT ?, length, active FROM sessions WHERE name = ? RETURNING id
"""
_COPY_MESSAGES = """
INSERT INTO messages
SELECT place + ((? - ?) << 32), body FROM messages WHERE place BETWEEN (? << 32) AND (? << 32) + 0xffffffff
"""
_DELETE = "DELETE FROM messages WHERE place > (? << 32) + ? AND place <= (? << 32) + 0xffffffff"


class Floor(Adapter):
    def __init__(self, variant: str) -> None:
        super().__init__(variant)
        self.callers = "group" if variant == "grouped" else "one"

    async def open(self, directory: Path) -> None:
        self._connection = apsw.Connection(str(directory / "floor.db"))
        self._connection.set_busy_timeout(30_000)
        self._execute = self._connection.execute
        self._execute("PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL")
        self._execute(_SCHEMA)

    async def close(self) -> None:
        self._connection.close()

    async def create(self, name: str) -> None:
        self._execute(_CREATE, (name,))

    async def record(self, name: str, turn: Sequence[Said]) -> None:
        self._begin()
        self._append(name, [_encode(said) for said in turn])
        self._execute("COMMIT")

    async def record_group(self, names: Sequence[str], turns: Sequence[Sequence[Said]]) -> None:
        self._begin()
        for name, turn in zip(names, turns, strict=True):
            self._append(name, [_encode(said) for said in turn])
        self._execute("COMMIT")

    async def seed(self, name: str, turns: Sequence[Sequence[Said]]) -> None:
        self._begin()
        self._execute(_CREATE, (name,))
        self._append(name, [_encode(said) for turn in turns for said in turn])
        self._execute("COMMIT")

    async def create_and_record(self, name: str, turn: Sequence[Said]) -> None:
        self._begin()
        self._execute(_CREATE, (name,))
        self._append(name, [_encode(said) for said in turn])
        self._execute("COMMIT")

    async def load(self, name: str) -> list[str]:
        session = self._find(name)
        return [_decode(body) for (body,) in self._execute(_ALL, (session, session))]

    async def last(self, name: str, count: int) -> list[str]:
        session = self._find(name)
        return [_decode(body) for (body,) in self._execute(_LAST, (session, session, count))][::-1]

    async def resolve(self, name: str) -> object:
        return self._execute(_FIND, (name,)).fetchone()

    async def newest(self, count: int) -> int:
        return len(self._execute(_NEWEST, (count,)).fetchall())

    async def fork(self, name: str, new: str) -> None:
        self._begin()
        ((session,),) = self._execute(_COPY_SESSION, (new, name)).fetchall()
        source = self._find(name)
        self._execute(_COPY_MESSAGES, (session, source, source, source))
        self._execute("COMMIT")

    async def undo(self, name: str) -> None:
        self._begin()
        ((session, length),) = self._execute(_SHRINK, (name,)).fetchall()
        self._execute(_DELETE, (session, length, session))
        self._execute("COMMIT")

    async def delta(self, name: str, text: str) -> None:
        await self.record(name, [Said("assistant", text)])

    async def tool_step(self, name: str, call: str, result: str) -> None:
        await self.record(name, [Said("assistant", call)])
        await self.record(name, [Said("tool", result)])

    def _find(self, name: str) -> int:
        session, _, _ = cast("tuple[int, int, int]", self._execute(_FIND, (name,)).fetchone())
        return session

    def _begin(self) -> None:
        self._execute("BEGIN IMMEDIATE")

    def _append(self, name: str, bodies: Sequence[str]) -> None:
        ((session, length),) = cast("list[tuple[int, int]]", self._execute(_GROW, (len(bodies), name)).fetchall())
        for position, body in enumerate(bodies, length - len(bodies) + 1):
            self._execute(_INSERT, (session, position, body))


def _encode(said: Said) -> str:
    return json.dumps({"role": said.role, "text": said.text})


def _decode(body: str) -> str:
    text: str = json.loads(body)["text"]
    return text


ADAPTER = Floor
