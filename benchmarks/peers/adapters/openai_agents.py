"""OpenAI Agents SDK: `SQLiteSession` on a file."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from agents import SQLiteSession

from benchmarks.peers.adapter import Adapter
from benchmarks.peers.workload.content import Said


class OpenaiAgents(Adapter):
    callers = "tasks"
    missing = {  # noqa: RUF012
        "resolve": "A session is its id; the SDK has no addresses and no read of a session.",
        "newest": "The SDK does not list sessions.",
        "fork": "SQLiteSession has no fork; AdvancedSQLiteSession branches inside a session.",
        "delta": "A session stores finished items only.",
    }

    async def open(self, directory: Path) -> None:
        self._path = directory / "agents.db"
        self._sessions: dict[str, SQLiteSession] = {}

    async def close(self) -> None:
        for session in self._sessions.values():
            session.close()

    async def create(self, name: str) -> None:
        self._session(name)

    async def record(self, name: str, turn: Sequence[Said]) -> None:
        await self._session(name).add_items([_item(said) for said in turn])

    async def seed(self, name: str, turns: Sequence[Sequence[Said]]) -> None:
        await self._session(name).add_items([_item(said) for turn in turns for said in turn])
        self._sessions.pop(name).close()

    async def load(self, name: str) -> list[str]:
        return [_text(item) for item in await self._session(name).get_items()]

    async def last(self, name: str, count: int) -> list[str]:
        return [_text(item) for item in await self._session(name).get_items(limit=count)]

    async def undo(self, name: str) -> None:
        await self._session(name).pop_item()
        await self._session(name).pop_item()

    async def tool_step(self, name: str, call: str, result: str) -> None:
        arguments: Any = {"type": "function_call", "call_id": "call-1", "name": "look_up", "arguments": call}
        output: Any = {"type": "function_call_output", "call_id": "call-1", "output": result}
        await self._session(name).add_items([arguments])
        await self._session(name).add_items([output])

    def _session(self, name: str) -> SQLiteSession:
        if name not in self._sessions:
            self._sessions[name] = SQLiteSession(name, self._path)
        return self._sessions[name]


def _item(said: Said) -> Any:  # the SDK declares items as a union of many dictionaries
    return {"role": said.role, "content": said.text}


def _text(item: Any) -> str:
    return str(item["content"] if "content" in item else item.get("output", item.get("arguments")))


ADAPTER = OpenaiAgents
