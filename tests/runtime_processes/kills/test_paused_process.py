"""A process sleeps through its lease and another continues: when it wakes it is fenced off, and then works normally."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

import backstay
from backstay import App, Timing
from backstay.agents.adapters import AgentLike
from backstay.model.event import Event, TurnEnded
from backstay.model.turn import Cancelled, Completed, Interrupted
from backstay.runtime.session_handle import Session
from tests.databases import Place
from tests.runtime_processes.app_programs import CHAT, Setting, work
from tests.runtime_processes.child_process import OwnChild
from tests.runtime_processes.shared_clock import SharedClock
from tests.runtime_processes.turn_in_child import busy, echo, listening, said, seen

LEASE = 30.0


class Bedroom:
    """A store whose processes all use a clock that the test moves."""

    def __init__(self, path: Place, hands: Path) -> None:
        self.path, self._hands = path, hands
        self.clock = SharedClock(self._hands)

    def sleeper(self) -> OwnChild:
        """A process that serves the agent and will be paused."""
        return OwnChild(work, self.path, Setting(clock=self._hands, lease_seconds=LEASE))

    @asynccontextmanager
    async def awake(self, agent: AgentLike | None = None) -> AsyncIterator[App]:
        """The app of a process that is not paused."""
        async with backstay.open(
            self.path, agent=agent, notify=False, lease_seconds=LEASE, clock=SharedClock(self._hands)
        ) as app:
            yield app


@pytest.fixture
def room(place: Place, tmp_path: Path) -> Bedroom:
    return Bedroom(place, tmp_path / "clock")


async def test_a_holder_that_slept_through_its_lease_is_fenced_without_late_output(room: Bedroom) -> None:
    with room.sleeper() as sleeper:
        _speak_and_fall_asleep(sleeper)
        room.clock.advance(LEASE + 1)
        async with room.awake(echo) as app:
            session = await app.session(CHAT)
            assert await (await session.send("second")).outcome() == Completed()
        sleeper.send_order("first", "say", "too late")
        sleeper.send_order("first", "end")
        sleeper.go_on()
        _still_works(sleeper)
    async with room.awake() as app:
        session = await app.session(CHAT)
        first = await session.send("first", request_id="first")
        assert isinstance(await first.outcome(), Interrupted)
        result = await said(session)

    assert result == [
        ("user", "first"),
        ("assistant", "one …"),
        ("user", "second"),
        ("assistant", "re: second"),
        ("user", "third"),
        ("assistant", "awake"),
    ]


async def test_a_follower_sees_no_gap_across_a_change_of_holders(room: Bedroom) -> None:
    with room.sleeper() as sleeper:
        _speak_and_fall_asleep(sleeper)
        async with room.awake() as app:
            session = await app.session(CHAT)
            watching = asyncio.create_task(_until_ended(session, 3))
            room.clock.advance(LEASE + 1)
            async with room.awake(echo) as other:
                await (await (await other.session(CHAT)).send("second")).outcome()
            sleeper.send_order("first", "say", "too late")
            sleeper.go_on()
            await asyncio.to_thread(_still_works, sleeper)
            live, replay = await watching, await _until_ended(session, 3)

    assert [event.number for event in live] == list(range(1, len(live) + 1))
    assert live == replay


async def test_a_tool_result_of_a_holder_that_slept_through_its_lease_is_not_recorded(room: Bedroom) -> None:
    with room.sleeper() as sleeper:
        sleeper.send_order("app", "send", "first")
        sleeper.receive("speaking", "first")
        sleeper.send_order("first", "call", "look", {"at": "sky"})
        sleeper.receive("inside", "look")
        sleeper.pause()
        room.clock.advance(LEASE + 1)
        async with room.awake() as app:
            await app.sessions()
        sleeper.send_order("look", "return")
        sleeper.send_order("first", "end")
        sleeper.go_on()
        _still_works(sleeper)
    async with room.awake() as app:
        session = await app.session(CHAT)
        first = await session.send("first", request_id="first")
        endings = [event for event in await seen(first, TurnEnded) if isinstance(event.body, TurnEnded)]
        result = [call.effect for call in await first.calls()], len(endings)

    assert result == (["unknown"], 1)


async def test_a_holder_that_slept_for_less_than_its_lease_continues(room: Bedroom) -> None:
    with room.sleeper() as sleeper:
        _speak_and_fall_asleep(sleeper)
        room.clock.advance(LEASE - 1)
        async with room.awake(echo) as app:
            session = await app.session(CHAT)
            second = await session.send("second")
            sleeper.send_order("first", "say", "in time")
            sleeper.send_order("first", "end")
            sleeper.send_order("second", "end")
            sleeper.go_on()
            await second.outcome()
            result = (await said(session))[:3]

    assert result == [("user", "first"), ("assistant", "one in time"), ("user", "second")]


async def test_a_canceller_fences_off_a_holder_that_does_not_answer(place: Place) -> None:
    async with busy(place, child=OwnChild, timing=Timing(grace=0.1)) as remote:
        assert isinstance(remote.other, OwnChild)
        remote.other.pause()
        assert isinstance(await remote.turn.cancel(), Cancelled)
        remote.other.send_order("first", "say", "too late")
        remote.other.send_order("first", "end")
        remote.other.go_on()
        _still_works(remote.other)
        result = await said(remote.session)

    assert result == [("user", "first"), ("assistant", "one …"), ("user", "third"), ("assistant", "awake")]


async def test_a_lease_lapses_by_the_clock_of_the_machine_too(place: Place) -> None:
    async with (
        busy(place, Setting(lease_seconds=5.0), child=OwnChild) as remote,
        backstay.open(place, agent=echo, notify=False, lease_seconds=5.0) as app,
    ):
        assert isinstance(remote.other, OwnChild)
        # Its lease was just renewed, so it stops between two writes.
        remote.other.send_order("first", "steering")
        await remote.other.receive_async("first", "did", "steering")
        remote.other.pause()
        second = await (await app.session(CHAT)).send("second")
        assert await second.outcome() == Completed()
        assert isinstance(await remote.turn.outcome(), Interrupted)
        remote.other.send_order("first", "say", "too late")
        remote.other.go_on()
        _still_works(remote.other)
        result = await said(remote.session)

    assert result == [
        ("user", "first"),
        ("assistant", "one …"),
        ("user", "second"),
        ("assistant", "re: second"),
        ("user", "third"),
        ("assistant", "awake"),
    ]


async def _until_ended(session: Session, turns: int) -> list[Event]:
    """The session's events until this number of its turns have ended."""
    events = []
    async with listening(session.follow()) as story:
        while turns:
            events.append(await anext(story))
            turns -= isinstance(events[-1].body, TurnEnded)
    return events


# --- steps ----------------------------------------------------------------------------------------------------------


def _speak_and_fall_asleep(sleeper: OwnChild) -> None:
    """Have it send some output, and pause it once that is stored."""
    sleeper.send_order("report")
    sleeper.send_order("app", "send", "first")
    sleeper.receive("speaking", "first")
    sleeper.send_order("first", "say", "one ")
    sleeper.receive("stored", "text_delta")
    sleeper.pause()


def _still_works(sleeper: OwnChild) -> None:
    """It answers the next message, and then ends cleanly."""
    sleeper.send_order("app", "send", "third")
    sleeper.receive("speaking", "third")
    sleeper.send_order("third", "say", "awake")
    sleeper.send_order("third", "end")
    sleeper.receive("third", "did", "say")
    sleeper.terminate()
    sleeper.ends_well()
