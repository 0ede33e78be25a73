"""A turn without a store, with the interface that agents see."""

import asyncio
import inspect
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping
from typing import Any

from backstay.agents.port import Agent
from backstay.agents.tools import MayHaveRun, Tool, ToolFailed
from backstay.errors import NotFound, TooLarge
from backstay.model.content import Attachment, Body, Json, PartsLike, Text, ToolCall, ToolResult, parts_of
from backstay.model.ids import IdSource
from backstay.model.limits import READ_LIMIT
from backstay.model.message import Message, NewMessage
from backstay.model.search.results import SearchPage
from backstay.model.turn import Steering
from backstay.testing import ManualClock

IDS = IdSource(ManualClock())


def kept(message: NewMessage) -> Message:
    """The message as if it had been stored."""
    return Message(id=IDS.message(), position=0, turn=None, role=message.role, parts=message.parts, at=0)


class LooseTurn:
    """Runs tools directly and remembers their keys; returns the given steering, one batch per call."""

    def __init__(
        self,
        content: PartsLike = "hello",
        *,
        history: Iterable[NewMessage] = (),
        steering: Iterable[str | None] = (),
        interrupted: Iterable[str] = (),
        workspace: str | None = None,
        files: Mapping[str, bytes] | None = None,
    ) -> None:
        self.id, self.session, self.window, self.owner = IDS.turn(), IDS.session(), IDS.window(), "me"
        self.input = kept(NewMessage(role="user", parts=parts_of(content)))
        self.messages = (*map(kept, history), self.input)
        self.earlier_output: tuple[Message, ...] = ()
        self.pending_calls: tuple[ToolCall, ...] = ()
        self.cancelled = False
        self.calls: list[tuple[str, Mapping[str, Json]]] = []
        self.keys: list[str] = []
        self._recorded: list[ToolCall | ToolResult] = []
        self._steering = list(steering)
        self._interrupted = set(interrupted)
        self._workspace = workspace
        self._files = dict(files or {})

    async def steering(self) -> tuple[Steering, ...]:
        text = self._steering.pop(0) if self._steering else None
        return () if text is None else (Steering(turn=IDS.turn(), parts=(Text(text),)),)

    async def workspace(self) -> str | None:
        return self._workspace

    async def search(self, text: str, *, limit: int = 5) -> SearchPage:
        return SearchPage(hits=(), lag=0)

    async def read(self, attachment: Attachment, *, limit: int = READ_LIMIT) -> bytes:
        data = self._files.get(attachment.blob)
        if data is None:
            raise NotFound(f"no blob {attachment.blob}")
        if len(data) > limit:
            raise TooLarge(f"{attachment.name} has {len(data)} bytes")
        return data

    async def read_pieces(self, attachment: Attachment) -> AsyncIterator[bytes]:
        yield await self.read(attachment)

    async def call(
        self, tool: Tool, arguments: Mapping[str, Json], *, run_again: bool = False, id: str | None = None
    ) -> Any:
        self.calls.append((tool.name, arguments))
        key = f"{self.id}.{len(self.calls)}"
        self.keys.append(key)
        if tool.name in self._interrupted:
            raise MayHaveRun(f"{tool.name} was interrupted")
        call_id = id or f"ledger-{len(self.calls)}"
        self._recorded.append(ToolCall(call_id, tool.name, dict(arguments)))
        await asyncio.sleep(0)  # Calls that were made together are recorded before the first result.
        try:
            output = tool.function(**arguments, **({"key": key} if tool.takes_key else {}))
            output = await output if inspect.isawaitable(output) else output
        except Exception as error:
            self._recorded.append(ToolResult(call_id, f"{tool.name} failed: {error}", error=True))
            raise ToolFailed(f"{tool.name} failed: {error}") from error
        self._recorded.append(ToolResult(call_id, output))
        return output

    def recorded(self, ids: Collection[str]) -> tuple[ToolCall | ToolResult, ...]:
        return tuple(body for body in self._recorded if body.id in ids)


async def output_of(agent: Agent, turn: LooseTurn, each: Callable[[Body], None] = lambda _: None) -> list[Body]:
    """All output of the agent; `each` receives a body before the agent continues."""
    bodies = []
    async for body in agent.stream(turn):
        bodies.append(body)
        each(body)
    return bodies


def text_in(bodies: Iterable[Body]) -> str:
    return "".join(body.text for body in bodies if isinstance(body, Text))
