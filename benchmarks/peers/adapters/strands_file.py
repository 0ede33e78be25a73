"""Strands: `FileSessionManager`, one file per message.

The index of the next message is kept in memory after one read, as its session manager does.
"""

from collections.abc import Sequence
from pathlib import Path

from strands.session.file_session_manager import FileSessionManager  # type: ignore[import-not-found]  # peer's environment
from strands.types.session import (  # type: ignore[import-not-found]  # as above
    Session,
    SessionAgent,
    SessionMessage,
    SessionType,
)

from benchmarks.peers.adapter import Adapter
from benchmarks.peers.workload.content import Said

AGENT = "bench"


class StrandsFile(Adapter):
    missing = {  # noqa: RUF012
        "newest": "The repository does not list sessions.",
        "fork": "The repository has no fork.",
        "undo": "The repository can redact a message, not remove a turn.",
        "delta": "A message is stored when it is complete.",
    }

    async def open(self, directory: Path) -> None:
        self._files = FileSessionManager(session_id="bench", storage_dir=str(directory / "strands"))
        self._next: dict[str, int] = {}

    async def create(self, name: str) -> None:
        self._files.create_session(Session(session_id=name, session_type=SessionType.AGENT))
        self._files.create_agent(name, SessionAgent(agent_id=AGENT, state={}, conversation_manager_state={}))
        self._next[name] = 0

    async def record(self, name: str, turn: Sequence[Said]) -> None:
        at = self._index(name)
        for said in turn:
            message = {"role": said.role, "content": [{"text": said.text}]}
            self._files.create_message(name, AGENT, SessionMessage.from_message(message, at))
            at += 1
        self._next[name] = at

    async def load(self, name: str) -> list[str]:
        return [one.message["content"][0]["text"] for one in self._files.list_messages(name, AGENT)]

    async def last(self, name: str, count: int) -> list[str]:
        found = self._files.list_messages(name, AGENT, offset=max(0, self._index(name) - count))
        return [one.message["content"][0]["text"] for one in found]

    async def resolve(self, name: str) -> object:
        return self._files.read_session(name)

    async def refresh(self, name: str) -> None:
        self._next.pop(name, None)

    async def tool_step(self, name: str, call: str, result: str) -> None:
        await self.record(name, [Said("assistant", call)])
        await self.record(name, [Said("user", result)])

    def _index(self, name: str) -> int:
        if name not in self._next:
            self._next[name] = len(self._files.list_messages(name, AGENT))
        return self._next[name]


ADAPTER = StrandsFile
