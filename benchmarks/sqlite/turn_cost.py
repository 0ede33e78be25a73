"""The cost of one turn: syncs, and processor time against raw apsw executing the same statements."""

from collections.abc import Iterator
from pathlib import Path
from tempfile import mkdtemp

from backstay import open_store
from backstay.model.ids import SessionId
from benchmarks.instruments.figure import Figure
from benchmarks.instruments.raw_sqlite import Raw, Statement, recording
from benchmarks.instruments.sample_turns import OWNER, Turn, recorded, run_turns, streamed, streamed_with_tool
from benchmarks.instruments.scratch_folders import copy, in_memory
from benchmarks.instruments.sqlite_counters import counted
from benchmarks.instruments.stopwatch import Comparison, as_a_server_would, compare
from benchmarks.sqlite import concurrent_clients

CLIENTS = 64
_COUNTED, _MANY = 10, 400


def figures() -> Iterator[Figure]:
    """Syncs and processor time of recorded and streamed turns, of one client and of many."""
    with in_memory() as folder:
        yield from _syncs(folder)
        yield from _processor(folder)
        yield from _many_clients(folder)


def _syncs(folder: Path) -> Iterator[Figure]:
    yield _sync_figure(folder, "syncs per recorded turn", recorded, 1)
    yield _sync_figure(folder, "syncs per streamed turn, 3 deltas", streamed, 2)
    yield _sync_figure(folder, "syncs per streamed turn with a tool call", streamed_with_tool, 4)
    yield _all_syncs(folder)


def _all_syncs(folder: Path) -> Figure:
    """The same over many turns, including the syncs of copying the log into the file."""
    with counted() as counters, open_store(folder / "all-syncs.db") as store:
        session = store.create(owner=OWNER).id
        before = counters.copy()
        run_turns(store, session, _MANY)
        seen = counters.since(before)
    detail = f"{seen.log_syncs} of the log and {seen.file_syncs} of the file for {_MANY} turns"
    return Figure(name="the recorded turn, log copied back", value=seen.syncs / _MANY, unit="", detail=detail)


def _sync_figure(folder: Path, name: str, turn: Turn, limit: int) -> Figure:
    """Counts between two checkpoints of the log, whose own syncs are not counted."""
    with counted() as counters, open_store(folder / f"syncs-{turn.__name__}.db") as store:
        session = store.create(owner=OWNER).id
        run_turns(store, session, 2, turn)
        before = counters.copy()
        run_turns(store, session, _COUNTED, turn)
        seen = counters.since(before)
    detail = (
        f"{seen.syncs} syncs of {_COUNTED} turns; {seen.statements / _COUNTED:g} statements,"
        f" {seen.steps / _COUNTED:,.0f} steps, {seen.log_bytes / _COUNTED / 1024:.1f} KiB of log each"
    )
    return Figure(name=name, value=seen.syncs / _COUNTED, unit="", limit=limit, exactly=True, detail=detail)


def _processor(folder: Path) -> Iterator[Figure]:
    one = as_a_server_would(lambda: _against_raw(folder, recorded, rounds=80, block=50))
    yield Figure(name="processor time per recorded turn", value=one.ratio, limit=2.5, detail=one.detail())
    one = _against_raw(folder, recorded, rounds=40, block=50)
    yield Figure(name="the same from the main thread", value=one.ratio, limit=2.5, detail=one.detail())
    one = as_a_server_would(lambda: _against_raw(folder, streamed, rounds=40, block=15))
    yield Figure(name="processor time per streamed turn", value=one.ratio, detail=one.detail())


def _against_raw(folder: Path, turn: Turn, *, rounds: int, block: int) -> Comparison:
    """The turn against the playback of its own statements, on two copies of one database."""
    folder = Path(mkdtemp(dir=folder))
    base = folder / "base.db"
    session = _prepared(base)
    raw = Raw(copy(base, folder / "raw.db"))
    ours = open_store(copy(base, folder / "ours.db"))
    setup, blocks = _tape(base, session, turn, rounds, block)
    raw.prepare(setup)
    turn(ours, session)
    tapes = iter(blocks)
    try:
        return compare(
            lambda: run_turns(ours, session, block, turn), lambda: raw.play(next(tapes)), rounds=rounds, units=block
        )
    finally:
        raw.close()
        ours.close()


def _prepared(path: Path) -> SessionId:
    """A database with one session and some history."""
    with open_store(path) as store:
        session = store.create(owner=OWNER).id
        run_turns(store, session, 50)
    return session


def _tape(
    path: Path, session: SessionId, turn: Turn, rounds: int, block: int
) -> tuple[list[Statement], list[list[Statement]]]:
    """The statements of the store for its first turn with its connection, then for each block of turns."""
    blocks = []
    with recording() as tape, open_store(path) as store:
        tape.take()
        turn(store, session)
        setup = tape.take()
        for _ in range(rounds):
            run_turns(store, session, block, turn)
            blocks.append(tape.take())
    return setup, blocks


def _many_clients(folder: Path) -> Iterator[Figure]:
    turns = 20
    with counted() as counters, open_store(folder / "clients-syncs.db") as store:
        clients = concurrent_clients.sessions(store, CLIENTS)
        before = counters.copy()
        concurrent_clients.record_turns(store, clients, turns)
        seen = counters.since(before)
    total = CLIENTS * turns
    detail = f"{seen.log_syncs} of the log and {seen.file_syncs} of the file for {total:,} turns"
    yield Figure(name=f"syncs per turn, {CLIENTS} clients", value=seen.syncs / total, unit="", limit=0.1, detail=detail)
    with open_store(folder / "clients.db") as store:
        clients = concurrent_clients.sessions(store, CLIENTS)
        concurrent_clients.record_turns(store, clients, 2)
        both = compare(
            lambda: concurrent_clients.record_turns(store, clients, turns),
            lambda: concurrent_clients.record_turns(store, clients[:1], total),
            rounds=6,
            units=total,
        )
    detail = both.detail(f"{CLIENTS} clients", "one client")
    yield Figure(name=f"processor time per turn, {CLIENTS} clients", value=both.ratio, limit=1.3, detail=detail)
