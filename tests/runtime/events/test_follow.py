"""Following: each follower of a turn or a session sees the same events, from any number on."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from typing import Any

import pytest

import backstay
from backstay import Custom, Text, Thought, Timing, Usage, open_store
from backstay.agents.port import AgentTurn
from backstay.agents.tools import tool
from backstay.errors import HistoryChanged, InvalidPayload, NotFound, StoreUnavailable
from backstay.model import message
from backstay.model.content import Body
from backstay.model.event import (
    Event,
    FeedEvent,
    SessionArchived,
    SessionCreated,
    SessionDeleted,
    SessionPinned,
    SessionRenamed,
    TextDelta,
    TurnEnded,
    TurnFolded,
    WindowOpened,
)
from backstay.model.turn import Completed, Interrupted
from backstay.runtime.session_handle import Session
from backstay.runtime.turn_handle import Turn
from tests.databases import Place
from tests.runtime.controlled_agents import (
    Follower,
    Gate,
    echo,
    events_of_turn,
    first_words,
    saying,
    stopping_at,
    words_in,
)

# Every body is an event of its own.
EACH = Timing(flush=0, poll=0.005)


@tool
def double(number: int) -> int:
    return 2 * number


async def varied(turn: AgentTurn) -> AsyncIterator[Body]:
    """An agent that does a little of everything."""
    yield Thought("let me see")
    for number in range(4):
        yield Text(f"{number} ")
        await turn.steering()
    yield Text(f"twice is {await turn.call(double, {'number': 4})} ")
    yield Custom("chart", {"bars": [1, 2]})
    yield Usage(input_tokens=3)
    yield Text("done")


async def whole(session: Session, after: int = 0) -> list[Event]:
    """The session's events after a number, up to its last event now."""
    last, events = (await session.read()).last_event, []
    if after < last:
        async for event in session.follow(after):
            events.append(event)
            if event.last == last:
                break
    return events


async def test_a_turn_followed_from_every_number_has_identical_events(path: Place, notify: bool) -> None:
    async with backstay.open(path, agent=varied, timing=EACH, notify=notify) as app:
        session = await app.session()
        await (await session.send("before")).outcome()
        turn = await session.send("now")
        events = await events_of_turn(turn)
        await (await session.send("after")).outcome()
        assert len(events) > 10
        for number in range(events[-1].number + 1):
            seen = [event for event in events if event.number <= number]
            assert seen + await events_of_turn(turn, after=number) == events


async def test_a_follower_cut_after_every_event_of_a_running_turn_sees_each_event_once(
    path: Place, notify: bool
) -> None:
    gates = [Gate() for _ in range(6)]

    async def agent(turn: AgentTurn) -> AsyncIterator[Body]:
        for number, gate in enumerate(gates):
            yield Text(f"{number} ")
            await gate.stop_here()

    async def next_after(turn: Turn, number: int | None) -> Event:
        async for event in turn.events(after=number):
            return event
        raise AssertionError("the story has ended")

    async with backstay.open(path, agent=agent, timing=EACH, notify=notify) as app:
        turn = await (await app.session()).send("count")
        seen = [await next_after(turn, None)]
        while not isinstance(seen[-1].body, TurnEnded):
            seen.append(await next_after(turn, seen[-1].number))
            if isinstance(seen[-1].body, TextDelta):
                gates[len(words_in(seen)) - 1].open()
        assert seen == await events_of_turn(turn)
        assert words_in(seen) == [f"{number} " for number in range(6)]


async def test_following_a_turn_after_its_end_ends_at_once(path: Place, notify: bool) -> None:
    async with backstay.open(path, agent=echo, notify=notify) as app:
        session = await app.session()
        turn = await session.send("hello")
        last = (await events_of_turn(turn))[-1].number
        assert await events_of_turn(turn, after=last) == []


async def test_a_cursor_of_a_missing_event_is_an_error(path: Place, notify: bool) -> None:
    async with backstay.open(path, agent=echo, notify=notify) as app:
        session = await app.session()
        turn = await session.send("hello")
        last = (await events_of_turn(turn))[-1].number
        with pytest.raises(HistoryChanged):
            await events_of_turn(turn, after=last + 100)
        with pytest.raises(HistoryChanged):
            await anext(session.follow(last + 100))


async def test_a_session_followed_from_every_number_has_identical_events(path: Place, notify: bool) -> None:
    async with backstay.open(path, agent=varied, timing=EACH, notify=notify) as app:
        session = await app.session()
        await (await session.send("one")).outcome()
        await session.rename("a title")
        await session.undo()
        await session.redo()
        await (await session.retry()).outcome()
        await session.tag(add=["x"])
        events = await whole(session)
        assert [event.number for event in events] == list(range(1, len(events) + 1))
        for number in range(len(events) + 1):
            assert events[:number] + await whole(session, after=number) == events
        for event in events[:-1]:
            async for following in session.follow(event.cursor):
                assert following == events[event.number]
                break


async def test_a_live_follower_and_a_late_one_see_the_same(path: Place, notify: bool) -> None:
    async with backstay.open(path, agent=varied, timing=EACH, notify=notify) as app:
        session = await app.session()
        live = Follower(session)
        await (await session.send("one")).outcome()
        await (await session.send("two")).outcome()
        await live.caught_up()
        late = await whole(session)
        await session.delete()
        *before, last = await live.until_the_end()
        assert before == late
        assert isinstance(last.body, SessionDeleted)


async def test_a_follower_is_taken_through_every_change_of_window(path: Place, notify: bool) -> None:
    async with backstay.open(path, agent=echo, notify=notify) as app:
        session = await app.session()
        follower = Follower(session)
        await (await session.send("one")).outcome()
        await (await session.send("two")).outcome()
        await session.undo()
        await session.redo()
        await (await session.retry()).outcome()
        first = (await session.messages())[0].id
        await (await session.edit(first, "uno")).outcome()
        now = await session.read()
        with open_store(path) as store:
            store.rotate(session.id, [message.summary("we counted")], owner="local", parent=now.window, keep_from=2)
        await (await session.send("three")).outcome()
        await session.undo()
        await follower.caught_up()
        await session.delete()
        opened = [event.body for event in await follower.until_the_end() if isinstance(event.body, WindowOpened)]
        assert [body.reason for body in opened if body.reason != "first"] == [
            "undo",
            "redo",
            "retry",
            "edit",
            "compaction",
            "undo",
        ]


async def test_the_events_of_a_deleted_session_end_with_its_tombstone(path: Place, notify: bool) -> None:
    gate = Gate()
    async with backstay.open(path, agent=stopping_at(gate), notify=notify, lease_seconds=3600) as app:
        session = await app.session()
        turn = await session.send("hello")
        await first_words(turn)
        following = asyncio.create_task(events_of_turn(turn))
        waiting = asyncio.create_task(turn.outcome())
        await session.delete()
        assert words_in(await following) in ([], ["one "])
        with pytest.raises(NotFound):
            await waiting
        assert [type(event.body) async for event in session.follow()] == [SessionDeleted]
        assert await events_of_turn(turn) == []


async def test_a_slow_follower_gets_everything_though_the_turn_is_long_over(path: Place, notify: bool) -> None:
    async def agent(turn: AgentTurn) -> AsyncIterator[Body]:
        for number in range(1_300):
            yield Custom("step", number)

    async with backstay.open(path, agent=agent, notify=notify) as app:
        session = await app.session()
        turn = await session.send("walk")
        numbers: list[int] = []
        async with aclosing(session.follow()) as events:
            async for event in events:
                if not numbers:
                    await turn.outcome()
                numbers.append(event.number)
                if isinstance(event.body, TurnEnded):
                    break
        assert numbers == list(range(1, len(numbers) + 1))
        assert len(numbers) > 1_300


async def test_a_slow_follower_of_a_turn_gets_everything_up_to_its_end(path: Place, notify: bool) -> None:
    gate = Gate()

    async def agent(turn: AgentTurn) -> AsyncIterator[Body]:
        yield Text("one ")
        await gate.stop_here()
        for number in range(1_300):
            yield Custom("step", number)

    async with backstay.open(path, agent=agent, notify=notify) as app:
        turn = await (await app.session()).send("walk")
        events: list[Event] = []
        async for event in turn.events():
            events.append(event)
            if isinstance(event.body, TextDelta):
                gate.open()
                await turn.outcome()
        assert [event.number for event in events] == list(range(events[0].number, events[0].number + len(events)))
        assert isinstance(events[-1].body, TurnEnded)
        assert len(events) > 1_300


async def test_each_of_many_followers_gets_everything_when_one_leaves(path: Place, notify: bool) -> None:
    gates = [Gate() for _ in range(5)]

    async def agent(turn: AgentTurn) -> AsyncIterator[Body]:
        for number, gate in enumerate(gates):
            yield Text(f"{number} ")
            await gate.stop_here()

    async with backstay.open(path, agent=agent, timing=EACH, notify=notify) as app:
        turn = await (await app.session()).send("count")
        staying = [asyncio.create_task(events_of_turn(turn)) for _ in range(10)]
        leaving = [asyncio.create_task(events_of_turn(turn)) for _ in range(4)]
        for gate, leaver in zip(gates, [None, *leaving], strict=True):
            await gate.reached()
            if leaver is not None:
                leaver.cancel()
            gate.open()
        stories = await asyncio.gather(*staying)
        assert all(one == stories[0] for one in stories)
        assert "".join(words_in(stories[0])) == "0 1 2 3 4 "
        gone = await asyncio.gather(*leaving, return_exceptions=True)
        assert all(isinstance(left, asyncio.CancelledError) for left in gone)


async def test_events_of_another_app_are_seen(path: Place, notify: bool) -> None:
    async with (
        backstay.open(path, agent=echo, notify=notify) as worker,
        backstay.open(path, notify=notify) as watcher,
    ):
        session = await worker.session()
        follower = Follower(await watcher.session(session.id))
        await (await session.send("hello")).outcome()
        await session.rename("a title")
        await session.pin()
        await session.archive()
        await follower.caught_up()
        await session.delete()
        followed = await follower.until_the_end()
        kinds = [type(event.body) for event in followed]
        assert [event.number for event in followed] == list(range(1, len(followed) + 1))
        assert (kinds[0], kinds[-1]) == (SessionCreated, SessionDeleted)
        assert {SessionRenamed, SessionPinned, SessionArchived, TextDelta, TurnEnded} < set(kinds)


async def test_a_follower_sees_writes_that_bypass_every_app(path: Place, notify: bool) -> None:
    async with backstay.open(path, notify=notify) as app:
        session = await app.session()
        titles: asyncio.Queue[str | None] = asyncio.Queue()

        async def watch() -> None:
            async for event in session.follow():
                if isinstance(event.body, SessionRenamed):
                    titles.put_nowait(event.body.title)

        watching = asyncio.create_task(watch())
        with open_store(path) as store:
            for number in range(10):
                store.rename(session.id, f"{number}", owner="local")
                assert await titles.get() == f"{number}"
        watching.cancel()


@pytest.mark.parametrize("agent", [None, echo], ids=["accepts only", "serves"])
async def test_a_follower_learns_that_a_holder_is_gone(path: Place, agent: object, notify: bool) -> None:
    agents = {} if agent is None else {"default": echo}
    async with backstay.open(path, agents=agents, notify=notify, lease_seconds=3600) as app:
        session = await app.session()
        holder = open_store(path, lease_seconds=3600)
        opened = holder.submit(session.id, "hello", owner="local", request_id="r-1", start=True).opened
        assert opened is not None
        holder.checkpoint(opened, [Text("half an ans")])
        turn = await session.send("hello", request_id="r-1")
        assert await first_words(turn) == "half an ans"
        following = asyncio.create_task(events_of_turn(turn))
        waiting = asyncio.create_task(turn.outcome())
        await asyncio.sleep(0)
        holder.close()
        assert isinstance(await waiting, Interrupted)
        assert isinstance((await following)[-1].body, TurnEnded)


@pytest.mark.parametrize("who", ["session", "turn", "outcome"])
async def test_all_waiters_end_when_the_app_closes(path: Place, who: str, notify: bool) -> None:
    async with backstay.open(path, notify=notify) as app:
        session = await app.session()
        turn = await session.send("is anybody there?")

        async def follow() -> None:
            async for _ in session.follow():
                pass

        waits: dict[str, Callable[[], Awaitable[object]]] = {
            "session": follow,
            "turn": lambda: events_of_turn(turn),
            "outcome": turn.outcome,
        }
        waiting = asyncio.ensure_future(waits[who]())
        await (await app.session()).rename("something else happens")
    with pytest.raises(StoreUnavailable):
        await waiting


async def test_folded_events_are_followed_without_a_silent_gap(path: Place, notify: bool) -> None:
    async with backstay.open(path, agent=varied, timing=EACH, notify=notify) as app:
        session = await app.session()
        turn = await session.send("hello")
        events = await events_of_turn(turn)
        with open_store(path) as store:
            assert store.fold(older_than=-1) > 0
        folded = await events_of_turn(turn)
        fold = next(event for event in folded if isinstance(event.body, TurnFolded) and event.body.messages)
        assert fold.last > fold.number
        for number in range(events[0].number, events[-1].number):
            rest = await events_of_turn(turn, after=number)
            # Events that the reader has not seen are part of the fold that contains them.
            assert rest == [event for event in folded if event.last > number]


async def test_an_outcome_is_the_same_for_waiters_and_late_readers(path: Place, notify: bool) -> None:
    gate = Gate()
    async with backstay.open(path, agent=stopping_at(gate), notify=notify) as app:
        turn = await (await app.session()).send("hello")
        waiting = [asyncio.create_task(turn.outcome()) for _ in range(10)]
        await gate.reached()
        gate.open()
        assert await asyncio.gather(*waiting) == [Completed()] * 10
        assert await turn.outcome() == Completed()


async def test_a_bad_cursor_is_refused(path: Place) -> None:
    async with backstay.open(path, agent=saying("hello")) as app:
        session = await app.session()
        with pytest.raises(InvalidPayload):
            await anext(session.follow(-5))


# --- all sessions of an owner -----------------------------------------------------------------------------------------


async def feed(app: backstay.App, after: int, count: int) -> list[FeedEvent]:
    """This number of events of the feed after a position."""
    events: list[FeedEvent] = []
    async for event in app.follow(after):
        events.append(event)
        if len(events) == count:
            break
    return events


async def test_the_feed_of_all_sessions_resumed_at_every_position_has_the_same_events(
    path: Place, notify: bool
) -> None:
    async with backstay.open(path, agent=varied, timing=EACH, notify=notify) as app:
        sessions = [await app.session() for _ in range(3)]
        turns = await asyncio.gather(*(session.send("hello") for session in sessions))
        await asyncio.gather(*(turn.outcome() for turn in turns))
        stories = [await whole(session) for session in sessions]
        everything = await feed(app, 0, sum(len(one) for one in stories))
        positions = [event.position for event in everything]
        assert positions == sorted(set(positions))
        for session, one in zip(sessions, stories, strict=True):
            assert [event.event for event in everything if event.event.session == session.id] == one
        for seen in range(len(everything)):
            after = everything[seen - 1].position if seen else 0
            assert everything[:seen] + await feed(app, after, len(everything) - seen) == everything


async def test_the_feed_is_live_and_has_only_sessions_of_its_owner(path: Place, notify: bool) -> None:
    async with (
        backstay.open(path, agent=echo, owner="ann", notify=notify) as anns,
        backstay.open(path, agent=echo, owner="bob", notify=notify) as bobs,
    ):
        await (await (await anns.session()).send("before")).outcome()
        roles_and_texts: asyncio.Queue[Event] = asyncio.Queue()

        async def listen() -> None:
            async for one in anns.follow():
                roles_and_texts.put_nowait(one.event)

        listening = asyncio.create_task(listen())
        while roles_and_texts.empty():  # Events before it listens are not part of the feed.
            await anns.session()
            await asyncio.sleep(0)
        await (await (await bobs.session()).send("not yours")).outcome()
        session = await anns.session()
        turn = await session.send("now")
        expected = await events_of_turn(turn)
        heard = [await roles_and_texts.get()]
        while heard[-1] != expected[-1]:
            heard.append(await roles_and_texts.get())
        listening.cancel()
        assert [event for event in heard if event.turn == turn.id] == expected
        assert {event.turn for event in heard} == {turn.id, None}


async def test_all_waiters_for_the_feed_end_when_the_app_closes(path: Place, notify: bool) -> None:
    async with backstay.open(path, notify=notify) as app:
        listening = asyncio.create_task(feed(app, 0, 1_000))
        await app.session()
    with pytest.raises(StoreUnavailable):
        await listening


@pytest.mark.parametrize("after", ["3", 1.5, b"3", [3]], ids=repr)
async def test_a_feed_position_that_is_not_a_number_is_rejected_with_a_message(path: Place, after: Any) -> None:
    async with backstay.open(path, agent=echo) as app:
        session = await app.session()
        turn = await session.send("hello")
        with pytest.raises(InvalidPayload):
            await anext(session.follow(after))
        with pytest.raises(InvalidPayload):
            await anext(turn.events(after))
