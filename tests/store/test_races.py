"""Several processes on one database: nothing is lost, nothing happens twice, no process starves."""

from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest

from backstay import Address, Store, Text, Ttl, open_store
from backstay.errors import Conflict, NotFound, RequestMismatch
from backstay.model import message as m
from backstay.model.ids import SessionId, TurnId
from backstay.model.session import Collected, How
from backstay.model.turn import Completed
from backstay.testing import ManualClock
from tests.crash.sql_audit import audit
from tests.crash.worker_processes import PATIENCE, PROCESSES, WorkerProcesses
from tests.databases import Place, Places
from tests.effort import tries
from tests.touching import touch

ME = "me"
LATE, DONE = "who comes late", "who has had its share"
EXPIRED = 60
LONG_AGO = 100
# The number of rounds, sessions, writes and requests.
MEETINGS = tries(3, 10, 50)
ROOMS = tries(40, 200, 200)
TOUCHES = tries(50, 250, 250)
REQUESTS = tries(10, 25, 100)
MORTALS = tries(40, 150, 150)


def chat(number: int) -> Address:
    """One of many chats."""
    return Address.chat("matrix", "group", chat=f"room {number}")


def patient_store(place: Place, clock: ManualClock | None = None) -> Store:
    """A store whose verbs wait as long as the test does: a busy machine must not cause a rejection."""
    return open_store(place, clock=clock, wait_seconds=PATIENCE)


def late(seconds: float) -> ManualClock:
    """The clock of a process that starts this much later."""
    clock = ManualClock()
    clock.advance(seconds)
    return clock


# --- opening --------------------------------------------------------------------------------------------------------


def test_eight_processes_may_open_an_empty_database_at_once(bare_places: Callable[[], Place]) -> None:
    with WorkerProcesses(8) as workers:
        for _ in range(MEETINGS):
            place = bare_places()

            made = workers.all(open_and_create, place)

            with patient_store(place) as store:
                assert {session.id for session in store.list(owner=ME).sessions} == set(made)
            assert workers.all(audit, place) == [[]] * 8


def open_and_create(_: int, place: Place) -> SessionId:
    with patient_store(place) as store:
        return store.create(owner=ME).id


def test_a_message_sent_while_its_agent_registers_is_accepted(places: Places) -> None:
    with WorkerProcesses(3) as workers:
        for _ in range(tries(2, 4, 20)):
            workers.all(register_or_send, places.fresh())


def register_or_send(rank: int, place: Place) -> None:
    with open_store(place) as store:
        for number in range(20):
            session = store.create(owner=ME).id
            if rank == 0 and number == 10:
                store.register_agents(["default"])
            store.submit(session, "hello", owner=ME, agent="default")


# --- counting -------------------------------------------------------------------------------------------------------


def test_one_of_eight_processes_that_resolve_a_new_address_creates_it(place: Place) -> None:
    with WorkerProcesses(8) as workers:
        answers = workers.all(resolve_all, place, ROOMS)

    for heard in zip(*answers, strict=True):
        assert len({session for session, _ in heard}) == 1
        assert Counter(how for _, how in heard) == {"created": 1, "resumed": 7}
    with patient_store(place) as store:
        sessions = store.list(owner=ME, limit=1000).sessions
    # Lookups within a second of the last mark of activity are not counted.
    assert all(1 <= session.activity <= 8 for session in sessions)


def resolve_all(_: int, place: Place, many: int) -> list[tuple[SessionId, How]]:
    with patient_store(place) as store:
        found = [store.resolve(chat(number), owner=ME) for number in range(many)]
    return [(resolved.session.id, resolved.how) for resolved in found]


def test_no_mark_of_activity_is_lost_to_another_process(place: Place) -> None:
    with patient_store(place) as store, WorkerProcesses(4) as workers:
        session = store.create(owner=ME)

        workers.all(touch_often, place, session.id, TOUCHES)

        assert store.session(session.id, owner=ME).activity == session.activity + 4 * TOUCHES


def touch_often(_: int, place: Place, session: SessionId, times: int) -> None:
    with patient_store(place) as store:
        for _ in range(times):
            touch(store, session, owner=ME)


def test_a_request_delivered_by_eight_processes_at_once_is_one_turn(place: Place) -> None:
    with WorkerProcesses(8) as workers:
        answers = workers.all(deliver, place, REQUESTS)

    for heard in zip(*answers, strict=True):
        assert len({turn for turn, _ in heard}) == 1
        assert sorted(repeated for _, repeated in heard) == [False] + [True] * 7
    with patient_store(place) as store:
        (session,) = store.list(owner=ME).sessions
    assert session.waiting == REQUESTS


def deliver(number: int, place: Place, many: int) -> list[tuple[TurnId, bool]]:
    """Deliver each request: half of the processes by the address, half by the session."""
    with patient_store(place) as store:
        to = chat(0) if number % 2 else store.resolve(chat(0), owner=ME).session.id
        sent = [store.submit(to, f"hello {n}", owner=ME, request_id=f"request {n}") for n in range(many)]
    return [(accepted.turn.id, accepted.repeated) for accepted in sent]


def test_one_of_eight_requests_with_one_id_to_different_sessions_is_accepted(place: Place) -> None:
    with WorkerProcesses(8) as workers:
        answers = workers.all(deliver_to_own_chat, place, REQUESTS)

    for heard in zip(*answers, strict=True):
        assert sorted(heard) == [False] * 7 + [True]
    with patient_store(place) as store:
        assert sum(session.waiting for session in store.list(owner=ME).sessions) == REQUESTS


def deliver_to_own_chat(number: int, place: Place, many: int) -> list[bool]:
    """Send requests under ids that all processes use; returns those that were accepted."""
    with patient_store(place) as store:
        return [is_accepted(store, chat(number), f"request {n}") for n in range(many)]


def is_accepted(store: Store, to: Address, request: str) -> bool:
    try:
        store.submit(to, "hello", owner=ME, request_id=request)
    except RequestMismatch:
        return False
    return True


def test_processes_that_write_more_than_the_log_holds_lose_nothing(place: Place) -> None:
    with WorkerProcesses(4) as workers:
        written = workers.all(write_much, place, 40)

        with patient_store(place) as store:
            for rank, session in enumerate(written):
                said = [message.text for message in store.messages(session, owner=ME).messages]
                assert said == [f"{rank}.{number} " * 15_000 for number in range(40)]
        assert workers.all(audit, place) == [[]] * 4


def write_much(rank: int, place: Place, times: int) -> SessionId:
    with patient_store(place) as store:
        session = store.create(owner=ME).id
        for number in range(times):
            store.record(session, [m.user(f"{rank}.{number} " * 15_000)], owner=ME)
            assert store.messages(session, owner=ME, last=1).length == number + 1
    return session


# --- waiting --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("aside", [False, True])
def test_each_of_six_writers_gets_its_share(place: Place, aside: bool) -> None:
    with patient_store(place) as store, WorkerProcesses(6) as workers:
        session = store.create(owner=ME)
        workers.all(move_in, place)

        written = workers.all(touch_aside if aside else touch_until_all_are_done, place, session.id, TOUCHES)

        workers.all(move_out, place)
        assert store.session(session.id, owner=ME).activity == sum(written)
        assert min(written) >= TOUCHES


def test_a_late_process_can_open_and_close_while_others_write_continuously(place: Place) -> None:
    with patient_store(place) as store, WorkerProcesses(6) as workers:
        session = store.create(owner=ME)
        workers.all(move_in, place)

        written = workers.all(come_and_go_or_write, place, session.id)

        workers.all(move_out, place)
        assert store.session(session.id, owner=ME).activity == sum(written)


_homes: dict[Place, Store] = {}


def move_in(_: int, place: Place) -> None:
    """Open the store, and keep it open in this process until `move_out`."""
    _homes[place] = patient_store(place)


def move_out(_: int, place: Place) -> None:
    _homes.pop(place).close()


def touch_until_all_are_done(_: int, place: Place, session: SessionId, share: int) -> int:
    """Write without pause until every process has made its share of writes; returns how often this one wrote.

    The number of further writes depends on the scheduler, which may leave a process without a processor.
    """
    times = 0
    while len(_homes[place].list(owner=DONE).sessions) < 6:
        for _ in range(10):
            touch(_homes[place], session, owner=ME)
        times += 10
        if times == share:
            _homes[place].create(owner=DONE)
    return times


def touch_aside(rank: int, place: Place, session: SessionId, share: int) -> int:
    """The same on another thread than the main one, where a single caller may take a shorter path."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(touch_until_all_are_done, rank, place, session, share).result(PATIENCE)


def come_and_go_or_write(rank: int, place: Place, session: SessionId) -> int:
    """The first two open and close the store a few times; the others write until then. Returns the number of writes."""
    if rank > 1:
        return touch_until_both_came(place, session)
    _homes[place].close()
    for _ in range(5):
        with patient_store(place) as store:
            touch(store, session, owner=ME)
    _homes[place] = patient_store(place)
    _homes[place].create(owner=LATE)
    return 5


def touch_until_both_came(place: Place, session: SessionId) -> int:
    times = 0
    while len(_homes[place].list(owner=LATE).sessions) < 2:
        for _ in range(50):
            touch(_homes[place], session, owner=ME)
        times += 50
    return times


def test_a_writer_killed_during_a_transaction_blocks_no_other(place: Place) -> None:
    ours, theirs = PROCESSES.Pipe()
    with patient_store(place) as store:
        session = store.create(owner=ME)
        process = PROCESSES.Process(target=stop_within_a_verb, args=(place, session.id, theirs))
        process.start()
        assert ours.poll(PATIENCE)
        assert ours.recv() == "within"

        process.kill()

        assert store.rename(session.id, "after", owner=ME).title == "after"
        assert store.session(session.id, owner=ME).activity == session.activity
        process.join(PATIENCE)


class StopClock(ManualClock):
    """Once armed, reports the first call for the time, and never returns."""

    def __init__(self, pipe: "Connection[Any, Any]") -> None:
        super().__init__()
        self.armed = False
        self._pipe = pipe

    def now(self) -> int:
        if self.armed:
            self._pipe.send("within")
            self._pipe.recv()
        return super().now()


def stop_within_a_verb(place: Place, session: SessionId, pipe: "Connection[Any, Any]") -> None:
    clock = StopClock(pipe)
    store = patient_store(place, clock=clock)
    clock.armed = True
    touch(store, session, owner=ME)


# --- holders --------------------------------------------------------------------------------------------------------


def test_processes_that_claim_from_one_queue_get_every_turn_once_and_in_order(place: Place) -> None:
    with patient_store(place) as store, WorkerProcesses(4) as workers:
        sent = [store.submit(chat(n % 12), f"{n}", owner=ME).turn.id for n in range(120)]

        claimed = workers.all(claim_all, place)

        assert sorted(turn for turns in claimed for turn in turns) == sorted(sent)
        for number in range(12):
            session = store.resolve(chat(number), owner=ME).session.id
            said = [message.text for message in store.messages(session, owner=ME).messages if message.role == "user"]
            assert said == [f"{n}" for n in range(number, 120, 12)]


def claim_all(_: int, place: Place) -> list[TurnId]:
    claimed = []
    with patient_store(place) as store:
        while (turn := store.claim(["default"])) is not None:
            claimed.append(turn.id)
            store.finish(turn, Completed(), bodies=[Text("done")])
    return claimed


def test_processes_that_reap_at_once_end_every_turn_of_a_dead_one_once(place: Place) -> None:
    ours, theirs = PROCESSES.Pipe()
    process = PROCESSES.Process(target=start_many, args=(place, 60, theirs))
    process.start()
    assert ours.poll(PATIENCE)
    started = ours.recv()
    with WorkerProcesses(6) as workers:
        assert workers.all(reap, place, at=0) == [()] * 6, "it lives"
        process.kill()
        process.join(PATIENCE)

        reaped = workers.all(reap, place, at=LONG_AGO)

        assert sorted(turn for turns in reaped for turn in turns) == sorted(started)
        assert workers.all(audit, place) == [[]] * 6


def start_many(place: Place, many: int, pipe: "Connection[Any, Any]") -> None:
    store = patient_store(place, clock=ManualClock())
    pipe.send([store.submit(chat(number), "hi", owner=ME, start=True).turn.id for number in range(many)])
    pipe.recv()


# The state of a turn in a read: "running", or its outcome.
SHOWN: dict[str, Callable[[Store, SessionId, TurnId], object]] = {
    "session": lambda store, session, _: store.session(session, owner=ME).running or "ended",
    "turn": lambda store, _, turn: store.turn(turn, owner=ME).state,
    "snapshot": lambda store, session, _: store.snapshot(session, owner=ME).turns[-1].state,
    "list": lambda store, *_: {session.running or "ended" for session in store.list(owner=ME).sessions},
    "events": lambda store, session, _: store.events_after(session, owner=ME).events[-1].body,
}


@pytest.mark.parametrize("read", SHOWN)
def test_no_process_is_shown_the_turn_of_a_dead_one_as_running(place: Place, read: str) -> None:
    with patient_store(place, clock=ManualClock()) as store, WorkerProcesses(6) as workers:
        started = start_and_die(place, store, 24)

        shown = workers.all(look, place, started, read)

        for looks in zip(*shown, workers.all(look, place, started, read)[0], strict=True):
            assert all(each == looks[-1] for each in looks), "everybody is shown what a later look shows"


def start_and_die(place: Place, store: Store, many: int) -> list[tuple[SessionId, TurnId]]:
    """The turns that a process was running when it was killed, with their sessions."""
    ours, theirs = PROCESSES.Pipe()
    process = PROCESSES.Process(target=start_many, args=(place, many, theirs))
    process.start()
    assert ours.poll(PATIENCE)
    found = [(store.turn(turn, owner=ME).session, turn) for turn in ours.recv()]
    process.kill()
    process.join(PATIENCE)
    return found


def look(_: int, place: Place, turns: list[tuple[SessionId, TurnId]], read: str) -> list[object]:
    """The state of each turn in the read, one after the other."""
    with patient_store(place, clock=late(LONG_AGO)) as store:
        return [SHOWN[read](store, session, turn) for session, turn in turns]


def reap(_: int, place: Place, *, at: float) -> tuple[TurnId, ...]:
    with patient_store(place, clock=late(at)) as store:
        return store.reap()


@pytest.mark.parametrize("name", ["link.db", "linked/store.db"])
def test_a_holder_is_alive_for_a_process_that_opened_the_file_by_another_name(tmp_path: Path, name: str) -> None:
    path = tmp_path / "real" / "store.db"
    with patient_store(path) as store, WorkerProcesses(1) as workers:
        (tmp_path / "link.db").symlink_to(path)
        (tmp_path / "linked").symlink_to(path.parent)
        turn = store.submit(chat(0), "are you there?", owner=ME, start=True).turn

        assert workers.all(state_of, tmp_path / name, turn.id) == ["running"]


def state_of(_: int, place: Place, turn: TurnId) -> str:
    with patient_store(place) as store:
        return store.turn(turn, owner=ME).state


# --- deletion -------------------------------------------------------------------------------------------------------


def test_processes_that_collect_at_once_count_every_session_once(place: Place) -> None:
    with patient_store(place, clock=ManualClock()) as store, WorkerProcesses(6) as workers:
        some_mortal_sessions(store, MORTALS)

        first = workers.all(collect, place, at=EXPIRED)
        second = workers.all(collect, place, at=LONG_AGO, keep_closed_for=1.0)

        assert totals(first) == Collected(expired=MORTALS)
        assert totals(second) == Collected(deleted=MORTALS, messages=2 * MORTALS)
        assert store.list(owner=ME).sessions == ()
        assert workers.all(audit, place) == [[]] * 6


@pytest.mark.parametrize("closed", [False, True])
def test_a_session_that_is_collected_while_its_address_is_resolved_is_replaced_once(place: Place, closed: bool) -> None:
    with patient_store(place, clock=ManualClock()) as store, WorkerProcesses(6) as workers:
        old = some_mortal_sessions(store, MORTALS)
        if closed:
            workers.all(collect, place, at=EXPIRED)

        answers = workers.all(collect_or_resolve, place, MORTALS)

        collected = [answer for answer in answers if isinstance(answer, Collected)]
        resolved = [answer for answer in answers if isinstance(answer, list)]
        for heard in zip(*resolved, strict=True):
            assert len({session for session, _ in heard} - set(old)) == 1
            assert sorted(how == "resumed" for _, how in heard) == [False, True, True]
        told = {session for answer in resolved for session, _ in answer}
        rest = workers.all(collect, place, at=2 * LONG_AGO, keep_closed_for=1.0)
        assert {session.id for session in store.list(owner=ME, limit=1000).sessions} == told
        assert totals([*collected, *rest]).deleted == MORTALS
        assert totals([*collected, *rest]).messages == 2 * MORTALS
        assert workers.all(audit, place) == [[]] * 6


def some_mortal_sessions(store: Store, many: int) -> list[SessionId]:
    said = [m.user("is anybody there?"), m.assistant("not for long")]
    return [store.record(chat(number), said, owner=ME, ttl=Ttl(idle=EXPIRED / 2)).session.id for number in range(many)]


def collect(_: int, place: Place, *, at: float, keep_closed_for: float | None = None) -> Collected:
    with patient_store(place, clock=late(at)) as store:
        return store.collect(keep_closed_for=keep_closed_for)


def collect_or_resolve(rank: int, place: Place, many: int) -> Collected | list[tuple[SessionId, How]]:
    if rank % 2:
        return collect(rank, place, at=LONG_AGO, keep_closed_for=1.0)
    with patient_store(place, clock=late(EXPIRED)) as store:
        found = [store.resolve(chat(number), owner=ME) for number in range(many)]
    return [(resolved.session.id, resolved.how) for resolved in found]


def totals(counts: list[Collected]) -> Collected:
    return Collected(
        expired=sum(count.expired for count in counts),
        deleted=sum(count.deleted for count in counts),
        messages=sum(count.messages for count in counts),
    )


def test_a_session_deleted_while_others_rotate_fork_and_undo_it_leaves_nothing(place: Place) -> None:
    with patient_store(place) as store, WorkerProcesses(6) as workers:
        for number in range(MEETINGS):
            session = store.create(owner=ME).id
            for turn in range(4):
                store.record(session, [m.user(f"question {turn}"), m.assistant(f"answer {turn}")], owner=ME)

            workers.all(disturb, place, session, number)

            assert workers.all(audit, place) == [[]] * 6
        for remaining in store.list(owner=ME, limit=1000).sessions:
            store.delete(remaining.id, owner=ME)
        assert workers.all(audit, place) == [[]] * 6


def disturb(rank: int, place: Place, session: SessionId, luck: int) -> None:
    with patient_store(place) as store:
        for number in range(8):
            try:
                _disturb(store, rank, session, number, luck)
            except (NotFound, Conflict):
                continue  # Another process was first; its result is checked at the end.


def _disturb(store: Store, rank: int, session: SessionId, number: int, luck: int) -> None:
    match rank:
        case 0 | 1:
            here = store.session(session, owner=ME)
            summary = [m.summary(f"summary {number}")]
            store.rotate(session, summary, owner=ME, parent=here.window, keep_from=max(1, here.length - rank))
        case 2 | 3:
            fork = store.fork(session, owner=ME).id
            store.record(fork, [m.user("on my own")], owner=ME)
            if number % 2:
                store.delete(fork, owner=ME)
        case 4:
            store.undo(session, owner=ME)
            store.record(session, [m.user("instead")], owner=ME)
        case _:
            if number == luck % 8:
                store.delete(session, owner=ME)
            else:
                touch(store, session, owner=ME)
