"""The story of a session as a chat shows it: events become blocks that are drawn once, and a tail that still changes.

Live or replayed, this is the only way to the screen, so a chat that was away shows what one that stayed has shown.
"""

from collections.abc import Iterable, Sequence
from typing import Literal

import msgspec

from backstay.cli import plain
from backstay.cli.chat.wordstream import WordStream
from backstay.cli.conversation import in_words
from backstay.model.content import Attachment, Custom, Json, Part, Text, Thought, ToolCall, ToolResult
from backstay.model.event import (
    ApprovalDecided,
    Event,
    SessionDeleted,
    SessionEnded,
    SessionExpired,
    SessionRenamed,
    SteeringTaken,
    TextDelta,
    ThoughtDelta,
    ToolCalled,
    ToolReturned,
    TurnEdited,
    TurnEnded,
    TurnFolded,
    TurnRecorded,
    TurnStarted,
    TurnSubmitted,
    WindowOpened,
)
from backstay.model.ids import TurnId
from backstay.model.message import Message
from backstay.model.turn import COMPACTOR, Cancelled, Completed, Failed, Interrupted, Outcome

Tone = Literal["quiet", "good", "bad", "asks"]

_LONG = 200
# What a tool would do is shown whole before a person is asked for it, unless nobody could read that much.
_MOST_ASKED = 8_000
_WINDOWS = {
    "undo": "↶ the last turn was taken back",
    "redo": "↷ what was taken back is there again",
    "retry": "↻ asked again",
    "edit": "✎ said anew",
    "compaction": "⇲ what lies further back was summarised",
}


class Person(msgspec.Struct, frozen=True):
    """What a person said; `how` if not simply in turn."""

    text: str
    how: str = ""


class Words(msgspec.Struct, frozen=True):
    """What an agent said, in Markdown."""

    text: str


class Thinking(msgspec.Struct, frozen=True):
    """What an agent thought."""

    text: str


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """A tool call, what came of it, and how long it took."""

    name: str
    arguments: str
    result: str = ""
    tone: Tone = "quiet"
    ms: int | None = None


class Note(msgspec.Struct, frozen=True):
    """What happened to the conversation."""

    text: str
    tone: Tone = "quiet"


Block = Person | Words | Thinking | Row | Note


class _Call(msgspec.Struct):
    """A tool call that has no result yet."""

    call: ToolCall
    turn: TurnId | None
    at: int | None
    decided: bool = False

    def row(self, result: str = "", tone: Tone = "quiet", ended: int | None = None) -> Row:
        ms = None if ended is None or self.at is None else max(0, ended - self.at)
        return Row(
            name=plain.one_line(self.call.name), arguments=_short(self.call.arguments), result=result, tone=tone, ms=ms
        )

    def request(self) -> Note:
        """What a person is asked to allow: all of it, however narrow the terminal."""
        asked = plain.lines(in_words(self.call.arguments))
        more = f"… ({len(asked) - _MOST_ASKED:,} more characters)" if len(asked) > _MOST_ASKED else ""
        return Note(f"{plain.one_line(self.call.name)} asks to run with {asked[:_MOST_ASKED]}{more}", "asks")

    def question(self) -> Note:
        return Note(f"{plain.one_line(self.call.name)} asks: /approve or /deny", "asks")

    @property
    def asks(self) -> bool:
        return self.call.approval and not self.decided


class Story:
    """What has been told of a session so far. Nothing here knows a terminal."""

    def __init__(self, seen: int = 0) -> None:
        self.seen = seen
        self.running: TurnId | None = None
        self.waiting: dict[TurnId, str] = {}
        self.over = False
        self._words, self._thoughts = WordStream(), WordStream()
        self._calls: dict[str, _Call] = {}
        self._compacting = False

    def tell(self, event: Event) -> list[Block]:
        """What is to be drawn now, once and for all."""
        blocks = self._told(event)
        self.seen = event.last
        return blocks

    @property
    def tail(self) -> list[Block]:
        """What is under way, as it stands."""
        blocks: list[Block] = [Thinking(self._thoughts.tail)] if self._thoughts.tail.strip() else []
        blocks += [Words(self._words.tail)] if self._words.tail.strip() else []
        blocks += [call.question() if call.asks else call.row("…") for call in self._calls.values()]
        if self._compacting:
            blocks.append(Note("summarising…"))
        return blocks + [Person(text, "waits") for text in self.waiting.values()]

    @property
    def asking(self) -> tuple[TurnId, str] | None:
        """The turn and tool call that asks for a person's word first."""
        asking = [(call.turn, call.call.id) for call in self._calls.values() if call.asks and call.turn]
        return asking[0] if asking else None

    # --- events -----------------------------------------------------------------------------------------------------

    def _told(self, event: Event) -> list[Block]:
        match event.body:
            case TextDelta(text=text):
                return [*self._hush(self._thoughts), *map(Words, self._words.feed(plain.lines(text)))]
            case ThoughtDelta(text=text):
                return [*self._hush(self._words), *map(Thinking, self._thoughts.feed(plain.lines(text)))]
            case ToolCalled(call=call):
                blocks = self._flush()
                begun = _Call(call, event.turn, None if call.approval else event.at)
                self._calls[call.id] = begun
                return [*blocks, begun.request()] if call.approval else blocks
            case ToolReturned(result=result):
                return [*self._flush(), *self._returned(result, event.at)]
            case ApprovalDecided(call=call, approved=approved):
                return self._decided(call, event.at if approved else None)
            case TurnFolded():
                return self._folded(event.body)
            case TurnRecorded(messages=messages):
                return blocks_of(messages)
            case _:
                return self._turned(event)

    def _turned(self, event: Event) -> list[Block]:
        """What happens to turns."""
        turn = event.turn
        match event.body:
            case TurnSubmitted(parts=parts) | TurnEdited(parts=parts) if turn:
                self.waiting[turn] = _said(parts)
                return []
            case TurnStarted(agent=agent, message=message) if turn:
                self.waiting.pop(turn, None)
                self.running, self._compacting = turn, agent == COMPACTOR
                return [] if message is None or self._compacting else [Person(_said(message.parts))]
            case SteeringTaken(steer=steer, parts=parts):
                self.waiting.pop(steer, None)
                return [*self._flush(), Person(_said(parts), "in between")]
            case TurnEnded() if turn:
                return self._ended(turn, event.body)
            case _:
                return self._changed(event)

    def _changed(self, event: Event) -> list[Block]:
        """What happens to the session itself."""
        match event.body:
            case WindowOpened(reason=reason):
                return [Note(_WINDOWS[reason])] if reason in _WINDOWS else []
            case SessionRenamed(title=title):
                return [Note(f"title: {plain.one_line(title)}" if title else "the title was removed")]
            case SessionEnded() | SessionExpired() | SessionDeleted():
                self.over = True
                how = type(event.body).__name__.removeprefix("Session").lower()
                return [*self._flush(), Note(f"the session has {how}: /new begins another", "bad")]
            case _:
                return []

    def _ended(self, turn: TurnId, end: TurnEnded) -> list[Block]:
        if turn != self.running:
            waited = self.waiting.pop(turn, None)
            taken_back = waited is not None and not isinstance(end.outcome, Completed)
            return [Note(f"taken back before it was heard: {waited}")] if taken_back else []
        blocks = [*self._flush(), *(_unanswered(call, end.may_have_run) for call in self._calls.values())]
        self._calls.clear()
        self.running, self._compacting = None, False
        return blocks + _ending(end.outcome)

    def _folded(self, fold: TurnFolded) -> list[Block]:
        """A turn that ended long ago. If a part of it was shown before it was folded, all of it is shown again."""
        again: list[Block] = [Note("read again from its beginning:")] if fold.first <= self.seen else []
        ending = [] if fold.outcome is None else _ending(fold.outcome)
        return [*again, *blocks_of(fold.messages), *ending]

    # --- within -----------------------------------------------------------------------------------------------------

    def _flush(self) -> list[Block]:
        return [*self._hush(self._thoughts), *self._hush(self._words)]

    def _hush(self, stream: WordStream) -> list[Block]:
        kind = Words if stream is self._words else Thinking
        return [kind(text) for text in stream.close()]

    def _returned(self, result: ToolResult, at: int) -> list[Block]:
        call = self._calls.pop(result.id, None)
        if call is None:
            return []
        return [call.row(_short(result.output), "bad" if result.error else "good", at)]

    def _decided(self, call: str, began: int | None) -> list[Block]:
        """A tool that is allowed begins then; one that is refused never does."""
        if call in self._calls:
            self._calls[call].decided, self._calls[call].at = True, began
        return []


def blocks_of(messages: Sequence[Message]) -> list[Block]:
    """Finished messages as blocks."""
    results = {part.id: part for message in messages for part in message.parts if isinstance(part, ToolResult)}
    return [block for message in messages for block in _message(message, results)]


def _message(message: Message, results: dict[str, ToolResult]) -> list[Block]:
    cut: list[Block] = [Note("cut off here", "bad")] if message.partial else []
    match message.role:
        case "user":
            return [Person(_said(message.parts))]
        case "summary":
            return [Note(f"summary: {plain.one_line(message.text)}")]
        case "assistant":
            return [*_answer(message.parts, results), *cut]
        case _:
            return []


def _answer(parts: Iterable[Part], results: dict[str, ToolResult]) -> list[Block]:
    blocks: list[Block] = []
    for part in parts:
        match part:
            case Thought(text=text):
                blocks.append(Thinking(plain.lines(text)))
            case ToolCall():
                result = results.get(part.id)
                tone: Tone = "quiet" if result is None else "bad" if result.error else "good"
                told = "no result" if result is None else _short(result.output)
                blocks.append(_Call(part, None, None).row(told, tone))
            case ToolResult():
                pass
            case _:
                blocks.append(Words(_said([part])))
    return blocks


def _ending(outcome: Outcome) -> list[Block]:
    why = f": {plain.one_line(outcome.reason)}" if outcome.reason else ""
    match outcome:
        case Completed():
            return []
        case Cancelled():
            return [Note(f"✗ cancelled{why}; what was said is kept", "bad")]
        case Failed():
            return [Note(f"✗ failed{why}", "bad")]
        case Interrupted():
            return [Note(f"✗ interrupted{why}; what was said is kept. /retry asks again", "bad")]


def _unanswered(call: _Call, may_have_run: Sequence[str]) -> Row:
    return call.row("may have run" if call.call.id in may_have_run else "no result", "bad")


def _said(parts: Iterable[Part]) -> str:
    """What parts say in words, harmless to any terminal."""
    words: list[str] = []
    for part in parts:
        match part:
            case Text(text=text):
                words.append(plain.lines(text))
            case Attachment(name=name, size=size):
                words.append(f"[{plain.one_line(name)}, {size:,} bytes]")
            case Custom(kind=kind):
                words.append(f"[{plain.one_line(kind)}]")
            case _:
                pass
    return "\n".join(words)


def _short(value: Json) -> str:
    """Arguments or a result on one line."""
    line = plain.one_line(in_words(value)[: _LONG * 2])
    return line if len(line) <= _LONG else line[:_LONG] + "…"
