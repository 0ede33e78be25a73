"""Several processes on one database: nothing is lost, nothing happens twice, nobody starves."""

import sys
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest

from backstay import Address, Store, Text, Ttl, open_store
from backstay.errors import Conflict, NotFound
from backstay.model import message as m
from backstay.model.ids import SessionId, TurnId
from backstay.model.session import Collected, How
from backstay.model.turn import Completed
from backstay.testing import ManualClock
from tests.crash.audit import audit
from tests.crash.processes import PATIENCE, PROCESSES, Crew
from tests.databases import Place

ME = "me"
LATE = "who comes late"
EXPIRED = 60
LONG_AGO = 100


def chat(number: int) -> Address:
    """One of many chats."""
    return Address.chat("matrix", "group", chat=f"room {number}")


def late(seconds: float) -> ManualClock:
    """The clock of a process that comes so much later."""
    clock = ManualClock()
    clock.advance(seconds)
    return clock


# --- opening --------------------------------------------------------------------------------------------------------


def test_eight_processes_may_open_an_empty_database_at_once(bare_places: Callable[[], Place]) -> None:
    with Crew(8) as crew:
        for _ in range(10):
            place = bare_places()

            made = crew.all(open_and_create, place)

            with open_store(place) as store:
                assert {session.id for session in store.list(owner=ME).sessions} == set(made)
            assert crew.all(audit, place) == [[]] * 8


def open_and_create(_: int, place: Place) -> SessionId:
    with open_store(place) as store:
        return store.create(owner=ME).id


# --- counting -------------------------------------------------------------------------------------------------------


def test_of_eight_processes_that_resolve_the_same_new_addresses_exactly_one_is_told_created(place: Place) -> None:
    with Crew(8) as crew:
        answers = crew.all(resolve_all, place, 200)

    for heard in zip(*answers, strict=True):
        assert len({session for session, _ in heard}) == 1
        assert Counter(how for _, how in heard) == {"created": 1, "resumed": 7}
    with open_store(place) as store:
        sessions = store.list(owner=ME, limit=1000).sessions
    assert [session.activity for session in sessions] == [8] * 200


def resolve_all(_: int, place: Place, many: int) -> list[tuple[SessionId, How]]:
    with open_store(place) as store:
        found = [store.resolve(chat(number), owner=ME) for number in range(many)]
    return [(resolved.session.id, resolved.how) for resolved in found]


def test_no_mark_of_activity_is_lost_to_another_process(place: Place) -> None:
    with open_store(place) as store, Crew(4) as crew:
        session = store.create(owner=ME)

        crew.all(touch, place, session.id, 250)

        assert store.session(session.id, owner=ME).activity == session.activity + 1000


def touch(_: int, place: Place, session: SessionId, times: int) -> None:
    with open_store(place) as store:
        for _ in range(times):
            store.touch(session, owner=ME)


def test_a_request_delivered_by_eight_processes_at_once_is_one_turn(place: Place) -> None:
    with Crew(8) as crew:
        answers = crew.all(deliver, place, 25)

    for heard in zip(*answers, strict=True):
        assert len({turn for turn, _ in heard}) == 1
        assert sorted(repeated for _, repeated in heard) == [False] + [True] * 7
    with open_store(place) as store:
        (session,) = store.list(owner=ME).sessions
    assert session.waiting == 25


def deliver(_: int, place: Place, many: int) -> list[tuple[TurnId, bool]]:
    with open_store(place) as store:
        sent = [store.submit(chat(0), f"hello {n}", owner=ME, request_id=f"request {n}") for n in range(many)]
    return [(accepted.turn.id, accepted.repeated) for accepted in sent]


def test_processes_that_write_more_than_the_log_holds_lose_nothing(place: Place) -> None:
    with Crew(4) as crew:
        written = crew.all(write_much, place, 40)

        with open_store(place) as store:
            for rank, session in enumerate(written):
                said = [message.text for message in store.messages(session, owner=ME).messages]
                assert said == [f"{rank}.{number} " * 15_000 for number in range(40)]
        assert crew.all(audit, place) == [[]] * 4


def write_much(rank: int, place: Place, times: int) -> SessionId:
    with open_store(place) as store:
        session = store.create(owner=ME).id
        for number in range(times):
            store.record(session, [m.user(f"{rank}.{number} " * 15_000)], owner=ME)
            assert store.messages(session, owner=ME, last=1).length == number + 1
    return session


# --- waiting --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("aside", [False, True])
def test_six_writers_all_get_their_share(place: Place, aside: bool) -> None:
    with open_store(place) as store, Crew(6) as crew:
        session = store.create(owner=ME)
        crew.all(move_in, place)

        answers = crew.all(touch_aside if aside else touch_until, place, session.id, 2000)

        crew.all(move_out, place)
    shares = [share for share, _ in answers]
    worst = max(wait for _, wait in answers)
    sys.stdout.write(f"six writers: {shares} writes each, worst wait {1000 * worst:.1f} ms\n")
    assert min(shares) > max(shares) / 5


def test_who_comes_late_can_open_and_close_while_others_write_without_pause(place: Place) -> None:
    with open_store(place) as store, Crew(6) as crew:
        session = store.create(owner=ME)
        crew.all(move_in, place)

        written = crew.all(come_and_go_or_write, place, session.id)

        crew.all(move_out, place)
        assert store.session(session.id, owner=ME).activity == sum(written)


_homes: dict[Place, Store] = {}


def move_in(_: int, place: Place) -> None:
    """Open the store, and keep it open in this process until `move_out`."""
    _homes[place] = open_store(place)


def move_out(_: int, place: Place) -> None:
    _homes.pop(place).close()


def touch_until(_: int, place: Place, session: SessionId, total: int) -> tuple[int, float]:
    """How often this process wrote before all together had written so often, and its longest wait."""
    times, worst, activity = 0, 0.0, 0
    while activity < total:
        before = time.perf_counter()
        activity = _homes[place].touch(session, owner=ME).activity
        worst = max(worst, time.perf_counter() - before)
        times += 1
    return times, worst


def touch_aside(rank: int, place: Place, session: SessionId, total: int) -> tuple[int, float]:
    """The same on a thread beside the main one, where a lone caller may take a shorter way."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(touch_until, rank, place, session, total).result(PATIENCE)


def come_and_go_or_write(rank: int, place: Place, session: SessionId) -> int:
    """The first two open and close the store a few times; the others write until both have. How often each wrote."""
    if rank > 1:
        return touch_until_both_came(place, session)
    _homes[place].close()
    for _ in range(5):
        with open_store(place) as store:
            store.touch(session, owner=ME)
    _homes[place] = open_store(place)
    _homes[place].create(owner=LATE)
    return 5


def touch_until_both_came(place: Place, session: SessionId) -> int:
    times = 0
    while len(_homes[place].list(owner=LATE).sessions) < 2:
        for _ in range(50):
            _homes[place].touch(session, owner=ME)
        times += 50
    return times


def test_a_writer_killed_in_the_middle_of_a_transaction_holds_up_nobody(place: Place) -> None:
    ours, theirs = PROCESSES.Pipe()
    with open_store(place, wait_seconds=PATIENCE) as store:
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
    """Once armed, tells that it was asked for the time, and never answers."""

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
    store = open_store(place, clock=clock)
    clock.armed = True
    store.touch(session, owner=ME)


# --- holding --------------------------------------------------------------------------------------------------------


def test_processes_that_claim_from_one_queue_get_every_turn_once_and_in_order(place: Place) -> None:
    with open_store(place) as store, Crew(4) as crew:
        sent = [store.submit(chat(n % 12), f"{n}", owner=ME).turn.id for n in range(120)]

        claimed = crew.all(claim_all, place)

        assert sorted(turn for turns in claimed for turn in turns) == sorted(sent)
        for number in range(12):
            session = store.resolve(chat(number), owner=ME).session.id
            said = [message.text for message in store.messages(session, owner=ME).messages if message.role == "user"]
            assert said == [f"{n}" for n in range(number, 120, 12)]


def claim_all(_: int, place: Place) -> list[TurnId]:
    claimed = []
    with open_store(place) as store:
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
    with Crew(6) as crew:
        assert crew.all(reap, place, at=0) == [()] * 6, "it lives"
        process.kill()
        process.join(PATIENCE)

        reaped = crew.all(reap, place, at=LONG_AGO)

        assert sorted(turn for turns in reaped for turn in turns) == sorted(started)
        assert crew.all(audit, place) == [[]] * 6


def start_many(place: Place, many: int, pipe: "Connection[Any, Any]") -> None:
    store = open_store(place, clock=ManualClock())
    pipe.send([store.submit(chat(number), "hi", owner=ME, start=True).turn.id for number in range(many)])
    pipe.recv()


def reap(_: int, place: Place, *, at: float) -> tuple[TurnId, ...]:
    with open_store(place, clock=late(at)) as store:
        return store.reap()


@pytest.mark.parametrize("name", ["link.db", "linked/store.db"])
def test_a_holder_is_alive_for_a_process_that_knows_the_file_by_another_name(tmp_path: Path, name: str) -> None:
    path = tmp_path / "real" / "store.db"
    with open_store(path) as store, Crew(1) as crew:
        (tmp_path / "link.db").symlink_to(path)
        (tmp_path / "linked").symlink_to(path.parent)
        turn = store.submit(chat(0), "are you there?", owner=ME, start=True).turn

        assert crew.all(state_of, tmp_path / name, turn.id) == ["running"]


def state_of(_: int, place: Place, turn: TurnId) -> str:
    with open_store(place) as store:
        return store.turn(turn, owner=ME).state


# --- going ----------------------------------------------------------------------------------------------------------


def test_processes_that_collect_at_once_count_every_session_once(place: Place) -> None:
    with open_store(place, clock=ManualClock()) as store, Crew(6) as crew:
        some_mortal_sessions(store, 150)

        first = crew.all(collect, place, at=EXPIRED)
        second = crew.all(collect, place, at=LONG_AGO, keep_closed_for=1.0)

        assert totals(first) == Collected(expired=150)
        assert totals(second) == Collected(deleted=150, messages=300)
        assert store.list(owner=ME).sessions == ()
        assert crew.all(audit, place) == [[]] * 6


@pytest.mark.parametrize("closed", [False, True])
def test_a_session_that_is_collected_while_its_address_is_resolved_is_replaced_once(place: Place, closed: bool) -> None:
    with open_store(place, clock=ManualClock()) as store, Crew(6) as crew:
        old = some_mortal_sessions(store, 150)
        if closed:
            crew.all(collect, place, at=EXPIRED)

        answers = crew.all(collect_or_resolve, place, 150)

        collected = [answer for answer in answers if isinstance(answer, Collected)]
        resolved = [answer for answer in answers if isinstance(answer, list)]
        for heard in zip(*resolved, strict=True):
            assert len({session for session, _ in heard} - set(old)) == 1
            assert sorted(how == "resumed" for _, how in heard) == [False, True, True]
        told = {session for answer in resolved for session, _ in answer}
        rest = crew.all(collect, place, at=2 * LONG_AGO, keep_closed_for=1.0)
        assert {session.id for session in store.list(owner=ME, limit=1000).sessions} == told
        assert totals([*collected, *rest]).deleted == 150
        assert totals([*collected, *rest]).messages == 300
        assert crew.all(audit, place) == [[]] * 6


def some_mortal_sessions(store: Store, many: int) -> list[SessionId]:
    said = [m.user("is anybody there?"), m.assistant("not for long")]
    return [store.record(chat(number), said, owner=ME, ttl=Ttl(idle=EXPIRED / 2)).session.id for number in range(many)]


def collect(_: int, place: Place, *, at: float, keep_closed_for: float | None = None) -> Collected:
    with open_store(place, clock=late(at)) as store:
        return store.collect(keep_closed_for=keep_closed_for)


def collect_or_resolve(rank: int, place: Place, many: int) -> Collected | list[tuple[SessionId, How]]:
    if rank % 2:
        return collect(rank, place, at=LONG_AGO, keep_closed_for=1.0)
    with open_store(place, clock=late(EXPIRED)) as store:
        found = [store.resolve(chat(number), owner=ME) for number in range(many)]
    return [(resolved.session.id, resolved.how) for resolved in found]


def totals(counts: list[Collected]) -> Collected:
    return Collected(
        expired=sum(count.expired for count in counts),
        deleted=sum(count.deleted for count in counts),
        messages=sum(count.messages for count in counts),
    )


def test_a_session_deleted_while_others_rotate_fork_and_undo_it_leaves_nothing_behind(place: Place) -> None:
    with open_store(place) as store, Crew(6) as crew:
        for number in range(10):
            session = store.create(owner=ME).id
            for turn in range(4):
                store.record(session, [m.user(f"question {turn}"), m.assistant(f"answer {turn}")], owner=ME)

            crew.all(disturb, place, session, number)

            assert crew.all(audit, place) == [[]] * 6
        for remaining in store.list(owner=ME, limit=1000).sessions:
            store.delete(remaining.id, owner=ME)
        assert crew.all(audit, place) == [[]] * 6


def disturb(rank: int, place: Place, session: SessionId, luck: int) -> None:
    with open_store(place) as store:
        for number in range(8):
            try:
                _disturb(store, rank, session, number, luck)
            except (NotFound, Conflict):
                continue  # Somebody else was first; what they left is judged in the end.


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
                store.touch(session, owner=ME)
