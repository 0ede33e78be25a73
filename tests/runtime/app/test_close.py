"""Closing: no new turns; running ones get their grace time and are then interrupted visibly; nothing is left behind."""

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

import backstay
from backstay import Address, App, Text, Timing, open_store
from backstay.agents.blocking_agent import BlockingAgentTurn
from backstay.agents.port import AgentTurn
from backstay.agents.tools import tool
from backstay.errors import Conflict, StoreUnavailable
from backstay.model.content import Body
from backstay.model.event import TurnEnded
from backstay.model.turn import Cancelled, Completed, Interrupted, TurnInfo
from backstay.runtime.turn_handle import Turn
from backstay.testing import ManualClock
from tests.databases import Place
from tests.runtime.controlled_agents import (
    PATIENCE,
    Gate,
    HeldClock,
    a_few_steps,
    echo,
    first_words,
    nothing_can_be_written,
    play,
    stopping_at,
    until,
    until_end,
)

CHAT = Address.chat("telegram", "dm", chat="42")
NO_GRACE = Timing(grace=0)


def read_turn(path: Place, turn: Turn) -> TurnInfo:
    """The turn as any process reads it afterwards."""
    with open_store(path) as store:
        return store.turn(turn.id, owner="local")


async def test_a_running_turn_may_end_within_the_grace_time(path: Place) -> None:
    gate = Gate()
    app = backstay.open(path, agent=stopping_at(gate), timing=Timing(grace=3600))
    async with app:
        turn = await (await app.session()).send("hello")
        await first_words(turn)
        closing = asyncio.create_task(app.close())
        await asyncio.sleep(0)
        gate.open()
        await closing
    assert read_turn(path, turn).outcome == Completed()


@pytest.mark.parametrize("grace", [0, 0.05])
async def test_after_the_grace_time_a_running_turn_is_interrupted_visibly(
    path: Place, grace: float, notify: bool
) -> None:
    async with backstay.open(path, agent=stopping_at(Gate()), timing=Timing(grace=grace), notify=notify) as app:
        session = await app.session()
        turn = await session.send("hello")
        await first_words(turn)
    with open_store(path) as store:
        assert isinstance(store.turn(turn.id, owner="local").outcome, Interrupted)
        last = store.messages(session.id, owner="local").messages[-1]
        assert (last.role, last.text, last.partial) == ("assistant", "one ", True)
        events = store.events_after(session.id, owner="local").events
        assert isinstance(events[-1].body, TurnEnded)


async def test_leases_are_released(path: Place) -> None:
    with open_store(path) as other:
        async with backstay.open(path, agent=stopping_at(Gate()), timing=NO_GRACE, lease_seconds=3600) as app:
            session = await app.session()
            await first_words(await session.send("hello"))
        now = other.session(session.id, owner="local")
        assert (now.running, now.holder) == (None, None)
        assert other.submit(session.id, "next", owner="local", start=True).opened is not None


@pytest.mark.parametrize("titler", [None, 1])
async def test_no_task_and_no_thread_is_left_alive(path: Place, titler: int | None) -> None:
    async def name(messages: object) -> str:
        return "a title"

    @tool
    def slow() -> str:
        return "done"

    async def agent(turn: AgentTurn) -> AsyncIterator[Body]:
        yield Text(await turn.call(slow, {}))
        await asyncio.Event().wait()

    before = set(threading.enumerate())
    async with backstay.open(path, agent=agent, timing=NO_GRACE, titler=name if titler else None) as app:
        for _ in range(5):
            await first_words(await (await app.session()).send("hello"))
    assert asyncio.all_tasks() == {asyncio.current_task()}
    # The loop's own pool of threads belongs to the loop.
    left = [thread for thread in set(threading.enumerate()) - before if not thread.name.startswith("asyncio")]
    for thread in left:
        await asyncio.to_thread(thread.join)


async def test_waiting_turns_stay_waiting_during_the_grace_time(path: Place, notify: bool) -> None:
    gates = {"first": Gate(), "second": Gate()}
    heard: list[str] = []

    async def agent(turn: AgentTurn) -> AsyncIterator[Body]:
        heard.append(turn.input.text)
        yield Text("one ")
        await gates[turn.input.text].stop_here()

    app = backstay.open(path, agent=agent, timing=Timing(grace=3600, poll=0.001), notify=notify)
    async with app, backstay.open(path, notify=notify) as door:
        one, two = await app.session(), await app.session()
        first, second = await one.send("first"), await two.send("second")
        waiting = await one.send("third")
        await asyncio.gather(gates["first"].reached(), gates["second"].reached())
        closing = asyncio.create_task(app.close())
        # A claim that was under way has found nothing by then; only `door` still looks.
        await until(lambda: [task.get_name() for task in asyncio.all_tasks()].count("backstay claims") == 1)
        gates["first"].open()
        assert await (await door.turn(first.id)).outcome() == Completed()
        elsewhere = await (await door.session()).send("fourth")
        for _ in range(10):  # The wake-up of `door` shows that enough time has passed to claim either.
            await (await door.session()).rename("something happens")
        gates["second"].open()
        await closing
        assert sorted(heard) == ["first", "second"]
        assert [read_turn(path, turn).state for turn in (second, waiting, elsewhere)] == [
            "ended",
            "waiting",
            "waiting",
        ]


def test_an_input_sent_during_closing_is_rejected_or_waits_for_the_next_app(path: Place) -> None:
    gate = Gate()
    heard: list[str] = []

    async def agent(turn: AgentTurn) -> AsyncIterator[Body]:
        heard.append(turn.input.text)
        yield Text("one ")
        await gate.stop_here()

    async def first_day() -> None:
        app = backstay.open(path, agent=agent, timing=Timing(grace=3600))
        async with app:
            busy, free = await app.session(), await app.session(CHAT)
            await first_words(await busy.send("first"))
            closing = asyncio.create_task(app.close())
            # A claim that was under way has found nothing by then.
            await until(lambda: "backstay claims" not in {task.get_name() for task in asyncio.all_tasks()})
            with suppress(StoreUnavailable):
                await free.send("second")
            gate.open()
            await closing
        assert heard == ["first"]

    async def next_day() -> None:
        async with backstay.open(path, agent=echo) as app:
            session = await app.session(CHAT)
            if (await session.read()).last_event > 2:
                assert await until_end(session) == [Completed()]

    play(first_day())
    play(next_day())


async def begin_closing(app: App) -> "asyncio.Task[None]":
    """Close the app in a task; when this returns, the closing has begun."""
    closing = asyncio.create_task(app.close())
    await asyncio.sleep(0)
    return closing


async def test_closing_between_finding_a_waiting_turn_and_claiming_it_leaves_it_waiting(path: Place) -> None:
    heard: list[str] = []

    async def agent(turn: AgentTurn) -> AsyncIterator[Body]:
        heard.append(turn.input.text)
        yield Text("yes")

    clock = HeldClock()
    with open_store(path, clock=ManualClock(), lease_seconds=3600) as other:
        # A claim first looks whether this holder still lives: there it can be stopped.
        other.submit(other.create(owner="local").id, "held elsewhere", owner="local", start=True)
        waiting = other.submit(other.create(owner="local").id, "hello", owner="local").turn
        # The app looks for work once, and for nothing else.
        timing = Timing(grace=3600, poll=3600, reap=1e12)
        app = backstay.open(path, agent=agent, clock=clock, timing=timing, lease_seconds=3600)
        async with app:
            clock.hold()
            await asyncio.to_thread(clock.wait_until_asked)
            closing = await begin_closing(app)
            clock.release()
            await closing
        assert (heard, other.turn(waiting.id, owner="local").state) == ([], "waiting")


async def test_a_turn_that_ends_while_the_app_closes_starts_no_waiting_turn(path: Place, notify: bool) -> None:
    gate = Gate()
    heard: list[str] = []

    async def agent(turn: AgentTurn) -> AsyncIterator[Body]:
        heard.append(turn.input.text)
        yield Text("yes")
        await gate.stop_here()

    app = backstay.open(path, agent=agent, timing=Timing(grace=3600), notify=notify)
    async with app:
        session = await app.session()
        first, second = await session.send("first"), await session.send("second")
        await first_words(first)
        with nothing_can_be_written(path):
            gate.open()
            await a_few_steps()  # By now the first turn waits for its end to be written.
            closing = await begin_closing(app)
        await closing
    assert (heard, read_turn(path, first).outcome) == (["first"], Completed())
    assert read_turn(path, second).state == "waiting"


@pytest.mark.parametrize("verb", ["send", "send to an address", "submit", "retry", "edit"])
async def test_an_input_that_is_stored_while_the_app_closes_waits_for_the_next(path: Place, verb: str) -> None:
    heard: list[str] = []

    async def agent(turn: AgentTurn) -> AsyncIterator[Body]:
        heard.append(turn.input.text)
        yield Text("yes")

    app = backstay.open(path, agent=agent, timing=Timing(grace=3600))
    async with app:
        session = await app.session()
        await (await session.send("first")).outcome()
        first = (await session.messages())[0].id
        verbs: dict[str, Callable[[], Coroutine[object, object, Turn]]] = {
            "send": lambda: session.send("second"),
            "send to an address": lambda: app.send(CHAT, "second"),
            "submit": lambda: app.owned_by("local").send(session.id, "second", agent="default"),
            "retry": session.retry,
            "edit": lambda: session.edit(first, "second"),
        }
        with nothing_can_be_written(path):
            sending = asyncio.create_task(verbs[verb]())
            await a_few_steps()  # By now the input waits to be written.
            closing = await begin_closing(app)
        turn = await sending
        await closing
    assert (heard, read_turn(path, turn).state) == (["first"], "waiting")


def test_an_interrupted_turn_is_not_resumed_by_an_app_that_closes(path: Place) -> None:
    async def first_day() -> Turn:
        async with backstay.open(path, agent=stopping_at(Gate()), timing=NO_GRACE) as app:
            turn = await (await app.session()).send("hello")
            await first_words(turn)
        return turn

    async def next_day(turn: Turn) -> None:
        app = backstay.open(path, agent=echo, timing=Timing(grace=3600))
        async with app:
            with nothing_can_be_written(path):
                resuming = asyncio.create_task(app.owned_by("local").resume(turn.id))
                await a_few_steps()
                closing = await begin_closing(app)
            with pytest.raises((Conflict, StoreUnavailable)):
                await resuming
            await closing

    turn = play(first_day())
    play(next_day(turn))
    with open_store(path) as store:
        assert store.interrupted(["default"]) == ((turn.id, "local"),)


async def test_a_turn_can_be_cancelled_while_the_app_closes(path: Place, notify: bool) -> None:
    app = backstay.open(path, agent=stopping_at(Gate()), timing=Timing(grace=3600), notify=notify)
    async with app:
        turn = await (await app.session()).send("hello")
        await first_words(turn)
        closing = asyncio.create_task(app.close())
        await asyncio.sleep(0)
        with open_store(path) as store:
            store.cancel(turn.id, owner="local")
        await closing
    assert isinstance(read_turn(path, turn).outcome, Cancelled)


async def test_closing_again_and_by_many_at_once_is_harmless(path: Place) -> None:
    app = backstay.open(path, agent=echo)
    async with app:
        await (await (await app.session()).send("hello")).outcome()
        await asyncio.gather(app.close(), app.close(), app.close())
        await app.close()
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_closing_by_many_at_once_ends_for_all_when_it_is_done(path: Place) -> None:
    gate = Gate()
    app = backstay.open(path, agent=stopping_at(gate), timing=Timing(grace=3600))
    async with app:
        turn = await (await app.session()).send("hello")
        await first_words(turn)
        closings = [asyncio.create_task(app.close()) for _ in range(2)]
        for _ in range(20):
            await asyncio.sleep(0)
        assert not any(closing.done() for closing in closings)
        gate.open()
        await asyncio.gather(*closings)


async def test_the_app_closes_however_its_block_ends(path: Place) -> None:
    async def fail() -> None:
        async with backstay.open(path, agent=stopping_at(Gate()), timing=NO_GRACE) as app:
            turn = await (await app.session()).send("hello")
            turns.append(turn)
            await first_words(turn)
            raise ValueError("in the program")

    async def wait_for_ever() -> None:
        async with backstay.open(path, agent=stopping_at(Gate()), timing=NO_GRACE) as app:
            turn = await (await app.session()).send("hello")
            turns.append(turn)
            await first_words(turn)
            running.set()
            await asyncio.Event().wait()

    turns: list[Turn] = []
    running = asyncio.Event()

    with pytest.raises(ValueError, match="in the program"):
        await fail()
    stopped = asyncio.create_task(wait_for_ever())
    await running.wait()
    stopped.cancel()
    with pytest.raises(asyncio.CancelledError):
        await stopped
    assert asyncio.all_tasks() == {asyncio.current_task()}
    result = [read_turn(path, turn).outcome for turn in turns]

    assert [type(outcome) for outcome in result] == [Interrupted, Interrupted]


async def test_each_method_of_a_closed_app_raises_that_it_is_closed(path: Place) -> None:
    app = backstay.open(path, agent=echo)
    async with app:
        session = await app.session()
        turn = await session.send("hello")
        await turn.outcome()
        message = (await session.messages())[0].id
    verbs: list[Callable[[], Awaitable[object]]] = [
        app.session,
        app.sessions,
        lambda: app.search("hello"),
        lambda: session.send("hello"),
        lambda: session.steer("hello"),
        lambda: session.rename("a title"),
        lambda: session.edit(message, "other"),
        session.retry,
        session.read,
        session.messages,
        session.lineage,
        session.undo,
        session.fork,
        session.delete,
        lambda: anext(session.follow()),
        lambda: anext(turn.events()),
        turn.read,
        turn.outcome,
        turn.cancel,
    ]
    for verb in verbs:
        with pytest.raises(StoreUnavailable):
            await verb()


async def test_an_app_that_was_not_opened_raises_an_error(tmp_path: Path) -> None:
    with pytest.raises(StoreUnavailable, match="async with"):
        await backstay.open(tmp_path / "chat.db").session()
    assert list(tmp_path.iterdir()) == []  # noqa: ASYNC240  # nothing else happens here


async def test_tools_that_hang_hold_up_neither_other_tools_nor_the_closing(path: Place) -> None:
    release = threading.Event()
    hanging = threading.Semaphore(0)

    @tool
    def hang() -> None:
        hanging.release()
        release.wait(PATIENCE)

    @tool
    def quick() -> str:
        return "done"

    async def agent(turn: AgentTurn) -> AsyncIterator[Body]:
        if turn.input.text == "hang":
            await asyncio.gather(*(turn.call(hang, {}) for _ in range(40)))
        yield Text(await turn.call(quick, {}))

    async with backstay.open(path, agent=agent, timing=NO_GRACE) as app:
        await (await app.session()).send("hang")
        for _ in range(40):
            await asyncio.to_thread(hanging.acquire)
        assert await (await (await app.session()).send("be quick")).outcome() == Completed()
    release.set()


async def test_a_blocking_agent_that_hangs_does_not_hold_up_the_closing(path: Place) -> None:
    release = threading.Event()

    def agent(turn: BlockingAgentTurn) -> Iterator[Body]:
        yield Text("one ")
        release.wait(PATIENCE)

    async with backstay.open(path, agent=agent, timing=NO_GRACE) as app:
        turn = await (await app.session()).send("hello")
        await first_words(turn)
    assert isinstance(read_turn(path, turn).outcome, Interrupted)
    release.set()


async def test_a_call_that_waits_for_approval_does_not_hold_up_the_closing(path: Place) -> None:
    @tool(approval=True)
    def pay() -> None:
        raise AssertionError("nobody agreed")

    def agent(turn: BlockingAgentTurn) -> Iterator[Body]:
        yield Text("one ")
        turn.call(pay, {})

    async with backstay.open(path, agent=agent, timing=NO_GRACE) as app:
        turn = await (await app.session()).send("hello")
        await first_words(turn)
    assert isinstance(read_turn(path, turn).outcome, Interrupted)
    # The agent's thread may only now come to its call, which is refused.
    late = asyncio.all_tasks() - {asyncio.current_task()}
    assert not late or not (await asyncio.wait(late, timeout=PATIENCE))[1]


def test_the_next_app_continues_at_once_with_the_turns_of_a_closed_one(path: Place, notify: bool) -> None:
    async def first_day() -> None:
        async with backstay.open(path, agent=stopping_at(Gate()), timing=NO_GRACE, lease_seconds=3600) as app:
            session = await app.session(CHAT)
            await first_words(await session.send("first"))
            await session.send("second")

    async def next_day() -> None:
        async with backstay.open(path, agent=echo, notify=notify, lease_seconds=3600) as app:
            session = await app.session(CHAT)
            outcomes = await until_end(session, turns=2)
            assert [type(outcome) for outcome in outcomes] == [Interrupted, Completed]

    play(first_day())
    play(next_day())
