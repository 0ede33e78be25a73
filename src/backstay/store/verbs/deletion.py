"""Deletion: the only way in which what was said goes away, and it says what went."""

from collections.abc import Iterable

from backstay.errors import CorruptRecord
from backstay.model.ids import SessionId, WindowId
from backstay.model.session import Deleted
from backstay.store.door import find
from backstay.store.engine import Transaction
from backstay.store.verbs import blobs, events, search, windows
from backstay.store.verbs.windows import END, Needed, Stretch


def delete(tx: Transaction, session: SessionId, owner: str, expect_revision: int | None = None) -> Deleted:
    """Remove a session and all it said, except what a surviving fork still reads."""
    find(tx, session, owner).require_revision(expect_revision)
    turns = [row[0] for row in tx.all("turn_ids", session=session)]
    dropped_blobs = sum(blobs.release(tx, turn) for turn in turns)
    for turn in turns:
        tx.run("drop_calls", turn=turn)
    gone = bury(tx, session)
    tx.run("drop_turns", session=session)
    tx.run("drop_marks", session=session)
    tx.run("drop_addresses", session=session)
    dead, alive = _family(tx, session)
    own = [row[0] for member in dead for row in tx.all("windows_of", session=member)]
    needed = Needed(tx, set(own), alive)
    messages, kept, more_blobs = _drop_messages(tx, owner, own, needed)
    removed = _drop_windows(tx, own, needed)
    tx.run("lower_indexed")
    return Deleted(
        messages=messages,
        turns=len(turns),
        events=gone,
        windows=removed,
        blobs=dropped_blobs + more_blobs,
        kept_messages=kept,
    )


def bury(tx: Transaction, session: SessionId) -> int:
    """Leave a tombstone and drop the rest of the story; how many events went."""
    row = tx.one("bury_session", session=session, now=tx.now)
    if row is None:
        raise CorruptRecord(session, "is missing")
    events.bury(tx, session, row[0], row[1])
    return tx.run("drop_all_events", session=session, number=row[0])


def _family(tx: Transaction, session: SessionId) -> tuple[list[SessionId], list[SessionId]]:
    """This session and all it shares messages with by forks: those deleted, this one included, and those alive.

    What an earlier deletion left for a fork goes with the last fork that read it.
    """
    rows = tx.all("whole_family", session=session)
    dead = [row[0] for row in rows if row[1] == "deleted" or row[0] == session]
    return dead, [row[0] for row in rows if row[0] not in dead]


def _drop_messages(tx: Transaction, owner: str, own: Iterable[WindowId], needed: Needed) -> tuple[int, int, int]:
    """Drop what nobody needs; how many messages went and stayed, and how many blobs went."""
    indexed = search.indexed_to(tx)
    gone = kept = dropped = 0
    for window in own:
        for low, high in _gaps(needed.sources.get(window, [])):
            for row in tx.all("messages_between", window=window, low=low, high=high):
                dropped += blobs.release(tx, row[2])
                if row[0] <= indexed:
                    search.unindex(tx, row, owner)
            gone += tx.run("drop_messages", window=window, low=low, high=high)
        count = tx.one("count_messages", window=window)
        kept += count[0] if count else 0
    return gone, kept, dropped


def _gaps(parts: Iterable[Stretch]) -> list[tuple[int, int]]:
    """The ranges of positions that none of these parts covers."""
    gaps, low = [], 0
    for part in sorted(parts, key=lambda part: part.low):
        if part.low > low:
            gaps.append((low, part.low))
        low = max(low, part.high)
    return [*gaps, (low, END)] if low < END else gaps


def _drop_windows(tx: Transaction, own: Iterable[WindowId], needed: Needed) -> int:
    """Drop the windows that nobody reads; those where needed messages lie stay as mere places."""
    for window in own:
        kept = windows.own_stretches(tx, window, needed.read.get(window, 0))
        tx.run("drop_segments", window=window)
        if window in needed.read:
            for part in kept:
                windows.add_segment(tx, window, part)
        else:
            tx.run("uproot_window", window=window)
    going = [window for window in own if window not in needed.read and window not in needed.sources]
    return sum(tx.run("drop_window", window=window) for window in going)
