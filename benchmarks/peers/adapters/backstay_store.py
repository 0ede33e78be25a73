"""Backstay's store, through its public verbs."""

from collections.abc import Sequence
from pathlib import Path

from backstay import Address, Completed, Store, Text, ToolCall, ToolResult, open_store
from backstay.model import message
from backstay.model.ids import SessionId
from backstay.model.message import NewMessage
from backstay.model.turn import OpenTurn
from benchmarks.peers.adapter import Adapter
from benchmarks.peers.workload.content import QUESTION_BYTES, Said, text

OWNER = "local"


class BackstayStore(Adapter):
    async def open(self, directory: Path) -> None:
        self._store: Store = open_store(directory / "backstay.db")
        self._ids: dict[str, SessionId] = {}
        self._open: OpenTurn | None = None
        self._calls = 0

    async def close(self) -> None:
        self._store.close()

    async def create(self, name: str) -> None:
        self._store.resolve(_address(name), owner=OWNER)

    async def record(self, name: str, turn: Sequence[Said]) -> None:
        self._store.record(self._id(name), [_message(said) for said in turn], owner=OWNER)

    async def create_and_record(self, name: str, turn: Sequence[Said]) -> None:
        self._store.record(_address(name), [_message(said) for said in turn], owner=OWNER)

    async def load(self, name: str) -> list[str]:
        return [one.text for one in self._store.messages(self._id(name), owner=OWNER).messages]

    async def last(self, name: str, count: int) -> list[str]:
        return [one.text for one in self._store.messages(self._id(name), owner=OWNER, last=count).messages]

    async def resolve(self, name: str) -> object:
        return self._store.resolve(_address(name), owner=OWNER)

    async def newest(self, count: int) -> int:
        return len(self._store.list(owner=OWNER, limit=count).sessions)

    async def fork(self, name: str, new: str) -> None:
        self._store.fork(self._id(name), owner=OWNER)

    async def undo(self, name: str) -> None:
        self._store.undo(self._id(name), owner=OWNER)

    async def begin_turn(self, name: str) -> None:
        question = text("running/user", QUESTION_BYTES)
        self._open = self._store.submit(self._id(name), question, owner=OWNER, start=True).opened

    async def delta(self, name: str, text: str) -> None:
        self._open = self._store.checkpoint(self._running(), [Text(text)]).open

    async def tool_step(self, name: str, call: str, result: str) -> None:
        self._calls += 1
        call_id = f"call-{self._calls}"
        self._open = self._store.checkpoint(self._running(), [ToolCall(call_id, "look_up", {"text": call})]).open
        self._open = self._store.checkpoint(self._running(), [ToolResult(call_id, result)]).open

    async def end_turn(self, name: str) -> None:
        self._store.finish(self._running(), Completed())

    def _running(self) -> OpenTurn:
        if self._open is None:
            raise RuntimeError("no turn runs: the session is busy in a benchmark that is its only user")
        return self._open

    def _id(self, name: str) -> SessionId:
        if name not in self._ids:
            self._ids[name] = self._store.at(_address(name), owner=OWNER).id
        return self._ids[name]


def _address(name: str) -> Address:
    return Address.chat("bench", "dm", chat=name)


def _message(said: Said) -> NewMessage:
    return message.user(said.text) if said.role == "user" else message.assistant(said.text)


ADAPTER = BackstayStore
