"""LangGraph: `SqliteSaver` of langgraph-checkpoint-sqlite.

A turn reads the latest checkpoint, appends to the channel `messages`, and puts the next checkpoint, as one invocation
of a graph does. A graph puts more than one checkpoint per invocation; this is the least that it can do.
"""

from collections.abc import Sequence
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from langgraph.checkpoint.base import empty_checkpoint  # type: ignore[import-not-found]  # only in the peer's environment
from langgraph.checkpoint.sqlite import SqliteSaver  # type: ignore[import-not-found]  # only in the peer's environment

from benchmarks.peers.adapter import Adapter
from benchmarks.peers.workload.content import Said

Messages = list[dict[str, str]]


class LanggraphSqlite(Adapter):
    missing = {  # noqa: RUF012
        "newest": "The saver lists checkpoints, not threads.",
        "delta": "A checkpoint is written when a step has ended; streamed text is not stored.",
    }

    async def open(self, directory: Path) -> None:
        self._stack = ExitStack()
        self._saver = self._stack.enter_context(SqliteSaver.from_conn_string(str(directory / "checkpoints.db")))
        self._saver.setup()

    async def close(self) -> None:
        self._stack.close()

    async def create(self, name: str) -> None:
        """A thread begins with its first checkpoint."""

    async def record(self, name: str, turn: Sequence[Said]) -> None:
        found = self._saver.get_tuple(_config(name))
        self._put(name, found, _messages(found) + [_dictionary(said) for said in turn])

    async def seed(self, name: str, turns: Sequence[Sequence[Said]]) -> None:
        self._put(name, None, [_dictionary(said) for turn in turns for said in turn])

    async def create_and_record(self, name: str, turn: Sequence[Said]) -> None:
        self._put(name, None, [_dictionary(said) for said in turn])

    async def load(self, name: str) -> list[str]:
        return [message["content"] for message in _messages(self._saver.get_tuple(_config(name)))]

    async def last(self, name: str, count: int) -> list[str]:
        return [message["content"] for message in _messages(self._saver.get_tuple(_config(name)))[-count:]]

    async def resolve(self, name: str) -> object:
        return self._saver.get_tuple(_config(name))

    async def fork(self, name: str, new: str) -> None:
        self._put(new, None, _messages(self._saver.get_tuple(_config(name))))

    async def undo(self, name: str) -> None:
        head, before = self._saver.list(_config(name), limit=2)
        self._put(name, head, _messages(before))

    async def tool_step(self, name: str, call: str, result: str) -> None:
        await self.record(name, [Said("assistant", call)])
        await self.record(name, [Said("tool", result)])

    def _put(self, name: str, parent: Any, messages: Messages) -> None:
        version = 1 if parent is None else parent.checkpoint["channel_versions"]["messages"] + 1
        checkpoint = empty_checkpoint()
        checkpoint["ts"] = datetime.now(UTC).isoformat()
        checkpoint["channel_values"] = {"messages": messages}
        checkpoint["channel_versions"] = {"messages": version}
        config = _config(name) if parent is None else parent.config
        self._saver.put(config, checkpoint, {"source": "loop", "step": version}, {"messages": version})


def _config(name: str) -> dict[str, dict[str, str]]:
    return {"configurable": {"thread_id": name, "checkpoint_ns": ""}}


def _messages(found: Any) -> Messages:
    return [] if found is None else list(found.checkpoint["channel_values"]["messages"])


def _dictionary(said: Said) -> dict[str, str]:
    return {"role": said.role, "content": said.text}


ADAPTER = LanggraphSqlite
