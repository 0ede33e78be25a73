"""Converts the events of a session to blocks of a chat: finished ones, drawn once, and a tail that still changes.

Live and replayed events are handled alike, so a chat shows the same after a disconnection as without one.
"""

from collections.abc import Iterable, Sequence
from typing import Literal

import msgspec

from backstay.cli.chat.markdown_stream import WordStream
from backstay.cli.output import safe_text
from backstay.cli.output.conversation_text import as_text
from backstay.model.content import HIDDEN_KINDS, Attachment, Custom, Json, Part, Text, Thought, ToolCall, ToolResult
from backstay.model.event import (
    ApprovalDecided,
    Event,
    ScheduleFired,
    ScheduleMissed,
    SessionDeleted,
    SessionEndedEvent,
    SessionExpiredEvent,
    SessionRenamed,
    SteeringTaken,
    TextDelta,
    ThoughtDelta,
    ToolCalled,
    ToolReturned,
    TurnEdited,
    TurnEnded,
    TurnFolded,
    TurnHeld,
    TurnRecorded,
    TurnReleased,
    TurnStarted,
    TurnSubmitted,
    WindowOpened,
)
from backstay.model.ids import TurnId
from backstay.model.message import Message
from backstay.model.turn import COMPACTOR, Cancelled, Completed, Failed, Interrupted, Outcome

Tone = Literal["quiet", "good", "bad", "question"]

_LONG = 200
# The arguments of a call that needs approval are shown in full, up to this length.
_LONGEST_ARGUMENTS = 8_000
_WINDOWS = {
    "undo": "↶ the last turn was undone",
    "redo": "↷ the undone turn was restored",
    "retry": "↻ running the last message again",
    "edit": "✎ the message was edited",
    "compaction": "⇲ the older messages were summarised",
}


class PersonBlock(msgspec.Struct, frozen=True):
    """A message of a person; `how` is set unless it was sent in the usual way."""

    text: str
    how: str = ""


class TextBlock(msgspec.Struct, frozen=True):
    """Text of an agent, in Markdown."""

    text: str


class ThoughtBlock(msgspec.Struct, frozen=True):
    """Reasoning of an agent."""

    text: str


class ToolBlock(msgspec.Struct, frozen=True, kw_only=True):
    """A tool call with its result and duration."""

    name: str
    arguments: str
    result: str = ""
    tone: Tone = "quiet"
    ms: int | None = None


class NoteBlock(msgspec.Struct, frozen=True):
    """A change of the session, or a notice."""

    text: str
    tone: Tone = "quiet"


Block = PersonBlock | TextBlock | ThoughtBlock | ToolBlock | NoteBlock


class _ShownCall(msgspec.Struct):
    """A tool call that has no result yet."""

    call: ToolCall
    turn: TurnId | None
    at: int | None
    decided: bool = False

    def row(self, result: str = "", tone: Tone = "quiet", ended: int | None = None) -> ToolBlock:
        ms = None if ended is None or self.at is None else max(0, ended - self.at)
        return ToolBlock(
            name=safe_text.one_line(self.call.name),
            arguments=_short(self.call.arguments),
            result=result,
            tone=tone,
            ms=ms,
        )

    def approval_request(self) -> NoteBlock:
        """Return the request for approval, with all arguments, even on a narrow terminal."""
        return NoteBlock(f"{safe_text.one_line(self.call.name)} needs approval to run with {self._whole()}", "question")

    def _whole(self) -> str:
        arguments = safe_text.lines(as_text(self.call.arguments))
        more = (
            f"… ({len(arguments) - _LONGEST_ARGUMENTS:,} more characters)"
            if len(arguments) > _LONGEST_ARGUMENTS
            else ""
        )
        return f"{arguments[:_LONGEST_ARGUMENTS]}{more}"

    def approval_note(self) -> NoteBlock:
        return NoteBlock(f"{safe_text.one_line(self.call.name)} needs approval: /approve or /deny", "question")

    def unknown_effect_note(self) -> NoteBlock:
        """Return the notice of a call whose effect is unknown, with all arguments: a person may allow it again."""
        return NoteBlock(
            f"{safe_text.one_line(self.call.name)} may have run with {self._whole()}: /rerun allows it again",
            "question",
        )

    @property
    def needs_approval(self) -> bool:
        return self.call.approval and not self.decided


class ChatLog:
    """The state of a session after the events so far. Independent of the terminal."""

    def __init__(self, seen: int = 0) -> None:
        self.seen = seen
        self.running: TurnId | None = None
        self.waiting: dict[TurnId, str] = {}
        # Waiting turns of an imported session that have not been released.
        self.held: dict[TurnId, str] = {}
        self.closed = False
        self._words, self._thoughts = WordStream(), WordStream()
        self._calls: dict[str, _ShownCall] = {}
        # Calls of an interrupted turn that wait for a person: the decision continues it.
        self._undecided: dict[str, _ShownCall] = {}
        self._compacting = False
        # The last turn, if it was interrupted, and the names of its tools that may have run, by turn and call.
        self.interrupted: TurnId | None = None
        self.in_doubt: dict[tuple[TurnId, str], str] = {}

    def apply(self, event: Event) -> list[Block]:
        """Apply an event; return the blocks that are final now."""
        blocks = self._blocks_for(event)
        self.seen = event.last
        return blocks

    @property
    def tail(self) -> list[Block]:
        """The blocks that can still change."""
        blocks: list[Block] = [ThoughtBlock(self._thoughts.tail)] if self._thoughts.tail.strip() else []
        blocks += [TextBlock(self._words.tail)] if self._words.tail.strip() else []
        blocks += [call.approval_note() if call.needs_approval else call.row("…") for call in self._calls.values()]
        blocks += [call.approval_note() for call in self._undecided.values()]
        if self._compacting:
            blocks.append(NoteBlock("summarising…"))
        blocks += [PersonBlock(text, "held: `backstay release` lets it start") for text in self.held.values()]
        return blocks + [PersonBlock(text, "waiting") for text in self.waiting.values()]

    @property
    def first_undecided(self) -> tuple[TurnId, str] | None:
        """The turn and the id of the first tool call that needs approval."""
        calls = [*self._calls.values(), *self._undecided.values()]
        undecided = [(call.turn, call.call.id) for call in calls if call.needs_approval and call.turn]
        return undecided[0] if undecided else None

    # --- events -----------------------------------------------------------------------------------------------------

    def _blocks_for(self, event: Event) -> list[Block]:
        match event.body:
            case TextDelta(text=text):
                return [*self._close(self._thoughts), *map(TextBlock, self._words.feed(safe_text.lines(text)))]
            case ThoughtDelta(text=text):
                return [*self._close(self._words), *map(ThoughtBlock, self._thoughts.feed(safe_text.lines(text)))]
            case ToolCalled(call=call):
                blocks = self._flush()
                begun = _ShownCall(call, event.turn, None if call.approval else event.at)
                self._calls[call.id] = begun
                return [*blocks, begun.approval_request()] if call.approval else blocks
            case ToolReturned(result=result):
                return [*self._flush(), *self._returned(result, event.at)]
            case ApprovalDecided(call=call, approved=approved, run_again=False):
                return self._decided(call, event.at if approved else None)
            case ApprovalDecided(call=call, run_again=True) if event.turn:
                return self._allowed_again(event.turn, call)
            case TurnFolded():
                return self._folded(event.turn, event.body)
            case TurnRecorded(messages=messages):
                return blocks_of(messages)
            case _:
                return self._apply_turn_event(event)

    def _apply_turn_event(self, event: Event) -> list[Block]:
        """Apply an event of a turn."""
        turn = event.turn
        match event.body:
            case TurnSubmitted(parts=parts) | TurnEdited(parts=parts) if turn:
                (self.held if turn in self.held else self.waiting)[turn] = _text_of(parts)
                return []
            case TurnHeld() if turn in self.waiting:
                self.held[turn] = self.waiting.pop(turn)
                return []
            case TurnReleased() if turn in self.held:
                self.waiting[turn] = self.held.pop(turn)
                return []
            case TurnStarted(agent=agent, message=message) if turn:
                self.waiting.pop(turn, None)
                self.running, self._compacting = turn, agent == COMPACTOR
                self._begin(turn, message)
                return [] if message is None or self._compacting else [PersonBlock(_text_of(message.parts))]
            case SteeringTaken(steer=steer, parts=parts):
                self.waiting.pop(steer, None)
                return [*self._flush(), PersonBlock(_text_of(parts), "steering")]
            case TurnEnded() if turn:
                return self._ended(turn, event.body)
            case _:
                return self._apply_session_event(event)

    def _apply_session_event(self, event: Event) -> list[Block]:
        """Apply an event of the session itself."""
        match event.body:
            case WindowOpened(reason=reason):
                return [NoteBlock(_WINDOWS[reason])] if reason in _WINDOWS else []
            case ScheduleFired() | ScheduleMissed():
                return _scheduled(event.body)
            case SessionRenamed(by="agent"):
                return []
            case SessionRenamed(title=title):
                return [NoteBlock(f"title: {safe_text.one_line(title)}" if title else "the title was removed")]
            case SessionEndedEvent() | SessionExpiredEvent() | SessionDeleted():
                self.closed = True
                how = type(event.body).__name__.removeprefix("Session").lower()
                return [*self._flush(), NoteBlock(f"session {how}: /new creates another", "bad")]
            case _:
                return []

    def _ended(self, turn: TurnId, end: TurnEnded) -> list[Block]:
        if turn != self.running:
            waited = self.waiting.pop(turn, None) or self.held.pop(turn, None)
            withdrawn = waited is not None and not isinstance(end.outcome, Completed)
            return [NoteBlock(f"withdrawn before it started: {waited}")] if withdrawn else []
        undecided = [call for call in self._calls.values() if call.needs_approval and _waits(end.outcome)]
        ended = [call for call in self._calls.values() if call not in undecided]
        blocks = [*self._flush(), *(_unanswered(call, end.may_have_run) for call in ended)]
        doubts = self._note_outcome(turn, end, [call.call for call in ended])
        self._calls.clear()
        self._undecided = {call.call.id: call for call in undecided}
        self.running, self._compacting = None, False
        return blocks + _ending(end.outcome, doubtful=bool(self.in_doubt)) + doubts

    def _folded(self, turn: TurnId | None, fold: TurnFolded) -> list[Block]:
        """Show a turn that was folded. If a part of it was shown before, all of it is shown again."""
        again: list[Block] = [NoteBlock("shown again from its beginning:")] if fold.first <= self.seen else []
        ending: list[Block] = []
        if turn is not None and fold.outcome is not None:
            self._begin(turn, fold.messages[0] if fold.messages else None)
            made = [part for message in fold.messages for part in message.parts if isinstance(part, ToolCall)]
            doubts = self._note_outcome(turn, fold, made)
            ending = [*_ending(fold.outcome, doubtful=bool(doubts)), *doubts]
            self._undecided = {call.id: _ShownCall(call, turn, None) for call in _undecided_calls(made, fold)}
        return [*again, *blocks_of(fold.messages), *ending]

    def _begin(self, turn: TurnId, message: Message | None) -> None:
        """Note that a turn runs; one that continues an interrupted turn answers the same message."""
        self.interrupted = None
        self._undecided.clear()
        if message is None or message.turn == turn:
            self.in_doubt.clear()

    def _note_outcome(self, turn: TurnId, end: TurnEnded | TurnFolded, made: Sequence[ToolCall]) -> list[Block]:
        """Note the decisions that a person has about a turn that ended; only an interrupted one can continue."""
        if not isinstance(end.outcome, Interrupted):
            self.in_doubt.clear()
            return []
        self.interrupted = turn
        doubtful = [call for call in made if call.id in end.may_have_run]
        self.in_doubt |= {(turn, call.id): safe_text.one_line(call.name) for call in doubtful}
        return [_ShownCall(call, turn, None).unknown_effect_note() for call in doubtful]

    def _allowed_again(self, turn: TurnId, call: str) -> list[Block]:
        name = self.in_doubt.pop((turn, call), None)
        return [] if name is None else [NoteBlock(f"{name} may run once more")]

    # --- helpers ----------------------------------------------------------------------------------------------------

    def _flush(self) -> list[Block]:
        return [*self._close(self._thoughts), *self._close(self._words)]

    def _close(self, stream: WordStream) -> list[Block]:
        kind = TextBlock if stream is self._words else ThoughtBlock
        return [kind(text) for text in stream.close()]

    def _returned(self, result: ToolResult, at: int) -> list[Block]:
        call = self._calls.pop(result.id, None)
        if call is None:
            return []
        return [call.row(_short(result.output), "bad" if result.error else "good", at)]

    def _decided(self, call: str, began: int | None) -> list[Block]:
        """Start the clock of an approved call; a denied call never starts."""
        self._undecided.pop(call, None)
        if call in self._calls:
            self._calls[call].decided, self._calls[call].at = True, began
        return []


def blocks_of(messages: Sequence[Message]) -> list[Block]:
    """Convert finished messages to blocks."""
    results = {part.id: part for message in messages for part in message.parts if isinstance(part, ToolResult)}
    return [block for message in messages for block in _message(message, results)]


def _message(message: Message, results: dict[str, ToolResult]) -> list[Block]:
    cut: list[Block] = [NoteBlock("interrupted here", "bad")] if message.partial else []
    match message.role:
        case "user":
            return [PersonBlock(_text_of(message.parts))]
        case "summary":
            return [NoteBlock(f"summary: {safe_text.one_line(message.text)}")]
        case "assistant":
            return [*_answer(message.parts, results), *cut]
        case _:
            return []


def _answer(parts: Iterable[Part], results: dict[str, ToolResult]) -> list[Block]:
    blocks: list[Block] = []
    for part in parts:
        match part:
            case Thought(text=text):
                blocks.append(ThoughtBlock(safe_text.lines(text)))
            case ToolCall():
                result = results.get(part.id)
                tone: Tone = "quiet" if result is None else "bad" if result.error else "good"
                shown = "no result" if result is None else _short(result.output)
                blocks.append(_ShownCall(part, None, None).row(shown, tone))
            case ToolResult():
                pass
            case Custom(kind=kind) if kind in HIDDEN_KINDS:
                pass
            case _:
                blocks.append(TextBlock(_text_of([part])))
    return blocks


def _undecided_calls(made: Sequence[ToolCall], fold: TurnFolded) -> list[ToolCall]:
    """Return the calls of a folded turn that still wait for a person."""
    if fold.outcome is None or not _waits(fold.outcome):
        return []
    returned = {part.id for message in fold.messages for part in message.parts if isinstance(part, ToolResult)}
    return [call for call in made if call.approval and call.id not in returned and call.id not in fold.may_have_run]


def _waits(outcome: Outcome) -> bool:
    return isinstance(outcome, Interrupted) and outcome.waiting_for_approval


def _ending(outcome: Outcome, *, doubtful: bool) -> list[Block]:
    why = f": {safe_text.one_line(outcome.reason.partition(chr(10))[0])}" if outcome.reason else ""
    match outcome:
        case Completed():
            return []
        case Cancelled():
            return [NoteBlock(f"✗ cancelled{why}; the partial answer is kept", "bad")]
        case Failed():
            advice = f" ({safe_text.one_line(outcome.hint)})" if outcome.hint else ""
            traced = outcome.reason.partition("\n")[2]
            return [
                NoteBlock(f"✗ failed{why}{advice}", "bad"),
                *([NoteBlock(safe_text.lines(traced))] if traced else []),
            ]
        case Interrupted(waiting_for_approval=True):
            return [NoteBlock(f"✗ interrupted{why}; it waits for your approval, and continues when you decide", "bad")]
        case Interrupted():
            # Offer no command that would run a tool again that may have run.
            then = "/continue resumes it without running it again" if doubtful else "/continue resumes it"
            other = "" if doubtful else ", /retry runs it again"
            kept = "a tool may have run; the partial answer is kept" if doubtful else "the partial answer is kept"
            return [NoteBlock(f"✗ interrupted{why}; {kept}. {then}{other}", "bad")]


def _unanswered(call: _ShownCall, may_have_run: Sequence[str]) -> ToolBlock:
    return call.row("may have run" if call.call.id in may_have_run else "no result", "bad")


def _text_of(parts: Iterable[Part]) -> str:
    """Return the parts as text without terminal control characters."""
    words: list[str] = []
    for part in parts:
        match part:
            case Text(text=text):
                words.append(safe_text.lines(text))
            case Attachment(name=name, size=size):
                words.append(f"[{safe_text.one_line(name)}, {size:,} bytes]")
            case Custom(kind=kind) if kind not in HIDDEN_KINDS:
                words.append(f"[{safe_text.one_line(kind)}]")
            case _:
                pass
    return "\n".join(words)


def _short(value: Json) -> str:
    """Format arguments or a result on one line."""
    line = safe_text.one_line(as_text(value)[: _LONG * 2])
    return line if len(line) <= _LONG else line[:_LONG] + "…"


def _scheduled(body: ScheduleFired | ScheduleMissed) -> list[Block]:
    """A note about a schedule, unless it sent its message in time."""
    left_out = f"{body.missed:,} due time{'s' * (body.missed != 1)} left out"
    match body:
        case ScheduleFired(late=late, missed=missed):
            notes = [*([f"{late // 60_000} minutes late"] if late >= 60_000 else []), *([left_out] if missed else [])]
            return [NoteBlock(f"schedule: {', '.join(notes)}")] if notes else []
        case ScheduleMissed(decision="failed", reason=reason):
            return [NoteBlock(f"schedule: the message could not be sent: {safe_text.one_line(reason)}", "bad")]
        case ScheduleMissed(decision="asked", schedule=schedule):
            return [NoteBlock(f"schedule: missed; decide with `backstay schedules run {schedule}` or `skip`", "bad")]
        case _:
            return [NoteBlock(f"schedule: {left_out}")]
