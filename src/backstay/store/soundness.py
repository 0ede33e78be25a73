"""Soundness checks: whether Backstay could have written the content of a database. Every engine has the same ones."""

from collections.abc import Iterator
from typing import NamedTuple

from backstay.errors import BackstayError
from backstay.model.documents.inspection import inspect
from backstay.model.documents.records import located
from backstay.model.ids import SessionId
from backstay.model.limits import Limits
from backstay.model.operations.findings import Finding, ProgressCallback
from backstay.store.engine import Transaction
from backstay.store.rows import Rows, value, values
from backstay.store.transfer import exporter
from backstay.store.transfer.draft import DocumentDraft
from backstay.store.verbs import message_search, session_queries
from backstay.store.verbs.store_upkeep import OwnedSession

_SHOWN = 5
_PAGE = 200
_LARGE_LAG = 1_000
RESTORE = "Restore a backup, or save the readable data with `backstay doctor --rescue DIR`."

_INVARIANTS = {
    "events_with_a_gap": "the events are not numbered without a gap in",
    "sessions_without_events": "the event log is empty in",
    "two_running_turns": "two turns run at once in",
    "running_turns_unknown_to_the_session": "a turn runs that is not the session's running turn, in",
    "sessions_without_their_running_turn": "the session has a running turn that does not run, in",
    "miscounted_queues": "the waiting turns are miscounted in",
    "miscounted_holds": "the held turns are miscounted in",
    "miscounted_windows": "the messages are miscounted in",
    "miscounted_text": "the bytes of text are miscounted in",
    "miscounted_totals": "the stored sessions or bytes are miscounted of the owner",
    "sessions_without_their_window": "the current window is missing in",
    "addresses_of_deleted_sessions": "an address leads to a deleted session:",
    "deliveries_of_deleted_sessions": "a deleted session is delivered to a chat:",
    "deliveries_ahead_of_their_session": "a chat got events that do not exist, of",
    "turns_of_deleted_sessions": "turns of a deleted session remain:",
    "schedules_without_their_entry": "the newest entry is missing in the log of",
    "entries_without_a_schedule": "the log remains of a deleted schedule:",
    "blobs_without_a_user": "attachments are used by messages or turns that do not exist:",
}
_LIVING_SESSIONS = Rows("living_sessions", OwnedSession)


class _LastMove(NamedTuple):
    """The state of the last move of this store, and the location of the other end."""

    state: str
    location: str


class _UnfinishedImports(NamedTuple):
    """The number of unfinished imports, and how many of them were given up."""

    unfinished: int
    given_up: int


_LAST_MOVE = Rows("last_move", _LastMove)
_UNFINISHED_IMPORTS = Rows("unfinished_imports", _UnfinishedImports)
# A store that was made with higher limits than ours may hold more, and is sound.
NO_LIMITS = Limits(**(dict.fromkeys(Limits.__struct_fields__, 1 << 50) | {"json_depth": 10_000}))


def examine(tx: Transaction, *, quick: bool, progress: ProgressCallback) -> Iterator[Finding]:
    """All checks of the data itself, on one snapshot. `quick` leaves out those that read every session."""
    yield from _invariants(tx, progress)
    yield from _leases(tx)
    yield from _index(tx)
    yield from _move(tx)
    yield from _imports(tx)
    if not quick:
        yield from _sessions(tx, progress)


def _invariants(tx: Transaction, progress: ProgressCallback) -> Iterator[Finding]:
    sound = True
    for done, (query, sentence) in enumerate(_INVARIANTS.items(), 1):
        violations = sorted({str(found) for found in values(tx, query)})
        if violations:
            sound = False
            yield Finding(about="invariants", level="wrong", detail=f"{sentence} {_named(violations)}", hint=RESTORE)
        progress("invariants", done, len(_INVARIANTS))
    if sound:
        yield Finding(about="invariants", level="fine", detail="event numbers, running turns and counts are consistent")


def _leases(tx: Transaction) -> Iterator[Finding]:
    """The holders of running turns, and whether they are alive."""
    alive = dead = elsewhere = 0
    after = ""
    while rows := session_queries.running_rows(tx, after, _PAGE):
        for row in rows:
            lease = row.lease()
            is_dead = lease is not None and tx.lapsed(lease)
            known = is_dead or lease is None or tx.is_here(lease)
            alive, dead, elsewhere = alive + (known and not is_dead), dead + is_dead, elsewhere + (not known)
        after = rows[-1].id
    if dead:
        # No problem of the store: every kill leaves this, and the next access repairs it.
        yield Finding(
            about="leases",
            level="note",
            detail=f"{_turns(dead)} held by dead processes; {alive} by living ones{_also(elsewhere)}",
            hint="The next access to such a session ends its turn as interrupted; --fix does so now.",
            repair="reap",
        )
    else:
        here = f"{_turns(alive)} running, held by living processes" if alive or elsewhere else "no turn is running"
        yield Finding(about="leases", level="fine", detail=f"{here}{_also(elsewhere)}")


def _also(elsewhere: int) -> str:
    """The turns on other machines: a single read does not show whether their processes are alive."""
    if not elsewhere:
        return ""
    return f"; {_turns(elsewhere)} on other machines, where a dead process is noticed after its lease time"


def _turns(count: int) -> str:
    return f"{count} turn" + ("" if count == 1 else "s")


def _index(tx: Transaction) -> Iterator[Finding]:
    if values(tx, "index_beyond_the_messages"):
        yield Finding(
            about="search index",
            level="wrong",
            detail="it counts messages that do not exist as indexed",
            hint="It can always be rebuilt from the messages: --fix does so.",
            repair="rebuild-index",
        )
        return
    lag = message_search.lag(tx)
    lag_detail = f"{lag:,} message{'s' * (lag != 1)} behind" if lag else "up to date"
    if lag > _LARGE_LAG:
        yield Finding(
            about="search index",
            level="note",
            detail=lag_detail,
            hint="A search does not find these messages yet; --fix brings it up to date.",
            repair="index",
        )
    else:
        yield Finding(about="search index", level="fine", detail=lag_detail)


def _move(tx: Transaction) -> Iterator[Finding]:
    move = _LAST_MOVE.one(tx)
    if move is None or move.state == "arrived":
        return
    state, location = move.state, move.location
    detail = f"this store was moved to {location}" if state == "left" else f"a move to {location} is not finished"
    yield Finding(
        about="move",
        level="wrong" if state == "leaving" else "note",
        detail=f"{detail}; this database rejects writes",
        hint=f"Use --db {location}." if state == "left" else "Run `backstay move` again, or call it off.",
    )


def _imports(tx: Transaction) -> Iterator[Finding]:
    """Sessions that are being imported, and are not visible yet."""
    imports = _UNFINISHED_IMPORTS.one(tx, now=tx.now) or _UnfinishedImports(0, 0)
    going, given_up = imports.unfinished, imports.given_up
    if given_up:
        yield Finding(
            about="imports",
            level="note",
            detail=f"{given_up} not finished and given up; {going - given_up} running",
            hint="The next import removes their rows; so does `backstay retain --apply`, and --fix now.",
            repair="imports",
        )
    elif going:
        yield Finding(about="imports", level="fine", detail=f"{going} running")


def _sessions(tx: Transaction, progress: ProgressCallback) -> Iterator[Finding]:
    """Each session is exported and inspected like a document that is imported."""
    total, done, unsound, after = value(tx, "count_sessions") or 0, 0, 0, ""
    while rows := _LIVING_SESSIONS.all(tx, after=after, limit=_PAGE):
        for row in rows:
            problem = _problem(tx, row.session, row.owner)
            if problem is not None:
                unsound += 1
                yield Finding(about="sessions", level="wrong", detail=f"{row.session}: {problem}", hint=RESTORE)
            done += 1
            progress("sessions", done, total)
        after = rows[-1].session
    if not unsound:
        yield Finding(about="sessions", level="fine", detail=f"{done:,} read, no problem found")


def _problem(tx: Transaction, session: SessionId, owner: str) -> str | None:
    try:
        with DocumentDraft() as draft:
            draft.fill(located(exporter.records(lambda verb: verb(tx), session, owner)))
            inspect(draft, NO_LIMITS)
    except BackstayError as error:
        return str(error.args[0])
    return None


def _named(violations: list[str]) -> str:
    more = f" and {len(violations) - _SHOWN} more" if len(violations) > _SHOWN else ""
    return ", ".join(violations[:_SHOWN]) + more
