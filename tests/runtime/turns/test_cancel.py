"""Cancelling: the turn stops, its output is stored at once, and later output is ignored."""

import asyncio
import gc
import threading
from collections.abc import AsyncIterator, Iterator

import pytest

import backstay
from backstay import Custom, Text, Thought, Timing, ToolCall, ToolResult, open_store
from backstay.agents.blocking_agent import BlockingAgentTurn
from backstay.agents.port import AgentTurn
from backstay.agents.tools import tool
from backstay.errors import BackstayError
from backstay.model.content import Body
from backstay.model.event import TurnEnded
from backstay.model.history.projection import INTERRUPTED
from backstay.model.message import Message
from backstay.model.turn import Cancelled, Completed
from backstay.runtime.session_handle import Session
from tests.databases import Place
from tests.runtime.controlled_agents import (
    PATIENCE,
    Gate,
    echo,
    events_of_turn,
    first_words,
    roles_and_texts,
    saying,
    set_in_the_end,
    stopping_at,
    until,
)

SHORT = Timing(grace=0.2)
# Only a cancellation, a tool or the end of the turn stores text.
NEVER = Timing(flush=3600, flush_bytes=1 << 20, grace=60)


async def test_text_thoughts_and_tool_calls_are_kept(path: Place, notify: bool) -> None:
    said: list[Body] = [
        Thought("let me see"),
        Text("I look. "),
        ToolCall("c1", "search", {}),
        ToolResult("c1", "found"),
        Custom("chart", [1, 2]),
        Text("Now I pay. "),
        ToolCall("c2", "pay", {"sum": 5}),
    ]
    gate = Gate()

    async def agent(turn: AgentTurn) -> AsyncIterator[Body]:
        for body in said:
            yield body
        await gate.stop_here()

    async with backstay.open(path, agent=agent, timing=NEVER, notify=notify) as app:
        session = await app.session()
        turn = await session.send("buy")
        await gate.reached()
        assert isinstance(await turn.cancel(), Cancelled)
        messages = (await session.messages())[1:]
        assert [(message.role, message.parts, message.partial) for message in messages] == [
            ("assistant", (said[0], said[1], said[2]), False),
            ("tool", (said[3],), False),
            ("assistant", (said[4], said[5], said[6]), True),
        ]
        ended = (await events_of_turn(turn))[-1].body
        assert isinstance(ended, TurnEnded)
        assert ended.may_have_run == ("c2",)


async def test_cancelling_is_one_atomic_change(path: Place) -> None:
    seen: list[tuple[Message, ...]] = []
    enough = threading.Event()

    def watch(session: Session) -> None:
        with open_store(path) as store:
            while not enough.is_set():
                messages = store.messages(session.id, owner="local").messages
                if not seen or seen[-1] != messages:
                    seen.append(messages)

    async def agent(turn: AgentTurn) -> AsyncIterator[Body]:
        for number in range(50):
            yield Thought(f"thought {number}")
            yield ToolCall(f"c{number}", "step", {})
            yield ToolResult(f"c{number}", number)
        yield Text("and ")
        await asyncio.Event().wait()

    async with backstay.open(path, agent=agent) as app:
        session = await app.session()
        watching = asyncio.create_task(asyncio.to_thread(watch, session))
        turn = await session.send("work")
        await first_words(turn)
        await turn.cancel()
        enough.set()
        await watching
        assert {len(messages) for messages in seen} <= {0, 1, len(await session.messages())}
        assert all(messages[-1].partial for messages in seen if len(messages) > 1)


async def test_output_that_is_not_stored_yet_is_kept(path: Place, notify: bool) -> None:
    gate = Gate()

    async def agent(turn: AgentTurn) -> AsyncIterator[Body]:
        yield Text("one ")
        await turn.steering()
        yield Text("two ")
        await gate.stop_here()

    async with backstay.open(path, agent=agent, timing=NEVER, notify=notify) as app:
        session = await app.session()
        turn = await session.send("count")
        await gate.reached()
        await turn.cancel()
        assert roles_and_texts(await session.messages())[1:] == [("assistant", "one two ")]


async def test_cancelling_from_another_app_stops_the_agent(path: Place, notify: bool) -> None:
    stopped = asyncio.Event()

    async def agent(turn: AgentTurn) -> AsyncIterator[Body]:
        yield Text("one ")
        try:
            await asyncio.Event().wait()
        finally:
            assert turn.cancelled
            stopped.set()

    async with (
        backstay.open(path, agent=agent, notify=notify, lease_seconds=3600),
        backstay.open(path, notify=notify) as other,
    ):
        session = await other.session()
        turn = await session.send("count")
        await first_words(turn)
        assert isinstance(await turn.cancel(), Cancelled)
        await stopped.wait()
        assert roles_and_texts(await session.messages()) == [("user", "count"), ("assistant", "one ")]


@pytest.mark.parametrize("verb", ["take", "end", "delete"])
async def test_a_silent_agent_stops_when_its_turn_is_ended_over_its_head(path: Place, verb: str, notify: bool) -> None:
    stopped = asyncio.Event()

    async def agent(turn: AgentTurn) -> AsyncIterator[Body]:
        yield Text("one ")
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()

    async with backstay.open(path, agent=agent, notify=notify, lease_seconds=3600) as app:
        session = await app.session()
        turn = await session.send("count")
        await first_words(turn)
        with open_store(path) as store:
            if verb == "take":
                store.cancel(turn.id, owner="local", take=True)
            elif verb == "end":
                store.end(session.id, owner="local")
            else:
                store.delete(session.id, owner="local")
        await stopped.wait()


async def test_a_late_write_of_a_cancelled_run_is_refused(path: Place) -> None:
    refusals: list[BaseException] = []
    over, tried = asyncio.Event(), asyncio.Event()
    ran: list[str] = []

    @tool
    def pay() -> str:
        ran.append("paid")
        return "paid"

    async def obstinate(turn: AgentTurn) -> AsyncIterator[Body]:
        yield Text("one ")
        while not over.is_set():
            try:
                await over.wait()
            except asyncio.CancelledError:
                continue
        try:
            await turn.call(pay, {})
        except BackstayError as error:
            refusals.append(error)
        try:
            yield Text("two")
        finally:
            tried.set()

    app = backstay.open(path, agent=obstinate, timing=SHORT)
    with set_in_the_end(over):
        async with app:
            session = await app.session()
            turn = await session.send("count")
            await first_words(turn)
            await turn.cancel()
            before = await session.read()
            over.set()
            await tried.wait()
            assert (len(refusals), ran) == (1, [])
            assert await session.read() == before
            assert roles_and_texts(await session.messages()) == [("user", "count"), ("assistant", "one ")]


async def test_a_result_after_the_cancellation_is_ignored(path: Place) -> None:
    began, finish = threading.Event(), threading.Event()

    @tool
    def slow() -> str:
        began.set()
        finish.wait(PATIENCE)
        return "too late"

    async def agent(turn: AgentTurn) -> AsyncIterator[Body]:
        yield Text(str(await turn.call(slow, {})))

    async with backstay.open(path, agents={"default": agent, "echo": echo}, timing=SHORT) as app:
        session = await app.session()
        turn = await session.send("work")
        await asyncio.to_thread(began.wait)
        assert isinstance(await turn.cancel(), Cancelled)
        before = await session.read()
        finish.set()
        await (await (await app.session()).send("something else", agent="echo")).outcome()
        assert await session.read() == before
        with open_store(path) as store:
            (call,) = store.calls(turn.id, owner="local")
        assert call.effect == "unknown"


async def test_a_tool_on_the_loop_stops_with_the_turn_of_a_blocking_agent(path: Place) -> None:
    began, stopped = asyncio.Event(), asyncio.Event()

    @tool
    async def endless() -> None:
        began.set()
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()

    def agent(turn: BlockingAgentTurn) -> Iterator[Body]:
        yield Text("one ")
        turn.call(endless, {})

    async with backstay.open(path, agent=agent, timing=SHORT) as app:
        turn = await (await app.session()).send("work")
        await began.wait()
        assert isinstance(await turn.cancel(), Cancelled)
        await stopped.wait()
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_a_call_that_its_agent_abandoned_ends_with_the_turn(path: Place) -> None:
    began, stopped = asyncio.Event(), asyncio.Event()
    left: list[asyncio.Task[object]] = []

    @tool
    async def endless() -> None:
        began.set()
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()

    async def agent(turn: AgentTurn) -> AsyncIterator[Body]:
        left.append(asyncio.create_task(turn.call(endless, {})))
        yield Text("one ")
        await began.wait()

    async with backstay.open(path, agent=agent) as app:
        turn = await (await app.session()).send("work")
        assert await turn.outcome() == Completed()
        await stopped.wait()
    await asyncio.wait(left)
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_an_agent_that_ignores_cancellation_is_abandoned_and_counted(path: Place) -> None:
    release = asyncio.Event()

    async def deaf(turn: AgentTurn) -> AsyncIterator[Body]:
        yield Text("one ")
        while not release.is_set():
            try:
                await release.wait()
            except asyncio.CancelledError:
                continue

    app = backstay.open(path, agents={"deaf": deaf, "echo": echo}, timing=SHORT)
    with set_in_the_end(release):
        async with app:
            session = await app.session()
            turn = await session.send("count", agent="deaf")
            await first_words(turn)
            assert app.abandoned == 0
            assert isinstance(await turn.cancel(), Cancelled)
            await until(lambda: app.abandoned == 1)
            assert await (await session.send("and you?", agent="echo")).outcome() == Completed()


async def test_output_of_an_abandoned_agent_is_ignored(path: Place) -> None:
    release, spoke = asyncio.Event(), asyncio.Event()
    troubles: list[dict[str, object]] = []

    async def deaf(turn: AgentTurn) -> AsyncIterator[Body]:
        yield Text("one ")
        while not release.is_set():
            try:
                await release.wait()
            except asyncio.CancelledError:
                continue
        spoke.set()
        yield Text("and another thing")

    asyncio.get_running_loop().set_exception_handler(lambda _, context: troubles.append(context))
    app = backstay.open(path, agent=deaf, timing=SHORT)
    with set_in_the_end(release):
        async with app:
            turn = await (await app.session()).send("count")
            await first_words(turn)
            assert isinstance(await turn.cancel(), Cancelled)
            await until(lambda: app.abandoned == 1)
            release.set()
            await spoke.wait()
            await until(lambda: not any(task.get_name() == f"agent of {turn.id}" for task in asyncio.all_tasks()))
    gc.collect()
    assert troubles == []


async def test_waiting_turns_run_after_a_cancellation(path: Place, notify: bool) -> None:
    gate = Gate()
    agents = {"slow": stopping_at(gate), "echo": echo}
    async with backstay.open(path, agents=agents, notify=notify) as app:
        session = await app.session()
        turn = await session.send("first", agent="slow")
        waiting = await session.send("second", agent="echo")
        await first_words(turn)
        await turn.cancel()
        assert await waiting.outcome() == Completed()
        assert [text for _, text in roles_and_texts(await session.messages())] == [
            "first",
            "one ",
            "second",
            "heard second",
        ]


async def test_cancelling_again_or_too_late_changes_nothing(path: Place) -> None:
    gate = Gate()
    async with backstay.open(path, agents={"slow": stopping_at(gate), "quick": echo}) as app:
        session = await app.session()
        cancelled = await session.send("first", agent="slow")
        await first_words(cancelled)
        outcomes = await asyncio.gather(*(cancelled.cancel() for _ in range(5)))
        assert len(set(outcomes)) == 1
        completed = await session.send("second", agent="quick")
        await completed.outcome()
        before = await session.read()
        assert await completed.cancel() == Completed()
        assert await cancelled.cancel() == outcomes[0]
        assert await session.read() == before


async def test_a_turn_that_is_cancelled_as_it_ends_ends_once(path: Place, notify: bool) -> None:
    async with backstay.open(path, agent=saying("one ", "two"), notify=notify) as app:
        session = await app.session()
        for number in range(20):
            turn = await session.send(f"{number}")
            for _ in range(number):
                await asyncio.sleep(0)
            outcome = await turn.cancel()
            ends = [event for event in await events_of_turn(turn) if isinstance(event.body, TurnEnded)]
            assert [end.body.outcome for end in ends if isinstance(end.body, TurnEnded)] == [outcome]


async def test_the_next_turn_reads_a_cancelled_call_as_one_that_may_have_run(path: Place) -> None:
    began = asyncio.Event()

    @tool
    async def pay() -> None:
        began.set()
        await asyncio.Event().wait()

    async def agent(turn: AgentTurn) -> AsyncIterator[Body]:
        if turn.input.text == "pay":
            await turn.call(pay, {})
        results = [part for message in turn.messages for part in message.parts if isinstance(part, ToolResult)]
        yield Text(f"{[(result.output, result.error) for result in results]}")

    async with backstay.open(path, agent=agent) as app:
        session = await app.session()
        turn = await session.send("pay")
        await began.wait()
        await turn.cancel()
        await (await session.send("and?")).outcome()
        result = (await session.messages())[-1].text

    assert result == f"{[(INTERRUPTED, True)]}"


async def test_an_agent_that_raises_while_it_is_cancelled_is_still_cancelled(path: Place) -> None:
    async def clumsy(turn: AgentTurn) -> AsyncIterator[Body]:
        yield Text("one ")
        try:
            await asyncio.Event().wait()
        finally:
            raise ValueError("in the middle of tidying up")

    async with backstay.open(path, agent=clumsy) as app:
        session = await app.session()
        turn = await session.send("count")
        await first_words(turn)
        assert isinstance(await turn.cancel(), Cancelled)
        assert roles_and_texts(await session.messages())[1:] == [("assistant", "one ")]


async def test_cancelling_one_turn_leaves_the_others_alone(path: Place) -> None:
    gate = Gate()
    async with backstay.open(path, agent=stopping_at(gate)) as app:
        sessions = [await app.session() for _ in range(3)]
        turns = [await session.send("count") for session in sessions]
        await asyncio.gather(*(first_words(turn) for turn in turns))
        assert isinstance(await turns[1].cancel(), Cancelled)
        gate.open()
        assert [await turn.outcome() for turn in (turns[0], turns[2])] == [Completed()] * 2
