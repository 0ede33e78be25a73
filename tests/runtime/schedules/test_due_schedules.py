"""An open app fires the schedules that are due, however they came to be due."""

import pytest

import backstay
from backstay import Address, open_store
from backstay.events import ScheduleFired, ScheduleMissed, TurnEnded
from backstay.model.event import EventBody
from backstay.model.ids import SessionId
from backstay.runtime.owner_sessions import OwnerSessions
from backstay.testing import ManualClock
from tests.databases import Place
from tests.runtime.controlled_agents import echo, roles_and_texts

CHAT = Address.chat("telegram", "dm", chat="42")
ME = "local"
MINUTE = 60_000


async def until_ended(app: OwnerSessions, session: SessionId, turns: int = 1) -> list[EventBody]:
    """The events of a session until so many turns have ended."""
    bodies: list[EventBody] = []
    async for event in app.handle(session).follow():
        bodies.append(event.body)
        if sum(isinstance(body, TurnEnded) for body in bodies) == turns:
            break
    return bodies


def fired(bodies: list[EventBody]) -> list[EventBody]:
    return [body for body in bodies if isinstance(body, ScheduleFired | ScheduleMissed)]


async def test_a_schedule_is_answered_at_each_due_time(path: Place, notify: bool) -> None:
    clock = ManualClock()
    async with backstay.open(path, agent=echo, clock=clock, notify=notify) as app:
        session = await app.session(CHAT)
        made = await app.create_schedule("10 minutes", session.id, "tea?")
        clock.advance(600)
        await until_ended(app, session.id)
        clock.advance(600)
        bodies = await until_ended(app, session.id, turns=2)
        assert fired(bodies) == [
            ScheduleFired(made.id, made.created_at + 10 * MINUTE),
            ScheduleFired(made.id, made.created_at + 20 * MINUTE),
        ]
        assert [role for role, _ in roles_and_texts(await session.messages())] == ["user", "assistant"] * 2


async def test_a_schedule_of_another_process_is_fired(path: Place, notify: bool) -> None:
    clock = ManualClock()
    async with backstay.open(path, agent=echo, clock=clock, notify=notify) as app:
        with open_store(path, clock=clock) as store:
            session = store.create(owner="somebody else").id
            store.create_schedule("10 minutes", session, "tea?", owner="somebody else")
        clock.advance(600)
        bodies = await until_ended(app.owned_by("somebody else"), session)
    assert len(fired(bodies)) == 1


async def test_a_due_time_that_was_missed_while_nothing_ran_is_run_late_at_the_next_start(path: Place) -> None:
    clock = ManualClock()
    with open_store(path, clock=clock) as store:
        made = store.create_schedule("1 hour", CHAT, "tea?", owner=ME)
    clock.advance(2.5 * 3_600)
    async with backstay.open(path, agent=echo, clock=clock) as app:
        session = await until_there(app)
        bodies = await until_ended(app, session)
    assert fired(bodies) == [ScheduleFired(made.id, made.created_at + 120 * MINUTE, late=30 * MINUTE, missed=1)]


async def until_there(app: OwnerSessions) -> SessionId:
    """The session behind the address, once a firing has made it."""
    async for event in app.follow(0):
        return event.event.session
    raise AssertionError("the feed never ends")


async def test_a_wall_clock_that_is_set_forward_fires_at_once(path: Place) -> None:
    clock = ManualClock()
    async with backstay.open(path, agent=echo, clock=clock) as app:
        session = (await app.session(CHAT)).id
        made = await app.create_schedule("1 hour", session, "tea?", if_missed="skip")
        clock.set_wall(clock.now() + 5_400_000)
        async for event in app.handle(session).follow():
            if isinstance(event.body, ScheduleMissed):
                assert event.body == ScheduleMissed(made.id, made.created_at + 60 * MINUTE, "skipped")
                break
        clock.set_wall(clock.now() - 5_400_000)
        clock.advance(2 * 3_600)
        bodies = await until_ended(app, session)
    assert fired(bodies)[1:] == [ScheduleFired(made.id, made.created_at + 120 * MINUTE)]


@pytest.mark.parametrize("option", ["switched off", "own turns only", "no agent"])
async def test_an_app_leaves_schedules_to_others(path: Place, option: str) -> None:
    clock = ManualClock()
    with open_store(path, clock=clock) as store:
        made = store.create_schedule("10 minutes", CHAT, "tea?", owner=ME)
        waiting = store.submit(store.create(owner=ME).id, "hello", owner=ME)
    clock.advance(600)
    async with backstay.open(
        path,
        agents={} if option == "no agent" else {"default": echo},
        claim="own" if option == "own turns only" else "any",
        schedules=option != "switched off",
        clock=clock,
    ) as app:
        if option == "switched off":
            # It was claimed by the loop that would have fired the schedule before.
            await until_ended(app, waiting.session.id)
        elif option == "own turns only":
            await (await app.send(waiting.session.id, "more")).outcome()
        assert (await app.schedule(made.id)).last.step == "created"
    with open_store(path, clock=clock) as store:
        assert store.schedule(made.id, owner=ME) == made


async def test_two_apps_fire_each_due_time_once(path: Place, notify: bool) -> None:
    clock = ManualClock()
    async with (
        backstay.open(path, agent=echo, clock=clock, notify=notify) as one,
        backstay.open(path, agent=echo, clock=clock, notify=notify) as other,
    ):
        session = (await one.session(CHAT)).id
        made = [await one.create_schedule("10 minutes", session, f"tea {number}?") for number in range(10)]
        clock.advance(600)
        bodies = await until_ended(other, session, turns=10)
    assert sorted(body.schedule for body in fired(bodies) if isinstance(body, ScheduleFired)) == sorted(
        one.id for one in made
    )
    with open_store(path, clock=clock) as store:
        assert store.session(session, owner=ME).turns == 10
        assert {one.revision for one in store.schedules(owner=ME)} == {2}


async def test_a_closing_app_fires_nothing_more(path: Place) -> None:
    clock = ManualClock()
    app = backstay.open(path, agent=echo, clock=clock)
    async with app:
        made = await app.create_schedule("10 minutes", CHAT, "tea?")
    clock.advance(600)
    with open_store(path, clock=clock) as store:
        assert store.schedule(made.id, owner=ME).last.step == "created"


def test_the_blocking_app_has_the_same_schedules(path: Place) -> None:
    with backstay.open_blocking(path, agent=echo) as app:
        made = app.create_schedule("day 9:00", CHAT, "tea?", zone="Europe/Zurich", request_id="r1")
        assert app.create_schedule("day 9:00", CHAT, "tea?", zone="Europe/Zurich", request_id="r1") == made
        assert app.schedules() == (made,)
        assert app.pause_schedule(made.id).state == "paused"
        assert app.resume_schedule(made.id).state == "active"
        run = app.run_schedule(made.id)
        assert run.last.turn is not None
        app.turn(run.last.turn).outcome()
        assert [entry.step for entry in app.schedule_log(made.id, limit=2)] == ["fired", "resumed"]
        assert app.delete_schedule(made.id).state == "ended"
        assert app.schedules() == ()
