"""The power fails at any moment: acknowledged durable writes are kept, in any state of the disk."""

import random
import shutil
from collections.abc import Callable, Iterable, Iterator
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple, TypeVar

import pytest

from backstay.errors import CorruptRecord, NotFound, StoreError
from backstay.model import message as m
from backstay.model.content import Text, Usage
from backstay.model.event import TailLost
from backstay.model.limits import Limits
from backstay.model.turn import Completed
from backstay.store import Store
from backstay.store.engine import Transaction
from backstay.store.sqlite.engine import SqliteEngine
from backstay.testing.manual_clock import ManualClock
from tests.crash.disk_images import Fate, Image, Platter, lay, nothing, torn
from tests.crash.oracle import Recording, after_a_reboot, record
from tests.crash.sql_audit import audit
from tests.crash.worker_processes import WorkerProcesses
from tests.crash.workload import ME, Acknowledged, Open, Opener, StoreHistory, a_day, a_random_day, history_of, started
from tests.effort import THOROUGH
from tests.open_sqlite import open_sqlite
from tests.simulated_disk import Disk, Link, Mark, Recorded, Sync, Tape

T = TypeVar("T")

# `make test` cuts the power at every third step and around each sync, `make crash` at each step.
APART = 1 if THOROUGH else 3


def test_power_loss_at_any_step_keeps_every_durable_verb(tmp_path: Path, auditor: WorkerProcesses, rounds: int) -> None:
    played = record(a_day, tmp_path)
    ways = range(1 + rounds // 50)

    losses = crash(
        played,
        tmp_path,
        auditor,
        fates=lambda number: (nothing, *(torn(1000 * number + way) for way in ways)),
        when=lambda number, step: number % APART == 0 or around_syncs(number, step),
    )

    assert list(losses) == []


def test_power_loss_on_any_day_keeps_every_durable_verb(tmp_path: Path, auditor: WorkerProcesses, rounds: int) -> None:
    for seed in range(rounds):
        played = record(a_random_day(seed), tmp_path / f"day-{seed}")

        losses = crash(played, tmp_path, auditor, fates=lambda number: (nothing, torn(number)), when=around_syncs)

        assert list(losses) == [], f"{seed=}"


def test_power_loss_while_the_log_is_copied_back_keeps_every_durable_verb(
    tmp_path: Path, auditor: WorkerProcesses
) -> None:
    played = record(many_large_messages, tmp_path)
    assert any(step.file == "store.db" for step in played.steps[1000:] if isinstance(step, Sync))
    sample = random.Random(1).sample(range(len(played.steps)), 20)

    losses = crash(
        played,
        tmp_path,
        auditor,
        fates=lambda number: (nothing, torn(number)),
        when=lambda number, step: number in sample or (around_syncs(number, step) and number > len(played.steps) // 3),
    )

    assert list(losses) == []


@pytest.mark.parametrize("stored", range(5))
def test_output_of_a_living_holder_lost_by_a_power_loss_is_written_again(tmp_path: Path, stored: int) -> None:
    words = [Text(f"word {number} ") for number in range(4)]
    tape, platter = Tape(), Platter()
    with Disk(tape) as disk, open_sqlite(tmp_path / "played" / "store.db", disk=disk) as store:
        turn = started(store, store.create(owner=ME).id, "count")
        for number, word in enumerate(words):
            if number == stored:
                turn = store.checkpoint(turn, [Usage(input_tokens=1)]).open  # It is synced, and all before it.
            turn = store.checkpoint(turn, [word]).open
        for step in tape.steps:
            platter.turn(step)

    # The disk is back with the synced data. The holder has not noticed, and continues to write.
    with open_sqlite(lay(platter.image(nothing), tmp_path / "image")) as store:
        turn = store.checkpoint(turn, [Text("and ")]).open
        finished = store.finish(turn, Completed(), bodies=[Text("done")])

        assert finished.turn.outcome == Completed()
        [answer] = store.messages(turn.session, owner=ME).messages[1:]
        assert (answer.text, answer.partial) == ("word 0 word 1 word 2 word 3 and done", False)
        events = store.events_after(turn.session, owner=ME).events
        lost = [event.number for event in events if event.body == TailLost(rewritten=True)]
        # After the creation, the submission, the start, the words that were synced, and the usage.
        assert lost == [4 + stored if stored < len(words) else 3]


def test_power_loss_while_a_store_is_created_leaves_one_that_opens(
    tmp_path: Path, auditor: WorkerProcesses, rounds: int
) -> None:
    played = record(a_first_opening, tmp_path)
    assert any(isinstance(step, Link) and step.name == "store.db" for step in played.steps), "it was built elsewhere"
    ways = range(10 + rounds)

    losses = crash(
        played, tmp_path, auditor, fates=lambda number: (nothing, *(torn(1000 * number + way) for way in ways))
    )

    assert list(losses) == []


def test_the_harness_finds_a_store_that_syncs_too_seldom(tmp_path: Path, auditor: WorkerProcesses) -> None:
    played = record(a_day, tmp_path, opener=NeverDurable)

    losses = list(crash(played, tmp_path, auditor, fates=lambda number: (nothing,), when=around_syncs))

    assert losses
    assert {loss.complaint for loss in losses} == {"lost"}


def test_the_harness_finds_a_disk_that_lies_about_its_syncs(tmp_path: Path, auditor: WorkerProcesses) -> None:
    honest = record(a_day, tmp_path)
    lying = Recording([step for step in honest.steps if not isinstance(step, Sync)], *honest[1:])

    losses = list(
        crash(lying, tmp_path, auditor, fates=lambda number: (torn(number),), when=lambda number, _: number % 10 == 0)
    )

    assert losses


# --- crashing -------------------------------------------------------------------------------------------------------


class Loss(NamedTuple):
    """A crash that broke a guarantee."""

    number: int
    fate: str
    complaint: str


def crash(
    played: Recording,
    folder: Path,
    auditor: WorkerProcesses,
    *,
    fates: Callable[[int], Iterable[Fate]],
    when: Callable[[int, Recorded], bool] = lambda number, step: True,
) -> Iterator[Loss]:
    """Cut the power before each of these steps, in each of these ways; returns the broken guarantees."""
    judged: set[tuple[object, ...]] = set()
    for number, (verbs, step, platter) in enumerate(played.crashes()):
        for fate in fates(number) if when(number, step) else ():
            image = platter.image(fate)
            case = (verbs, *(sha256(content).digest() for _, content in sorted(image.items())))
            if case in judged:
                continue
            judged.add(case)
            complaint = _judge(image, played.allowed(verbs, power_lost=True), folder, auditor)
            if complaint:
                yield Loss(number, fate.__name__, complaint)


def _judge(image: Image, allowed: Iterable[StoreHistory], folder: Path, auditor: WorkerProcesses) -> str:
    """None, or the guarantee that this image breaks."""
    path = lay(image, folder / "image")
    try:
        with open_sqlite(path, clock=after_a_reboot()) as store:
            found = history_of(store)
        (wrong,) = auditor.all(audit, path)
        return f"corrupt: {wrong}" if wrong else "" if found in allowed else "lost"
    except (CorruptRecord, NotFound) as error:  # Not found: an index names a session that the table has not.
        return f"corrupt: {error}"
    except StoreError as error:
        return f"refused: {error}"
    except AssertionError as error:
        return f"a story that cannot be: {error}"
    finally:
        shutil.rmtree(path.parent)


def around_syncs(_: int, step: Recorded) -> bool:
    """The moments before and after a sync."""
    return isinstance(step, Sync | Mark)


# --- workloads ------------------------------------------------------------------------------------------------------


def a_first_opening(open_it: Open) -> Iterator[Acknowledged]:
    """Nothing but a new store."""
    open_it()
    yield Acknowledged("open")


def many_large_messages(open_it: Open) -> Iterator[Acknowledged]:
    """Enough data that the log is copied back into the file in the middle."""
    store = open_it()
    room = store.create(owner=ME).id
    yield Acknowledged("create")
    for number in range(7):
        store.record(room, [m.user(f"{number}" * 900_000)], owner=ME)
        yield Acknowledged("record")


class NeverDurable(Opener):
    """Opens a store with a bug: it acknowledges everything before it is on the disk."""

    def open(self, path: Path, disk: Disk | None) -> Store:
        vfs = None if disk is None else disk.name
        return Store(
            _NeverDurable(path, clock=ManualClock(), limits=Limits(), lease_seconds=30, wait_seconds=10, vfs=vfs)
        )


class _NeverDurable(SqliteEngine):
    def write(
        self,
        verb: Callable[[Transaction], T],
        *,
        durable: bool = True,
        exclusive: bool = False,
        read_first: bool = False,
    ) -> T:
        return super().write(verb, durable=False, exclusive=exclusive)
