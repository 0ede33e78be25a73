"""The current turn: correct wherever the agent's code runs, unknown everywhere else, never that of another agent."""

import asyncio
import contextvars
import os
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest

import backstay
from backstay import Text, Thought, open_store
from backstay.agents.blocking_agent import BlockingAgentTurn
from backstay.agents.port import AgentTurn
from backstay.agents.tools import tool
from backstay.model import message
from backstay.model.content import Body
from backstay.model.event import ToolCalled
from backstay.model.ids import WindowId
from backstay.model.message import Message
from backstay.model.turn import Cancelled, Completed, OpenTurn
from backstay.runtime.session_handle import Session
from tests.databases import Place
from tests.runtime.controlled_agents import PATIENCE, Gate, echo, events_of_turn, first_words, stopping_at

# These tests are about agents and their output in the runtime: the engine cannot matter.
pytestmark = pytest.mark.engines("sqlite")


def here() -> str | None:
    """The input of the turn that this code runs in; None outside all turns."""
    try:
        return backstay.current().input.text
    except LookupError:
        return None


async def test_the_current_turn_is_set_in_the_agent_its_tasks_and_its_threads(path: Place) -> None:
    async def in_a_task() -> str | None:
        await asyncio.sleep(0)
        return here()

    @tool
    def on_a_thread() -> str | None:
        return here()

    @tool
    async def on_the_loop() -> str | None:
        return here()

    async def agent(turn: AgentTurn) -> AsyncIterator[Body]:
        assert backstay.current().id == turn.id
        seen = [here(), await asyncio.create_task(in_a_task()), await asyncio.to_thread(here)]
        async with asyncio.TaskGroup() as group:
            task = group.create_task(in_a_task())
        with ThreadPoolExecutor(1) as threads:
            seen += [task.result(), threads.submit(contextvars.copy_context().run, here).result()]
        seen += [await turn.call(on_a_thread, {}), await turn.call(on_the_loop, {})]
        assert seen == ["hello"] * 7
        yield Text("right")

    async with backstay.open(path, agent=agent) as app:
        assert await (await (await app.session()).send("hello")).outcome() == Completed()


@pytest.mark.parametrize("handed_on", [True, False])
@pytest.mark.parametrize("way", ["run_in_executor", "executor", "thread"])
async def test_a_thread_that_runs_in_the_agents_context_has_the_current_turn(
    path: Place, way: str, handed_on: bool
) -> None:
    seen: list[str | None] = []

    def look() -> None:
        seen.append(here())

    async def agent(turn: AgentTurn) -> AsyncIterator[Body]:
        work = partial(contextvars.copy_context().run, look) if handed_on else look
        with ThreadPoolExecutor(1) as pool:
            if way == "run_in_executor":
                await asyncio.get_running_loop().run_in_executor(pool, work)
            elif way == "executor":
                await asyncio.wrap_future(pool.submit(work))
            else:
                thread = threading.Thread(target=work)
                thread.start()
                await asyncio.to_thread(thread.join)
        yield Text("seen")

    async with backstay.open(path, agent=agent) as app:
        assert await (await (await app.session()).send("hello")).outcome() == Completed()
    # Some builds of Python hand the context to every new thread.
    inherits = bool(getattr(sys.flags, "thread_inherit_context", False))
    assert seen == (["hello"] if handed_on else [None]) or (inherits and seen == ["hello"])


async def test_the_current_turn_is_set_in_a_blocking_agent_and_its_tools(path: Place) -> None:
    @tool
    def on_a_thread() -> str | None:
        return here()

    def agent(turn: BlockingAgentTurn) -> Iterator[Body]:
        assert backstay.current().id == turn.id
        yield Text("half ")
        assert (here(), turn.call(on_a_thread, {})) == ("hello", "hello")
        yield Text("right")

    async with backstay.open(path, agent=agent) as app:
        assert await (await (await app.session()).send("hello")).outcome() == Completed()


async def test_the_current_turn_is_unknown_outside_before_during_and_after_it(path: Place) -> None:
    gate = Gate()
    async with backstay.open(path, agent=stopping_at(gate)) as app:
        with pytest.raises(LookupError, match=r"no turn runs .*copy_context"):
            backstay.current()
        turn = await (await app.session()).send("hello")
        async for _ in turn.events():
            assert here() is None
            assert await asyncio.to_thread(here) is None
            gate.open()
        await turn.outcome()
        assert here() is None


async def test_a_turn_sent_by_an_agent_has_a_context_of_its_own(path: Place) -> None:
    inner: list[Session] = []
    seen: list[tuple[str, str | None]] = []

    async def agent(turn: AgentTurn) -> AsyncIterator[Body]:
        if turn.input.text == "outer":
            await (await inner[0].send("inner")).outcome()
        seen.append((turn.input.text, here()))
        yield Text("done")

    async def titler(messages: tuple[Message, ...]) -> str:
        seen.append((f"title of {messages[0].text}", here()))
        return "a title"

    async with backstay.open(path, agent=agent, titler=titler) as app:
        inner.append(await app.session())
        await (await (await app.session()).send("outer")).outcome()
    assert sorted(seen, key=str) == [
        ("inner", "inner"),
        ("outer", "outer"),
        ("title of inner", None),
        ("title of outer", None),
    ]


@pytest.mark.parametrize("kind", ["async", "blocking"])
async def test_turns_that_run_at_once_never_see_each_other(path: Place, kind: str) -> None:
    crowd = 8
    together = threading.Barrier(crowd)
    keys: dict[str, set[str]] = {}

    @tool
    def note(name: str, key: str) -> str | None:
        keys.setdefault(name, set()).add(key)
        return here()

    def blocking(turn: BlockingAgentTurn) -> Iterator[Body]:
        name = turn.input.text
        for step in range(3):
            together.wait(PATIENCE)  # All are at this step now.
            assert backstay.current().id == turn.id
            assert [message.text for message in turn.messages] == [name]
            assert turn.call(note, {"name": name}) == name
            yield Text(f"{name}.{step} ")

    async def agent(turn: AgentTurn) -> AsyncIterator[Body]:
        name = turn.input.text
        for step in range(3):
            await asyncio.sleep(0)
            assert backstay.current().id == turn.id
            assert [message.text for message in turn.messages] == [name]
            assert await turn.call(note, {"name": name}) == name
            yield Text(f"{name}.{step} ")

    async def one(app: backstay.App, name: str) -> None:
        session = await app.session()
        turn = await session.send(name)
        events = await events_of_turn(turn)
        assert {(event.session, event.turn) for event in events} == {(session.id, turn.id)}
        assert {event.body.key for event in events if isinstance(event.body, ToolCalled)} == keys[name]
        assert len(keys[name]) == 3
        said = "".join(message.text for message in await session.messages() if message.role == "assistant")
        assert said == f"{name}.0 {name}.1 {name}.2 "

    async with backstay.open(path, agent=agent if kind == "async" else blocking) as app:
        await asyncio.gather(*(one(app, f"name{number}") for number in range(crowd)))
    assert len(set.union(*keys.values())) == 3 * crowd


async def test_nothing_of_a_turn_goes_into_the_environment(path: Place) -> None:
    before = dict(os.environ)

    async def agent(turn: AgentTurn) -> AsyncIterator[Body]:
        assert dict(os.environ) == before
        yield Text("nothing")

    async with backstay.open(path, agent=agent) as app:
        assert await (await (await app.session()).send("hello")).outcome() == Completed()
    assert dict(os.environ) == before


async def test_cancellation_and_failure_stay_in_their_turn(path: Place) -> None:
    release = Gate()

    async def agent(turn: AgentTurn) -> AsyncIterator[Body]:
        yield Text("one ")
        await release.stop_here()
        assert not turn.cancelled
        if turn.input.text == "fail":
            raise ValueError("only here")
        yield Text("two")

    async with backstay.open(path, agent=agent) as app:
        cancelled, failing, fine = [await (await app.session()).send(text) for text in ("cancel", "fail", "go on")]
        await asyncio.gather(*(first_words(turn) for turn in (cancelled, failing, fine)))
        assert isinstance(await cancelled.cancel(), Cancelled)
        release.open()
        assert (await failing.outcome()).reason.startswith("the agent raised ValueError (turn trn_")
        assert await fine.outcome() == Completed()


def compact(path: Place, turn: AgentTurn) -> WindowId:
    """Open the session's next window in the middle of the turn, as its holder; returns the new window."""
    with open_store(path) as store:
        session = store.session(turn.session, owner=turn.owner)
        assert session.holder is not None
        proof = OpenTurn(
            id=turn.id,
            session=turn.session,
            owner=turn.owner,
            agent="default",
            root=turn.id,
            window=session.window,
            holder=session.holder,
            fence=session.fence,
            found=session.context,
            context=session.context,
            event=session.last_event,
            lease_until=0,
            input=turn.input,
        )
        summary = [message.summary("we said hello")]
        rotated = store.rotate(
            turn.session, summary, owner=turn.owner, parent=session.window, keep_from=session.length - 1, turn=proof
        )
        return rotated.window.id


async def test_the_window_is_read_live_also_by_tasks_that_ran_before_it_rotated(path: Place) -> None:
    rotated = asyncio.Event()

    async def waiting() -> str:
        before = backstay.current().window
        await rotated.wait()
        assert backstay.current().window != before
        return backstay.current().window

    async def agent(turn: AgentTurn) -> AsyncIterator[Body]:
        yield Text("one ")
        old = asyncio.create_task(waiting())
        await asyncio.sleep(0)
        new = compact(path, turn)
        await turn.steering()
        rotated.set()
        assert {turn.window, backstay.current().window, await old, await asyncio.to_thread(window)} == {new}
        yield Text("two")

    def window() -> str:
        return backstay.current().window

    async with backstay.open(path, agents={"default": agent, "echo": echo}) as app:
        session = await app.session()
        await (await session.send("hello", agent="echo")).outcome()
        assert await (await session.send("again")).outcome() == Completed()
        assert [message.text for message in await session.messages()] == ["we said hello", "again", "one two"]


async def test_an_agent_object_for_many_turns_gets_the_turn_it_answers(path: Place) -> None:
    class Remembering:
        """An agent that keeps something between turns."""

        def __init__(self) -> None:
            self.heard: list[str] = []

        async def stream(self, turn: AgentTurn) -> AsyncIterator[Body]:
            assert backstay.current().id == turn.id
            self.heard.append(turn.input.text)
            yield Thought("hm")
            yield Text(f"{len(self.heard)}")

        async def aclose(self) -> None:
            """Do nothing: there is nothing to release."""

    agent = Remembering()
    async with backstay.open(path, agent=agent) as app:
        sessions = [await app.session() for _ in range(3)]
        for number, session in enumerate(sessions):
            await (await session.send(f"{number}")).outcome()
        result = agent.heard

    assert result == ["0", "1", "2"]
