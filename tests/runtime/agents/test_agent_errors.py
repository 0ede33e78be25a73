"""Exceptions of agents and tools: the log has the traceback; clients, events and the store get no foreign text."""

import asyncio
import logging
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import backstay
from backstay import Compaction, Text
from backstay.agents import ToolFailed, tool
from backstay.agents.adapters import AgentLike
from backstay.agents.blocking_agent import BlockingAgentTurn
from backstay.agents.port import AgentTurn
from backstay.errors import AgentFailed, BackstayError, ContextOverflow, StoreUnavailable
from backstay.model.content import Body
from backstay.model.event import ToolReturned
from backstay.model.message import Message
from backstay.model.turn import Cancelled, Completed, Failed
from tests.databases import Place, everything_in
from tests.runtime.controlled_agents import PATIENCE, events_of_turn, first_words

# These tests are about agents and their output in the runtime: the engine cannot matter.
pytestmark = pytest.mark.engines("sqlite")

SECRET = "postgres://bot:hunter2@bank.example"


class AccountClosed(AgentFailed):
    """An agent author's own error, whose message users may read."""

    hint = "Open another account."


def broken() -> Any:
    raise ConnectionError(SECRET)


async def raises(turn: AgentTurn) -> AsyncIterator[Body]:
    yield Text("one moment ")
    broken()


def blocks(turn: BlockingAgentTurn) -> Iterator[Body]:
    yield Text("one moment ")
    broken()


async def exits(turn: AgentTurn) -> AsyncIterator[Body]:
    yield Text("one moment ")
    sys.exit(SECRET)


def exits_on_a_thread(turn: BlockingAgentTurn) -> Iterator[Body]:
    yield Text("one moment ")
    sys.exit(SECRET)


async def fails_in_a_group(turn: AgentTurn) -> AsyncIterator[Body]:
    yield Text("one moment ")
    raise ExceptionGroup(SECRET, [ConnectionError(SECRET), ValueError(SECRET)])


async def fails_in_a_task_group(turn: AgentTurn) -> AsyncIterator[Body]:
    yield Text("one moment ")
    async with asyncio.TaskGroup() as group:
        group.create_task(asyncio.to_thread(broken))


async def calls(turn: AgentTurn) -> AsyncIterator[Body]:
    yield Text("one moment ")
    await turn.call(tool(broken), {})


class Unmade:
    """Cannot be made."""

    def __init__(self) -> None:
        broken()

    async def stream(self, turn: AgentTurn) -> AsyncIterator[Body]:
        yield Text("never")

    async def aclose(self) -> None:
        pass


class Unloaded(Unmade):
    """Cannot read the history."""

    def __init__(self) -> None:
        pass

    async def load(self, messages: tuple[Message, ...]) -> None:
        broken()


AGENTS: dict[str, AgentLike] = {
    "raises": raises,
    "blocks": blocks,
    "exits": exits,
    "exits on a thread": exits_on_a_thread,
    "fails in a group": fails_in_a_group,
    "fails in a task group": fails_in_a_task_group,
    "calls a broken tool": calls,
    "cannot be made": Unmade,
    "cannot load": backstay.live(Unloaded),
}


def logged(caplog: pytest.LogCaptureFixture, text: str = SECRET) -> list[logging.LogRecord]:
    """The records whose traceback holds the text."""
    return [record for record in caplog.records if record.exc_info and text in caplog.handler.format(record)]


@pytest.mark.parametrize("agent", AGENTS.values(), ids=AGENTS)
async def test_the_text_of_an_agents_exception_is_in_the_log_and_nowhere_else(
    path: Place, caplog: pytest.LogCaptureFixture, agent: AgentLike
) -> None:
    async with backstay.open(path, agent=agent) as app:
        session = await app.session()
        turn = await session.send("hello")
        outcome = await turn.outcome()
        assert isinstance(outcome, Failed)
        assert f"(turn {turn.id}; the log has the traceback)" in outcome.reason
        seen = [outcome, await turn.read(), await turn.calls(), *await events_of_turn(turn)]
        seen += [await session.read(), await session.messages(), (await session.export()).to_json()]

    assert SECRET not in repr(seen)
    assert SECRET.encode() not in everything_in(path)
    (record,) = logged(caplog)
    assert (record.session, record.turn) == (session.id, turn.id)  # type: ignore[attr-defined]  # fields of the record
    assert turn.id in record.getMessage()
    assert session.id in record.getMessage()
    assert "Traceback" in caplog.text


def fails_to_store() -> Any:
    raise StoreUnavailable(f"{SECRET} does not answer", hint=f"Start {SECRET}.")


async def writes_elsewhere(turn: AgentTurn) -> AsyncIterator[Body]:
    yield Text("one moment ")
    try:
        await turn.call(tool(fails_to_store), {})
    except ToolFailed as error:
        yield Text(f"{error}")
    fails_to_store()


async def test_the_text_of_a_stores_error_is_in_the_log_and_nowhere_else(
    path: Place, caplog: pytest.LogCaptureFixture
) -> None:
    async with backstay.open(path, agent=writes_elsewhere) as app:
        session = await app.session()
        turn = await session.send("hello")
        outcome = await turn.outcome()
        seen = [outcome, *await events_of_turn(turn), await session.messages()]

    assert outcome == Failed(
        "The store cannot be reached or written right now; nothing was changed.",
        code="store_unavailable",
        hint=StoreUnavailable.hint,
    )
    assert "fails_to_store failed: The store cannot be reached" in repr(seen)
    assert SECRET not in repr(seen)
    assert SECRET.encode() not in everything_in(path)
    assert len(logged(caplog)) == 2


async def test_a_model_reads_the_type_of_a_tools_exception_and_not_its_text(
    path: Place, caplog: pytest.LogCaptureFixture
) -> None:
    async def agent(turn: AgentTurn) -> AsyncIterator[Body]:
        try:
            await turn.call(tool(broken), {})
        except ToolFailed as error:
            yield Text(f"{error}")

    async with backstay.open(path, agent=agent) as app:
        session = await app.session()
        turn = await session.send("hello")
        assert await turn.outcome() == Completed()
        reason = f"it raised ConnectionError (turn {turn.id}; the log has the traceback)"
        (result,) = [event.body.result for event in await events_of_turn(turn) if isinstance(event.body, ToolReturned)]
        assert (result.error, result.output) == (True, reason)
        assert (await session.messages())[-1].text == f"broken failed: {reason}"

    assert SECRET.encode() not in everything_in(path)
    (record,) = logged(caplog)
    assert record.levelno == logging.ERROR


def raising(error: BaseException) -> Callable[[], None]:
    def refuse() -> None:
        raise error

    return refuse


@pytest.mark.parametrize("error", [ToolFailed("account 7 is closed"), AccountClosed("account 7 is closed")], ids=repr)
async def test_a_tool_gives_the_model_a_message_by_raising_an_error_of_ours(path: Place, error: BackstayError) -> None:
    async def agent(turn: AgentTurn) -> AsyncIterator[Body]:
        try:
            await turn.call(tool(raising(error)), {})
        except ToolFailed as failed:
            yield Text(f"{failed}")

    async with backstay.open(path, agent=agent) as app:
        session = await app.session()
        assert await (await session.send("hello")).outcome() == Completed()
        result = (await session.messages())[-1].text

    assert result == f"refuse failed: {error}"


def in_a_group(error: Exception) -> Exception:
    return ExceptionGroup("unhandled errors in a TaskGroup", [error])


@pytest.mark.parametrize("wrapped", [lambda error: error, in_a_group], ids=["alone", "in a task group"])
async def test_the_message_of_an_agent_error_reaches_the_user_as_it_is(
    path: Place, wrapped: Callable[[Exception], Exception]
) -> None:
    async def agent(turn: AgentTurn) -> AsyncIterator[Body]:
        yield Text("one moment ")
        raise wrapped(AccountClosed("account 7 is closed"))

    async with backstay.open(path, agent=agent) as app:
        outcome = await (await (await app.session()).send("hello")).outcome()
        assert outcome == Failed("account 7 is closed", code="account_closed", hint="Open another account.")


async def test_an_exception_of_a_summariser_is_only_in_the_log(path: Place, caplog: pytest.LogCaptureFixture) -> None:
    async def overflows(turn: AgentTurn) -> AsyncIterator[Body]:
        if turn.input.text == "the last":
            raise ContextOverflow("this is too long for me")
        yield Text("word " * 50)

    policy = Compaction(summariser=raises, keep=10)
    async with backstay.open(path, agent=overflows, compaction=policy) as app:
        session = await app.session()
        for _ in range(3):
            await (await session.send("tell me")).outcome()
        outcome = await (await session.send("the last")).outcome()
        assert isinstance(outcome, Failed)
        assert "this is too long for me" in outcome.reason
        assert "the summariser raised ConnectionError (turn trn_" in outcome.reason
        with pytest.raises(AgentFailed, match="the summariser raised ConnectionError"):
            await session.compact(keep=0)

    assert SECRET.encode() not in everything_in(path)
    assert len(logged(caplog)) == 2


async def test_an_exception_of_an_agent_during_cancellation_is_logged(
    path: Place, caplog: pytest.LogCaptureFixture
) -> None:
    async def agent(turn: AgentTurn) -> AsyncIterator[Body]:
        try:
            yield Text("one moment ")
            await asyncio.Event().wait()
        finally:
            broken()

    async with backstay.open(path, agent=agent) as app:
        turn = await (await app.session()).send("hello")
        await first_words(turn)
        assert isinstance(await turn.cancel(), Cancelled)

    assert SECRET.encode() not in everything_in(path)
    assert len(logged(caplog)) == 1


PROGRAM = """
import asyncio
import backstay

async def agent(turn):
    raise ConnectionError("a detail for the author")
    yield

async def main():
    async with backstay.open("chat.db", agent=agent) as app:
        turn = await (await app.session()).send("hello")
        print(turn.id, (await turn.outcome()).reason)

asyncio.run(main())
"""


def test_a_program_without_logging_prints_the_traceback_to_stderr(tmp_path: Path) -> None:
    ran = subprocess.run(
        [sys.executable, "-c", PROGRAM], cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE, check=True
    )

    turn = ran.stdout.split()[0]
    assert "a detail for the author" not in ran.stdout
    assert ran.stderr.count("ConnectionError: a detail for the author") == 1
    assert f"agent 'default' raised ConnectionError in turn {turn} of session ses_" in ran.stderr


async def test_with_debug_the_reason_of_a_failed_turn_has_the_authors_traceback(path: Place) -> None:
    async def agent(turn: AgentTurn) -> AsyncIterator[Body]:
        yield Text("well")
        broken()

    async with backstay.open(path, agent=agent, debug=True) as app:
        outcome = await (await (await app.session()).send("hello")).outcome()

    assert isinstance(outcome, Failed)
    first, *traced = outcome.reason.splitlines()
    assert (outcome.code, "raised ConnectionError" in first) == ("agent_raised", True)
    assert f"ConnectionError: {SECRET}" in traced
    assert any("test_agent_errors.py" in line for line in traced)
    assert not any("/backstay/runtime/" in line for line in traced)


async def test_with_debug_the_own_words_of_an_author_are_not_traced(path: Place) -> None:
    async def agent(turn: AgentTurn) -> AsyncIterator[Body]:
        yield Text("well")
        raise AccountClosed("the account is closed")

    async with backstay.open(path, agent=agent, debug=True) as app:
        outcome = await (await (await app.session()).send("hello")).outcome()

    assert isinstance(outcome, Failed)
    assert outcome.reason == "the account is closed"
