"""What is stored is what was said when it was said, whatever its speaker does with it afterwards."""

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
from tests.runtime.controlled_agents import PATIENCE, story_of

# All of it is written at the end, when everything that was said has changed.
AT_THE_END = Timing(flush=3600, flush_bytes=1 << 20)


async def stored(path: Place, agent: AgentLike) -> tuple[Outcome, list[Any]]:
    """How the agent's turn ended, and the values that it said, as they were stored."""
    async with backstay.open(path, agent=agent, timing=AT_THE_END) as app:
        turn = await (await app.session()).send("hello")
        outcome, values = await turn.outcome(), []
        for event in await story_of(turn):
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


async def test_a_value_that_turns_into_nonsense_later_was_none_when_it_was_said(path: Place) -> None:
    async def agent(turn: AgentTurn) -> AsyncIterator[Body]:
        state: dict[str, Any] = {"tea": "green"}
        yield Text("so. ")
        yield Custom("progress", state)
        state["tea"] = object()

    assert await stored(path, agent) == (Completed(), [{"tea": "green"}])


@pytest.mark.parametrize("say", BODIES.values(), ids=BODIES)
async def test_a_blocking_agent_goes_on_only_when_what_it_said_is_kept(
    path: Place, say: Callable[[dict[str, Any]], Body]
) -> None:
    def agent(turn: BlockingAgentTurn) -> Iterator[Body]:
        yield Text("so. ")
        yield from changing(say)

    assert await stored(path, agent) == (Completed(), GROWING)


async def test_threads_of_one_agent_speak_one_after_another(path: Place) -> None:
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


async def test_every_thread_of_an_agent_is_let_go_when_its_turn_is_over(path: Place) -> None:
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
        await anext(turn.events())
        await turn.cancel()
        for thread in threads:
            await asyncio.to_thread(thread.join)
    assert asyncio.all_tasks() == {asyncio.current_task()}
