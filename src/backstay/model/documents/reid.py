"""Re-id: gives an exported session new ids, in all places where they occur."""

from collections.abc import Callable, Iterable, Iterator
from typing import Protocol, TypeVar

from msgspec.structs import replace

from backstay.model.documents.document import Beginning, ExportedEvent, ExportedTurn, ExportedWindow, Segment
from backstay.model.documents.records import Header
from backstay.model.event import (
    EventBody,
    SessionCreated,
    SteeringTaken,
    ToolCalled,
    TurnContinued,
    TurnsReordered,
    WindowOpened,
)
from backstay.model.ids import IdSource, MessageId, SessionId, TurnId, WindowId, message_of
from backstay.model.message import Message
from backstay.model.turn import ToolCallRecord

Id = TypeVar("Id")


class IdTable(Protocol):
    """The ids in a document, and a table of new ids that may be too large for memory."""

    def turns_named(self) -> Iterator[tuple[TurnId, int]]:
        """Every turn in the document, and the number of its messages.

        First the session's own turns in their order, then those of ancestors' messages.
        """
        ...

    def has_message(self, message: MessageId) -> bool: ...

    def rename(self, old: str, new: str) -> None: ...

    def renamed(self, old: str) -> str | None: ...


class ReId:
    """New ids for a session, assigned in the order of its document. Request ids are no longer recognised.

    With `ids` None all ids stay the same.
    """

    def __init__(self, header: Header, windows: Iterable[WindowId], names: IdTable, ids: IdSource | None) -> None:
        self._names, self._ids = names, ids
        self._sessions: dict[SessionId, SessionId] = {}
        self._windows: dict[WindowId, WindowId] = {}
        if ids is not None:
            self._sessions = _fresh([header.session.id, *header.ancestors], ids.session)
            self._windows = _fresh(windows, ids.window)
            for turn, count in names.turns_named():
                self._rename_turn(turn, ids.turn(), count)

    def _rename_turn(self, old: TurnId, new: TurnId, count: int) -> None:
        """Derive the ids of the turn's messages by the same rule as the old ones: from the turn and their index."""
        self._names.rename(old, new)
        for index in range(count):
            message = message_of(old, index)
            if self._names.has_message(message):
                self._names.rename(message, message_of(new, index))

    def session(self, session: SessionId) -> SessionId:
        return self._sessions.get(session, session)

    def window_id(self, window: WindowId) -> WindowId:
        """The new id. The window that a fork came from need not be part of the document, and keeps its id."""
        return self._windows.get(window, window)

    def turn_id(self, turn: TurnId) -> TurnId:
        return turn if self._ids is None else TurnId(self._names.renamed(turn) or turn)

    def header(self, old: Header) -> Header:
        facts = replace(old.session, id=self.session(old.session.id), window=self.window_id(old.session.window))
        return replace(old, session=facts, ancestors=tuple(map(self.session, old.ancestors)))

    def window(self, old: ExportedWindow) -> ExportedWindow:
        return replace(
            old,
            id=self.window_id(old.id),
            session=self.session(old.session),
            parent=None if old.parent is None else self.window_id(old.parent),
            base=self._beginning(old.base),
            summarises=self._beginning(old.summarises),
            segments=tuple(map(self._segment, old.segments)),
        )

    def _beginning(self, old: Beginning | None) -> Beginning | None:
        return None if old is None else replace(old, window=self.window_id(old.window))

    def _segment(self, old: Segment) -> Segment:
        return replace(old, source=self.window_id(old.source))

    def message(self, old: Message) -> Message:
        """The message with its new id.

        Nothing refers to a message by its id, so one without a derived id gets any new one.
        """
        if self._ids is None:
            return old
        turn = None if old.turn is None else self.turn_id(old.turn)
        new = self._names.renamed(old.id)
        return replace(old, id=self._ids.message() if new is None else MessageId(new), turn=turn)

    def turn(self, old: ExportedTurn) -> ExportedTurn:
        if self._ids is None:
            return old
        return replace(
            old,
            id=self.turn_id(old.id),
            root=self.turn_id(old.root),
            taken_by=None if old.taken_by is None else self.turn_id(old.taken_by),
            request=None if old.request is None else replace(old.request, scope=None),
        )

    def call(self, old: ToolCallRecord) -> ToolCallRecord:
        return replace(old, turn=self.turn_id(old.turn), root=self.turn_id(old.root))

    def event(self, old: ExportedEvent) -> ExportedEvent:
        if self._ids is None:
            return old
        return replace(
            old,
            turn=None if old.turn is None else self.turn_id(old.turn),
            messages=None
            if old.messages is None
            else replace(old.messages, window=self.window_id(old.messages.window)),
            body=self._body(old.body),
        )

    def _body(self, old: EventBody) -> EventBody:
        match old:
            case SessionCreated(source=source) if source is not None:
                return replace(old, source=self.session(source))
            case WindowOpened(window=window, parent=parent):
                return replace(
                    old, window=self.window_id(window), parent=None if parent is None else self.window_id(parent)
                )
            case ToolCalled(key=key):
                root, _, ordinal = key.partition(".")
                return replace(old, key=f"{self.turn_id(TurnId(root))}.{ordinal}")
            case SteeringTaken(steer=steer):
                return replace(old, steer=self.turn_id(steer))
            case TurnContinued(by=by):
                return replace(old, by=self.turn_id(by))
            case TurnsReordered(turns=turns):
                return replace(old, turns=tuple(map(self.turn_id, turns)))
            case _:
                return old


def _fresh(old: Iterable[Id], make: Callable[[], Id]) -> dict[Id, Id]:
    return {one: make() for one in old}
