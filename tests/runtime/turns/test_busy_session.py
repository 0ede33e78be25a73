"""A busy session: further input waits, is rejected, steers, replaces or goes to a fork."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

import backstay
from backstay import Address, Text, open_store
from backstay.agents.port import AgentTurn
from backstay.errors import BackstayError, NothingToDo, SessionBusy, SessionEnded
from backstay.model import message
from backstay.model.content import Body, text_of
from backstay.model.event import SteeringTaken, TextDelta, TurnEnded, TurnStarted, TurnSubmitted
from backstay.model.turn import Cancelled, Completed, IfBusy
from tests.databases import Place
from tests.runtime.controlled_agents import (
    AgentFunction,
    Gate,
    echo,
    events_of_turn,
    first_words,
    play,
    roles_and_texts,
    until_end,
)


def stopping_once(gate: Gate) -> AgentFunction:
    """An agent that stops in its first turn and echoes in all."""
    stopped = False

    async def agent(turn: AgentTurn) -> AsyncIterator[Body]:
        nonlocal stopped
        yield Text(f"heard {turn.input.text}")
        if not stopped:
            stopped = True
            await gate.stop_here()

    return agent


def steered(gate: Gate) -> AgentFunction:
    """An agent that stops, and then answers the steering inputs that arrived meanwhile."""

    async def agent(turn: AgentTurn) -> AsyncIterator[Body]:
        yield Text("working. ")
        await gate.stop_here()
        for steering in await turn.steering():
            yield Text(f"yes, {text_of(steering.parts)}. ")
        assert await turn.steering() == ()
        yield Text("done.")

    return agent


async def test_inputs_sent_during_a_turn_are_answered_in_order(path: Place, notify: bool) -> None:
    gate = Gate()
    async with backstay.open(path, agent=stopping_once(gate), notify=notify) as app:
        session = await app.session()
        turns = [await session.send(f"{number}") for number in range(5)]
        await gate.reached()
        assert [(await turn.read()).state for turn in turns] == ["running"] + ["waiting"] * 4
        gate.open()
        assert [await turn.outcome() for turn in turns] == [Completed()] * 5
        expected = [pair for n in range(5) for pair in (("user", f"{n}"), ("assistant", f"heard {n}"))]
        assert roles_and_texts(await session.messages()) == expected


async def test_the_events_of_a_waiting_turn_begin_with_its_acceptance(path: Place, notify: bool) -> None:
    gate = Gate()
    async with backstay.open(path, agent=stopping_once(gate), notify=notify) as app:
        session = await app.session()
        await session.send("first")
        turn = await session.send("second")
        following = asyncio.create_task(events_of_turn(turn))
        gate.open()
        bodies = [event.body for event in await following]
        assert isinstance(bodies[0], TurnSubmitted)
        assert isinstance(bodies[1], TurnStarted)
        assert bodies[-1] == TurnEnded(Completed(), messages=1)


async def test_a_sender_can_choose_rejection_instead_of_waiting(path: Place) -> None:
    gate = Gate()
    async with backstay.open(path, agent=stopping_once(gate)) as app:
        session = await app.session()
        turn = await session.send("first")
        await first_words(turn)
        before = await session.read()
        with pytest.raises(SessionBusy):
            await session.send("second", if_busy="reject")
        assert await session.read() == before
        gate.open()
        await turn.outcome()


async def test_steering_reaches_the_running_agent_at_its_next_step(path: Place, notify: bool) -> None:
    gate = Gate()
    async with backstay.open(path, agent=steered(gate), notify=notify) as app:
        session = await app.session()
        turn = await session.send("work")
        await gate.reached()
        steers = [await session.steer("faster"), await session.send("and cheaper", if_busy="steer")]
        gate.open()
        assert await turn.outcome() == Completed()
        assert [await steer.outcome() for steer in steers] == [Completed()] * 2
        assert {(await steer.read()).taken_by for steer in steers} == {turn.id}
        assert roles_and_texts(await session.messages()) == [
            ("user", "work"),
            ("assistant", "working. "),
            ("user", "faster"),
            ("user", "and cheaper"),
            ("assistant", "yes, faster. yes, and cheaper. done."),
        ]


async def test_steering_is_handed_out_once_to_concurrent_readers(path: Place, notify: bool) -> None:
    gate = Gate()

    async def agent(turn: AgentTurn) -> AsyncIterator[Body]:
        yield Text("working. ")
        await gate.stop_here()
        given_up = asyncio.create_task(turn.steering())
        await asyncio.sleep(0)
        given_up.cancel()
        lots = await asyncio.gather(turn.steering(), turn.steering(), turn.steering())
        yield Text(" ".join(text_of(steering.parts) for lot in lots for steering in lot))

    async with backstay.open(path, agent=agent, notify=notify) as app:
        session = await app.session()
        turn = await session.send("work")
        await gate.reached()
        await session.steer("faster")
        await session.steer("cheaper")
        gate.open()
        await turn.outcome()
        assert (await session.messages())[-1].text == "faster cheaper"


async def test_the_event_of_taken_steering_precedes_the_answer(path: Place) -> None:
    gate = Gate()
    async with backstay.open(path, agent=steered(gate)) as app:
        session = await app.session()
        turn = await session.send("work")
        await gate.reached()
        steer = await session.steer("faster")
        gate.open()
        bodies = [event.body for event in await events_of_turn(turn)]
        taken = bodies.index(SteeringTaken(steer.id, (Text("faster"),)))
        assert "yes, faster. " not in "".join(body.text for body in bodies[:taken] if isinstance(body, TextDelta))
        assert "yes, faster. " in "".join(body.text for body in bodies[taken:] if isinstance(body, TextDelta))


async def test_steering_that_is_never_asked_for_is_the_next_turn(path: Place, notify: bool) -> None:
    gate = Gate()
    async with backstay.open(path, agent=stopping_once(gate), notify=notify) as app:
        session = await app.session()
        await session.send("first")
        queued = await session.send("third")
        steer = await session.steer("second")
        gate.open()
        await asyncio.gather(steer.outcome(), queued.outcome())
        heard = [text for role, text in roles_and_texts(await session.messages()) if role == "user"]
        assert heard == ["first", "second", "third"]
        assert (await steer.read()).taken_by is None


async def test_steering_ends_with_the_turn_that_took_it(path: Place, notify: bool) -> None:
    gate, taken = Gate(), Gate()

    async def agent(turn: AgentTurn) -> AsyncIterator[Body]:
        yield Text("working")
        await gate.stop_here()
        assert len(await turn.steering()) == 1
        await taken.stop_here()

    async with backstay.open(path, agent=agent, notify=notify) as app:
        session = await app.session()
        turn = await session.send("work")
        await gate.reached()
        steer = await session.steer("faster")
        gate.open()
        await taken.reached()
        with pytest.raises(NothingToDo):
            await steer.cancel()
        assert isinstance(await turn.cancel(), Cancelled)
        assert isinstance(await steer.outcome(), Cancelled)
        assert ("user", "faster") in roles_and_texts(await session.messages())


async def test_replacing_cancels_the_running_turn_keeps_its_output_and_runs_next(path: Place, notify: bool) -> None:
    gate = Gate()
    async with backstay.open(path, agent=stopping_once(gate), notify=notify) as app:
        session = await app.session()
        first = await session.send("first")
        await first_words(first)
        queued = await session.send("third")
        second = await session.send("second", if_busy="replace")
        assert isinstance(await first.outcome(), Cancelled)
        assert [await second.outcome(), await queued.outcome()] == [Completed()] * 2
        messages = await session.messages()
        assert roles_and_texts(messages) == [
            pair for said in ("first", "second", "third") for pair in (("user", said), ("assistant", f"heard {said}"))
        ]
        assert [message.partial for message in messages] == [False, True, False, False, False, False]


async def test_a_fork_answers_at_once_and_leaves_the_running_turn_alone(path: Place, notify: bool) -> None:
    gate = Gate()
    async with backstay.open(path, agent=echo, notify=notify) as before:
        await (await (await before.session()).send("zero")).outcome()
        listed = (await before.sessions()).sessions[0].id
    async with backstay.open(path, agent=stopping_once(gate), notify=notify) as app:
        session = await app.session(listed)
        running = await session.send("first")
        await first_words(running)
        aside = await session.send("second", if_busy="fork")
        assert aside.forked_from == session.id != aside.session
        assert await aside.outcome() == Completed()
        fork = await app.session(aside.session)
        assert roles_and_texts(await fork.messages()) == [
            ("user", "zero"),
            ("assistant", "heard zero"),
            ("user", "second"),
            ("assistant", "heard second"),
        ]
        gate.open()
        assert await running.outcome() == Completed()
        assert [text for _, text in roles_and_texts(await session.messages())][2:] == ["first", "heard first"]


@pytest.mark.parametrize("if_busy", ["enqueue", "reject", "steer", "replace", "fork"])
async def test_in_an_idle_session_all_if_busy_modes_are_equal(path: Place, if_busy: IfBusy) -> None:
    async with backstay.open(path, agent=echo) as app:
        session = await app.session()
        turn = await session.send("hello", if_busy=if_busy)
        assert (await turn.outcome(), turn.session, turn.forked_from) == (Completed(), session.id, None)


def test_waiting_turns_survive_reopening_and_are_answered_in_order(path: Place, notify: bool) -> None:
    async def first_day() -> str:
        async with backstay.open(path, notify=notify) as door:
            session = await door.session()
            for number in range(3):
                await session.send(f"{number}")
            return session.id

    async def next_day() -> list[tuple[str, str]]:
        async with backstay.open(path, agent=echo, notify=notify) as app:
            session = await app.session((await app.sessions()).sessions[0].id)
            await until_end(session, turns=3)
            return roles_and_texts(await session.messages())

    play(first_day())
    assert play(next_day()) == [pair for n in range(3) for pair in (("user", f"{n}"), ("assistant", f"heard {n}"))]


def test_steering_and_queue_survive_a_close_and_are_answered_by_the_next_app(path: Place, notify: bool) -> None:
    gate = Gate()
    timing = backstay.Timing(grace=0)

    async def first_day() -> None:
        async with backstay.open(path, agent=stopping_once(gate), timing=timing, notify=notify) as app:
            session = await app.session()
            await first_words(await session.send("first"))
            await session.send("third")
            await session.steer("second")

    async def next_day() -> list[str]:
        async with backstay.open(path, agent=echo, notify=notify) as app:
            session = await app.session((await app.sessions()).sessions[0].id)
            await until_end(session, turns=3)
            return [text for role, text in roles_and_texts(await session.messages()) if role == "user"]

    play(first_day())
    assert play(next_day()) == ["first", "second", "third"]


async def test_a_waiting_turn_that_is_cancelled_never_runs(path: Place) -> None:
    gate = Gate()
    async with backstay.open(path, agent=stopping_once(gate)) as app:
        session = await app.session()
        running = await session.send("first")
        waiting, after = await session.send("second"), await session.send("third")
        assert isinstance(await waiting.cancel(), Cancelled)
        gate.open()
        await asyncio.gather(running.outcome(), after.outcome())
        assert [text for role, text in roles_and_texts(await session.messages()) if role == "user"] == [
            "first",
            "third",
        ]


async def test_finished_messages_wait_behind_the_running_turn(path: Place, notify: bool) -> None:
    gate = Gate()
    async with backstay.open(path, agent=stopping_once(gate), notify=notify) as app:
        session = await app.session()
        await session.send("first")
        await gate.reached()
        recorded = await session.record([message.user("noted"), message.assistant("elsewhere")])
        assert (recorded.turn.state, recorded.messages) == ("waiting", ())
        last = await session.send("last")
        gate.open()
        await last.outcome()
        assert [text for _, text in roles_and_texts(await session.messages())] == [
            "first",
            "heard first",
            "noted",
            "elsewhere",
            "last",
            "heard last",
        ]


@pytest.mark.parametrize("verb", ["undo", "redo", "retry", "edit"])
async def test_history_cannot_change_under_a_running_turn_and_the_error_has_a_hint(path: Place, verb: str) -> None:
    gate = Gate()
    async with backstay.open(path, agent=echo) as app:
        session = await app.session()
        await (await session.send("zero")).outcome()
        listed = session.id
    async with backstay.open(path, agent=stopping_once(gate)) as app:
        session = await app.session(listed)
        turn = await session.send("first")
        await first_words(turn)
        before, zero = await session.read(), (await session.messages())[0].id
        verbs: dict[str, Callable[[], Awaitable[object]]] = {
            "undo": session.undo,
            "redo": session.redo,
            "retry": session.retry,
            "edit": lambda: session.edit(zero, "other"),
        }
        with pytest.raises(SessionBusy, match="cancel it first"):
            await verbs[verb]()
        assert await session.read() == before
        gate.open()
        assert await turn.outcome() == Completed()


async def test_ended_turns_can_always_be_forked(path: Place) -> None:
    gate = Gate()
    async with backstay.open(path, agent=stopping_once(gate)) as app:
        session = await app.session()
        gate.open()
        await (await session.send("zero")).outcome()
        turn = await session.send("first")
        fork = await session.fork()
        await turn.outcome()
        assert roles_and_texts(await fork.messages())[:2] == [("user", "zero"), ("assistant", "heard zero")]
        assert await (await fork.send("aside")).outcome() == Completed()


async def test_ending_a_session_cancels_running_and_waiting_turns(path: Place, notify: bool) -> None:
    gate = Gate()
    async with backstay.open(path, agent=stopping_once(gate), notify=notify) as app:
        session = await app.session()
        running = await session.send("first")
        await first_words(running)
        waiting = await session.send("second")
        await session.end()
        assert isinstance(await running.outcome(), Cancelled)
        assert isinstance(await waiting.outcome(), Cancelled)
        assert roles_and_texts(await session.messages()) == [("user", "first"), ("assistant", "heard first")]
        with pytest.raises(SessionEnded):
            await session.send("third")


async def test_a_full_queue_rejects_with_an_error(path: Place) -> None:
    gate = Gate()
    limits = backstay.model.limits.Limits(waiting_turns=2)
    async with backstay.open(path, agent=stopping_once(gate), limits=limits) as app:
        session = await app.session()
        turns = [await session.send(f"{number}") for number in range(3)]
        with pytest.raises(BackstayError, match="2 turns already wait"):
            await session.send("one too many")
        gate.open()
        assert [await turn.outcome() for turn in turns] == [Completed()] * 3


async def test_another_handle_sees_the_queue_in_the_order_it_will_run(path: Place) -> None:
    gate = Gate()
    async with backstay.open(path, agent=stopping_once(gate)) as app:
        session = await app.session()
        await session.send("first")
        third, second = await session.send("third"), await session.steer("second")
        with open_store(path) as store:
            assert [turn.id for turn in store.waiting(session.id, owner="local")] == [second.id, third.id]
        gate.open()
        await third.outcome()


async def test_an_app_that_claims_its_own_turns_starts_no_others(path: Place, notify: bool) -> None:
    with open_store(path) as store:
        foreign = store.submit(store.create(owner="local").id, "not yours", owner="local").turn
        shared = store.create(owner="local").id
        before = store.submit(shared, "first in the queue", owner="local").turn
        async with backstay.open(path, agent=echo, claim="own", notify=notify) as app:
            sent = await app.send(shared, "mine")
            assert await sent.outcome() == Completed()
            behind = store.submit(shared, "after mine", owner="local").turn
            again = await app.send(Address.chat("a", "b", chat="c"), "hello", request_id="1")
            assert await again.outcome() == Completed()
            assert (await app.send(Address.chat("a", "b", chat="c"), "hello", request_id="1")).repeated
        assert store.turn(before.id, owner="local").outcome == Completed()
        assert store.turn(foreign.id, owner="local").state == "waiting"
        assert store.turn(behind.id, owner="local").state == "waiting"


async def test_an_app_that_claims_its_own_turns_continues_when_one_is_deleted(path: Place, notify: bool) -> None:
    with open_store(path) as store:
        deleted, kept = store.create(owner="local").id, store.create(owner="local").id
        store.submit(deleted, "hold on", owner="local", start=True)
        busy = store.submit(kept, "hold on", owner="local", start=True).opened
        assert busy is not None
        async with backstay.open(path, agent=echo, claim="own", notify=notify) as app:
            await app.send(deleted, "never mind")
            sent = await app.send(kept, "mine")
            store.delete(deleted, owner="local")
            store.finish(busy, Completed())
            assert await sent.outcome() == Completed()
