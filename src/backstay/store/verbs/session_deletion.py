"""Deletion of a session: the only verb that removes messages. It reports what it removed."""

from collections.abc import Iterable
from typing import NamedTuple

from backstay.errors import CorruptRecord
from backstay.model.ids import SessionId, WindowId
from backstay.model.session import Deleted
from backstay.store.engine import Transaction
from backstay.store.rows import Rows, value, values
from backstay.store.session_row import find
from backstay.store.verbs import blob_store, message_search, owner_totals
from backstay.store.verbs.gateways import deliveries
from backstay.store.verbs.history import window_segments
from backstay.store.verbs.history.window_segments import END, Needed, WindowSegment
from backstay.store.verbs.message_search import IndexedMessage
from backstay.store.verbs.turns import event_log


class _FamilyMember(NamedTuple):
    """A session that shares messages with another one by forks."""

    session: SessionId
    state: str


class _Tombstone(NamedTuple):
    """The number and the fence of the last event of a deleted session."""

    number: int
    fence: int


_FAMILY = Rows("whole_family", _FamilyMember)
_TOMBSTONE_PLACE = Rows("bury_session", _Tombstone)
_MESSAGES_BETWEEN = Rows("messages_between", IndexedMessage)


def delete(tx: Transaction, session: SessionId, owner: str, expect_revision: int | None = None) -> Deleted:
    """Delete a session and its messages, except those that an existing fork reads."""
    session_row = find(tx, session, owner)
    session_row.require_revision(expect_revision)
    turns = values(tx, "turn_ids", session=session)
    dropped_blobs = sum(blob_store.release(tx, turn) for turn in turns)
    for turn in turns:
        tx.run("drop_calls", turn=turn)
    deleted = add_tombstone(tx, session)
    owner_totals.remove_session(tx, owner, session, session_row.text_bytes)
    tx.run("drop_turns", session=session)
    tx.run("drop_marks", session=session)
    tx.run("drop_addresses", session=session)
    deliveries.drop_of_session(tx, session, owner)
    tx.run("drop_push_choice", session=session)
    dead, alive = _family(tx, session)
    own = [window for member in dead for window in values(tx, "windows_of", session=member)]
    needed = Needed(tx, set(own), alive)
    messages, kept, more_blobs = _drop_messages(tx, owner, own, needed)
    removed = _drop_windows(tx, own, needed)
    tx.run("lower_indexed")
    return Deleted(
        messages=messages,
        turns=len(turns),
        events=deleted,
        windows=removed,
        blobs=dropped_blobs + more_blobs,
        kept_messages=kept,
    )


def add_tombstone(tx: Transaction, session: SessionId) -> int:
    """Leave a tombstone and drop the other events. Returns how many were dropped."""
    tombstone = _TOMBSTONE_PLACE.one(tx, session=session, now=tx.now)
    if tombstone is None:
        raise CorruptRecord(session, "is missing")
    # The tombstone comes first, so that the newest key of the feed is never given out again.
    event_log.add_tombstone(tx, session, tombstone.number, tombstone.fence)
    return tx.changed("drop_all_events", session=session, number=tombstone.number)


def _family(tx: Transaction, session: SessionId) -> tuple[list[SessionId], list[SessionId]]:
    """The sessions that share messages by forks: the deleted ones, with this one, and the others.

    Messages that an earlier deletion left for a fork are dropped with the last fork that reads them.
    """
    members = _FAMILY.all(tx, session=session)
    dead = [member.session for member in members if member.state == "deleted" or member.session == session]
    return dead, [member.session for member in members if member.session not in dead]


def _drop_messages(tx: Transaction, owner: str, own: Iterable[WindowId], needed: Needed) -> tuple[int, int, int]:
    """Drop the messages that no session needs. Returns how many were dropped and kept, and dropped blobs."""
    indexed = message_search.indexed_to(tx)
    deleted = kept = dropped = 0
    for window in own:
        for low, high in _gaps(needed.sources.get(window, [])):
            for message in _MESSAGES_BETWEEN.all(tx, window=window, low=low, high=high):
                dropped += blob_store.release(tx, message.id)
                # The index needs the text of a message to forget it, so this comes before the message is dropped.
                if message.key <= indexed:
                    message_search.unindex(tx, message, owner)
            deleted += tx.changed("drop_messages", window=window, low=low, high=high)
        kept += value(tx, "count_messages", window=window)
    return deleted, kept, dropped


def _gaps(parts: Iterable[WindowSegment]) -> list[tuple[int, int]]:
    """The ranges of positions that none of these parts covers."""
    gaps, low = [], 0
    for part in sorted(parts, key=lambda part: part.low):
        if part.low > low:
            gaps.append((low, part.low))
        low = max(low, part.high)
    return [*gaps, (low, END)] if low < END else gaps


def _drop_windows(tx: Transaction, own: Iterable[WindowId], needed: Needed) -> int:
    """Drop the windows that no session reads. Those that hold needed messages stay, without segments."""
    for window in own:
        kept = window_segments.own_segments(tx, window, needed.read.get(window, 0))
        tx.run("drop_segments", window=window)
        if window in needed.read:
            for part in kept:
                window_segments.add_segment(tx, window, part)
        else:
            tx.run("uproot_window", window=window)
    unneeded = [window for window in own if window not in needed.read and window not in needed.sources]
    return sum(tx.changed("drop_window", window=window) for window in unneeded)
