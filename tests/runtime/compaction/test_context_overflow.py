"""An agent whose history is too long: its turn compacts and continues, and runs nothing twice."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

import backstay
from backstay import Address, Text, ToolCall, ToolResult, Usage, open_store
from backstay.agents.port import AgentTurn
from backstay.agents.tools import Tool, tool
from backstay.errors import ContextOverflow
from backstay.model import message
from backstay.model.content import Body
from backstay.model.event import TurnEnded, TurnStarted, WindowOpened
from backstay.model.ids import WindowId
from backstay.model.message import Message
from backstay.model.turn import Completed, Failed
from backstay.runtime.session_handle import Session
from tests.runtime.compaction.word_tokens import (
    LONG_WINDED,
    at_rest,
    compactions,
    counting,
    events_so_far,
    gist,
    policy,
    windows_opened,
    words,
)
from tests.runtime.controlled_agents import AgentFunction, Gate, play, roles_and_texts, until_end
from tests.runtime.tools.test_ledger import check_valid

# These tests are about agents and their output in the runtime: the engine cannot matter.
pytestmark = pytest.mark.engines("sqlite")

CHAT = Address.chat("telegram", "dm", chat="42")
MOST = 25


def too_much(turn: AgentTurn) -> bool:
    return sum(map(words, turn.messages)) > MOST


async def narrow(turn: AgentTurn) -> AsyncIterator[Body]:
    """Reads at most this many tokens, and repeats its messages."""
    if too_much(turn):
        raise ContextOverflow("too long for me")
    check_valid(turn.messages)
    yield Text(f"I read {len(turn.messages)}")


async def fill(session: Session, turns: int = 3) -> None:
    """Recorded turns of twelve tokens each."""
    for number in range(turns):
        await session.record([message.user(f"question {number}"), message.assistant(LONG_WINDED)])


async def test_a_turn_that_overflows_compacts_and_continues_in_the_next_window(path: Path, notify: bool) -> None:
    async with backstay.open(path, agent=narrow, compaction=policy(), notify=notify) as app:
        session = await app.session()
        await fill(session)
        turn = await session.send("and now?")
        assert await turn.outcome() == Completed()
        messages = await session.messages()
        assert (messages[0].role, messages[-1].text) == ("summary", f"I read {len(messages) - 1}")
        bodies = [event.body for event in await events_so_far(session) if event.turn == turn.id]
        assert [type(body) for body in bodies if not hasattr(body, "text")] == [
            TurnStarted,
            WindowOpened,
            TurnEnded,
        ]
        assert await compactions(session) == [], "it needed no turn of its own"


async def test_the_agent_and_the_current_turn_see_the_next_window_at_once(path: Path) -> None:
    seen: list[tuple[WindowId, WindowId]] = []

    async def agent(turn: AgentTurn) -> AsyncIterator[Body]:
        seen.append((turn.window, backstay.current().window))
        async for body in narrow(turn):
            yield body

    async with backstay.open(path, agent=agent, compaction=policy()) as app:
        session = await app.session()
        await fill(session)
        before = (await session.read()).window
        assert await (await session.send("and now?")).outcome() == Completed()
        after = (await session.read()).window
        assert seen == [(before, before), (after, after)]


class Payer:
    """Pays, then raises `ContextOverflow`; when it runs again, it requests the same payments."""

    def __init__(self) -> None:
        self.keys: list[str] = []
        self.tries = 0
        self.shown: list[tuple[Message, ...]] = []

        @tool
        def pay(amount: int, key: str) -> str:
            self.keys.append(key)
            return f"paid {amount}"

        self._pay: Tool = pay

    async def __call__(self, turn: AgentTurn) -> AsyncIterator[Body]:
        self.tries += 1
        self.shown.append(turn.earlier_output)
        check_valid(turn.messages)
        yield Text("paying. " if self.tries == 1 else "again. ")
        for amount in (5, 7):
            yield Text(f"{await turn.call(self._pay, {'amount': amount})}. ")
        if self.tries == 1:
            for steering in await turn.steering():
                yield Text(f"heard {len(steering.parts)}. ")
            raise ContextOverflow("too long for me")
        yield Text(f"{await turn.call(self._pay, {'amount': 9})}.")


def as_agent(payer: Payer) -> AgentFunction:
    async def agent(turn: AgentTurn) -> AsyncIterator[Body]:
        async for body in payer(turn):
            yield body

    return agent


async def test_tools_that_ran_before_the_overflow_are_not_run_again(path: Path) -> None:
    payer = Payer()

    async with backstay.open(path, agent=as_agent(payer), compaction=policy()) as app:
        session = await app.session()
        await fill(session)
        turn = await session.send("pay them")
        assert await turn.outcome() == Completed()
        assert (payer.tries, len(payer.keys), len(set(payer.keys))) == (2, 3, 3)
        assert [call.effect for call in await turn.calls()] == ["returned"] * 3
        check_valid(await session.messages())
        said = "".join(one.text for one in await session.messages() if one.turn == turn.id and one.role != "user")
        assert said == "paying. paid 5. paid 7. again. paid 5. paid 7. paid 9."
    first, second = payer.shown
    assert first == ()
    assert "".join(one.text for one in second) == "paying. paid 5. paid 7. "
    assert [part.id for one in second for part in one.parts if isinstance(part, ToolResult)] == ["ledger-1", "ledger-2"]


async def test_steering_before_the_overflow_is_shown_again(path: Path) -> None:
    payer, gate = Payer(), Gate()

    async def agent(turn: AgentTurn) -> AsyncIterator[Body]:
        await gate.stop_here()
        async for body in payer(turn):
            yield body

    async with backstay.open(path, agent=agent, compaction=policy()) as app:
        session = await app.session()
        await fill(session)
        turn = await session.send("pay them")
        await gate.reached()
        await session.steer("and quickly")
        gate.open()
        assert await turn.outcome() == Completed()
    assert ("user", "and quickly") in roles_and_texts(payer.shown[1])


async def test_an_agent_that_overflows_twice_fails_its_turn_and_is_compacted_once(path: Path) -> None:
    async def never(turn: AgentTurn) -> AsyncIterator[Body]:
        yield Text("hm ")
        raise ContextOverflow("always too long for me")

    async with backstay.open(path, agent=never, compaction=policy()) as app:
        session = await app.session()
        await fill(session)
        outcome = await (await session.send("and now?")).outcome()
        assert isinstance(outcome, Failed)
        assert "always too long" in outcome.reason
        assert await windows_opened(session) == 1
        assert (await session.messages())[-1].partial


@pytest.mark.parametrize("turns", [0, 3], ids=["nothing to leave", "no policy"])
async def test_an_overflow_that_nothing_can_be_done_about_fails_the_turn(path: Path, turns: int) -> None:
    async def full(turn: AgentTurn) -> AsyncIterator[Body]:
        yield Text("hm ")
        raise ContextOverflow("too long for me")

    async with backstay.open(path, agent=full, compaction=None if turns else policy()) as app:
        session = await app.session()
        await fill(session, turns)
        outcome = await (await session.send("and now?")).outcome()
        assert isinstance(outcome, Failed)
        assert "too long for me" in outcome.reason
        assert await windows_opened(session) == 0


async def test_if_making_room_fails_the_turn_fails_with_both_reasons(path: Path) -> None:
    async def empty(turn: AgentTurn) -> AsyncIterator[Body]:
        yield Text(" ")

    async with backstay.open(path, agent=narrow, compaction=policy(summariser=empty)) as app:
        session = await app.session()
        await fill(session)
        outcome = await (await session.send("and now?")).outcome()
        assert isinstance(outcome, Failed)
        assert "too long for me" in outcome.reason
        assert "the summariser returned an empty summary" in outcome.reason
        assert outcome.code == "context_overflow"
        assert await windows_opened(session) == 0


async def test_the_usage_of_a_compaction_is_counted_apart_from_the_window(path: Path) -> None:
    calls: list[AgentTurn] = []

    async def dear(turn: AgentTurn) -> AsyncIterator[Body]:
        yield Usage(input_tokens=5000, output_tokens=5)
        yield Text("gist")

    async with backstay.open(
        path, agent=narrow, compaction=policy(budget=100, summariser=counting(dear, calls))
    ) as app:
        session = await app.session()
        await fill(session)
        turn = await session.send("and now?")
        assert await turn.outcome() == Completed()
        await at_rest(session)
        assert (await turn.read()).usage == Usage(input_tokens=5000, output_tokens=5)
        assert len(calls) == await windows_opened(session) == 1


class NarrowMind:
    """A live agent of limited size; it answers with its messages and the number of its rebuilds."""

    built = 0

    def __init__(self) -> None:
        type(self).built += 1
        self._told: list[str] = []

    async def load(self, messages: tuple[Message, ...]) -> None:
        self._told = [one.text for one in messages]

    async def stream(self, turn: AgentTurn) -> AsyncIterator[Body]:
        if sum(len(text.split()) for text in self._told) > MOST:
            yield Text("too much. ")
            raise ContextOverflow("too long for me")
        yield Text(f"{len(self._told)} {turn.input.text} {[one.text for one in turn.earlier_output]}")
        self._told += [turn.input.text, "an answer"]

    async def aclose(self) -> None:
        """Do nothing: there is nothing to release."""


async def test_a_live_agent_that_overflows_is_rebuilt_for_the_same_turn_and_kept_after_it(path: Path) -> None:
    NarrowMind.built = 0

    async with backstay.open(path, agent=NarrowMind, compaction=policy(budget=600)) as app:
        session = await app.session()
        await fill(session)
        assert await (await session.send("and now?")).outcome() == Completed()
        messages = await session.messages()
        assert messages[-1].text == f"too much. {len(messages) - 2} and now? ['too much. ']"
        assert NarrowMind.built == 2
        assert await (await session.send("and then?")).outcome() == Completed()
        assert (NarrowMind.built, app.pool.statistics.hits) == (2, 1)


@pytest.mark.parametrize("steered", [False, True])
def test_a_turn_that_resumes_an_interrupted_one_keeps_its_input_and_its_output(path: Path, steered: bool) -> None:
    with open_store(path) as store:
        session = store.resolve(CHAT, owner="local").session.id
        for number in range(3):
            said = [message.user(f"question {number}"), message.assistant(LONG_WINDED)]
            store.record(session, said, owner="local")
        opened = store.submit(session, "pay them", owner="local", start=True).opened
        assert opened is not None
        opened = store.checkpoint(opened, [Text("first "), ToolCall("c", "pay"), ToolResult("c", "paid")]).open
        if steered:
            store.submit(session, "and quickly", owner="local", if_busy="steer")
            opened = store.checkpoint(opened, [], take_steering=True).open
        store.checkpoint(opened, [Text("second ")])
    shown: list[tuple[str, list[str]]] = []

    async def agent(turn: AgentTurn) -> AsyncIterator[Body]:
        shown.append((turn.input.text, [one.text for one in turn.earlier_output if one.text]))
        assert turn.input in turn.messages
        yield Text("third ")
        if len(shown) == 1:
            raise ContextOverflow("too long for me")

    async def scenario() -> None:
        async with backstay.open(path, agent=agent, compaction=policy(), on_interrupt="resume") as app:
            session = await app.session(CHAT)
            await until_end(session, 3 if steered else 2)
            assert await windows_opened(session) == 1

    play(scenario())
    before = ["first ", *(["and quickly"] if steered else []), "second "]
    assert shown == [("pay them", before), ("pay them", [*before, "third "])]


async def test_only_the_required_messages_are_kept_after_an_overflow(path: Path) -> None:
    async with backstay.open(path, agent=narrow, compaction=policy(budget=1_000_000, keep=100_000)) as app:
        session = await app.session()
        await fill(session, 6)
        assert await (await session.send("and now?")).outcome() == Completed()
        assert sum(map(words, await session.messages())) <= MOST + len("I read N".split())


async def test_the_summariser_is_called_once_for_the_dropped_messages(path: Path) -> None:
    calls: list[AgentTurn] = []

    async with backstay.open(
        path, agent=narrow, compaction=policy(budget=100, summariser=counting(gist, calls))
    ) as app:
        session = await app.session()
        await fill(session)
        await (await session.send("and now?")).outcome()
        (asked,) = calls
        left = [one.id for one in asked.messages[:-1]]
        first = await session.messages(window=(await session.lineage())[0].id)
        assert left == [one.id for one in first[: len(left)]]
        kept = [one.id for one in await session.messages()][1:]
        assert kept[: len(first) - len(left)] == [one.id for one in first[len(left) :]]
