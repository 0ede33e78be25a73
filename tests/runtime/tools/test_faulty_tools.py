"""Faulty tools: after any exception the call has a result, the agent gets the error, and the turn continues."""

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

import backstay
from backstay import Custom, Text, ToolCall, ToolResult, Usage
from backstay.agents.port import AgentTurn
from backstay.agents.tools import Tool, ToolFailed
from backstay.model.content import Body
from backstay.model.turn import Completed
from tests.runtime.controlled_agents import AgentFunction, events_of_turn, play

# These tests are about agents and their output in the runtime: the engine cannot matter.
pytestmark = pytest.mark.engines("sqlite")


class Unspeakable(Exception):
    def __str__(self) -> str:
        raise ValueError("no words")


class Rude(BaseException):
    """An exception that no `except Exception` catches."""


RAISED: list[BaseException] = [
    StopIteration("done"),
    StopAsyncIteration("done"),
    asyncio.CancelledError("by itself"),
    GeneratorExit("gone"),
    SystemExit(3),
    Rude("out of my way"),
    Unspeakable(),
    ValueError("\ud800"),
    ValueError("nul \0"),
    ValueError("x" * 3_000_000),
]


def named(error: BaseException) -> str:
    return type(error).__name__ + ("" if not error.args else f"-{str(error.args[0])[:5]!a}")


def trying(tool: Tool, caught: list[BaseException]) -> AgentFunction:
    """An agent that calls the tool, receives the error, and continues."""

    async def agent(turn: AgentTurn) -> AsyncIterator[Body]:
        try:
            await turn.call(tool, {})
        except ToolFailed as error:
            caught.append(error)
        yield Text("and on")

    return agent


def outcome_of(path: Path, tool: Tool) -> list[Any]:
    """The result of the tool's call: its only entry in the ledger, and its result."""
    caught: list[BaseException] = []

    async def scenario() -> list[Any]:
        async with backstay.open(path, agent=trying(tool, caught)) as app:
            session = await app.session()
            turn = await session.send("do it")
            assert await turn.outcome() == Completed()
            (line,) = await turn.calls()
            parts = [part for message in await session.messages() for part in message.parts]
            (result,) = [part for part in parts if isinstance(part, ToolResult)]
            assert parts[-1] == Text("and on")
            assert app.abandoned == 0
            return [line.effect, result.error, result.output]

    found = play(scenario())
    assert len(caught) == 1
    return found


@pytest.mark.parametrize("error", RAISED, ids=named)
@pytest.mark.parametrize("kind", ["on a thread", "on the loop"])
def test_any_exception_of_a_tool_is_its_result_and_the_agent_may_continue(
    path: Path, error: BaseException, kind: str
) -> None:
    def fail() -> None:
        raise error

    async def fail_on_the_loop() -> None:
        raise error

    tool = Tool(name="do", function=fail if kind == "on a thread" else fail_on_the_loop)
    effect, failed, output = outcome_of(path, tool)

    assert (effect, failed) == ("returned", True)
    assert output


def test_control_c_raised_on_a_tools_thread_ends_nothing_but_the_tool(path: Path) -> None:
    def fail() -> None:
        raise KeyboardInterrupt

    try:
        assert outcome_of(path, Tool(name="do", function=fail))[:2] == ["returned", True]
    except KeyboardInterrupt:
        pytest.fail("it ended the whole program")


class Awaitable:
    """A tool that is an object, and async."""

    async def __call__(self) -> str:
        return "done"


def make_it_wait() -> Any:  # Any: a function that looks like any other
    return Awaitable()()


@pytest.mark.parametrize("function", [Awaitable(), make_it_wait], ids=["object", "function"])
async def test_a_tool_whose_function_only_turns_out_to_be_async_is_awaited(
    path: Path, function: Callable[[], Any]
) -> None:
    async def agent(turn: AgentTurn) -> AsyncIterator[Body]:
        yield Text(await turn.call(Tool(name="do", function=function), {}))

    async with backstay.open(path, agent=agent) as app:
        session = await app.session()
        assert await (await session.send("do it")).outcome() == Completed()
        assert (await session.messages())[-1].text == "done"


# --- stored values are copies ---------------------------------------------------------------------------------------


async def restless(turn: AgentTurn) -> AsyncIterator[Body]:
    """Yields the same object repeatedly, and changes it in between."""
    state: dict[str, Any] = {"step": 0, "seen": []}
    for step in range(4):
        state["step"] = step
        state["seen"].append(step)
        yield Custom("progress", state)
    state["seen"] = object()


async def test_stored_values_do_not_change_with_later_changes_of_the_object(path: Path) -> None:
    async with backstay.open(path, agent=restless) as app:
        session = await app.session()
        assert await (await session.send("go")).outcome() == Completed()
        said = [part.data for part in (await session.messages())[-1].parts if isinstance(part, Custom)]
        assert said == [{"step": step, "seen": list(range(step + 1))} for step in range(4)]


async def test_a_call_is_written_down_and_run_with_the_arguments_it_was_made_with(path: Path) -> None:
    async def look(at: list[str]) -> list[str]:
        return at

    async def agent(turn: AgentTurn) -> AsyncIterator[Body]:
        at = ["here"]
        calling = asyncio.create_task(turn.call(Tool(name="look", function=look), {"at": at}))
        await asyncio.sleep(0)
        at.append("there")
        yield Text(", ".join(await calling))

    async with backstay.open(path, agent=agent) as app:
        session = await app.session()
        await events_of_turn(await session.send("go"))
        parts = [part for message in await session.messages() for part in message.parts][1:]
        assert parts[0] == ToolCall("ledger-1", "look", {"at": ["here"]})
        assert parts[1:] == [ToolResult("ledger-1", ["here"]), Text("here")]


@pytest.mark.parametrize(
    "reports",
    [
        [Usage(cost=1.5e308)] * 2,
        [Usage(input_tokens=2**63 - 1, output_tokens=2**63 - 1, cached_tokens=2**63 - 1)] * 3,
    ],
    ids=["cost", "tokens"],
)
async def test_usage_that_adds_up_to_too_much_leaves_a_turn_that_can_be_ended_and_read(
    path: Path, reports: list[Usage]
) -> None:
    async def agent(turn: AgentTurn) -> AsyncIterator[Body]:
        yield Text("dear")
        for report in reports:
            yield report

    async with backstay.open(path, agent=agent) as app:
        session = await app.session()
        turns = [await session.send("one"), await session.send("two")]
        for turn in turns:
            await turn.outcome()
            assert (await turn.read()).state == "ended"
    async with backstay.open(path) as app:
        assert [message.text for message in await (await app.session(session.id)).messages()][-1] == "dear"
        assert (await app.turn(turns[0].id)).id == turns[0].id
