"""Checks the event log of a document: numbered without gaps, and consistent with the rest."""

from backstay.model.codec import check_body, encode_parts
from backstay.model.content import Custom, Text, Thought, check_input
from backstay.model.documents.document import ExportedEvent, ExportedTurn, Reference
from backstay.model.documents.inspection.inspected import Document
from backstay.model.documents.inspection.ranges import cover
from backstay.model.documents.inspection.requirements import at, require
from backstay.model.documents.inspection.window_checks import MessageRanges
from backstay.model.event import (
    CustomReported,
    EventBody,
    SessionCreated,
    SessionDeleted,
    SessionEndedEvent,
    SessionExpiredEvent,
    SteeringTaken,
    TextDelta,
    ThoughtDelta,
    ToolCalled,
    ToolReturned,
    TurnContinued,
    TurnEdited,
    TurnEnded,
    TurnFolded,
    TurnRecorded,
    TurnsReordered,
    TurnStarted,
    TurnSubmitted,
    UsageReported,
    WindowOpened,
)
from backstay.model.ids import WindowId
from backstay.model.limits import Limits
from backstay.model.turn import COMPACTOR


def check_events(document: Document, ranges: MessageRanges, limits: Limits) -> None:
    """Raise unless the events are numbered without a gap and match the rest of the document."""
    inspection, facts = _EventInspection(document, ranges, limits), document.header.session
    number = fence = 0
    for location, event in document.events():
        require(event.number == number + 1, f"{location}.number", f"is {event.number}, not {number + 1}")
        require(event.fence >= fence, f"{location}.fence", "is earlier than the previous one")
        inspection.check(event, location)
        number, fence = event.last, event.fence
    require(number >= 1 and number == facts.last_event, "$.session.last_event", f"is not {number}")
    require(fence <= facts.fence, "$.session.fence", "is behind the last event")
    inspection.check_numbering()


class _EventInspection:
    def __init__(self, document: Document, ranges: MessageRanges, limits: Limits) -> None:
        self._document, self._ranges, self._limits = document, ranges, limits
        self._facts = document.header.session
        self._own = {window.id for _, window in document.windows if window.session == self._facts.id}
        # According to the events: which turn took which steering, which turns ended, how the session ended.
        self._taken, self._ended_turns = document.keys(), document.keys()
        self._closings = {SessionEndedEvent: 0, SessionExpiredEvent: 0}

    def check(self, event: ExportedEvent, location: str) -> None:
        require(
            event.turn is None or self._document.has_turn(event.turn),
            f"{location}.turn",
            "is not a turn of the session",
        )
        folds = isinstance(event.body, TurnFolded)
        require(
            event.last == event.number or (folds and event.last > event.number), f"{location}.last", "is not its own"
        )
        if event.messages is not None:
            self._check_messages(event.body, event.messages, f"{location}.said")
        else:
            require(not _needs_messages(event.body), f"{location}.said", "is missing")
        with at(f"{location}.body"):
            self._check_content(event.body)
        self._check_names(event, location)
        self._note(event)

    def _note(self, event: ExportedEvent) -> None:
        """Record facts that the turns and the session must agree with."""
        match event.body:
            case SteeringTaken(steer=steer):
                self._taken.add(event.turn or "", steer)
            case SessionEndedEvent() | SessionExpiredEvent() as closing:
                self._closings[type(closing)] += 1
            case body if _ends_turn(body):
                self._ended_turns.add(event.turn or "")
            case _:
                pass

    def _check_messages(self, body: EventBody, messages: Reference, location: str) -> None:
        """Check that the messages of an event are in the document, and their number."""
        here = messages.low < messages.high and cover(
            self._ranges.get(messages.window, []), messages.low, messages.high
        )
        require(here, location, "names messages that are not in the document")
        match body:
            case TurnRecorded() | TurnFolded():
                fits = True
            case TurnStarted():
                fits = messages.high == messages.low + 1
            case _:
                fits = messages.high == messages.low + _answers(body)
        require(fits, location, "does not match the event")

    def _check_content(self, body: EventBody) -> None:
        """Check the content of an event against the limits, as when it was written."""
        match body:
            case TextDelta(text=text):
                check_body(Text(text), self._limits)
            case ThoughtDelta(text=text):
                check_body(Thought(text), self._limits)
            case ToolCalled(call=call):
                check_body(call, self._limits)
            case ToolReturned(result=result):
                check_body(result, self._limits)
            case UsageReported(usage=usage):
                check_body(usage, self._limits)
            case CustomReported(name=name, data=data):
                check_body(Custom(name, data), self._limits)
            case TurnSubmitted(parts=parts):
                encode_parts(parts, self._limits)
            case TurnEdited(parts=parts) | SteeringTaken(parts=parts):
                encode_parts(parts, self._limits)
                check_input(parts)
            case _:
                pass

    def _check_names(self, event: ExportedEvent, location: str) -> None:
        """Check that the ids in an event belong to the session."""
        ancestors, here = self._document.header.ancestors, f"{location}.body"
        match event.body:
            case SessionCreated(source=source):
                fits = event.number == 1 and source == (ancestors[0] if ancestors else None)
                require(fits, here, "is not the first event of the session")
            case SessionDeleted():
                require(False, here, "deletes the session")
            case WindowOpened(window=window, parent=parent):
                require({window, parent} <= self._own, here, "opens a window of another session")
            case ToolCalled(key=key):
                require(self._document.has_call(key), f"{here}.key", "is not in the ledger")
            case SteeringTaken(steer=named) | TurnContinued(by=named):
                field = "steer" if isinstance(event.body, SteeringTaken) else "by"
                require(self._document.has_turn(named), f"{here}.{field}", "is not a turn of the session")
            case TurnsReordered(turns=turns):
                require(all(map(self._document.has_turn, turns)), f"{here}.turns", "are not all turns of the session")
            case TurnFolded(first=first, last=last, messages=repeated):
                fits = (first, last) == (event.number, event.last) and event.turn is not None and not repeated
                require(fits, here, "does not match the events that it folds")
            case TurnStarted(message=message):
                require(message is None and event.turn is not None, here, "repeats its message, or has no turn")
            case TurnRecorded(messages=repeated):
                require(not repeated and event.turn is not None, here, "repeats its messages, or has no turn")
            case _:
                pass

    def check_numbering(self) -> None:
        """Check that turns and windows name the right events, and that the state of the session matches."""
        location, first = next(self._document.events())
        require(isinstance(first.body, SessionCreated), location, "does not create the session")
        for location, turn in self._document.turns():
            self._check_turn(turn, location, is_ended=self._ended_turns.has(turn.id))
        for location, window in self._document.windows:
            if window.id in self._own:
                require(self._opens(window.id, window.event), f"{location}.event", "refers to another event")
        for state, kind in (("ended", SessionEndedEvent), ("expired", SessionExpiredEvent)):
            fits = self._closings[kind] == (self._facts.state == state)
            require(fits, "$.session.state", "does not match the events")

    def _check_turn(self, turn: ExportedTurn, location: str, *, is_ended: bool) -> None:
        require(is_ended == (turn.state == "ended"), f"{location}.state", "does not match the events")
        found = self._event_at(turn.event)
        require(found is not None and found.turn == turn.id, f"{location}.event", "refers to another event")
        if turn.first_event is not None:
            first = self._event_at(turn.first_event)
            began = first is not None and first.turn == turn.id and isinstance(first.body, TurnStarted)
            require(began, f"{location}.first_event", "is not its start")
        if turn.state == "waiting" and turn.taken_by is not None:
            require(self._taken.has(turn.taken_by, turn.id), f"{location}.taken_by", "never took it")

    def _event_at(self, number: int) -> ExportedEvent | None:
        """The event with this number, folded or not; None if there is none."""
        if not 1 <= number <= self._facts.last_event:
            return None
        return self._document.event_before(number)

    def _opens(self, window: WindowId, number: int) -> bool:
        """Whether the event with this number opened the window. A fold may have replaced that event."""
        found = self._event_at(number)
        match None if found is None else found.body:
            case WindowOpened(window=opened):
                return opened == window
            case SessionCreated() | TurnFolded():
                return True
            case _:
                return False


def _ends_turn(body: EventBody) -> bool:
    return isinstance(body, TurnEnded | TurnRecorded) or (isinstance(body, TurnFolded) and body.outcome is not None)


def _needs_messages(body: EventBody) -> bool:
    """Whether the event must have messages. Only a compaction starts without an input."""
    if isinstance(body, TurnStarted):
        return body.agent != COMPACTOR
    return isinstance(body, TurnRecorded) or _answers(body) > 0


def _answers(body: EventBody) -> int:
    """The number of messages according to the end of a turn."""
    return body.messages if isinstance(body, TurnEnded) else 0
