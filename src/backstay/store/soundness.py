"""Soundness: whether what is in a database could have been written by Backstay. The same questions on every engine."""

from collections.abc import Iterator

from backstay.errors import BackstayError
from backstay.model.ids import SessionId
from backstay.model.inspection import inspect
from backstay.model.limits import Limits
from backstay.model.upkeep import Finding, Tell
from backstay.store.door import Door
from backstay.store.engine import Transaction
from backstay.store.verbs import exporting, search

_SHOWN = 5
_PAGE = 200
_FAR_BEHIND = 1_000
RESTORE = "Restore a backup, or save what is readable with `backstay doctor --rescue DIR`."

_INVARIANTS = {
    "events_with_a_gap": "the events are not numbered without a gap in",
    "sessions_without_a_story": "there is no event in",
    "two_running_turns": "two turns run at once in",
    "running_turns_unknown_to_the_door": "a turn runs that the session does not know of, in",
    "doors_that_know_no_running_turn": "the session says that a turn runs, and none does, in",
    "miscounted_queues": "the waiting turns are miscounted in",
    "miscounted_windows": "the messages are miscounted in",
    "sessions_without_their_window": "the current window is missing in",
    "addresses_of_deleted_sessions": "an address leads to a deleted session:",
    "turns_of_deleted_sessions": "turns are left of a deleted session:",
    "blobs_kept_for_nobody": "attachments are kept for what is not there:",
}
# A store that was made with other limits than ours holds more, and is sound.
ANYTHING_GOES = Limits(**(dict.fromkeys(Limits.__struct_fields__, 1 << 50) | {"json_depth": 10_000}))


def examine(tx: Transaction, *, quick: bool, tell: Tell) -> Iterator[Finding]:
    """Everything that can be asked of the data itself, on one snapshot."""
    yield from _invariants(tx, tell)
    yield from _leases(tx)
    yield from _index(tx)
    yield from _move(tx)
    if not quick:
        yield from _sessions(tx, tell)


def _invariants(tx: Transaction, tell: Tell) -> Iterator[Finding]:
    sound = True
    for done, (query, sentence) in enumerate(_INVARIANTS.items(), 1):
        culprits = sorted({str(row[0]) for row in tx.all(query)})
        if culprits:
            sound = False
            yield Finding(about="invariants", level="wrong", said=f"{sentence} {_named(culprits)}", advice=RESTORE)
        tell("invariants", done, len(_INVARIANTS))
    if sound:
        yield Finding(about="invariants", level="fine", said="events without gaps, one running turn, counts right")


def _leases(tx: Transaction) -> Iterator[Finding]:
    """Who speaks, and whether they are still there."""
    alive = dead = 0
    after = ""
    while rows := tx.all("running_sessions", after=after, limit=_PAGE):
        for row in rows:
            lease = Door(*row).lease()
            gone = lease is not None and tx.lapsed(lease)
            alive, dead = alive + (not gone), dead + gone
        after = rows[-1][0]
    if dead:
        yield Finding(
            about="leases",
            level="wrong",
            said=f"{_turns(dead)} held by a process that is gone; {alive} by living ones",
            advice="Whoever looks at such a session ends its turn as interrupted; --fix does so now.",
            mend="reap",
        )
    else:
        said = f"{_turns(alive)} running, held by living processes" if alive else "no turn is running"
        yield Finding(about="leases", level="fine", said=said)


def _turns(count: int) -> str:
    return f"{count} turn" + ("" if count == 1 else "s")


def _index(tx: Transaction) -> Iterator[Finding]:
    if tx.all("index_beyond_the_messages"):
        yield Finding(
            about="search index",
            level="wrong",
            said="it believes to have read messages that are not there",
            advice="It is made of the messages and can always be made anew: --fix does so.",
            mend="rebuild-index",
        )
        return
    lag = search.lag(tx)
    behind = f"{lag:,} message{'s' * (lag != 1)} behind" if lag else "up to date"
    if lag > _FAR_BEHIND:
        yield Finding(
            about="search index",
            level="note",
            said=behind,
            advice="A search finds what was said before that; --fix brings it up to date.",
            mend="index",
        )
    else:
        yield Finding(about="search index", level="fine", said=behind)


def _move(tx: Transaction) -> Iterator[Finding]:
    row = tx.one("last_move")
    if row is None or row[0] == "arrived":
        return
    state, place = row
    said = f"this store was moved to {place}" if state == "left" else f"a move to {place} is not finished"
    yield Finding(
        about="move",
        level="wrong" if state == "leaving" else "note",
        said=f"{said}; here it takes no writes",
        advice=f"Use --db {place}." if state == "left" else "Run `backstay move` again, or call it off.",
    )


def _sessions(tx: Transaction, tell: Tell) -> Iterator[Finding]:
    """Each session as a document that any store would take."""
    row = tx.one("count_sessions")
    total, done, unsound, after = (row[0] if row else 0), 0, 0, ""
    while rows := tx.all("living_sessions", after=after, limit=_PAGE):
        for session, owner in rows:
            problem = _problem(tx, session, owner)
            if problem is not None:
                unsound += 1
                yield Finding(about="sessions", level="wrong", said=f"{session}: {problem}", advice=RESTORE)
            done += 1
            tell("sessions", done, total)
        after = rows[-1][0]
    if not unsound:
        yield Finding(about="sessions", level="fine", said=f"{done:,} read and found sound")


def _problem(tx: Transaction, session: SessionId, owner: str) -> str | None:
    try:
        inspect(exporting.export(tx, session, owner), ANYTHING_GOES)
    except BackstayError as error:
        return str(error.args[0])
    return None


def _named(culprits: list[str]) -> str:
    more = f" and {len(culprits) - _SHOWN} more" if len(culprits) > _SHOWN else ""
    return ", ".join(culprits[:_SHOWN]) + more
