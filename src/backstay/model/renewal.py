"""Renewal: the same exported session under new ids, wherever they are written."""

from collections import Counter
from collections.abc import Callable, Iterable
from typing import TypeVar

from msgspec.structs import replace

from backstay.model.event import EventBody, SessionCreated, SteeringTaken, ToolCalled, TurnsReordered, WindowOpened
from backstay.model.export import Beginning, Export, ExportedEvent, ExportedTurn, ExportedWindow, Segment
from backstay.model.ids import IdSource, MessageId, SessionId, TurnId, WindowId, message_of
from backstay.model.message import Message
from backstay.model.turn import Call

Id = TypeVar("Id")


def turns_named(export: Export) -> Iterable[TurnId]:
    """Every turn that the document names: the session's own, and those in which ancestors' messages were said."""
    said = (message.turn for window in export.windows for message in window.messages if message.turn is not None)
    return dict.fromkeys([*(turn.id for turn in export.turns), *said])


def renewed(export: Export, ids: IdSource) -> Export:
    """The document under new ids, given out in its own order. No request is known by it any more."""
    return _Renewal(export, ids).export()


class _Renewal:
    def __init__(self, export: Export, ids: IdSource) -> None:
        self._export = export
        self._sessions = _fresh([export.session.id, *export.ancestors], ids.session)
        self._windows = _fresh((window.id for window in export.windows), ids.window)
        self._messages = _fresh((said.id for window in export.windows for said in window.messages), ids.message)
        self._turns = _fresh(turns_named(export), ids.turn)
        self._messages |= self._said_in_turns()

    def export(self) -> Export:
        old = self._export
        facts = replace(old.session, id=self._session(old.session.id), window=self._window(old.session.window))
        return replace(
            old,
            session=facts,
            ancestors=tuple(self._session(ancestor) for ancestor in old.ancestors),
            windows=tuple(self._renew_window(window) for window in old.windows),
            turns=tuple(self._renew_turn(turn) for turn in old.turns),
            calls=tuple(self._renew_call(call) for call in old.calls),
            events=tuple(self._renew_event(event) for event in old.events),
        )

    def _said_in_turns(self) -> dict[MessageId, MessageId]:
        """New ids for what agents said, by the rule that made the old ones: place by place of their turns."""
        said = Counter(message.turn for window in self._export.windows for message in window.messages)
        pairs = (
            (message_of(turn, place), message_of(self._turns[turn], place))
            for turn, count in said.items()
            if turn is not None
            for place in range(count)
        )
        return {old: new for old, new in pairs if old in self._messages}

    def _session(self, session: SessionId) -> SessionId:
        return self._sessions[session]

    def _window(self, window: WindowId) -> WindowId:
        """Its new id; the window that a fork came from need not be part of the document, and keeps its own."""
        return self._windows.get(window, window)

    def _turn(self, turn: TurnId) -> TurnId:
        return self._turns[turn]

    def _renew_window(self, old: ExportedWindow) -> ExportedWindow:
        return replace(
            old,
            id=self._window(old.id),
            session=self._session(old.session),
            parent=None if old.parent is None else self._window(old.parent),
            base=self._renew_beginning(old.base),
            behind=self._renew_beginning(old.behind),
            segments=tuple(self._renew_segment(segment) for segment in old.segments),
            messages=tuple(self._renew_message(message) for message in old.messages),
        )

    def _renew_beginning(self, old: Beginning | None) -> Beginning | None:
        return None if old is None else replace(old, window=self._window(old.window))

    def _renew_segment(self, old: Segment) -> Segment:
        return replace(old, source=self._window(old.source))

    def _renew_message(self, old: Message) -> Message:
        turn = None if old.turn is None else self._turn(old.turn)
        new: MessageId = self._messages[old.id]
        return replace(old, id=new, turn=turn)

    def _renew_turn(self, old: ExportedTurn) -> ExportedTurn:
        return replace(
            old,
            id=self._turn(old.id),
            root=self._turn(old.root),
            taken_by=None if old.taken_by is None else self._turn(old.taken_by),
            request=None if old.request is None else replace(old.request, scope=None),
        )

    def _renew_call(self, old: Call) -> Call:
        return replace(old, turn=self._turn(old.turn), root=self._turn(old.root))

    def _renew_event(self, old: ExportedEvent) -> ExportedEvent:
        return replace(
            old,
            turn=None if old.turn is None else self._turn(old.turn),
            said=None if old.said is None else replace(old.said, window=self._window(old.said.window)),
            body=self._renew_body(old.body),
        )

    def _renew_body(self, old: EventBody) -> EventBody:
        match old:
            case SessionCreated(source=source) if source is not None:
                return replace(old, source=self._session(source))
            case WindowOpened(window=window, parent=parent):
                return replace(
                    old, window=self._window(window), parent=None if parent is None else self._window(parent)
                )
            case ToolCalled(key=key):
                root, _, ordinal = key.partition(".")
                return replace(old, key=f"{self._turn(TurnId(root))}.{ordinal}")
            case SteeringTaken(steer=steer):
                return replace(old, steer=self._turn(steer))
            case TurnsReordered(turns=turns):
                return replace(old, turns=tuple(map(self._turn, turns)))
            case _:
                return old


def _fresh(old: Iterable[Id], make: Callable[[], Id]) -> dict[Id, Id]:
    return {one: make() for one in old}
