"""A process that runs out of memory or threads: a clear error, the turn ends, and it continues when there is enough."""

import asyncio
import inspect
import resource
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import backstay
from backstay import Text
from backstay.agents.adapters import AgentLike
from backstay.agents.blocking_agent import BlockingAgent, BlockingAgentTurn
from backstay.agents.port import AgentTurn
from backstay.agents.tools import Tool, ToolFailed
from backstay.concurrency.background_thread import BackgroundThread, ThreadLost
from backstay.model.content import Body
from backstay.runtime.session_handle import Session
from tests.runtime_processes.child_process import Child

# Larger than any stack that a thread left behind: a thread that starts needs memory for it.
STACK = 64 * 1024 * 1024


def limit_memory() -> None:
    """From now on the process gets no more memory than it has."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize(), resource.RLIM_INFINITY))


def lift_limit() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    threading.stack_size(0)


def limit_threads() -> None:
    """From now on no thread can start, for lack of memory."""
    threading.stack_size(STACK)
    limit_memory()


@contextmanager
def no_more_threads() -> Iterator[None]:
    limit_threads()
    try:
        yield
    finally:
        lift_limit()


# --- a thread that starts and finds no memory -------------------------------------------------------------------------


def start_without_memory(pipe: "Connection[Any, Any]") -> None:
    async def ended(work: threading.Event, *, starved: bool) -> ThreadLost:
        lost: asyncio.Future[ThreadLost] = asyncio.get_running_loop().create_future()
        if starved:
            limit_memory()
        try:
            thread = BackgroundThread(work.set)
            thread.watch(lambda: lost.set_result(thread.lost()))
            return await lost
        except ThreadLost as error:
            return error
        finally:
            lift_limit()

    async def scenario() -> None:
        # Threads that ended leave their stacks to those that start: so the next one starts, and then finds no memory.
        for _ in range(3):
            work = threading.Event()
            await ended(work, starved=False)
        work = threading.Event()
        error = await ended(work, starved=True)
        pipe.send(("lost", str(error), work.is_set()))

    asyncio.run(scenario())


def test_a_thread_that_cannot_start_for_lack_of_memory_blocks_no_caller() -> None:
    with Child(start_without_memory) as child:
        error, ran = child.receive("lost")
    assert error.startswith("no thread could be started: ")
    assert not ran


# --- a thread that cannot start ---------------------------------------------------------------------------------------


class Work:
    """A tool that can exhaust the memory when its parameters are read, which is just before it runs."""

    def __init__(self) -> None:
        self.starves = False

    @property
    def __signature__(self) -> inspect.Signature:
        if self.starves:
            limit_threads()
            asyncio.get_running_loop().call_soon(lift_limit)
        return inspect.Signature()

    def __call__(self) -> str:
        return "done"


async def calling(turn: AgentTurn) -> AsyncIterator[Body]:
    work = Work()
    tool = Tool(name="work", function=work)
    for starves in (False, True, False):
        work.starves = starves
        try:
            yield Text(f"{await turn.call(tool, {})}. ")
        except ToolFailed as error:
            yield Text(f"{error}. ")


def saying(turn: BlockingAgentTurn) -> Iterator[Body]:
    yield Text("done. ")


async def speaking_on_a_thread(turn: AgentTurn) -> AsyncIterator[Body]:
    words = BlockingAgent.of_generator(saying).stream(turn)
    if turn.input.text == "without memory":
        with no_more_threads():
            yield await anext(words)
    async for body in words:
        yield body


def play(pipe: "Connection[Any, Any]", path: Path, agent: AgentLike, *inputs: str) -> None:
    async def scenario() -> None:
        async with backstay.open(path, agent=agent) as app:
            session = await app.session()
            for words in inputs:
                turn = await session.send(words)
                outcome = await turn.outcome()
                pipe.send(("said", type(outcome).__name__, getattr(outcome, "reason", ""), await answer_in(session)))

    asyncio.run(scenario())


async def answer_in(session: Session) -> str:
    messages = await session.messages()
    asked = max(place for place, message in enumerate(messages) if message.role == "user")
    return "".join(message.text for message in messages[asked + 1 :] if message.role == "assistant")


def test_a_tool_whose_thread_cannot_start_fails_and_the_next_one_runs(tmp_path: Path) -> None:
    with Child(play, tmp_path / "chat.db", calling, "work") as child:
        outcome, _, answer = child.receive("said")
    assert outcome == "Completed"
    assert answer.startswith("done. work failed: no thread could be started: ")
    assert answer.endswith("done. ")


def test_an_agent_whose_thread_cannot_start_fails_its_turn_and_answers_the_next(tmp_path: Path) -> None:
    with Child(play, tmp_path / "chat.db", speaking_on_a_thread, "without memory", "hello") as child:
        outcome, reason, _ = child.receive("said")
        assert outcome == "Failed"
        assert reason.startswith("no thread could be started: ")
        assert child.receive("said") == ("Completed", "", "done. ")
