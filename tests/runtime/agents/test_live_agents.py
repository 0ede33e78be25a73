"""Live agents in an app: made for a session, kept between its turns, and closed in the end."""

import asyncio
import threading
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

import backstay
from backstay import Address, Pooling, Text, Timing, ToolCall, ToolResult, open_store
from backstay.agents.adapters import AgentLike
from backstay.agents.port import AgentTurn
from backstay.errors import ConfigError
from backstay.model import message
from backstay.model.content import Body
from backstay.model.message import Message
from backstay.model.turn import Cancelled, Completed, Failed, Interrupted
from backstay.runtime.session_handle import Session
from backstay.testing import ManualClock
from tests.runtime.agents.pool_setup import CountingAgent
from tests.runtime.controlled_agents import Gate, echo, one_of_many, play, saying, set_in_the_end, until, until_end
from tests.runtime.remembering_agents import Knowing, Learning, heard_and_known

# These tests are about agents and their output in the runtime: the engine cannot matter.
pytestmark = pytest.mark.engines("sqlite")

CHAT = Address.chat("telegram", "dm", chat="42")


async def ask(session: Session) -> None:
    """Send a message; the agent must have known exactly the messages before it."""
    turn = await session.send("what do you know?")
    assert await turn.outcome() == Completed()
    heard, known = await heard_and_known(session, turn.id)
    assert known == heard


async def test_a_hundred_first_messages_at_once_build_one_agent(path: Path, notify: bool) -> None:
    async with backstay.open(path, agent=Knowing, notify=notify) as app:
        session = await app.session(CHAT)
        turns = await asyncio.gather(*(one_of_many(session, f"{number}") for number in range(100)))
        assert {await turn.outcome() for turn in turns} == {Completed()}
        for turn in turns:
            heard, known = await heard_and_known(session, turn.id)
            assert known == heard
        await until(lambda: app.pool.statistics.in_use == 0)
        statistics = app.pool.statistics
        assert (statistics.built, statistics.hits) == ({"first": 1}, 99)


async def test_every_session_has_an_agent_of_its_own_and_all_are_closed_with_the_app(path: Path) -> None:
    made: list[CountingAgent] = []

    def make() -> CountingAgent:
        made.append(CountingAgent())
        return made[-1]

    async with backstay.open(path, agent=backstay.live(make)) as app:
        sessions = [await app.session() for _ in range(3)]
        for session in (*sessions, *sessions):
            assert await (await session.send("hi")).outcome() == Completed()
        assert app.pool.statistics.kept == len(made) == 3
    assert [agent.closed for agent in made] == [1, 1, 1]


async def test_functions_and_objects_serve_every_turn_and_are_not_pooled(path: Path) -> None:
    agent = CountingAgent()

    async with backstay.open(path, agents={"default": echo, "agent": agent}) as app:
        session = await app.session()
        for name in ("default", "agent", "default"):
            assert await (await session.send("hi", agent=name)).outcome() == Completed()
        assert (app.pool.statistics.kept, app.pool.statistics.built) == (0, {})
    assert agent.closed == 1


@pytest.mark.parametrize("wrong", [3, "agent", None])
def test_only_a_callable_can_make_agents(wrong: object) -> None:
    with pytest.raises(ConfigError, match="cannot create agents"):
        backstay.live(wrong)  # type: ignore[arg-type]  # that is the point


async def test_undo_and_edit_in_the_same_process_rebuild_the_agent(path: Path, notify: bool) -> None:
    async with backstay.open(path, agent=Knowing, notify=notify) as app:
        session = await app.session()
        await ask(session)
        await ask(session)
        await session.undo()
        await ask(session)
        await session.undo()
        await session.redo()
        await ask(session)
        turn = await session.retry()
        assert await turn.outcome() == Completed()
        heard, known = await heard_and_known(session, turn.id)
        assert known == heard
        turn = await session.edit((await session.messages())[0].id, "from the beginning")
        assert await turn.outcome() == Completed()
        heard, known = await heard_and_known(session, turn.id)
        assert known == heard == []
        assert app.pool.statistics.built == {"first": 1, "undo": 4}
        assert app.pool.statistics.hits == 1


async def test_renaming_pinning_and_titles_do_not_disturb_a_warm_agent(path: Path) -> None:
    async def title(messages: tuple[Message, ...]) -> str:
        return "A title"

    async with backstay.open(path, agent=Knowing, titler=title) as app:
        session = await app.session()
        for number in range(4):
            await ask(session)
            await session.rename(f"title {number}")
            await session.pin(number % 2 == 0)
            await session.tag(add=[f"tag {number}"])
        assert (app.pool.statistics.hits, app.pool.statistics.built) == (3, {"first": 1})


async def test_a_configuration_that_changes_is_seen_with_the_next_turn(path: Path) -> None:
    prompts = ["be kind"]

    agent = backstay.live(Knowing, configuration=lambda: {"system": prompts[0]})
    async with backstay.open(path, agent=agent) as app:
        session = await app.session()
        await ask(session)
        prompts[0] = "be terse"
        await ask(session)
        await ask(session)
        assert (app.pool.statistics.hits, app.pool.statistics.built) == (1, {"first": 1, "configuration": 1})


class Moody(Knowing):
    """Answers `fail` with an error, and stops at the gate for `wait`."""

    gate = Gate()

    async def stream(self, turn: AgentTurn) -> AsyncIterator[Body]:
        async for body in super().stream(turn):
            if turn.input.text == "fail":
                raise RuntimeError("not today")
            if turn.input.text == "wait":
                await self.gate.stop_here()
            yield body


@pytest.fixture(autouse=True)
def _new_gate(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Moody, "gate", Gate())


async def test_an_agent_whose_turn_did_not_complete_is_not_used_again(path: Path) -> None:
    async with backstay.open(path, agent=Moody) as app:
        session = await app.session()
        assert isinstance(await (await session.send("fail")).outcome(), Failed)
        await ask(session)
        turn = await session.send("wait")
        await Moody.gate.reached()
        assert isinstance(await turn.cancel(), Cancelled)
        await ask(session)
        assert sum(app.pool.statistics.built.values()) == 3


async def test_closing_the_app_interrupts_turns_in_progress_and_closes_their_agents(path: Path) -> None:
    made: list[Moody] = []

    def make() -> Moody:
        made.append(Moody())
        return made[-1]

    async with backstay.open(path, agent=backstay.live(make), timing=Timing(grace=0.05)) as app:
        quiet, busy = await app.session(), await app.session()
        await ask(quiet)
        turn = await busy.send("wait")
        await Moody.gate.reached()
        await until(lambda: app.pool.statistics.in_use == 1)
    async with backstay.open(path) as app:
        assert isinstance(await (await app.turn(turn.id)).outcome(), Interrupted)
    assert [agent.closed for agent in made] == [True, True]


class Deaf(CountingAgent):
    """Hangs when it gets the history, and ignores cancellation."""

    began: "asyncio.Event"
    release: "asyncio.Event"

    async def load(self, messages: tuple[Message, ...]) -> None:
        self.began.set()
        while not self.release.is_set():
            try:
                await self.release.wait()
            except asyncio.CancelledError:
                continue


async def test_an_agent_that_ignores_its_cancellation_does_not_block_its_session(path: Path) -> None:
    Deaf.began, Deaf.release = asyncio.Event(), asyncio.Event()
    agents: list[CountingAgent] = [CountingAgent(), Deaf()]
    app = backstay.open(path, agent=backstay.live(agents.pop), timing=Timing(grace=0.2))
    with set_in_the_end(Deaf.release):
        async with app:
            session = await app.session()
            turn = await session.send("are you there?")
            await Deaf.began.wait()
            assert isinstance(await turn.cancel(), Cancelled)
            await until(lambda: app.abandoned == 1)
            assert await (await session.send("and now?")).outcome() == Completed()


async def test_agents_that_are_not_used_are_closed_after_a_while(path: Path) -> None:
    clock, counting = ManualClock(), CountingAgent()
    agent = backstay.live(lambda: counting)
    timing = Timing(reap=0.001)
    async with backstay.open(path, agent=agent, clock=clock, pooling=Pooling(idle=60), timing=timing) as app:
        assert await (await (await app.session()).send("hi")).outcome() == Completed()
        # The outcome can be read a moment before the agent is back in the pool, and only then it is idle.
        await until(lambda: app.pool.statistics.in_use == 0)
        clock.advance(61)
        await counting.gone.wait()
        assert (app.pool.statistics.kept, app.pool.statistics.evicted) == (0, 1)


class Asking(Knowing):
    """Loads the history, and reads it again in the turn."""

    async def stream(self, turn: AgentTurn) -> AsyncIterator[Body]:
        heard = [message.id for message in turn.messages]
        assert heard[-1] == turn.input.id
        assert len(heard) == len(self.known) + 1
        async for body in super().stream(turn):
            yield body


async def test_an_agent_that_loaded_the_history_may_still_read_it(path: Path) -> None:
    async with backstay.open(path, agent=Asking) as app:
        session = await app.session()
        for _ in range(3):
            await ask(session)
        assert app.pool.statistics.hits == 2


class GuardedClock(ManualClock):
    """A clock that one thread may not use. A reader of a held session asks whether its holder lives."""

    def __init__(self) -> None:
        super().__init__()
        self.barred = 0

    def boot(self) -> int:
        assert threading.get_ident() != self.barred, "the store was read on this thread"
        return super().boot()


@pytest.mark.parametrize("kind", ["live", "catching up", "shared", "function"])
async def test_reading_the_history_of_a_turn_never_waits_for_the_store(path: Path, kind: str) -> None:
    clock, lengths = GuardedClock(), []

    async def look(turn: AgentTurn) -> AsyncIterator[Body]:
        clock.barred = threading.get_ident()
        try:
            lengths.append(len(turn.messages))
        finally:
            clock.barred = 0
        yield Text("so many")

    class Looking(Knowing):
        async def stream(self, turn: AgentTurn) -> AsyncIterator[Body]:
            async for body in look(turn):
                yield body

    class Learned(Looking, Learning):
        pass

    agents: dict[str, AgentLike] = {"live": Looking, "catching up": Learned, "shared": Looking(), "function": look}

    async with backstay.open(path, agent=agents[kind], clock=clock) as app:
        session = await app.session()
        assert await (await session.send("one")).outcome() == Completed()
        assert await (await session.send("two")).outcome() == Completed()
        await session.record([message.user("by the way")])
        assert await (await session.send("three")).outcome() == Completed()
    assert lengths == [1, 3, 6]


class Resuming(CountingAgent):
    """Answers with its history and the partial output of the turn that it resumes."""

    async def stream(self, turn: AgentTurn) -> AsyncIterator[Body]:
        yield Text(
            f"{self.heard} {turn.input.text} {[message.text for message in turn.earlier_output if message.text]}"
        )


def test_a_resumed_live_agent_gets_the_history_and_the_partial_output(path: Path) -> None:
    with open_store(path) as store:
        session = store.resolve(CHAT, owner="local").session.id
        first = store.submit(session, "hello", owner="local", start=True).opened
        assert first is not None
        store.finish(first, Completed(), bodies=[Text("hi")])
        opened = store.submit(session, "pay", owner="local", start=True).opened
        assert opened is not None
        store.checkpoint(opened, [Text("paying"), ToolCall("c", "pay"), ToolResult("c", "paid")])

    async def scenario() -> None:
        async with backstay.open(path, agent=Resuming, on_interrupt="resume") as app:
            session = await app.session(CHAT)
            await until_end(session, 3)
            assert (await session.messages())[-1].text == "['hello', 'hi'] pay ['paying']"
            assert await (await session.send("and?")).outcome() == Completed()
            assert (app.pool.statistics.hits, app.pool.statistics.built) == (1, {"first": 1})

    play(scenario())


async def test_sessions_of_one_app_do_not_disturb_each_other(path: Path, notify: bool) -> None:
    async with backstay.open(path, agents={"default": Learning, "other": saying("hm")}, notify=notify) as app:
        sessions = [await app.session() for _ in range(5)]
        for _ in range(3):
            await asyncio.gather(*map(ask, sessions))
        await (await sessions[0].send("you?", agent="other")).outcome()
        await asyncio.gather(*map(ask, sessions))
        statistics = app.pool.statistics
        assert (statistics.built, statistics.hits, statistics.caught_up) == ({"first": 5}, 14, 1)


def test_a_blocking_app_keeps_live_agents_as_well(path: Path) -> None:
    with backstay.open_blocking(path, agent=CountingAgent, pooling=Pooling(capacity=1)) as app:
        session = app.session()
        for _ in range(3):
            assert session.send("hi").outcome() == Completed()
        assert (app.pool.statistics.hits, app.pool.statistics.kept) == (2, 1)
