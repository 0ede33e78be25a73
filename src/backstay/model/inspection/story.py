"""The story in a document: numbered without gaps, and true of the rest of it."""

from bisect import bisect_right

from backstay.model.codec import check_body, encode_parts
from backstay.model.content import Custom, Text, Thought, check_input
from backstay.model.event import (
    CustomReported,
    EventBody,
    SessionCreated,
    SessionDeleted,
    SessionEnded,
    SessionExpired,
    SteeringTaken,
    TextDelta,
    ThoughtDelta,
    ToolCalled,
    ToolReturned,
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
from backstay.model.export import Export, ExportedEvent, ExportedTurn, Reference
from backstay.model.ids import WindowId
from backstay.model.inspection.complaint import at, require
from backstay.model.inspection.ranges import cover, runs
from backstay.model.limits import Limits
from backstay.model.turn import COMPACTOR


def check_story(export: Export, limits: Limits) -> None:
    """Raise unless the events are numbered without a gap and tell of what is in the document."""
    inspection = _Inspection(export, limits)
    number = fence = 0
    for index, event in enumerate(export.events):
        place = f"$.events[{index}]"
        require(event.number == number + 1, f"{place}.number", f"is {event.number}, not {number + 1}")
        require(event.fence >= fence, f"{place}.fence", "is behind the one before")
        inspection.check(event, place)
        number, fence = event.last, event.fence
    require(number >= 1 and number == export.session.last_event, "$.session.last_event", f"is not {number}")
    require(fence <= export.session.fence, "$.session.fence", "is behind the last event")
    inspection.check_chapters()


class _Inspection:
    def __init__(self, export: Export, limits: Limits) -> None:
        self._export, self._limits = export, limits
        self._turns = {turn.id for turn in export.turns}
        self._keys = {call.key for call in export.calls}
        self._own = {window.id for window in export.windows if window.session == export.session.id}
        self._said = {window.id: runs(window.messages) for window in export.windows}
        self._taken = {(one.turn, one.body.steer) for one in export.events if isinstance(one.body, SteeringTaken)}
        self._numbers = [event.number for event in export.events]

    def check(self, event: ExportedEvent, place: str) -> None:
        require(event.turn is None or event.turn in self._turns, f"{place}.turn", "is no turn of the session")
        folds = isinstance(event.body, TurnFolded)
        require(event.last == event.number or (folds and event.last > event.number), f"{place}.last", "is not its own")
        if event.said is not None:
            self._check_said(event.body, event.said, f"{place}.said")
        else:
            require(not _speaks_of(event.body), f"{place}.said", "is missing")
        with at(f"{place}.body"):
            self._check_content(event.body)
        self._check_names(event, place)

    def _check_said(self, body: EventBody, said: Reference, place: str) -> None:
        """The messages that an event speaks of are here, and as many as it says."""
        here = said.low < said.high and cover(self._said.get(said.window, []), said.low, said.high)
        require(here, place, "names messages that are not in the document")
        match body:
            case TurnRecorded() | TurnFolded():
                fits = True
            case TurnStarted():
                fits = said.high == said.low + 1
            case _:
                fits = said.high == said.low + _answers(body)
        require(fits, place, "does not fit the event")

    def _check_content(self, body: EventBody) -> None:
        """What was said in it has its limits, as when it was said."""
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

    def _check_names(self, event: ExportedEvent, place: str) -> None:
        """What it names is the session's."""
        ancestors, here = self._export.ancestors, f"{place}.body"
        match event.body:
            case SessionCreated(source=source):
                fits = event.number == 1 and source == (ancestors[0] if ancestors else None)
                require(fits, here, "is not how the session began")
            case SessionDeleted():
                require(False, here, "says that the session is gone")
            case WindowOpened(window=window, parent=parent):
                require({window, parent} <= self._own, here, "opens a window that is not the session's")
            case ToolCalled(key=key):
                require(key in self._keys, f"{here}.key", "is not in the ledger")
            case SteeringTaken(steer=steer):
                require(steer in self._turns, f"{here}.steer", "is no turn of the session")
            case TurnsReordered(turns=turns):
                require(self._turns.issuperset(turns), f"{here}.turns", "are not all turns of the session")
            case TurnFolded(first=first, last=last, messages=repeated):
                fits = (first, last) == (event.number, event.last) and event.turn is not None and not repeated
                require(fits, here, "does not stand for what it folds")
            case TurnStarted(message=message):
                require(message is None and event.turn is not None, here, "repeats its message, or has no turn")
            case TurnRecorded(messages=repeated):
                require(not repeated and event.turn is not None, here, "repeats its messages, or has no turn")
            case _:
                pass

    def check_chapters(self) -> None:
        """Turns and windows are told of where they say, and a session that is over says so."""
        export = self._export
        require(isinstance(export.events[0].body, SessionCreated), "$.events[0]", "does not create the session")
        over = {event.turn for event in export.events if _ends_turn(event.body)}
        for index, turn in enumerate(export.turns):
            self._check_turn(turn, f"$.turns[{index}]", over=turn.id in over)
        for index, window in enumerate(export.windows):
            if window.id in self._own:
                require(self._opens(window.id, window.event), f"$.windows[{index}].event", "tells of something else")
        for state, kind in (("ended", SessionEnded), ("expired", SessionExpired)):
            times = sum(isinstance(event.body, kind) for event in export.events)
            require(times == (export.session.state == state), "$.session.state", "is not what the story tells")

    def _check_turn(self, turn: ExportedTurn, place: str, *, over: bool) -> None:
        require(over == (turn.state == "ended"), f"{place}.state", "is not what the story tells")
        told = self._holding(turn.event)
        require(told is not None and told.turn == turn.id, f"{place}.event", "tells of something else")
        if turn.first_event is not None:
            first = self._holding(turn.first_event)
            began = first is not None and first.turn == turn.id and isinstance(first.body, TurnStarted)
            require(began, f"{place}.first_event", "is not its start")
        if turn.state == "waiting" and turn.taken_by is not None:
            require((turn.taken_by, turn.id) in self._taken, f"{place}.taken_by", "never took it")

    def _holding(self, number: int) -> ExportedEvent | None:
        """The event that carries this number, folded or not; None if there is none yet."""
        if not 1 <= number <= self._export.session.last_event:
            return None
        return self._export.events[bisect_right(self._numbers, number) - 1]

    def _opens(self, window: WindowId, number: int) -> bool:
        """Whether the event with this number tells of the window's opening, as far as it still tells."""
        told = self._holding(number)
        match None if told is None else told.body:
            case WindowOpened(window=opened):
                return opened == window
            case SessionCreated() | TurnFolded():
                return True
            case _:
                return False


def _ends_turn(body: EventBody) -> bool:
    return isinstance(body, TurnEnded | TurnRecorded) or (isinstance(body, TurnFolded) and body.outcome is not None)


def _speaks_of(body: EventBody) -> bool:
    """Whether there must be messages that it speaks of. Only a compaction starts without an input."""
    if isinstance(body, TurnStarted):
        return body.agent != COMPACTOR
    return isinstance(body, TurnRecorded) or _answers(body) > 0


def _answers(body: EventBody) -> int:
    """How many messages the end of a turn says it has."""
    return body.messages if isinstance(body, TurnEnded) else 0
