"""Disk failures: output is kept meanwhile, and a turn continues or ends when the disk is back."""

import asyncio
import resource
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import backstay
from backstay import Text, Timing, open_store
from backstay.agents.port import AgentTurn
from backstay.agents.tools import tool
from backstay.errors import StoreError
from backstay.model.content import Body
from backstay.model.turn import Cancelled, Completed
from backstay.runtime.session_handle import Session
from tests.runtime.controlled_agents import Gate, a_few_steps, echo, first_words, roles_and_texts, stopping_at, until

EAGER = Timing(flush=0, retry=0.005, poll=0.005)


@contextmanager
def gone(folder: Path) -> Iterator[None]:
    """Inside the block the disk is missing."""
    elsewhere = folder.with_name("elsewhere")
    folder.rename(elsewhere)
    try:
        yield
    finally:
        elsewhere.rename(folder)


@contextmanager
def no_more_files() -> Iterator[None]:
    """Inside the block as many files are open as this process may open."""
    few, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, most))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (few, most))


async def fail_to_write(session: Session) -> None:
    """Fail to write; earlier pending writes have failed by then, too."""
    for number in range(10):
        with pytest.raises(StoreError):
            await session.rename(f"{number}")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    folder = tmp_path / "disk"
    folder.mkdir()
    return folder / "chat.db"


async def test_output_during_a_disk_failure_is_stored_when_the_disk_is_back(path: Path, notify: bool) -> None:
    gates = [Gate(), Gate()]

    async def agent(turn: AgentTurn) -> AsyncIterator[Body]:
        yield Text("one ")
        await gates[0].stop_here()
        yield Text("two ")
        yield Text("three ")
        await gates[1].stop_here()
        yield Text("four")

    async with backstay.open(path, agent=agent, timing=EAGER, notify=notify) as app:
        session, other = await app.session(), await app.session()
        turn = await session.send("count")
        await first_words(turn)
        with gone(path.parent):
            gates[0].open()
            await gates[1].reached()
            await fail_to_write(other)
        gates[1].open()
        assert await turn.outcome() == Completed()
        assert roles_and_texts(await session.messages())[1:] == [("assistant", "one two three four")]


@pytest.mark.parametrize("last", ["two", ""], ids=["with words", "silently"])
async def test_a_turn_that_ended_while_the_disk_was_away_is_ended_when_it_is_back(
    path: Path, last: str, notify: bool
) -> None:
    gate = Gate()
    async with backstay.open(path, agent=stopping_at(gate, after=last), timing=EAGER, notify=notify) as app:
        session, other = await app.session(), await app.session()
        turn = await session.send("count")
        await first_words(turn)
        with gone(path.parent):
            gate.open()
            await fail_to_write(other)
        assert await turn.outcome() == Completed()
        assert roles_and_texts(await session.messages())[1:] == [("assistant", f"one {last}")]


async def test_a_tool_runs_only_when_its_intent_could_be_stored(path: Path) -> None:
    ran: list[str] = []

    @tool
    def pay() -> str:
        ran.append("paid")
        return "paid"

    gate = Gate()

    async def agent(turn: AgentTurn) -> AsyncIterator[Body]:
        yield Text("one ")
        await gate.stop_here()
        yield Text(await turn.call(pay, {}))

    async with backstay.open(path, agent=agent, timing=EAGER) as app:
        session, other = await app.session(), await app.session()
        turn = await session.send("pay")
        await first_words(turn)
        with gone(path.parent):
            gate.open()
            await fail_to_write(other)
            assert ran == []
        assert await turn.outcome() == Completed()
        assert ran == ["paid"]


async def test_an_input_that_could_not_be_stored_is_not_accepted(path: Path) -> None:
    async with backstay.open(path, agent=echo, timing=EAGER) as app:
        session = await app.session()
        with gone(path.parent), pytest.raises(StoreError):
            await session.send("hello", request_id="m-1")
        assert await session.messages() == ()
        turn = await session.send("hello", request_id="m-1")
        assert (turn.repeated, await turn.outcome()) == (False, Completed())


async def test_a_turn_can_be_cancelled_after_the_disk_was_away(path: Path, notify: bool) -> None:
    async with backstay.open(path, agent=stopping_at(Gate()), timing=EAGER, notify=notify) as app:
        session, other = await app.session(), await app.session()
        turn = await session.send("count")
        await first_words(turn)
        with gone(path.parent):
            with pytest.raises(StoreError):
                await turn.cancel()
            await fail_to_write(other)
        assert isinstance(await turn.cancel(), Cancelled)
        assert roles_and_texts(await session.messages())[1:] == [("assistant", "one ")]


async def test_a_waiting_follower_continues_after_a_disk_failure(path: Path, notify: bool) -> None:
    async with backstay.open(path, agent=echo, timing=EAGER, notify=notify) as app:
        session, other = await app.session(), await app.session()
        events = session.follow()
        while (await anext(events)).number < (await session.read()).last_event:
            continue
        waiting = asyncio.create_task(anext(events))
        await asyncio.sleep(0)
        with gone(path.parent):
            await fail_to_write(other)
        await session.rename("a title")
        event = await waiting
        assert event.number == (await session.read()).last_event


async def test_an_app_that_ran_out_of_file_descriptors_answers_waiting_turns_afterwards(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with open_store(path) as other:
        # Whether a holder elsewhere is alive is decided by a file.
        other.submit(other.create(owner="local").id, "hello", owner="local", start=True)
        async with backstay.open(path, agent=echo, timing=Timing(poll=0.005, reap=0.005)) as app:
            session = await app.session()
            with no_more_files():
                await until(lambda: "could not be claimed" in caplog.text)
                await a_few_steps()
            waiting = other.submit(session.id, "are you there?", owner="local").turn
            assert await (await app.turn(waiting.id)).outcome() == Completed()
            # A fault that lasts is logged once, and once more when it is over.
            await until(lambda: "are claimed again" in caplog.text)
            assert caplog.text.count("could not be claimed") == caplog.text.count("are claimed again")
