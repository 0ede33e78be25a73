"""Hermes: `SessionDB`, with the full-text index that it keeps. A turn is two calls of `append_message`."""

from collections.abc import Sequence
from pathlib import Path

from hermes_state import SessionDB  # type: ignore[import-not-found]  # only in the peer's environment

from benchmarks.peers.adapter import Adapter
from benchmarks.peers.workload.content import Said

PLATFORM = "bench"


class Hermes(Adapter):
    missing = {  # noqa: RUF012
        "fork": "SessionDB has no fork.",
        "delta": "A message is stored when it is complete.",
    }

    async def open(self, directory: Path) -> None:
        self._db = SessionDB(directory / "hermes.db")
        self._lengths: dict[str, int] = {}

    async def close(self) -> None:
        self._db.close()

    async def create(self, name: str) -> None:
        self._db.create_session(name, PLATFORM, session_key=name, chat_id=name, user_id="local")

    async def record(self, name: str, turn: Sequence[Said]) -> None:
        for said in turn:
            self._db.append_message(name, said.role, said.text)

    async def seed(self, name: str, turns: Sequence[Sequence[Said]]) -> None:
        await self.create(name)
        messages = [{"role": said.role, "content": said.text} for turn in turns for said in turn]
        self._db.replace_messages(name, messages)

    async def load(self, name: str) -> list[str]:
        return [message["content"] for message in self._db.get_messages(name)]

    async def last(self, name: str, count: int) -> list[str]:
        length = self._db.message_count(name)
        found = self._db.get_messages(name, limit=count, offset=max(0, length - count))
        return [message["content"] for message in found]

    async def resolve(self, name: str) -> object:
        return self._db.find_session_by_origin(platform=PLATFORM, chat_id=name)

    async def newest(self, count: int) -> int:
        return len(self._db.list_sessions_rich(limit=count, order_by_last_active=True))

    async def undo(self, name: str) -> None:
        (newest,) = self._db.list_recent_user_messages(name, limit=1)
        self._db.rewind_to_message(name, newest["id"])

    async def tool_step(self, name: str, call: str, result: str) -> None:
        calls = [{"id": "call-1", "type": "function", "function": {"name": "look_up", "arguments": call}}]
        self._db.append_message(name, "assistant", "", tool_calls=calls)
        self._db.append_message(name, "tool", result, tool_name="look_up", tool_call_id="call-1")


ADAPTER = Hermes
