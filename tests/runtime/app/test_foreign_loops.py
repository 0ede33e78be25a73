"""Foreign loops and processes: an app belongs to the loop and process that opened it, and rejects others at once."""

import asyncio
import os
import signal
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from concurrent.futures import Future
from typing import Any

import pytest

import backstay
from backstay import Text
from backstay.agents.blocking_agent import BlockingAgentTurn
from backstay.agents.port import AgentTurn
from backstay.agents.tools import Tool, tool
from backstay.errors import BackstayError, ConfigError
from backstay.model.content import Body
from backstay.model.turn import Completed, Failed
from backstay.runtime.blocking import BlockingApp
from backstay.runtime.session_handle import Session
from backstay.runtime.turn_handle import Turn
from tests.crash.worker_processes import WorkerProcesses
from tests.databases import Place
from tests.runtime.controlled_agents import PATIENCE, echo, play, roles_and_texts

# These tests are about agents and their output in the runtime: the engine cannot matter.
pytestmark = pytest.mark.engines("sqlite")


def verbs_of(app: backstay.App, session: Session, turn: Turn) -> list[Callable[[], Awaitable[Any]]]:
    """One of each way into the app."""
    return [
        app.session,
        app.sessions,
        session.read,
        session.messages,
        turn.outcome,
        turn.cancel,
        session.retry,
        session.compact,
        lambda: session.send("hello"),
        lambda: session.rename("a title"),
        lambda: anext(session.follow()),
        lambda: anext(turn.events()),
        lambda: anext(app.follow()),
    ]


async def name_of_error(verb: Callable[[], Awaitable[Any]]) -> str:
    try:
        async with asyncio.timeout(PATIENCE):
            await verb()
    except Exception as error:  # noqa: BLE001  # whatever it was, the test names it
        return type(error).__name__
    return "nothing"


def ends(work: Callable[[], None]) -> None:
    """Run something on a separate thread. If it hangs with its loop, the thread is abandoned and the test fails."""
    ended: Future[None] = Future()

    def run() -> None:
        try:
            work()
            ended.set_result(None)
        except BaseException as error:  # noqa: BLE001  # the test sees it
            ended.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    ended.result(PATIENCE)


# --- loops ------------------------------------------------------------------------------------------------------------


async def test_another_loop_is_refused_and_has_changed_nothing(path: Place) -> None:
    async with backstay.open(path, agent=echo) as app:
        session = await app.session()
        turn = await session.send("hello")
        await turn.outcome()
        before = await session.read()

        async def elsewhere() -> list[str]:
            return [await name_of_error(verb) for verb in verbs_of(app, session, turn)]

        refused = await asyncio.to_thread(asyncio.run, elsewhere())
        assert refused == ["ConfigError"] * len(refused)
        assert await session.read() == before
        assert await (await session.send("and now?")).outcome() == Completed()


def test_a_blocking_verb_on_the_apps_own_loop_is_refused_instead_of_deadlocking(path: Place) -> None:
    apps: list[BlockingApp] = []

    async def agent(turn: AgentTurn) -> AsyncIterator[Body]:
        with pytest.raises(ConfigError, match="wait for itself"):
            apps[0].session(turn.session)
        with pytest.raises(ConfigError, match="wait for itself"):
            next(apps[0].follow())
        yield Text("refused")

    def script() -> None:
        with backstay.open_blocking(path, agent=agent) as app:
            apps.append(app)
            session = app.session()
            assert session.send("hello").outcome() == Completed()
            assert roles_and_texts(session.messages())[-1] == ("assistant", "refused")

    ends(script)


def test_a_blocking_turn_on_the_loop_is_refused_instead_of_waiting_for_itself(path: Place) -> None:
    turns: list[BlockingAgentTurn] = []

    @tool
    def inner() -> str:
        return "done"

    @tool
    async def outer() -> Any:
        return turns[0].call(inner, {})

    def agent(turn: BlockingAgentTurn) -> Iterator[Body]:
        turns.append(turn)
        yield Text("so. ")
        turn.call(outer, {})

    async def scenario() -> None:
        async with backstay.open(path, agent=agent) as app:
            outcome = await (await (await app.session()).send("hello")).outcome()
            assert isinstance(outcome, Failed)
            assert "wait for itself" in outcome.reason

    ends(lambda: play(scenario()))


async def test_a_plain_tool_may_use_the_blocking_turn_it_was_called_in(path: Place) -> None:
    turns: list[BlockingAgentTurn] = []
    inner = Tool(name="inner", function=lambda: "done")

    @tool
    def outer() -> Any:
        return turns[0].call(inner, {})

    def agent(turn: BlockingAgentTurn) -> Iterator[Body]:
        turns.append(turn)
        yield Text(turn.call(outer, {}))

    async with backstay.open(path, agent=agent) as app:
        session = await app.session()
        assert await (await session.send("hello")).outcome() == Completed()
        assert (await session.messages())[-1].text == "done"


# --- forks ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def other() -> Iterator[WorkerProcesses]:
    """Another process: these tests fork a process with threads, which must not be that of the tests."""
    with WorkerProcesses(1) as workers:
        yield workers


def in_a_fork(work: Callable[[], list[str]]) -> list[str]:
    """The answer of a forked child; one that hangs gives none."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        signal.alarm(int(PATIENCE))
        os.write(writing, ",".join(work()).encode())
        os._exit(0)
    os.close(writing)
    os.waitpid(pid, 0)
    with os.fdopen(reading) as answer:
        return answer.read().split(",")


def test_a_forked_child_can_use_nothing_of_an_app(path: Place, other: WorkerProcesses) -> None:
    in_child, in_parent = other.all(fork_an_app, path)[0]

    assert in_child == ["UsedAfterFork"] * 13
    assert in_parent == Completed()


def fork_an_app(_: int, path: Place) -> tuple[list[str], object]:
    async def scenario() -> tuple[list[str], object]:
        async with backstay.open(path, agent=echo) as app:
            session = await app.session()
            turn = await session.send("hello")
            await turn.outcome()
            in_child = in_a_fork(lambda: [driven(verb) for verb in verbs_of(app, session, turn)])
            return in_child, await (await session.send("and now?")).outcome()

    return asyncio.run(scenario())


def driven(verb: Callable[[], Awaitable[Any]]) -> str:
    """The error that a verb raises before it waits for anything: the child has no loop that could run."""
    try:
        verb().__await__().send(None)
    except BackstayError as error:
        return type(error).__name__
    return "it waits"


def test_a_forked_child_can_use_nothing_of_a_blocking_app_and_may_leave_it(path: Place, other: WorkerProcesses) -> None:
    in_child, in_parent = other.all(fork_a_blocking_app, path)[0]

    assert in_child == [*["UsedAfterFork"] * 4, "nothing"]
    assert in_parent == Completed()


def fork_a_blocking_app(_: int, path: Place) -> tuple[list[str], object]:
    def leave() -> None:
        app.__exit__(None, None, None)

    with backstay.open_blocking(path, agent=echo) as app:
        session = app.session()
        turn = session.send("hello")
        events = turn.events()
        next(events)
        verbs: list[Callable[[], object]] = [
            session.read,
            lambda: session.send("x"),
            turn.outcome,
            lambda: next(events),
        ]
        in_child = in_a_fork(lambda: [blocking_error(verb) for verb in [*verbs, leave]])
        return in_child, session.send("and now?").outcome()


def blocking_error(verb: Callable[[], object]) -> str:
    try:
        verb()
    except BackstayError as error:
        return type(error).__name__
    return "nothing"
