"""SIGTERM: no new turns, a grace time for running ones, then a visible interruption; all resources are released."""

from backstay import Address, Timing, open_store
from backstay.model.event import TurnEnded
from backstay.model.turn import Cancelled, Completed, Interrupted
from tests.databases import Place
from tests.runtime_processes.app_programs import CHAT, LONG, Setting, block, work
from tests.runtime_processes.child_process import Child
from tests.runtime_processes.turn_in_child import ME, busy, host, said, seen

ELSEWHERE = Address.chat("telegram", "dm", chat="elsewhere")
AT_ONCE = Timing(grace=0.0)
PATIENT = Timing(grace=LONG)


async def test_a_turn_that_ends_within_its_grace_time_is_completed(place: Place) -> None:
    async with busy(place, Setting(timing=PATIENT)) as remote:
        remote.other.terminate()
        await remote.other.receive_async("closing")
        remote.other.send_order("first", "say", "bye")
        remote.other.send_order("first", "end")
        assert await remote.turn.outcome() == Completed()
        remote.other.ends_well()
        result = await said(remote.session)

    assert result == [("user", "first"), ("assistant", "one bye")]


async def test_a_turn_that_does_not_end_in_time_is_interrupted_and_keeps_its_output(place: Place) -> None:
    async with busy(place, Setting(timing=AT_ONCE)) as remote:
        remote.other.terminate()
        remote.other.ends_well()
        outcome, messages = await remote.turn.outcome(), await said(remote.session)

    assert outcome == Interrupted("the program was closed")
    assert messages == [("user", "first"), ("assistant", "one …")]


async def test_a_process_that_has_ended_holds_nothing(place: Place) -> None:
    async with busy(place, Setting(timing=AT_ONCE)) as remote:
        remote.other.terminate()
        remote.other.ends_well()

    with open_store(place, lease_seconds=LONG) as store:
        (session,) = store.list(owner=ME).sessions
        assert (session.running, session.holder) == (None, None)
        assert store.about().workers == 0
        assert store.reap() == ()


async def test_a_turn_that_waits_is_not_begun_by_a_process_that_closes_but_by_the_next(place: Place) -> None:
    async with busy(place, Setting(timing=AT_ONCE)) as remote:
        second = await remote.session.send("second")
        remote.other.terminate()
        remote.other.ends_well()
        assert (await second.read()).state == "waiting"
        assert not [words for words in remote.other.everything() if words[:2] == ("speaking", "second")]
        with Child(work, place) as successor:
            await successor.receive_async("speaking", "second")
            successor.send_order("second", "end")
            await second.outcome()


async def test_a_process_that_closes_takes_no_turn_while_it_waits_for_its_last(place: Place) -> None:
    async with busy(place, Setting(timing=PATIENT)) as remote:
        remote.other.terminate()
        await remote.other.receive_async("closing")
        elsewhere = await (await remote.app.session(ELSEWHERE)).send("hello")
        remote.other.send_order("first", "call", "look", {"at": "clock"})
        remote.other.send_order("look", "return")
        await remote.other.receive_async("first", "did", "call")
        assert (await elsewhere.read()).state == "waiting"
        remote.other.send_order("first", "end")
        remote.other.ends_well()
        assert await remote.turn.outcome() == Completed()
        assert (await elsewhere.read()).state == "waiting"


async def test_a_turn_can_still_be_cancelled_while_its_process_closes(place: Place) -> None:
    async with busy(place, Setting(timing=PATIENT)) as remote:
        remote.other.send_order("first", "think", "…")
        remote.other.terminate()
        await remote.other.receive_async("closing")
        outcome = await remote.turn.cancel()
        remote.other.ends_well()

    assert isinstance(outcome, Cancelled)


async def test_a_tool_whose_thread_is_stuck_does_not_keep_the_process_alive(place: Place) -> None:
    async with busy(place, Setting(timing=AT_ONCE)) as remote:
        remote.other.send_order("first", "call", "stick", {})
        await remote.other.receive_async("inside", "stick")
        remote.other.terminate()
        remote.other.ends_well()
        last = (await seen(remote.turn, TurnEnded))[-1].body
        assert isinstance(last, TurnEnded)
        ended = last

    assert isinstance(ended.outcome, Interrupted)
    assert ended.may_have_run == ("ledger-1",)


async def test_an_agent_whose_thread_is_stuck_does_not_keep_the_process_alive(place: Place) -> None:
    with Child(block, place) as child:
        async with host(place) as app:
            session = await app.session(CHAT)
            turn = await session.send("first")
            await child.receive_async("stuck")
            child.terminate()
            child.ends_well()
            outcome, messages = await turn.outcome(), await said(session)

    assert isinstance(outcome, Interrupted)
    assert messages == [("user", "first"), ("assistant", "one …")]


async def test_all_turns_of_a_process_end_when_it_closes(place: Place) -> None:
    sessions = 5

    with Child(work, place, Setting(timing=AT_ONCE)) as child:
        async with host(place) as app:
            turns = []
            for number in range(sessions):
                session = await app.session(Address.chat("telegram", "dm", chat=f"{number}"))
                turns.append(await session.send(f"hello {number}"))
                await child.receive_async("speaking", f"hello {number}")
            child.terminate()
            child.ends_well()
            result = [await turn.outcome() for turn in turns]

    assert result == [Interrupted("the program was closed")] * sessions


async def test_ctrl_c_closes_the_app_as_sigterm_does(place: Place) -> None:
    async with busy(place, Setting(timing=AT_ONCE)) as remote:
        remote.other.interrupt()
        assert remote.other.exit_code() == 1, "it ends with a KeyboardInterrupt, like every program"
        with open_store(place, lease_seconds=LONG) as store:
            assert store.about().workers == 1, "nobody but this test's own app is left"
        outcome, messages = await remote.turn.outcome(), await said(remote.session)

    assert outcome == Interrupted("the program was closed")
    assert messages == [("user", "first"), ("assistant", "one …")]


def test_a_process_with_nothing_to_do_ends_at_once(place: Place) -> None:
    with Child(work, place) as child:
        child.receive("open")
        child.terminate()
        child.ends_well()


async def test_a_turn_interrupted_by_closing_is_resumed_by_a_resuming_process(place: Place) -> None:
    async with busy(place, Setting(timing=AT_ONCE)) as remote:
        remote.other.terminate()
        remote.other.ends_well()
    with Child(work, place, Setting(on_interrupt="resume")) as heir:
        await heir.receive_async("speaking", "first")
        heir.send_order("first", "say", "and two")
        heir.send_order("first", "end")
        await heir.receive_async("first", "did", "say")
        heir.terminate()
        heir.ends_well()
    async with host(place) as app:
        result = await said(await app.session(CHAT))

    assert result == [("user", "first"), ("assistant", "one …"), ("assistant", "and two")]
