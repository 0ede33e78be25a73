"""Summarising: a summariser is an agent that is shown a conversation and asked for its gist."""

from collections.abc import AsyncIterator, Mapping, Sequence
from itertools import accumulate
from typing import Any

from backstay.agents.port import AgentTurn
from backstay.agents.tools import Tool, ToolFailed
from backstay.model.content import Body, Json, Text, ToolCall
from backstay.model.ids import MessageId, SessionId, TurnId, WindowId
from backstay.model.message import Message
from backstay.model.search import SearchPage
from backstay.model.turn import Steering

WISH = (
    "Summarise the conversation above, so that it can be carried on by somebody who reads only your summary. "
    "Keep what the person wants and has decided, names, numbers, files and other facts in exact words, what was done "
    "with which result, and what is still open. Leave out courtesies and detours. Answer with the summary alone."
)

# How long an extractive summary may get: in letters, and as a part of what it stands for.
_LONGEST = 6_000
_PART = 1 / 3
# How much of one message it quotes.
_LEAST_QUOTE, _MOST_QUOTE = 24, 200


class SummaryTurn:
    """A turn as a summariser sees it: the conversation, and the wish for its gist. It has no tools and hears nobody."""

    def __init__(self, turn: AgentTurn, messages: Sequence[Message], focus: str) -> None:
        self._turn = turn
        wish = f"{WISH} Above all keep what concerns: {focus}" if focus else WISH
        self.input = Message(
            id=MessageId(""), position=len(messages), turn=turn.id, role="user", parts=(Text(wish),), at=0
        )
        self.messages = (*messages, self.input)
        self.said: tuple[Message, ...] = ()

    @property
    def id(self) -> TurnId:
        return self._turn.id

    @property
    def session(self) -> SessionId:
        return self._turn.session

    @property
    def owner(self) -> str:
        return self._turn.owner

    @property
    def window(self) -> WindowId:
        return self._turn.window

    @property
    def cancelled(self) -> bool:
        return self._turn.cancelled

    async def steering(self) -> tuple[Steering, ...]:
        """Nobody speaks to a summariser."""
        return ()

    async def workspace(self) -> str | None:
        """The directory that the session is about."""
        return await self._turn.workspace()

    async def search(self, text: str, *, limit: int = 5) -> SearchPage:
        """A summariser sticks to what it is shown."""
        return SearchPage(hits=(), lag=0)

    async def call(self, tool: Tool, arguments: Mapping[str, Json]) -> Any:  # Any: as the port has it
        """A summariser may not act."""
        raise ToolFailed(f"{tool.name} cannot be used while a conversation is summarised")


async def extractive(turn: AgentTurn) -> AsyncIterator[Body]:
    """A summary without a model: what earlier summaries said, then how each message begins, oldest first."""
    told = turn.messages[:-1]
    room = min(_LONGEST, int(sum(len(message.text) for message in told) * _PART))
    quote = max(_LEAST_QUOTE, min(_MOST_QUOTE, room // max(len(told), 1)))
    lines = [line for message in told for line in _lines(message, quote)]
    yield Text("\n".join(_within(lines, room)))


def _lines(message: Message, quote: int) -> list[str]:
    if message.role == "summary":
        return message.text.splitlines()
    speaker = "Person" if message.role == "user" else "Agent"
    said = [f"{speaker}: {_begin(message.text, quote)}"] if message.text.strip() else []
    return said + [f"Agent used {part.name}." for part in message.parts if isinstance(part, ToolCall)]


def _begin(text: str, quote: int) -> str:
    plain = " ".join(text.split())
    if len(plain) <= quote:
        return plain
    whole_words = plain[:quote].rsplit(" ", 1)[0] if " " in plain[:quote] else plain[:quote]
    return whole_words + " …"


def _within(lines: list[str], limit: int) -> list[str]:
    """As many lines as there is room for: the first ones, which say what it is about, and the latest."""
    if sum(map(len, lines)) <= limit:
        return lines
    first = _fitting(lines, limit // 4)
    last = _fitting(lines[: len(first) - 1 : -1] if first else lines[::-1], limit - limit // 4)
    left_out = len(lines) - len(first) - len(last)
    return [*first, f"({left_out} more lines were left out here.)", *reversed(last)]


def _fitting(lines: Sequence[str], limit: int) -> list[str]:
    """The first lines, as many as fit."""
    sizes = accumulate(len(line) for line in lines)
    return [line for line, size in zip(lines, sizes, strict=True) if size <= limit]
