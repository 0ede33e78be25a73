"""An OpenAI-compatible agent may serve one app after another, several at once, and on one loop after another."""

import asyncio
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import backstay
from backstay.agents.provider.openai_compatible import OpenAICompatible
from backstay.model.turn import Completed
from tests.agents.fake_turn import LooseTurn, output_of, text_in
from tests.agents.provider.fake_provider import DONE, FakeProvider, Reply, answers, finish, words

PATIENCE = 90.0


def test_an_agent_that_was_closed_with_its_app_serves_the_next(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with FakeProvider(answers("one"), answers("two")) as provider:
            agent = OpenAICompatible(provider.base_url, "tiny")
            for expected in ("one", "two"):
                async with backstay.open(tmp_path / "chat.db", agent=agent) as app:
                    session = await app.session()
                    assert await (await session.send("hello")).outcome() == Completed()
                    assert (await session.messages())[-1].text == expected

    asyncio.run(asyncio.wait_for(scenario(), PATIENCE))


def test_an_agent_serves_several_loops_whose_connections_do_not_meet() -> None:
    """The provider runs on a loop of its own, so that a connection of the first loop is still there for the second."""

    async def provide(ready: "Future[str]", over: threading.Event) -> None:
        async with FakeProvider(answers("one"), answers("two")) as provider:
            ready.set_result(provider.base_url)
            await asyncio.to_thread(over.wait)

    async def scenario(agent: OpenAICompatible) -> str:
        try:
            return text_in(await output_of(agent, LooseTurn()))
        finally:
            await agent.aclose()

    ready: Future[str] = Future()
    over = threading.Event()
    with ThreadPoolExecutor(1) as thread:
        providing = thread.submit(asyncio.run, provide(ready, over))
        try:
            agent = OpenAICompatible(ready.result(PATIENCE), "tiny")
            assert [asyncio.run(scenario(agent)) for _ in range(2)] == ["one", "two"]
        finally:
            over.set()
        providing.result(PATIENCE)


def test_closing_an_agent_does_not_cut_off_an_answer_that_another_app_receives() -> None:
    async def scenario() -> None:
        closed = asyncio.Event()

        async def slow(reply: Reply) -> None:
            await reply.stream()
            await reply.send(words("one "))
            await closed.wait()
            await reply.send(words("two"))
            await reply.send(finish())
            await reply.send(DONE)
            await reply.end()

        async with FakeProvider(slow, answers("again")) as provider:
            agent = OpenAICompatible(provider.base_url, "tiny")
            begun = asyncio.Event()
            hearing = asyncio.create_task(output_of(agent, LooseTurn(), lambda _: begun.set()))
            await begun.wait()
            await agent.aclose()
            closed.set()
            assert text_in(await hearing) == "one two"
            assert text_in(await output_of(agent, LooseTurn())) == "again"
            assert provider.connections == 2
            await agent.aclose()

    asyncio.run(asyncio.wait_for(scenario(), PATIENCE))
