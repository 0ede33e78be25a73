"""A turn without a store: the port that agents see, kept by hand."""

import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from backstay.agents.port import Agent
from backstay.agents.tools import MayHaveRun, Tool, ToolFailed
from backstay.model.content import Body, Content, Json, Text, parts_of
from backstay.model.ids import IdSource
from backstay.model.message import Message, NewMessage
from backstay.model.search.results import SearchPage
from backstay.model.turn import Steering
from backstay.testing import ManualClock

IDS = IdSource(ManualClock())


def kept(message: NewMessage) -> Message:
    """The message as if it had been stored."""
    return Message(id=IDS.message(), position=0, turn=None, role=message.role, parts=message.parts, at=0)


class LooseTurn:
    """Runs tools directly and remembers their keys; hands out the steering it was given, one lot each time."""

    def __init__(
        self,
        content: Content = "hello",
        *,
        history: Iterable[NewMessage] = (),
        steering: Iterable[str | None] = (),
        interrupted: Iterable[str] = (),
        workspace: str | None = None,
    ) -> None:
        self.id, self.session, self.window, self.owner = IDS.turn(), IDS.session(), IDS.window(), "me"
        self.input = kept(NewMessage(role="user", parts=parts_of(content)))
        self.messages = (*map(kept, history), self.input)
        self.said: tuple[Message, ...] = ()
        self.cancelled = False
        self.calls: list[tuple[str, Mapping[str, Json]]] = []
        self.keys: list[str] = []
        self._steering = list(steering)
        self._interrupted = set(interrupted)
        self._workspace = workspace

    async def steering(self) -> tuple[Steering, ...]:
        text = self._steering.pop(0) if self._steering else None
        return () if text is None else (Steering(turn=IDS.turn(), parts=(Text(text),)),)

    async def workspace(self) -> str | None:
        return self._workspace

    async def search(self, text: str, *, limit: int = 5) -> SearchPage:
        return SearchPage(hits=(), lag=0)

    async def call(self, tool: Tool, arguments: Mapping[str, Json], *, run_again: bool = False) -> Any:
        self.calls.append((tool.name, arguments))
        key = f"{self.id}.{len(self.calls)}"
        self.keys.append(key)
        if tool.name in self._interrupted:
            raise MayHaveRun(f"{tool.name} was interrupted")
        try:
            output = tool.function(**arguments, **({"key": key} if tool.takes_key else {}))
            return await output if inspect.isawaitable(output) else output
        except Exception as error:
            raise ToolFailed(f"{tool.name} failed: {error}") from error


async def heard(agent: Agent, turn: LooseTurn, each: Callable[[Body], None] = lambda _: None) -> list[Body]:
    """Everything the agent says; `each` sees a body before the agent goes on."""
    bodies = []
    async for body in agent.stream(turn):
        bodies.append(body)
        each(body)
    return bodies


def text_in(bodies: Iterable[Body]) -> str:
    return "".join(body.text for body in bodies if isinstance(body, Text))
