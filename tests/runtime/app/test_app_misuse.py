"""Misuse of an app: entered twice, from another loop, by a forked child. It raises and never hangs."""

import asyncio
import os
import signal
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import backstay
from backstay import App, BackstayError, Store, Text, Timing, open_store
from backstay.agents.blocking_agent import BlockingAgentTurn as TurnOnAThread
from backstay.agents.port import AgentTurn
from backstay.agents.tools import Tool, ToolFailed
from backstay.errors import ConfigError
from backstay.model.content import Body
from backstay.model.turn import Completed, Failed, Interrupted
from backstay.runtime.async_store import AsyncStore
from backstay.runtime.blocking import BlockingApp
from backstay.store import commands
from tests.runtime.controlled_agents import PATIENCE, Gate, HeldClock, echo, first_words, play, stopping_at

# These tests are about agents and their output in the runtime: the engine cannot matter.
pytestmark = pytest.mark.engines("sqlite")

QUICK = Timing(grace=0.1)


@pytest.fixture(autouse=True)
def _nothing_is_left_behind() -> Iterator[None]:
    """After every test here: no thread of Backstay is alive that was not before."""
    before = set(threading.enumerate())
    yield
    left = [thread for thread in set(threading.enumerate()) - before if thread.name.startswith("backstay")]
    for thread in left:
        thread.join(PATIENCE)
    assert [thread.name for thread in left if thread.is_alive()] == []


# --- a loop that ends ------------------------------------------------------------------------------------------------


def test_a_loop_that_ends_in_the_middle_of_a_write_leaves_the_writer_to_others(path: Path) -> None:
    clock = HeldClock()

    async def ends(store: Store) -> None:
        clock.hold()
        writing = asyncio.create_task(AsyncStore(store).run(commands.create(owner="local")))
        await asyncio.to_thread(clock.wait_until_asked)
        assert not writing.done()

    async def goes_on(store: Store) -> None:
        await AsyncStore(store).run(commands.create(owner="local"))

    with open_store(path, clock=clock) as store:
        asyncio.run(ends(store))
        clock.release()
        play(goes_on(store))
    # Closing waits for the first write, which on a server has a thread of its own.
    with open_store(path, clock=clock) as store:
        assert len(store.list(owner="local").sessions) == 2


# --- entering -------------------------------------------------------------------------------------------------------


async def test_an_app_that_is_open_cannot_be_entered_again_and_stays_open(path: Path) -> None:
    app = backstay.open(path, agent=echo)
    async with app:
        with pytest.raises(BackstayError):
            await app.__aenter__()
        assert await (await (await app.session()).send("x")).outcome() == Completed()


async def test_of_concurrent_entries_into_an_app_one_succeeds(path: Path) -> None:
    app = backstay.open(path, agent=echo)
    entered = await asyncio.gather(*(app.__aenter__() for _ in range(5)), return_exceptions=True)
    assert [type(result) for result in entered if not isinstance(result, BackstayError)] == [App]
    await app.close()


def test_a_blocking_app_that_is_open_cannot_be_entered_again_and_stays_open(path: Path) -> None:
    with backstay.open_blocking(path, agent=echo) as app:
        with pytest.raises(BackstayError):
            app.__enter__()
        assert app.session().send("x").outcome() == Completed()


def test_an_app_can_be_opened_again_after_it_was_closed(path: Path) -> None:
    async def scenario(app: App) -> None:
        for _ in range(2):
            async with app:
                assert await (await (await app.session()).send("x")).outcome() == Completed()

    app = backstay.open(path, agent=echo)
    play(scenario(app))
    play(scenario(app))


async def test_an_opening_that_is_given_up_leaves_nothing_open(tmp_path: Path) -> None:
    path = tmp_path / "chat.db"

    for steps in range(30):
        app = backstay.open(path, agent=echo)
        opening = asyncio.create_task(app.__aenter__())
        for _ in range(steps):
            await asyncio.sleep(0)
        opening.cancel()
        await asyncio.gather(opening, return_exceptions=True)
        await app.close()


@pytest.mark.parametrize(
    "wrong",
    [
        {"buffer_bytes": 0},
        {"flush_bytes": 0},
        {"poll": 0.0},
        {"poll": -1.0},
        {"grace": -1.0},
        {"flush": -0.1},
        {"turn_timeout": 0.0},
        {"silence_timeout": -1.0},
        {"reap": 0.0},
        {"retry": float("nan")},
    ],
    ids=str,
)
def test_invalid_times_are_rejected_before_the_app_opens(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        Timing(**wrong)


@pytest.mark.parametrize(
    "wrong",
    [{"on_interrupt": "again"}, {"agents": {"": echo}}, {"agents": {"a\0": echo}}, {"lease_seconds": 0}],
    ids=["on_interrupt", "an agent without a name", "an agent with a zero in its name", "lease_seconds"],
)
async def test_invalid_settings_are_rejected_before_the_app_opens(path: Path, wrong: dict[str, Any]) -> None:
    with pytest.raises(BackstayError):
        async with backstay.open(path, **wrong):
            raise AssertionError("it opened")


# --- another loop, another thread -----------------------------------------------------------------------------------


def test_an_app_refuses_another_event_loop_and_nothing_is_written_for_it(path: Path) -> None:
    async def scenario() -> None:
        async with backstay.open(path, agent=echo) as app:
            session = await app.session()

            async def elsewhere() -> list[type]:
                verbs = (session.send("lost"), session.read(), session.rename("lost"), app.session())
                return [type(error) for error in await asyncio.gather(*verbs, return_exceptions=True)]

            errors = await asyncio.to_thread(lambda: asyncio.run(elsewhere()))
            assert all(issubclass(error, BackstayError) for error in errors), errors
            assert (await session.read()).last_event == 1
            assert await (await session.send("x")).outcome() == Completed()

    play(scenario())


def in_time(work: Callable[[], Any]) -> Any:  # Any: the result of the work
    """The result of the work on a separate thread: if it hangs, only that thread hangs."""
    results: list[Any] = []

    def run() -> None:
        try:
            results.append(work())
        except BaseException as error:  # noqa: BLE001  # the test looks at it
            results.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(PATIENCE)
    assert results, "it hangs"
    return results[0]


def test_an_async_agent_that_uses_its_own_blocking_app_is_refused_not_deadlocked(path: Path) -> None:
    box: list[BlockingApp] = []

    async def agent(turn: AgentTurn) -> AsyncIterator[Body]:
        yield Text(str(len(box[0].session(turn.session).messages())))

    def scenario() -> Any:  # Any: the turn's outcome
        with backstay.open_blocking(path, agent=agent, timing=QUICK) as app:
            box.append(app)
            return app.session().send("x").outcome()

    outcome = in_time(scenario)
    assert isinstance(outcome, Failed)
    assert "await" in outcome.hint


async def test_an_async_tool_that_uses_a_blocking_agents_turn_is_refused_not_deadlocked(path: Path) -> None:
    box: list[TurnOnAThread] = []

    async def inner() -> Any:  # Any: what the tool returns
        return box[0].call(Tool(name="look", function=lambda: "seen"), {})

    def agent(turn: TurnOnAThread) -> Iterator[Body]:
        box.append(turn)
        try:
            turn.call(Tool(name="inner", function=inner), {})
        except ToolFailed as error:
            yield Text(str(error))

    async with backstay.open(path, agent=agent, timing=QUICK) as app:
        session = await app.session()
        assert await (await session.send("x")).outcome() == Completed()
        result = [message.text for message in await session.messages()]

    said = in_time(lambda: result)
    assert "await" in said[-1]


def test_a_blocking_agent_may_use_the_blocking_app_it_runs_in(path: Path) -> None:
    box: list[BlockingApp] = []

    def agent(turn: TurnOnAThread) -> Iterator[Body]:
        yield Text(box[0].session(turn.session).messages()[-1].text.upper())

    with backstay.open_blocking(path, agent=agent) as app:
        box.append(app)
        session = app.session()
        assert session.send("quiet").outcome() == Completed()
        assert session.messages()[-1].text == "QUIET"


# --- a forked child -------------------------------------------------------------------------------------------------


def in_a_fork(work: Callable[[], object]) -> str:
    """The result of the work in a forked child: `returned`, or the name of the error. A child that hangs is killed."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        signal.alarm(round(PATIENCE))
        try:
            work()
            answer = "returned"
        except BaseException as error:  # noqa: BLE001  # its name is the answer
            answer = type(error).__name__
        os.write(writing, answer.encode())
        os._exit(0)
    os.close(writing)
    answer = os.read(reading, 100).decode()
    os.close(reading)
    os.waitpid(child, 0)
    return answer or "hung"


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_forked_child_is_refused_by_its_parents_blocking_app_and_may_leave_it(path: Path) -> None:
    with backstay.open_blocking(path, agent=echo) as app:
        session = app.session()
        assert in_a_fork(session.read) == "UsedAfterFork"
        assert in_a_fork(lambda: session.send("from the child")) == "UsedAfterFork"
        assert in_a_fork(lambda: next(iter(session.follow()))) == "UsedAfterFork"
        assert in_a_fork(lambda: app.__exit__(None, None, None)) in ("returned", "UsedAfterFork")
        assert session.send("x").outcome() == Completed()
        assert len(session.messages()) == 2


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
async def test_a_forked_child_is_refused_by_the_app_of_its_parent(path: Path) -> None:
    async with backstay.open(path, agent=echo) as app:
        session = await app.session()
        # The child runs its coroutine by hand as far as the first wait, which must not come.
        assert in_a_fork(lambda: session.read().send(None)) == "UsedAfterFork"
        assert in_a_fork(lambda: session.rename("child").send(None)) == "UsedAfterFork"
        assert await (await session.send("x")).outcome() == Completed()


# --- the cancellation of another task -------------------------------------------------------------------------------


async def test_a_turn_whose_task_is_cancelled_is_interrupted_and_waiting_turns_go_on(path: Path) -> None:
    gate = Gate()
    async with backstay.open(path, agent=stopping_at(gate), timing=QUICK) as app:
        session = await app.session()
        turn = await session.send("x")
        await first_words(turn)
        await gate.reached()
        following = await session.send("y")
        gate.open()
        for task in asyncio.all_tasks():
            if task.get_name() == f"turn {turn.id}":
                task.cancel()
        assert isinstance(await turn.outcome(), Interrupted | Completed)
        assert await following.outcome() == Completed()


async def test_an_app_whose_tasks_were_cancelled_can_be_closed_and_releases_everything(path: Path) -> None:
    gate = Gate()
    async with backstay.open(path, agent=stopping_at(gate), timing=QUICK) as app:
        session = await app.session()
        turn = await session.send("x")
        await first_words(turn)
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            if task.get_name().startswith(("backstay", "turn", "agent of", "recorder of", "inbox of")):
                task.cancel()
    async with backstay.open(path) as app:
        outcome = await (await app.turn(turn.id)).outcome()
        assert isinstance(outcome, Interrupted | Failed)
        assert (await (await app.session(session.id)).messages())[-1].text == "one "
