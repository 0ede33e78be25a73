"""A process dies at any step of a firing, and others fire at the same time: one turn for each due time."""

import sys
import threading
from pathlib import Path
from types import FrameType

import pytest

import backstay.store
from backstay.model.ids import ScheduleId, SessionId
from backstay.store import Store, open_store
from tests.crash.sql_audit import audit
from tests.crash.worker_processes import PATIENCE, PROCESSES, WorkerProcesses, die
from tests.databases import Place
from tests.effort import stride
from tests.runtime_processes.shared_clock import SharedClock

ME = "me"
TEN = 600_000
NEVER = 1 << 40
SOURCE = str(Path(backstay.store.__file__).parent)


@pytest.fixture
def clock(tmp_path: Path) -> SharedClock:
    return SharedClock(tmp_path / "clock")


def test_a_process_killed_at_any_step_of_a_firing_loses_no_due_time_and_sends_none_twice(
    place: Place, tmp_path: Path, clock: SharedClock, auditor: WorkerProcesses
) -> None:
    with open_store(place, clock=clock) as store:
        chat, over, ended = (store.create(owner=ME).id for _ in range(3))
        sent = store.create_schedule("10 minutes", chat, "tea?", owner=ME).id
        lost = store.create_schedule("10 minutes", ended, "tea?", owner=ME).id
        late = store.create_schedule("3 minutes", over, "tea?", owner=ME, if_missed="late").id
        store.end(ended, owner=ME)
    last = steps_until_death(place, tmp_path, clock, NEVER)

    rounds, killed = 1, 0
    for number in range(1, last + 1, stride(last)):
        # The number of calls differs a little from time to time: a process may come to its end before.
        killed += steps_until_death(place, tmp_path, clock, number) == number
        with open_store(place, clock=clock) as store:
            store.fire_due(["default"])
        rounds += 1

    assert killed > rounds // 2
    assert auditor.all(audit, place) == [[]]
    with open_store(place, clock=clock) as store:
        every_ten = [store.schedule(sent, owner=ME).created_at + count * TEN for count in range(1, rounds + 1)]
        assert requests(store, chat) == [f"{sent}/{due}" for due in every_ten]
        assert all_steps(store, sent) == ["fired"] * min(rounds, 100)
        assert all_steps(store, lost) == ["failed"] * min(rounds, 100)
        # Of three due times in ten minutes, only the last is sent, and the others are counted.
        assert len(requests(store, over)) == rounds
        assert all_steps(store, late) == ["missed", "fired"] * min(rounds, 50)


def test_processes_that_fire_at_once_send_one_message_for_each_due_time(place: Place, clock: SharedClock) -> None:
    with open_store(place, clock=clock) as store:
        chats = [store.create(owner=ME).id for _ in range(5)]
        made = [store.create_schedule("10 minutes", chats[count % 5], "tea?", owner=ME) for count in range(20)]

    with WorkerProcesses(2) as workers:
        for _ in range(3):
            clock.advance(600)
            workers.all(fire, place, clock)

    with open_store(place, clock=clock) as store:
        assert store.fire_due(["default"]).due == ()
        found = sorted(request for chat in chats for request in requests(store, chat))
        assert found == sorted(f"{one.id}/{one.created_at + count * TEN}" for one in made for count in (1, 2, 3))
        assert {one.revision for one in store.schedules(owner=ME)} == {4}


def fire(_rank: int, place: Place, clock: SharedClock) -> None:
    """Fire what is due; another process may decide about the same due times meanwhile."""
    with open_store(place, clock=clock) as store:
        store.fire_due(["default"])


def requests(store: Store, session: SessionId) -> list[str]:
    return [turn.request_id or "" for turn in store.waiting(session, owner=ME)]


def all_steps(store: Store, schedule: ScheduleId) -> list[str]:
    """The newest steps of a schedule, oldest first, apart from its creation."""
    log = reversed(store.schedule_log(schedule, owner=ME, limit=100))
    return [entry.step for entry in log if entry.step != "created"]


# --- dying ------------------------------------------------------------------------------------------------------------


def steps_until_death(place: Place, folder: Path, clock: SharedClock, number: int) -> int:
    """Fire the next due times in a process that is killed at a call of the store; how many calls it came to."""
    clock.advance(600)
    process = PROCESSES.Process(target=_fire_and_die, args=(place, folder / "calls", clock, number))
    process.start()
    process.join(PATIENCE)
    assert process.exitcode in (0, -9)
    process.close()
    return int((folder / "calls").read_text())


def _fire_and_die(place: Place, counted: Path, clock: SharedClock, number: int) -> None:
    calls, armed = 0, False

    def count(frame: FrameType, event: str, _argument: object) -> None:
        nonlocal calls
        if armed and event == "call" and frame.f_code.co_filename.startswith(SOURCE):
            calls += 1
            if calls == number:
                counted.write_text(str(calls))
                die()

    # Before the store starts its threads.
    threading.setprofile(count)
    sys.setprofile(count)
    with open_store(place, clock=clock) as store:
        armed = True
        store.fire_due(["default"])
        armed = False
    counted.write_text(str(calls))
