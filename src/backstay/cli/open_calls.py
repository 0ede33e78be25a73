"""The tool calls of a session that wait for a person."""

from backstay.cli.session_store import SessionStore
from backstay.errors import NothingToDo
from backstay.model.ids import SessionId
from backstay.model.session import SessionInfo
from backstay.model.turn import Interrupted, ToolCallRecord, TurnInfo


def asks(call: ToolCallRecord) -> bool:
    """Return whether the call has not run, and runs if a person approves it."""
    return call.approval == "asked" and call.effect == "called"


def can_be_decided(turn: TurnInfo) -> bool:
    """Return whether the calls of the last turn of a session can still be decided."""
    return turn.outcome is None or isinstance(turn.outcome, Interrupted)


def open_calls(store: SessionStore, session: SessionInfo, owner: str) -> tuple[ToolCallRecord, ...]:
    """Return the calls of the running turn, or of the last one if it was interrupted, that wait for approval."""
    turn = _last_turn(store, session, owner)
    if turn is None or not can_be_decided(turn):
        return ()
    return tuple(call for call in store.calls(turn.id, owner=owner) if asks(call))


def decide_commands(session: SessionId) -> str:
    """Return the commands that decide about the call of a session, for people."""
    return f"`backstay approve {session}` or `backstay deny {session}`"


def _last_turn(store: SessionStore, session: SessionInfo, owner: str) -> TurnInfo | None:
    if session.running is not None:
        return store.turn(session.running, owner=owner)
    try:
        return store.last_turn(session.id, owner=owner)
    except NothingToDo:
        return None
