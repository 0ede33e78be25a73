"""Each request to a provider begins with the bytes of the one before it, so that prompt caches hold."""

import asyncio
import itertools
from collections.abc import Sequence
from typing import Any

import pytest

import backstay
from backstay import Timing
from backstay.agents import tool as agent_tool
from backstay.events import ToolCalled
from backstay.model.content import Text, ToolCall, ToolResult
from backstay.model.ids import SessionId
from backstay.model.message import assistant, tool, user
from backstay.model.turn import Completed
from tests.agents.provider.dialects import DIALECTS, OPENAI, Dialect, Wish
from tests.agents.provider.fake_provider import FakeProvider, Play, Request, answers, calls, stalls_after, wants
from tests.databases import Place
from tests.runtime.controlled_agents import first_words

# An app that closes does not wait for a tool that never ends.
AT_ONCE = Timing(grace=0.0)


def add(x: float, y: float = 1.5) -> dict[str, Any]:
    """Add two numbers."""
    return {"sum": x + y, "of": (x, y), "note": "größer"}


def fail(why: str) -> str:
    """Fail."""
    raise ValueError(why)


each = pytest.mark.parametrize("dialect", DIALECTS, ids=lambda dialect: dialect.name)


def agent_of(dialect: Dialect, provider: FakeProvider, tools: Sequence[Any] = (add, fail), **settings: Any) -> Any:
    return dialect.agent(provider, tools=tools, system="Be kind.", **settings)


def begins_with_the_one_before(dialect: Dialect, requests: Sequence[Request]) -> None:
    """Compares the bytes up to the end of the last message of each request."""
    for request in requests:
        dialect.check(request)
        assert request.raw.endswith(dialect.closing)
    for earlier, later in itertools.pairwise(requests):
        assert later.raw.startswith(earlier.raw.removesuffix(dialect.closing))


def busy_step(dialect: Dialect) -> Play:
    return dialect.calls(
        "Let me see. ",
        Wish("call_0", "add", {"y": 1e2, "x": 0.1}),
        Wish("call_1", "fail", {"why": "no luck"}),
        Wish("call_2", "steal", {}),
        Wish("", "add", {"x": "one"}),
        Wish("call_0", "add", {"x": 2}),
    )


@each
async def test_the_next_turn_sends_what_this_turn_has_sent(path: Place, dialect: Dialect) -> None:
    plays = [
        busy_step(dialect),
        dialect.calls("A", Wish("call_0", "add", {"x": 3})),
        dialect.answers("Done."),
        dialect.answers("Hello again."),
        busy_step(dialect),
        dialect.answers("Bye."),
    ]
    async with FakeProvider(*plays) as provider, backstay.open(path, agent=agent_of(dialect, provider)) as app:
        session = await app.session()
        for text in ("look", "hello", "once more"):
            assert await (await session.send(text)).outcome() == Completed()
        assert len(provider.requests) == 6
        begins_with_the_one_before(dialect, provider.requests)


@each
async def test_another_process_sends_what_the_first_one_has_sent(path: Place, dialect: Dialect) -> None:
    plays = [busy_step(dialect), dialect.answers("Done.")] * 2
    async with FakeProvider(*plays) as provider:
        async with backstay.open(path, agent=agent_of(dialect, provider)) as app:
            session = await app.session()
            assert await (await session.send("look")).outcome() == Completed()
        async with backstay.open(path, agent=agent_of(dialect, provider)) as app:
            session = await app.session(session.id)
            assert await (await session.send("look again")).outcome() == Completed()
        assert len(provider.requests) == 4
        begins_with_the_one_before(dialect, provider.requests)


@each
async def test_steering_stays_at_its_place(path: Place, dialect: Dialect) -> None:
    reached, free = asyncio.Event(), asyncio.Event()

    async def wait() -> str:
        """Wait."""
        reached.set()
        await free.wait()
        return "waited"

    plays = [dialect.calls("So.", Wish("call_0", "wait", {})), dialect.answers("As you like."), dialect.answers("Bye.")]
    async with FakeProvider(*plays) as provider, backstay.open(path, agent=agent_of(dialect, provider, [wait])) as app:
        session = await app.session()
        turn = await session.send("wait")
        await reached.wait()
        await session.steer("not so long")
        free.set()
        assert await turn.outcome() == Completed()
        assert await (await session.send("bye")).outcome() == Completed()
        assert len(provider.requests) == 3
        begins_with_the_one_before(dialect, provider.requests)


async def resume(path: Place, agent: Any, session: SessionId, *texts: str) -> None:
    """Resume the interrupted turn of a session in a new app, and send it these messages."""
    async with backstay.open(path, agent=agent, on_interrupt="resume") as app:
        handle = await app.session(session)
        resumed = (await handle.read()).running
        assert resumed is not None
        assert await (await app.turn(resumed)).outcome() == Completed()
        for text in texts:
            assert await (await handle.send(text)).outcome() == Completed()


@each
async def test_a_resumed_turn_and_the_turns_after_it_send_what_was_sent_before(path: Place, dialect: Dialect) -> None:
    inside = asyncio.Event()

    async def pay(amount: int) -> str:
        """Pay, and never say so."""
        inside.set()
        await asyncio.Event().wait()
        return "never"

    # The resumed turn asks for one call that has a result, and for one that may have run.
    done, doubtful = Wish("call_0", "add", {"x": 1}), Wish("call_1", "pay", {"amount": 5})
    steps = [
        dialect.calls("First this.", done),
        dialect.calls("Then.", doubtful),
        dialect.calls("Again.", done, doubtful),
    ]
    async with FakeProvider(*steps, dialect.answers("I do not know."), dialect.answers("Bye.")) as provider:
        async with backstay.open(path, agent=agent_of(dialect, provider, [add, pay]), timing=AT_ONCE) as app:
            session = await app.session()
            await session.send("pay")
            await inside.wait()
        await resume(path, agent_of(dialect, provider, [add, pay]), session.id, "bye")
    assert len(provider.requests) == 5
    begins_with_the_one_before(dialect, provider.requests)
    last = provider.requests[-1].raw.decode()
    assert (last.count("größer"), last.count("interrupted: this call"), last.count("pay was interrupted")) == (
        2,
        1,
        1,
    )


@each
async def test_a_turn_that_was_cut_off_in_its_output_continues_from_there(path: Place, dialect: Dialect) -> None:
    plays = [stalls_after(*dialect.cut_off("One, ")), dialect.answers("two."), dialect.answers("Bye.")]
    async with FakeProvider(*plays) as provider:
        async with backstay.open(path, agent=agent_of(dialect, provider), timing=AT_ONCE) as app:
            session = await app.session()
            await first_words(await session.send("count"))
        await resume(path, agent_of(dialect, provider), session.id, "bye")
    # Chat Completions go on inside of the message, so its closing quote moves.
    closing = b'"' + b"}" + dialect.closing if dialect is OPENAI else dialect.closing
    assert len(provider.requests) == 3
    for request in provider.requests:
        dialect.check(request)
    for earlier, later in itertools.pairwise(provider.requests):
        assert later.raw.startswith(earlier.raw.removesuffix(closing))


@pytest.mark.engines("sqlite")
async def test_ids_of_other_agents_are_unique_and_those_for_mistral_have_nine_letters(path: Place) -> None:
    pair = [assistant([Text("so"), ToolCall("ledger-1", "clock")]), tool(ToolResult("ledger-1", "noon"))]
    plays: list[Play] = [calls(wants(0, "abcDEF123", "add", '{"x": 1}')), answers("yes"), answers("bye")]
    async with FakeProvider(*plays) as provider:
        async with backstay.open(path, agent=agent_of(OPENAI, provider, short_call_ids=True)) as app:
            session = await app.session()
            for _ in range(2):
                await session.record([user("when?"), *pair])
            for text in ("and now?", "bye"):
                assert await (await session.send(text)).outcome() == Completed()
        begins_with_the_one_before(OPENAI, provider.requests)
        messages = provider.requests[-1].body["messages"]
    called = [call["id"] for message in messages for call in message.get("tool_calls", ())]
    assert called == [message["tool_call_id"] for message in messages if message["role"] == "tool"]
    assert len(set(called)) == 3
    assert called[2] == "abcDEF123"
    assert all(len(one) == 9 and one.isalnum() for one in called)


@each
async def test_a_call_that_waited_for_a_person_is_made_without_asking_the_model(path: Place, dialect: Dialect) -> None:
    paid: list[int] = []

    @agent_tool(approval=True)
    def pay(amount: int) -> str:
        """Pay."""
        paid.append(amount)
        return "paid"

    plays = [dialect.calls("Now.", Wish("call_0", "pay", {"amount": 5})), dialect.answers("It is paid.")]
    async with FakeProvider(*plays) as provider:
        async with backstay.open(path, agent=agent_of(dialect, provider, [pay]), timing=AT_ONCE) as app:
            turn = await (await app.session()).send("pay")
            async for event in turn.events():
                if isinstance(event.body, ToolCalled):
                    break
        async with backstay.open(path, agent=agent_of(dialect, provider, [pay])) as app:
            cut = await app.turn(turn.id)
            (call,) = await cut.calls()
            await cut.approve(call.call)
            assert await (await cut.resume()).outcome() == Completed()
    assert paid == [5]
    assert len(provider.requests) == 2
    begins_with_the_one_before(dialect, provider.requests)
