"""Faulty agents: each failure ends the turn with a reason, keeps the output, and affects no other turn."""

import asyncio
import re
import sys
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import backstay
from backstay import Custom, Text, Thought, Timing, ToolCall, ToolResult, Usage, open_store
from backstay.agents.adapters import AgentLike
from backstay.agents.blocking_agent import BlockingAgentTurn
from backstay.agents.port import AgentTurn
from backstay.agents.tools import tool
from backstay.errors import AgentTimedOut, ConfigError
from backstay.model.content import Body
from backstay.model.event import START, TextDelta, ToolCalled
from backstay.model.ids import SessionId
from backstay.model.turn import Cancelled, Completed, Failed, Outcome
from tests.databases import Place
from tests.runtime.controlled_agents import (
    PATIENCE,
    echo,
    first_words,
    let_time_pass,
    nothing_can_be_written,
    play,
    roles_and_texts,
    until,
)

# These tests are about agents and their output in the runtime: the engine cannot matter.
pytestmark = pytest.mark.engines("sqlite")

SHORT = Timing(grace=0.2)


async def outcome_of(path: Place, agent: AgentLike, timing: Timing = SHORT) -> tuple[Outcome, str]:
    """The outcome and the output of a turn of this agent; a working agent must be able to continue in the session."""
    async with backstay.open(path, agents={"faulty": agent, "echo": echo}, timing=timing) as app:
        session = await app.session()
        outcome = await (await session.send("hello", agent="faulty")).outcome()
        words = "".join(message.text for message in await session.messages() if message.role == "assistant")
        assert await (await session.send("are you well?", agent="echo")).outcome() == Completed()
        return outcome, words


class Unspeakable(Exception):
    """An exception whose `__str__` raises."""

    def __str__(self) -> str:
        raise ValueError("no words")


def raise_it(error: BaseException) -> None:
    raise error


def cancel_itself() -> None:
    task = asyncio.current_task()
    assert task is not None
    task.cancel()


# --- agents that raise ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (ValueError("no more words"), "ValueError"),
        (KeyboardInterrupt(), "KeyboardInterrupt"),
        (SystemExit(3), "SystemExit"),
        (asyncio.CancelledError(), "CancelledError"),
        (BaseException("rude"), "BaseException"),
        (StopAsyncIteration(), "StopAsyncIteration"),
        (Unspeakable(), "Unspeakable"),
    ],
    ids=["an error", "an interrupt", "an exit", "a cancellation", "base", "stop", "unspeakable"],
)
async def test_any_exception_of_a_blocking_agent_fails_only_its_turn(
    path: Place, error: BaseException, reason: str
) -> None:
    def faulty(turn: BlockingAgentTurn) -> Iterator[Body]:
        yield Text("half an ans")
        raise error

    outcome, words = await outcome_of(path, faulty)

    assert isinstance(outcome, Failed)
    assert outcome.reason.startswith(f"the agent raised {reason} (turn trn_")
    assert words == "half an ans"


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        (lambda: raise_it(ValueError("no more words")), "raised ValueError (turn trn_"),
        (lambda: raise_it(KeyError("tea")), "raised KeyError (turn trn_"),
        (lambda: raise_it(ValueError("half a pair \ud800")), "raised ValueError"),
        (lambda: raise_it(Unspeakable()), "Unspeakable"),
        (lambda: raise_it(BaseException("rude")), "raised BaseException (turn trn_"),
        (
            lambda: raise_it(ExceptionGroup("two at once", [ValueError("a"), KeyError("b")])),
            "raised ExceptionGroup of ValueError, KeyError",
        ),
        (lambda: raise_it(StopAsyncIteration()), "RuntimeError"),
        (lambda: raise_it(ValueError("x" * 100_000)), "raised ValueError (turn trn_"),
        (lambda: sys.exit(3), "SystemExit"),
        (lambda: raise_it(KeyboardInterrupt()), "raised KeyboardInterrupt (turn trn_"),
    ],
    ids=["an error", "a lookup", "unwritable", "unspeakable", "base", "group", "stop", "long", "exit", "an interrupt"],
)
async def test_any_exception_of_an_agent_fails_its_turn_with_a_reason(
    path: Place, fault: Callable[[], None], reason: str
) -> None:
    async def faulty(turn: AgentTurn) -> AsyncIterator[Body]:
        yield Text("half an ans")
        fault()

    outcome, words = await outcome_of(path, faulty)

    assert isinstance(outcome, Failed)
    assert reason in outcome.reason
    assert words == "half an ans"


async def test_an_agent_that_cancels_itself_has_failed(path: Place) -> None:
    async def faulty(turn: AgentTurn) -> AsyncIterator[Body]:
        yield Text("half an ans")
        cancel_itself()
        await asyncio.Event().wait()

    assert await outcome_of(path, faulty) == (Failed("the agent cancelled itself"), "half an ans")


class Unbuildable:
    """An agent that cannot be made."""

    def __init__(self) -> None:
        raise ValueError("no API key")

    def stream(self, turn: AgentTurn) -> AsyncIterator[Body]:
        return echo(turn)

    async def aclose(self) -> None:
        pass


class Unclosable:
    """A class that looks like an agent but is not one."""

    def stream(self, turn: AgentTurn) -> AsyncIterator[Body]:
        return echo(turn)


class Instant:
    """An agent whose `stream` does not return a stream."""

    async def stream(self, turn: AgentTurn) -> str:
        return "hello"

    async def aclose(self) -> None:
        pass


class Mute:
    """An agent without any output."""

    def stream(self, turn: AgentTurn) -> None:
        return None

    async def aclose(self) -> None:
        pass


async def test_an_agent_that_cannot_be_made_fails_its_turn(path: Place) -> None:
    outcome, words = await outcome_of(path, Unbuildable)

    assert outcome.reason.startswith("the agent raised ValueError (turn trn_")
    assert words == ""


@pytest.mark.parametrize("agent", [Unclosable, Instant, Mute])
async def test_an_invalid_agent_fails_its_turn_with_a_message(path: Place, agent: Any) -> None:
    outcome, words = await outcome_of(path, agent)

    assert isinstance(outcome, Failed)
    assert words == ""
    assert re.search("is not an agent|did not return an async iterator", outcome.reason)


@pytest.mark.parametrize("agent", [lambda turn: "hello", "hello", object(), Instant().stream])
def test_an_object_that_cannot_be_an_agent_is_rejected_before_the_app_opens(path: Place, agent: Any) -> None:
    with pytest.raises(ConfigError, match="is not an agent"):
        backstay.open(path, agent=agent)


def test_an_agent_without_output_completes_with_a_note(path: Place) -> None:
    async def silent(turn: AgentTurn) -> AsyncIterator[Body]:
        return
        yield

    async def empty(turn: AgentTurn) -> AsyncIterator[Body]:
        yield Text("")

    nothing = (Completed("the agent sent no output"), "")
    assert play(outcome_of(path, silent)) == nothing
    assert play(outcome_of(path, empty)) == nothing


# --- agents with invalid output ---------------------------------------------------------------------------------------


def nested(levels: int) -> Any:
    """An empty list in a list in a list."""
    return [nested(levels - 1)] if levels else []


NONSENSE: dict[str, Any] = {
    "a string": "hello",
    "bytes": b"hello",
    "nothing": None,
    "a number": 5,
    "a list": [Text("hello")],
    "an exception": ValueError("hello"),
    "a class": Text,
    "half a pair": Text("\ud800"),
    "half a thought": Thought("\udfff"),
    "text of a number": Text(5),  # type: ignore[arg-type]  # the nonsense under test
    "text of bytes": Text(b"hello"),  # type: ignore[arg-type]  # the nonsense under test
    "text of nothing": Text(None),  # type: ignore[arg-type]  # the nonsense under test
    "a huge text": Text("x" * (1 << 21)),
    "a huge thought": Thought("x" * (1 << 21)),
    "an object inside": Custom("x", object()),
    "no number": Custom("x", float("nan")),
    "a huge number": Custom("x", 1 << 80),
    "keys of numbers": Custom("x", {1: 2}),
    "a set": ToolCall("c1", "x", {"a": {1, 2}}),
    "bytes inside": Custom("x", {"a": b"b"}),
    "deep nesting": Custom("x", nested(100)),
    "a result without a call": ToolResult("c9", "hello"),
    "a call without a name": ToolCall("c1", ""),
    "a call without an id": ToolCall("", "x"),
    "a call of a number": ToolCall(5, "x"),  # type: ignore[arg-type]  # the nonsense under test
    "a cost in words": Usage(cost="much"),  # type: ignore[arg-type]  # the nonsense under test
}


@pytest.mark.parametrize("nonsense", NONSENSE.values(), ids=NONSENSE)
async def test_invalid_output_fails_the_turn_and_keeps_the_output_before_it(path: Place, nonsense: Any) -> None:
    async def faulty(turn: AgentTurn) -> AsyncIterator[Body]:
        yield Text("one ")
        await turn.steering()
        yield Text("two ")
        yield nonsense

    outcome, words = await outcome_of(path, faulty, Timing(flush=3600, grace=0.05))

    assert isinstance(outcome, Failed)
    assert words == "one two "
    assert outcome.reason
    assert not outcome.reason.startswith(("TypeError", "AttributeError", "OverflowError", "UnicodeEncodeError"))


# One of each kind: refused by its type, by its words, by what is inside, and only by the store.
KINDS = ["nothing", "an exception", "half a pair", "a huge text", "an object inside", "a result without a call"]
SOME_NONSENSE = {kind: NONSENSE[kind] for kind in KINDS}


@pytest.mark.parametrize("nonsense", SOME_NONSENSE.values(), ids=SOME_NONSENSE)
async def test_invalid_output_ends_the_turn_even_if_the_agent_would_continue(path: Place, nonsense: Any) -> None:
    async def faulty(turn: AgentTurn) -> AsyncIterator[Body]:
        yield Text("one ")
        yield nonsense
        await asyncio.Event().wait()

    outcome, words = await outcome_of(path, faulty)

    assert (type(outcome), words) == (Failed, "one ")


@pytest.mark.parametrize(
    "bodies",
    [
        [ToolCall("c1", "x"), ToolCall("c1", "x")],
        [ToolCall("c1", "x"), ToolResult("c1", 1), ToolResult("c1", 2)],
    ],
    ids=["two calls of one id", "two results of one call"],
)
async def test_calls_and_results_that_do_not_pair_fail_the_turn(path: Place, bodies: list[Body]) -> None:
    async def faulty(turn: AgentTurn) -> AsyncIterator[Body]:
        yield Text("one ")
        for body in bodies:
            yield body

    outcome, words = await outcome_of(path, faulty)

    assert (type(outcome), words) == (Failed, "one ")


async def test_an_agent_that_catches_a_rejected_call_continues(path: Place) -> None:
    @tool
    def show(thing: object) -> None:
        raise AssertionError("it must not run")

    async def careful(turn: AgentTurn) -> AsyncIterator[Body]:
        try:
            await turn.call(show, {"thing": object()})
        except backstay.BackstayError:
            yield Text("it cannot be shown")

    assert await outcome_of(path, careful) == (Completed(), "it cannot be shown")


async def test_giving_up_waiting_for_the_store_does_not_break_the_turn(path: Place) -> None:
    async def impatient(turn: AgentTurn) -> AsyncIterator[Body]:
        yield Text("one ")
        asking = asyncio.create_task(turn.steering())
        await asyncio.sleep(0)
        asking.cancel()
        yield ToolResult("c9", "which nobody asked for")
        asking = asyncio.create_task(turn.steering())
        await asyncio.sleep(0)
        asking.cancel()
        await asyncio.Event().wait()

    outcome, words = await outcome_of(path, impatient)

    assert (type(outcome), words) == (Failed, "one ")


# --- agents that hang -------------------------------------------------------------------------------------------------


# Longer than a busy machine keeps any agent waiting; the agents set the clock of the loop ahead.
LIMIT = 30.0


async def hanging(turn: AgentTurn) -> AsyncIterator[Body]:
    yield Text("half an ans")
    let_time_pass(LIMIT)
    await asyncio.Event().wait()


async def babbling(turn: AgentTurn) -> AsyncIterator[Body]:
    yield Text("bla")
    let_time_pass(LIMIT)
    while True:
        yield Text("bla")
        await asyncio.sleep(0)


async def stuck_before_the_first_word(turn: AgentTurn) -> AsyncIterator[Body]:
    let_time_pass(LIMIT)
    await asyncio.Event().wait()
    yield Text("never")


async def test_an_agent_that_is_silent_for_too_long_has_failed(path: Place) -> None:
    outcome, words = await outcome_of(path, hanging, Timing(silence_timeout=LIMIT, grace=0.05))

    assert (outcome, words) == (
        Failed("the agent sent nothing for 30 s", code="agent_timed_out", hint=AgentTimedOut.hint),
        "half an ans",
    )


async def test_an_agent_that_never_begins_has_failed(path: Place) -> None:
    outcome, words = await outcome_of(path, stuck_before_the_first_word, Timing(silence_timeout=LIMIT, grace=0.05))

    assert (outcome, words) == (
        Failed("the agent sent nothing for 30 s", code="agent_timed_out", hint=AgentTimedOut.hint),
        "",
    )


@pytest.mark.parametrize("agent", [hanging, babbling])
async def test_an_agent_that_exceeds_its_time_fails_despite_output(path: Place, agent: AgentLike) -> None:
    outcome, words = await outcome_of(path, agent, Timing(turn_timeout=LIMIT, grace=0.05))

    assert outcome == Failed("the agent took longer than 30 s", code="agent_timed_out", hint=AgentTimedOut.hint)
    assert words


async def test_a_step_ends_with_every_word(path: Place) -> None:
    async def slow(turn: AgentTurn) -> AsyncIterator[Body]:
        for _ in range(4):
            let_time_pass(LIMIT / 2)
            yield Text("x")

    # All of them together take longer than any one of them may.
    assert await outcome_of(path, slow, Timing(silence_timeout=LIMIT, turn_timeout=None, grace=0.05)) == (
        Completed(),
        "xxxx",
    )


async def test_waiting_for_a_person_is_not_the_agents_silence(tmp_path: Path) -> None:
    @tool(approval=True)
    def pay() -> str:
        return "paid"

    async def asking(turn: AgentTurn) -> AsyncIterator[Body]:
        yield Text(await turn.call(pay, {}))

    timing = Timing(silence_timeout=LIMIT, grace=0.05)
    async with backstay.open(tmp_path / "chat.db", agents={"asking": asking, "hanging": hanging}, timing=timing) as app:
        turn = await (await app.session()).send("pay", agent="asking")
        async for event in turn.events():
            if isinstance(event.body, ToolCalled):
                break
        # When the other has been silent for too long, this one has waited for as long.
        assert isinstance(await (await (await app.session()).send("hello", agent="hanging")).outcome(), Failed)
        await turn.approve((await turn.calls())[0].call)
        assert await turn.outcome() == Completed()


# --- agents that are faster than the disk -----------------------------------------------------------------------------


def stored_letters(path: Place, session: SessionId) -> int:
    """The length of the output that other processes can read now."""
    with open_store(path) as store:
        events = store.events_after(session, START, owner="local", limit=1_000).events
    return sum(len(event.body.text) for event in events if isinstance(event.body, TextDelta))


async def at_rest(count: Callable[[], int]) -> int:
    """The count, once it no longer changes although other tasks run."""
    before = -1
    while before != count():
        before = count()
        for _ in range(50):
            await asyncio.sleep(0)
    return before


async def test_an_agent_is_never_further_ahead_of_the_disk_than_the_buffer_allows(path: Place) -> None:
    said = 0

    async def flooding(turn: AgentTurn) -> AsyncIterator[Body]:
        nonlocal said
        for _ in range(5_000):
            said += 100
            yield Text("x" * 100)

    timing = Timing(buffer_bytes=10_000, flush_bytes=1_000)
    async with backstay.open(path, agent=flooding, timing=timing) as app:
        session = await app.session()
        with nothing_can_be_written(path):
            sending = asyncio.create_task(session.send("talk"))
            await at_rest(lambda: said)
            assert said == 0  # An input that is not stored is not answered either.
        turn = await sending
        await first_words(turn)
        with nothing_can_be_written(path):
            ahead = await at_rest(lambda: said)
            # The output that is being written, the output that is buffered, and the output that the agent is yielding.
            assert ahead - stored_letters(path, session.id) <= 2 * 10_000 + 2 * 100
        assert await turn.outcome() == Completed()
        assert (await session.messages())[-1].text == "x" * 500_000


async def test_output_that_waits_for_a_slow_disk_is_stored(path: Place) -> None:
    begin = asyncio.Event()
    word = "😀" * 64
    said = 0

    async def flooding(turn: AgentTurn) -> AsyncIterator[Body]:
        nonlocal said
        yield Text(word)
        await begin.wait()
        for _ in range(8_000):
            said += 1
            yield Text(word)

    async with backstay.open(path, agent=flooding) as app:
        session = await app.session()
        turn = await session.send("smile")
        await first_words(turn)
        with nothing_can_be_written(path):
            begin.set()
            await at_rest(lambda: said)
        assert await turn.outcome() == Completed()
        assert (await session.messages())[-1].text == word * 8_001


async def test_buffered_output_before_invalid_output_is_kept(path: Place) -> None:
    begin = asyncio.Event()
    said = 0

    async def faulty(turn: AgentTurn) -> AsyncIterator[Body]:
        nonlocal said
        yield Text("one ")
        await begin.wait()
        yield Text("two ")
        await at_rest(lambda: 0)  # They are being written now; later output is not.
        yield Text("three ")
        said += 1
        yield ToolResult("c9", "which nobody asked for")

    async with backstay.open(path, agent=faulty, timing=Timing(flush=0)) as app:
        session = await app.session()
        turn = await session.send("talk")
        await first_words(turn)
        with nothing_can_be_written(path):
            begin.set()
            await until(lambda: said == 1)
            await at_rest(lambda: said)
        assert isinstance(await turn.outcome(), Failed)
        assert (await session.messages())[-1].text == "one two three "


# --- agents on threads ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("nonsense", SOME_NONSENSE.values(), ids=SOME_NONSENSE)
async def test_invalid_output_from_a_thread_fails_the_turn(path: Place, nonsense: Any) -> None:
    def faulty(turn: BlockingAgentTurn) -> Iterator[Body]:
        yield Text("one ")
        turn.steering()
        yield Text("two ")
        yield nonsense

    outcome, words = await outcome_of(path, faulty)

    assert (type(outcome), words) == (Failed, "one two ")


@pytest.mark.parametrize(
    "error", [ValueError("no more words"), KeyError("tea"), SystemExit(3), Unspeakable()], ids=repr
)
async def test_any_exception_on_a_thread_fails_the_turn_with_a_reason(path: Place, error: BaseException) -> None:
    def faulty(turn: BlockingAgentTurn) -> Iterator[Body]:
        yield Text("half an ans")
        raise error

    outcome, words = await outcome_of(path, faulty)

    assert isinstance(outcome, Failed)
    assert type(error).__name__ in outcome.reason
    assert words == "half an ans"


async def test_a_thread_that_never_ends_is_fenced_abandoned_and_counted(path: Place) -> None:
    release = threading.Event()
    ended = threading.Event()

    def deaf(turn: BlockingAgentTurn) -> Iterator[Body]:
        try:
            yield Text("one ")
            release.wait(PATIENCE)
            yield Text("two")
        finally:
            ended.set()

    async with backstay.open(path, agents={"deaf": deaf, "echo": echo}, timing=SHORT) as app:
        session = await app.session()
        turn = await session.send("count", agent="deaf")
        await first_words(turn)
        assert isinstance(await turn.cancel(), Cancelled)
        await until(lambda: app.abandoned == 1)
        assert await (await session.send("and you?", agent="echo")).outcome() == Completed()
        release.set()
        await asyncio.to_thread(ended.wait)
        assert roles_and_texts(await session.messages())[1] == ("assistant", "one ")


async def test_a_thread_that_ends_on_request_is_not_counted(path: Place) -> None:
    def endless(turn: BlockingAgentTurn) -> Iterator[Body]:
        while True:
            yield Text("x")

    async with backstay.open(path, agent=endless) as app:
        turn = await (await app.session()).send("count")
        await first_words(turn)
        assert isinstance(await turn.cancel(), Cancelled)
        await until(lambda: app.abandoned == 0)


async def test_a_thread_is_blocked_while_the_buffer_is_full(path: Place) -> None:
    said = 0

    def flooding(turn: BlockingAgentTurn) -> Iterator[Body]:
        nonlocal said
        for _ in range(300):
            said += 100
            yield Text("x" * 100)

    async with backstay.open(path, agent=flooding, timing=Timing(buffer_bytes=1_000)) as app:
        session = await app.session()
        turn = await session.send("talk")
        await first_words(turn)
        with nothing_can_be_written(path):
            ahead = await at_rest(lambda: said)
            # As above, and the output that is passed from the thread to the loop.
            assert ahead - stored_letters(path, session.id) <= 2 * 1_000 + 4 * 100
        assert await turn.outcome() == Completed()
        assert (await session.messages())[-1].text == "x" * 30_000


# --- agents with resources --------------------------------------------------------------------------------------------


class Holding:
    """An agent that must be closed; the list records the closing."""

    closed: list[str]

    def __init__(self) -> None:
        self.closed = CLOSED

    async def stream(self, turn: AgentTurn) -> AsyncIterator[Body]:
        yield Text("one ")
        if turn.input.text == "raise":
            raise ValueError("no more words")
        if turn.input.text == "hang":
            await asyncio.Event().wait()

    async def aclose(self) -> None:
        self.closed.append("closed")


CLOSED: list[str] = []


@pytest.fixture(autouse=True)
def nothing_closed_yet() -> None:
    CLOSED.clear()


@pytest.mark.parametrize("how", ["speak", "raise", "hang"])
async def test_an_agent_made_for_a_turn_is_closed_after_any_outcome(path: Place, how: str) -> None:
    async with backstay.open(path, agent=Holding) as app:
        turn = await (await app.session()).send(how)
        await first_words(turn)
        await (turn.cancel() if how == "hang" else turn.outcome())
    assert CLOSED == ["closed"]


async def test_an_agent_that_serves_every_turn_is_closed_with_the_app(path: Place) -> None:
    async with backstay.open(path, agent=Holding()) as app:
        session = await app.session()
        for _ in range(3):
            await (await session.send("speak")).outcome()
        assert CLOSED == []
    assert CLOSED == ["closed"]


async def test_one_faulty_agent_does_not_disturb_the_turns_of_others(path: Place) -> None:
    async def faulty(turn: AgentTurn) -> AsyncIterator[Body]:
        yield Text("one ")
        raise ValueError("no more words")

    async def ask(app: backstay.App, agent: str) -> Outcome:
        return await (await (await app.session()).send("hello", agent=agent)).outcome()

    async with backstay.open(path, agents={"faulty": faulty, "echo": echo}) as app:
        asked: list[Awaitable[Outcome]] = [ask(app, "faulty" if number % 2 else "echo") for number in range(10)]
        outcomes = list(await asyncio.gather(*asked))
    assert outcomes[::2] == [Completed()] * 5
    assert all(outcome.reason.startswith("the agent raised ValueError (turn trn_") for outcome in outcomes[1::2])
