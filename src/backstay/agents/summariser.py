"""Summarisers: agents that receive a conversation and return a summary of it."""

from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from itertools import accumulate
from typing import Any

from backstay.agents.port import AgentTurn
from backstay.agents.tools import Tool, ToolFailed
from backstay.model.content import Attachment, Body, Json, Text, ToolCall, ToolResult
from backstay.model.ids import MessageId, SessionId, TurnId, WindowId
from backstay.model.limits import READ_LIMIT
from backstay.model.message import Message
from backstay.model.search.results import SearchPage
from backstay.model.turn import Steering

REQUEST = (
    "Summarise the conversation above for a reader who continues it and sees only your summary. "
    "Keep the goals and decisions of the person; names, numbers, files and other facts in exact words; the completed "
    "actions with their results; and the open points. Leave out courtesies and detours. Answer with the summary alone."
)

# The longest extractive summary: in characters, and as a fraction of the messages that it replaces.
_LONGEST = 6_000
_PART = 1 / 3
# The shortest and longest quote from one message.
_LEAST_QUOTE, _MOST_QUOTE = 24, 200


class SummaryTurn:
    """A turn as a summariser sees it: the conversation and a request for a summary, without tools and steering."""

    def __init__(self, turn: AgentTurn, messages: Sequence[Message], focus: str) -> None:
        self._turn = turn
        request = f"{REQUEST} Above all, keep everything about: {focus}" if focus else REQUEST
        self.input = Message(
            id=MessageId(""), position=len(messages), turn=turn.id, role="user", parts=(Text(request),), at=0
        )
        self.messages = (*messages, self.input)
        self.earlier_output: tuple[Message, ...] = ()
        self.pending_calls: tuple[ToolCall, ...] = ()

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
        """Return nothing: a summariser receives no steering."""
        return ()

    async def workspace(self) -> str | None:
        """Return the directory of the session."""
        return await self._turn.workspace()

    async def search(self, text: str, *, limit: int = 5) -> SearchPage:
        """Return nothing: a summariser uses only the messages it is given."""
        return SearchPage(hits=(), lag=0)

    async def read(self, attachment: Attachment, *, limit: int = READ_LIMIT) -> bytes:
        """Return the bytes of an attachment."""
        return await self._turn.read(attachment, limit=limit)

    def read_pieces(self, attachment: Attachment) -> AsyncIterator[bytes]:
        """Return the bytes of an attachment piece by piece."""
        return self._turn.read_pieces(attachment)

    async def call(
        self, tool: Tool, arguments: Mapping[str, Json], *, run_again: bool = False, id: str | None = None
    ) -> Any:  # Any: as in AgentTurn
        """Raise `ToolFailed`: a summariser must not run tools."""
        raise ToolFailed(f"{tool.name} cannot be used while a conversation is summarised")

    def recorded(self, ids: Collection[str]) -> tuple[ToolCall | ToolResult, ...]:
        """Return nothing: a summariser makes no calls."""
        return ()


async def extractive(turn: AgentTurn) -> AsyncIterator[Body]:
    """Summarise without a model: the text of earlier summaries, then the beginning of each message, oldest first."""
    messages = turn.messages[:-1]
    room = min(_LONGEST, int(sum(len(message.text) for message in messages) * _PART))
    quote = max(_LEAST_QUOTE, min(_MOST_QUOTE, room // max(len(messages), 1)))
    lines = [line for message in messages for line in _lines(message, quote)]
    yield Text("\n".join(_within(lines, room)))


def _lines(message: Message, quote: int) -> list[str]:
    if message.role == "summary":
        return message.text.splitlines()
    role = "Person" if message.role == "user" else "Agent"
    quotes = [f"{role}: {_begin(message.text, quote)}"] if message.text.strip() else []
    return quotes + [f"Agent used {part.name}." for part in message.parts if isinstance(part, ToolCall)]


def _begin(text: str, quote: int) -> str:
    plain = " ".join(text.split())
    if len(plain) <= quote:
        return plain
    whole_words = plain[:quote].rsplit(" ", 1)[0] if " " in plain[:quote] else plain[:quote]
    return whole_words + " …"


def _within(lines: list[str], limit: int) -> list[str]:
    """Return as many lines as fit: the first ones, which name the topic, and the latest."""
    if sum(map(len, lines)) <= limit:
        return lines
    first = _fitting(lines, limit // 4)
    last = _fitting(lines[: len(first) - 1 : -1] if first else lines[::-1], limit - limit // 4)
    left_out = len(lines) - len(first) - len(last)
    return [*first, f"({left_out} more lines were left out here.)", *reversed(last)]


def _fitting(lines: Sequence[str], limit: int) -> list[str]:
    """Return the first lines that fit."""
    sizes = accumulate(len(line) for line in lines)
    return [line for line, size in zip(lines, sizes, strict=True) if size <= limit]
