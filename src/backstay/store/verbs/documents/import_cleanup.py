"""The cleanup of an import that was given up: its rows are dropped, some in each transaction."""

from typing import NamedTuple

from backstay.model.ids import ImportId, SessionId, WindowId
from backstay.store.engine import Transaction
from backstay.store.rows import Rows, values
from backstay.store.verbs import blob_store, message_search
from backstay.store.verbs.message_search import IndexedMessage


class _StagedSession(NamedTuple):
    """A session of an import."""

    session: SessionId
    owner: str


class _StagedMessage(IndexedMessage):
    """A message of an import, and where it is stored."""

    position: int
    window: WindowId


class _StagedSegment(NamedTuple):
    """A segment of an import."""

    window: WindowId
    start: int


_SESSIONS = Rows("sessions_of_import", _StagedSession)
_SOME_MESSAGES = Rows("some_messages", _StagedMessage)
_SOME_SEGMENTS = Rows("some_segments", _StagedSegment)


def give_up(tx: Transaction, import_id: ImportId) -> None:
    """End the lease of an import, so that it cannot continue."""
    tx.run("give_up_import", import_id=import_id)


def given_up(tx: Transaction, limit: int) -> list[ImportId]:
    """Imports whose lease has ended."""
    return values(tx, "given_up_imports", moment=tx.now, limit=limit)


def clear_some(tx: Transaction, import_id: ImportId, limit: int) -> bool:
    """Drop some rows of an import that was given up. Returns whether there may be more."""
    family = _SESSIONS.all(tx, import_id=import_id)
    if any(_drop_some(tx, member, limit) for member in family):
        return True
    # Windows of one session refer to those of another: all references go before the first window does.
    for member in family:
        tx.run("uproot_windows", session=member.session)
    for member in family:
        tx.run("drop_windows", session=member.session)
    tx.run("drop_import", import_id=import_id)
    for member in family:
        tx.run("drop_session", session=member.session)
    return False


def _drop_some(tx: Transaction, member: _StagedSession, limit: int) -> int:
    """Drop rows of one table, ordered so that no remaining row refers to a dropped one. Returns how many."""
    return (
        tx.changed("drop_some_events", session=member.session, limit=limit)
        or _drop_turns(tx, member.session, limit)
        or _drop_messages(tx, member, limit)
        or _drop_segments(tx, member.session, limit)
    )


def _drop_turns(tx: Transaction, session: SessionId, limit: int) -> int:
    turns = values(tx, "some_turns", session=session, limit=limit)
    for turn in turns:
        blob_store.release(tx, turn)
        tx.run("drop_calls", turn=turn)
        tx.run("drop_turn", turn=turn)
    return len(turns)


def _drop_messages(tx: Transaction, member: _StagedSession, limit: int) -> int:
    indexed = message_search.indexed_to(tx)
    found = _SOME_MESSAGES.all(tx, session=member.session, limit=limit)
    for message in found:
        blob_store.release(tx, message.id)
        if message.key <= indexed:
            message_search.unindex(tx, message, member.owner)
        tx.run("drop_messages", window=message.window, low=message.position, high=message.position + 1)
    if found:
        tx.run("lower_indexed")
    return len(found)


def _drop_segments(tx: Transaction, session: SessionId, limit: int) -> int:
    found = _SOME_SEGMENTS.all(tx, session=session, limit=limit)
    for segment in found:
        tx.run("drop_segment", window=segment.window, start=segment.start)
    return len(found)
