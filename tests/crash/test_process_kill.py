"""A process dies at any of its writes: acknowledged writes are kept, and the store is consistent."""

from collections.abc import Iterator, Sequence
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any, NamedTuple

from backstay.model.content import Text
from backstay.model.event import TurnEnded
from backstay.model.message import user
from backstay.model.turn import Interrupted
from backstay.store.sqlite.migrations import SqliteMigration, shipped
from tests.crash.oracle import Recording, record
from tests.crash.sql_audit import audit
from tests.crash.worker_processes import PATIENCE, PROCESSES, WorkerProcesses, die
from tests.crash.workload import LAST_WORDS, ME, Opener, StoreHistory, a_day, a_random_day, address, history_of
from tests.effort import stride
from tests.open_sqlite import open_sqlite
from tests.simulated_disk import CHANGES, Counts, Disk, Trap

AT_ONCE = 4
MORE = "CREATE TABLE more (text TEXT); INSERT INTO more SELECT hex(zeroblob(9000)) FROM sessions;"
NEWER = (*shipped(), SqliteMigration(shipped()[-1].number + 1, "more.sql", MORE))
NEVER = 1 << 40


def test_a_process_killed_at_any_write_leaves_acknowledged_verbs_and_no_half_one(
    tmp_path: Path, auditor: WorkerProcesses
) -> None:
    played = record(a_day, tmp_path)
    last = writes(played)

    for death in deaths(tmp_path, range(1, last + 1, stride(last))):
        assert read_twice(death, auditor) in played.allowed(death.acknowledged), f"killed at write {death.number}"


def test_a_process_killed_on_any_day_leaves_every_acknowledged_verb_and_no_half_one(
    tmp_path: Path, auditor: WorkerProcesses, rounds: int
) -> None:
    for seed in range(rounds):
        played = record(a_random_day(seed), tmp_path / f"day-{seed}")
        last = writes(played)

        for death in deaths(tmp_path / f"day-{seed}", range(1 + seed % 50, last, last // 12), seed):
            assert read_twice(death, auditor) in played.allowed(death.acknowledged), f"{seed=} write {death.number}"


def test_a_process_killed_at_any_write_of_a_migration_leaves_the_old_or_new_schema(
    tmp_path: Path, auditor: WorkerProcesses
) -> None:
    with Disk(counts := Counts()) as disk:
        an_old_store(tmp_path / "counted" / "store.db")
        open_sqlite(tmp_path / "counted" / "store.db", disk=disk, steps=NEWER).close()

    for number in range(1, counts.changes + 1):
        path = tmp_path / f"migration-{number}" / "store.db"
        an_old_store(path)
        process = PROCESSES.Process(target=migrate_and_die, args=(path, number))
        process.start()
        process.join(PATIENCE)
        assert process.exitcode == -9
        with open_sqlite(path, steps=NEWER) as store:
            (session,) = store.list(owner=ME).sessions
            assert store.messages(session.id, owner=ME).messages[0].text == "kept"
        assert auditor.all(audit, path) == [[]]


def test_concurrent_readers_interrupt_the_turn_of_a_dead_process_once(tmp_path: Path) -> None:
    (death,) = deaths(tmp_path, [NEVER])

    with WorkerProcesses(4) as workers:
        first, *others = workers.all(look, death.path)

    assert others == [first, first, first]
    with open_sqlite(death.path) as store:
        (fork,) = store.list(owner=ME).sessions
        events = store.events_after(fork.id, owner=ME).events
        last = store.messages(fork.id, owner=ME).messages[-1]
    endings = [event.body for event in events if isinstance(event.body, TurnEnded)]
    assert [isinstance(ending.outcome, Interrupted) for ending in endings] == [False, True]
    assert (last.parts, last.partial) == ((Text(LAST_WORDS),), True)


# --- dying ----------------------------------------------------------------------------------------------------------


class Death(NamedTuple):
    """A process that was killed just before its n-th write, and its acknowledgements until then."""

    number: int
    path: Path
    acknowledged: int


def writes(played: Recording) -> int:
    """How often the workload changed the disk."""
    return sum(isinstance(step, CHANGES) for step in played.steps)


def deaths(folder: Path, numbers: Sequence[int], seed: int | None = None) -> Iterator[Death]:
    """Run it in a new process for each of these writes, and kill the process there; a few at a time."""
    for first in range(0, len(numbers), AT_ONCE):
        begun = [_begin(folder / f"death-{number}", number, seed) for number in numbers[first : first + AT_ONCE]]
        for number, (process, pipe) in zip(numbers[first:], begun, strict=False):
            acknowledged = _listen(pipe)
            process.join(PATIENCE)
            assert process.exitcode == -9
            process.close()
            yield Death(number, folder / f"death-{number}" / "store.db", acknowledged)


def _begin(folder: Path, number: int, seed: int | None) -> "tuple[ForkServerProcess, Connection[Any, Any]]":
    ours, theirs = PROCESSES.Pipe(duplex=False)
    process = PROCESSES.Process(target=_play_and_die, args=(folder / "store.db", number, seed, theirs))
    process.start()
    theirs.close()
    return process, ours


def _play_and_die(path: Path, number: int, seed: int | None, pipe: "Connection[Any, Any]") -> None:
    play = a_day if seed is None else a_random_day(seed)
    with Disk(Trap(number, die)) as disk:
        for _ in play(Opener(path, disk)):
            pipe.send_bytes(b"acknowledged")
        die()


def _listen(pipe: "Connection[Any, Any]") -> int:
    heard = 0
    with pipe:
        while True:
            assert pipe.poll(PATIENCE), "it neither lives nor dies"
            try:
                pipe.recv_bytes()
            except EOFError:
                return heard
            heard += 1


def an_old_store(path: Path) -> None:
    """A store that was made before there was a second migration."""
    with open_sqlite(path) as store:
        store.record(address("kitchen"), [user("kept")], owner=ME)


def migrate_and_die(path: Path, number: int) -> None:
    """Open it with the newer version, as far as its n-th write."""
    with Disk(Trap(number, die)) as disk:
        open_sqlite(path, disk=disk, steps=NEWER).close()
    die()


# --- reading --------------------------------------------------------------------------------------------------------


def read_twice(death: Death, auditor: WorkerProcesses) -> StoreHistory:
    """The history after a death, the same in the first and in the second read; the file is sound."""
    with open_sqlite(death.path) as store:
        first = history_of(store)
    with open_sqlite(death.path) as store:
        again = history_of(store)
    assert first == again
    assert auditor.all(audit, death.path) == [[]]
    return first


def look(_: int, path: Path) -> StoreHistory:
    """The history that this process reads."""
    with open_sqlite(path) as store:
        return history_of(store)
