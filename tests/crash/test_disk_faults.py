"""The disk fails at any step: a verb is stored or rejected, never half, and a rejected one can be repeated."""

import shutil
from collections.abc import Callable, Collection, Iterator, Sequence
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import pytest

from backstay import Store, Text, ToolCall
from backstay.errors import StoreError, StoreUnavailable
from backstay.model import message as m
from backstay.model.limits import Limits
from backstay.model.turn import Completed
from backstay.store.engine import Transaction
from backstay.store.sqlite.engine import SqliteEngine
from backstay.testing.manual_clock import ManualClock
from tests.crash.disk_images import Platter, nothing
from tests.crash.oracle import history_in, record
from tests.crash.sql_audit import audit
from tests.crash.worker_processes import WorkerProcesses
from tests.crash.workload import ME, Acknowledged, Open, Opener, StoreHistory, address, history_of, started
from tests.effort import THOROUGH
from tests.open_sqlite import open_sqlite
from tests.simulated_disk import CHANGES, Disk, Fault, Mark, Read, Recorded, Step, Sync, Tape
from tests.touching import touch

T = TypeVar("T")

# A fault in a close, or in the clean-up after a fault, has no caller to report to.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")

# `make test` lets every fifth step fail, `make crash` each.
APART = 1 if THOROUGH else 5
KINDS: dict[str, Collection[type[Step]]] = {"changes": CHANGES, "reads": (Read,)}


@pytest.mark.parametrize("lasting", [False, True])
@pytest.mark.parametrize("kinds", KINDS)
def test_a_fault_at_any_step_rejects_or_keeps_a_verb_and_it_can_be_repeated(
    tmp_path: Path, auditor: WorkerProcesses, kinds: str, lasting: bool
) -> None:
    played = record(a_short_day, tmp_path)
    refusals = 0
    for number in count(1, APART):
        run = suffer(tmp_path / f"{number}", KINDS[kinds], number, lasting=lasting)
        if not run.struck:
            break
        refusals += run.refusals
        assert run.history == played.histories[-1], f"fault at step {number}"
        assert auditor.all(audit, tmp_path / f"{number}" / "store.db") == [[]]
        shutil.rmtree(tmp_path / f"{number}")
        for verbs, then in run.after_power_loss:
            assert then in played.allowed(verbs, power_lost=True), f"fault at step {number}, power lost after {verbs}"
    assert refusals > 5 // APART


@pytest.mark.parametrize("readers", [0, 1])
@pytest.mark.parametrize("lasting", [False, True])
def test_a_write_acknowledged_after_a_failed_sync_does_not_need_its_lost_pages(
    tmp_path: Path, lasting: bool, readers: int
) -> None:
    played = record(a_short_day, tmp_path)
    number, struck = 0, True
    while struck:
        number += 1
        run = suffer(tmp_path / f"{number}", (Sync,), number, lasting=lasting, forgetful=True, readers=readers)
        struck = run.struck
        for verbs, then in run.after_power_loss:
            assert then in played.allowed(verbs, power_lost=True), f"sync {number} failed, power lost after {verbs}"
    assert number > 5


@pytest.mark.parametrize("kinds", KINDS)
def test_a_fault_at_any_step_of_the_first_opening_is_named_and_a_later_one_succeeds(tmp_path: Path, kinds: str) -> None:
    refusals = 0
    for number in count(1, APART):
        fault = Fault(KINDS[kinds])
        with Disk(fault) as disk:
            fault.arm(number, lasting=True)
            refusals += refuses_to_open(tmp_path / f"{number}" / "store.db", disk)
            struck = bool(fault.struck)
            fault.heal()
            with open_sqlite(tmp_path / f"{number}" / "store.db", disk=disk) as store:
                assert store.list(owner=ME).sessions == ()
                store.create(owner=ME)
        shutil.rmtree(tmp_path / f"{number}")
        if not struck:
            break
    assert refusals > 5 // APART


def refuses_to_open(path: Path, disk: Disk) -> bool:
    try:
        open_sqlite(path, disk=disk).close()
    except StoreError:
        return True
    return False


def test_reads_go_on_while_every_write_fails(tmp_path: Path) -> None:
    fault = Fault()
    with Disk(fault) as disk, open_sqlite(tmp_path / "store.db", disk=disk) as store:
        session = store.record(address("kitchen"), [m.user("hello")], owner=ME).session.id
        fault.arm(1, lasting=True)

        for _ in range(3):
            with pytest.raises(StoreUnavailable):
                touch(store, session, owner=ME)
            assert store.messages(session, owner=ME).messages[0].text == "hello"

        fault.heal()
        assert touch(store, session, owner=ME).activity == 2


def test_a_durable_verb_is_never_acknowledged_while_no_sync_succeeds(tmp_path: Path) -> None:
    fault = Fault((Sync,))
    with Disk(fault) as disk, open_sqlite(tmp_path / "store.db", disk=disk) as store:
        session = store.create(owner=ME).id
        fault.arm(1, lasting=True)

        for _ in range(3):
            with pytest.raises(StoreUnavailable):
                touch(store, session, owner=ME)

        fault.heal()
        assert touch(store, session, owner=ME).activity == 1


# --- faults ---------------------------------------------------------------------------------------------------------


def a_short_day(open_it: Open) -> Iterator[Acknowledged]:
    """A turn with a tool, an undo and a fork."""
    store = open_it()
    kitchen = store.resolve(address("kitchen"), owner=ME).session.id
    yield Acknowledged("resolve")
    turn = started(store, kitchen, "what is there to eat?")
    yield Acknowledged("submit")
    turn = store.checkpoint(turn, [Text("let me look")]).open
    yield Acknowledged("checkpoint", durable=False)
    turn = store.checkpoint(turn, [ToolCall("c1", "look", {})]).open
    yield Acknowledged("tool call")
    store.finish(turn, Completed(), bodies=[Text("milk")])
    yield Acknowledged("finish")
    store.record(kitchen, [m.user("and to drink?"), m.assistant("milk " * 2000)], owner=ME)
    yield Acknowledged("record")
    store.undo(kitchen, owner=ME)
    yield Acknowledged("undo")
    fork = store.fork(kitchen, owner=ME).id
    yield Acknowledged("fork")
    store.rename(fork, "the fork", owner=ME)
    yield Acknowledged("rename")


class Suffered(NamedTuple):
    """The result of the workload on a disk that failed at one step, or from one step on until it was repaired.

    `after_power_loss` is the history after a power loss right after this number of verbs.
    """

    struck: bool
    refusals: int
    history: StoreHistory
    after_power_loss: list[tuple[int, StoreHistory]]


def suffer(
    folder: Path,
    kinds: Collection[type[Step]],
    number: int,
    *,
    lasting: bool,
    forgetful: bool = False,
    readers: int = 0,
) -> Suffered:
    """Run the short workload; the fault occurs at the n-th step after the store was opened and used once.

    A forgetful disk loses the writes of a failed sync, even if a later sync succeeds.
    """
    tape, marks = Tape(), []
    fault = Fault(kinds, tape if forgetful else None)
    with Disk(fault, tape) as disk:
        open_it = Stubborn(folder / "store.db", disk, fault)
        for verbs, _ in enumerate(a_short_day(open_it), 1):
            tape.mark(verbs)
            if verbs == 1:
                open_it.look(readers)
                fault.arm(number, lasting=lasting)
            elif fault.struck:
                marks.append(verbs)
        fault.heal()
        steps = tuple(tape.steps)
        open_it.close()
    with open_sqlite(folder / "store.db") as store:
        final = history_of(store)
    lost = list(_after_power_loss(steps, marks if forgetful else marks[:2], folder))
    return Suffered(bool(fault.struck), open_it.refusals, final, lost)


def _after_power_loss(
    steps: Sequence[Recorded], marks: Sequence[int], folder: Path
) -> Iterator[tuple[int, StoreHistory]]:
    platter = Platter()
    for step in steps:
        platter.turn(step)
        if isinstance(step, Mark) and step.number in marks:
            yield step.number, history_in(platter.image(nothing), folder)


class Stubborn(Opener):
    """Opens stores for a caller who repeats a rejected verb: once immediately, then when the disk works again."""

    def __init__(self, path: Path, disk: Disk, fault: Fault) -> None:
        super().__init__(path, disk)
        self._fault = fault
        self.refusals = 0

    def open(self, path: Path, disk: Disk | None) -> Store:
        vfs = None if disk is None else disk.name
        engine = _Stubborn(path, clock=ManualClock(), limits=Limits(), lease_seconds=30, wait_seconds=10, vfs=vfs)
        engine.retry_while_leased = self._checkpoint_while_leased
        return Store(engine)

    def look(self, times: int) -> None:
        """Let the store open a connection that reads; it stays open beside the writer's."""
        for _ in range(times):
            self.opened[-1].list(owner=ME)

    def _checkpoint_while_leased(self, ask: Callable[[], T]) -> T:
        for _ in range(2):
            try:
                return ask()
            except StoreError:
                self.refusals += 1
        self._fault.heal()
        return ask()


class _Stubborn(SqliteEngine):
    retry_while_leased: Callable[[Callable[[], Any]], Any]  # Any: whatever the verb returns

    def write(
        self,
        verb: Callable[[Transaction], T],
        *,
        durable: bool = True,
        exclusive: bool = False,
        read_first: bool = False,
    ) -> T:
        answer: T = self.retry_while_leased(
            lambda: super(_Stubborn, self).write(verb, durable=durable, exclusive=exclusive)
        )
        return answer

    def read(self, verb: Callable[[Transaction], T]) -> T:
        answer: T = self.retry_while_leased(lambda: super(_Stubborn, self).read(verb))
        return answer

    def peek(self, verb: Callable[[Transaction], T]) -> T:
        answer: T = self.retry_while_leased(lambda: super(_Stubborn, self).peek(verb))
        return answer
