"""What one turn costs: syncs, and processor time against raw apsw executing the same statements."""

from collections.abc import Iterator
from pathlib import Path
from tempfile import mkdtemp

from backstay import open_store
from backstay.model.ids import SessionId
from benchmarks import crowd
from benchmarks.census import counted
from benchmarks.figure import Figure
from benchmarks.raw import Raw, Statement, recording
from benchmarks.scratch import copy, in_memory
from benchmarks.speech import OWNER, Turn, recorded, streamed, streamed_with_tool, talk
from benchmarks.stopwatch import Comparison, as_a_server_would, compare

CLIENTS = 64
_COUNTED, _MANY = 10, 400


def figures() -> Iterator[Figure]:
    """Syncs and processor time of recorded and streamed turns, alone and in a crowd."""
    with in_memory() as room:
        yield from _syncs(room)
        yield from _processor(room)
        yield from _crowd(room)


def _syncs(room: Path) -> Iterator[Figure]:
    yield _sync_figure(room, "syncs per recorded turn", recorded, 1)
    yield _sync_figure(room, "syncs per streamed turn, 3 deltas", streamed, 2)
    yield _sync_figure(room, "syncs per streamed turn with a tool call", streamed_with_tool, 4)
    yield _all_syncs(room)


def _all_syncs(room: Path) -> Figure:
    """The same over many turns, with what copying the log back into the file adds."""
    with counted() as census, open_store(room / "all-syncs.db") as store:
        session = store.create(owner=OWNER).id
        before = census.copy()
        talk(store, session, _MANY)
        seen = census.since(before)
    detail = f"{seen.log_syncs} of the log and {seen.file_syncs} of the file for {_MANY} turns"
    return Figure(name="the recorded turn, log copied back", value=seen.syncs / _MANY, unit="", detail=detail)


def _sync_figure(room: Path, name: str, turn: Turn, limit: int) -> Figure:
    """Counts between two checkpoints of the log, whose own syncs belong to no turn."""
    with counted() as census, open_store(room / f"syncs-{turn.__name__}.db") as store:
        session = store.create(owner=OWNER).id
        talk(store, session, 2, turn)
        before = census.copy()
        talk(store, session, _COUNTED, turn)
        seen = census.since(before)
    detail = (
        f"{seen.syncs} syncs of {_COUNTED} turns; {seen.statements / _COUNTED:g} statements,"
        f" {seen.steps / _COUNTED:,.0f} steps, {seen.log_bytes / _COUNTED / 1024:.1f} KiB of log each"
    )
    return Figure(name=name, value=seen.syncs / _COUNTED, unit="", limit=limit, exactly=True, detail=detail)


def _processor(room: Path) -> Iterator[Figure]:
    one = as_a_server_would(lambda: _against_raw(room, recorded, rounds=80, block=50))
    yield Figure(name="processor time per recorded turn", value=one.ratio, limit=2.5, detail=one.detail())
    one = _against_raw(room, recorded, rounds=40, block=50)
    yield Figure(name="the same from the main thread", value=one.ratio, limit=2.5, detail=one.detail())
    one = as_a_server_would(lambda: _against_raw(room, streamed, rounds=40, block=15))
    yield Figure(name="processor time per streamed turn", value=one.ratio, detail=one.detail())


def _against_raw(room: Path, turn: Turn, *, rounds: int, block: int) -> Comparison:
    """The turn against the playback of its own statements, on two copies of one database."""
    room = Path(mkdtemp(dir=room))
    base = room / "base.db"
    session = _ground(base)
    raw = Raw(copy(base, room / "raw.db"))
    ours = open_store(copy(base, room / "ours.db"))
    setup, blocks = _tape(base, session, turn, rounds, block)
    raw.prepare(setup)
    turn(ours, session)
    tapes = iter(blocks)
    try:
        return compare(
            lambda: talk(ours, session, block, turn), lambda: raw.play(next(tapes)), rounds=rounds, units=block
        )
    finally:
        raw.close()
        ours.close()


def _ground(path: Path) -> SessionId:
    """A database with one session and some history."""
    with open_store(path) as store:
        session = store.create(owner=OWNER).id
        talk(store, session, 50)
    return session


def _tape(
    path: Path, session: SessionId, turn: Turn, rounds: int, block: int
) -> tuple[list[Statement], list[list[Statement]]]:
    """What the store executes for its first turn, connection included, then for each block of turns."""
    blocks = []
    with recording() as tape, open_store(path) as store:
        tape.take()
        turn(store, session)
        setup = tape.take()
        for _ in range(rounds):
            talk(store, session, block, turn)
            blocks.append(tape.take())
    return setup, blocks


def _crowd(room: Path) -> Iterator[Figure]:
    turns = 20
    with counted() as census, open_store(room / "crowd-syncs.db") as store:
        clients = crowd.sessions(store, CLIENTS)
        before = census.copy()
        crowd.talk(store, clients, turns)
        seen = census.since(before)
    total = CLIENTS * turns
    detail = f"{seen.log_syncs} of the log and {seen.file_syncs} of the file for {total:,} turns"
    yield Figure(name=f"syncs per turn, {CLIENTS} clients", value=seen.syncs / total, unit="", limit=0.1, detail=detail)
    with open_store(room / "crowd.db") as store:
        clients = crowd.sessions(store, CLIENTS)
        crowd.talk(store, clients, 2)
        both = compare(
            lambda: crowd.talk(store, clients, turns),
            lambda: crowd.talk(store, clients[:1], total),
            rounds=6,
            units=total,
        )
    detail = both.detail(f"{CLIENTS} clients", "one client")
    yield Figure(name=f"processor time per turn, {CLIENTS} clients", value=both.ratio, limit=1.3, detail=detail)
