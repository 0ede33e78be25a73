"""Stored output is a copy: later changes by the agent have no effect."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest

import backstay
from backstay import Custom, Text, Timing, ToolCall, ToolResult
from backstay.agents.adapters import AgentLike
from backstay.agents.blocking_agent import BlockingAgentTurn, Emit, callback_agent
from backstay.agents.port import AgentTurn
from backstay.model.content import Body
from backstay.model.event import CustomReported, ToolCalled, ToolReturned
from backstay.model.turn import Completed, Outcome
from tests.databases import Place
from tests.runtime.controlled_agents import PATIENCE, events_of_turn

# All output is written at the end, after the objects have changed.
AT_THE_END = Timing(flush=3600, flush_bytes=1 << 20)


async def stored(path: Place, agent: AgentLike) -> tuple[Outcome, list[Any]]:
    """The outcome of the agent's turn, and its output as it was stored."""
    async with backstay.open(path, agent=agent, timing=AT_THE_END) as app:
        turn = await (await app.session()).send("hello")
        outcome, values = await turn.outcome(), []
        for event in await events_of_turn(turn):
            match event.body:
                case CustomReported(data=value):
                    values.append(value)
                case ToolCalled(call=ToolCall(arguments=value)):
                    values.append(value)
                case ToolReturned(result=ToolResult(output=value)):
                    values.append(value)
                case _:
                    pass
        return outcome, values


def changing(say: Callable[[dict[str, Any]], Body]) -> Iterator[Body]:
    """The same mapping four times, as it grows."""
    state: dict[str, Any] = {"seen": []}
    for number in range(4):
        state["seen"].append(number)
        yield say(state)


GROWING = [{"seen": list(range(number + 1))} for number in range(4)]
BODIES: dict[str, Callable[[dict[str, Any]], Body]] = {
    "custom": lambda state: Custom("progress", state),
    "calls": lambda state: ToolCall(f"c{len(state['seen'])}", "look", state),
}


@pytest.mark.parametrize("say", BODIES.values(), ids=BODIES)
async def test_a_value_that_changes_later_is_stored_as_it_was(
    path: Place, say: Callable[[dict[str, Any]], Body]
) -> None:
    async def agent(turn: AgentTurn) -> AsyncIterator[Body]:
        yield Text("so. ")
        for body in changing(say):
            yield body

    assert await stored(path, agent) == (Completed(), GROWING)


async def test_a_result_that_changes_later_is_stored_as_it_was(path: Place) -> None:
    async def agent(turn: AgentTurn) -> AsyncIterator[Body]:
        output = ["found"]
        yield ToolCall("c1", "look", None)
        yield ToolResult("c1", output)
        output.append("lost")

    assert await stored(path, agent) == (Completed(), [None, ["found"]])


async def test_a_value_that_becomes_invalid_later_is_stored_as_it_was_yielded(path: Place) -> None:
    async def agent(turn: AgentTurn) -> AsyncIterator[Body]:
        state: dict[str, Any] = {"tea": "green"}
        yield Text("so. ")
        yield Custom("progress", state)
        state["tea"] = object()

    assert await stored(path, agent) == (Completed(), [{"tea": "green"}])


@pytest.mark.parametrize("say", BODIES.values(), ids=BODIES)
async def test_a_blocking_agent_continues_only_when_its_output_is_copied(
    path: Place, say: Callable[[dict[str, Any]], Body]
) -> None:
    def agent(turn: BlockingAgentTurn) -> Iterator[Body]:
        yield Text("so. ")
        yield from changing(say)

    assert await stored(path, agent) == (Completed(), GROWING)


async def test_output_of_the_threads_of_one_agent_is_serialised(path: Place) -> None:
    def agent(turn: BlockingAgentTurn, say: Emit) -> None:
        def count(name: str) -> None:
            for number in range(20):
                say(Custom(name, {"number": number}))

        threads = [threading.Thread(target=count, args=(name,)) for name in "abc"]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    outcome, values = await stored(path, callback_agent(agent))

    assert outcome == Completed()
    assert sorted(value["number"] for value in values) == sorted([*range(20)] * 3)


async def test_each_thread_of_an_agent_is_released_when_its_turn_ends(path: Place) -> None:
    threads: list[threading.Thread] = []
    everybody = threading.Event()

    def agent(turn: BlockingAgentTurn, say: Emit) -> None:
        def talk() -> None:
            while True:
                say(Text("and "))

        def talk_aside() -> None:
            everybody.wait(PATIENCE)
            with suppress(SystemExit):  # The interpreter is silent about it; pytest is not.
                talk()

        threads.extend(threading.Thread(target=talk_aside, daemon=True) for _ in range(5))
        for thread in threads:
            thread.start()
        everybody.set()
        talk()

    async with backstay.open(path, agent=callback_agent(agent)) as app:
        turn = await (await app.session()).send("hello")
        # Every thread runs before the first of them talks.
        await asyncio.to_thread(everybody.wait, PATIENCE)
        await turn.cancel()
        for thread in threads:
            await asyncio.to_thread(thread.join)
    assert asyncio.all_tasks() == {asyncio.current_task()}
