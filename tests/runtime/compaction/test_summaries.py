"""Summarisers: an agent gets the messages to be dropped and writes a summary, in pieces that it can read."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import backstay
from backstay import Compaction, Text, Thought, ToolCall, ToolResult, Usage
from backstay.agents.port import AgentTurn
from backstay.agents.provider.openai_compatible import OpenAICompatible
from backstay.agents.summariser import REQUEST, SummaryTurn, extractive
from backstay.agents.tools import ToolFailed, tool
from backstay.errors import AgentFailed
from backstay.model import message
from backstay.model.content import Body
from backstay.model.event import WindowOpened
from backstay.model.history.token_estimate import estimate
from backstay.model.ids import MessageId
from backstay.model.message import Message
from backstay.runtime.session_handle import Session
from tests.agents.fake_turn import LooseTurn
from tests.agents.provider.fake_provider import DONE, FakeProvider, finish, refuses, says, tally, words
from tests.runtime.agents.pool_setup import CountingAgent
from tests.runtime.compaction.word_tokens import LONG_WINDED, counting, events_so_far, gist, policy
from tests.runtime.compaction.word_tokens import words as count_words
from tests.runtime.controlled_agents import play
from tests.runtime.tools.test_ledger import check_valid

# These tests are about agents and their output in the runtime: the engine cannot matter.
pytestmark = pytest.mark.engines("sqlite")


async def fill(session: Session, turns: int = 3) -> None:
    for number in range(turns):
        await session.record([message.user(f"question {number}"), message.assistant(LONG_WINDED)])


async def test_a_model_summarises_through_its_provider(path: Path) -> None:
    play_it = says(words("There was "), words("soup."), finish(), tally(prompt_tokens=70, completion_tokens=4), DONE)
    async with FakeProvider(play_it) as provider:
        model = OpenAICompatible(provider.base_url, "tiny", "key")
        async with backstay.open(path, compaction=policy(budget=600, summariser=model)) as app:
            session = await app.session()
            await fill(session)
            await session.compact(keep=0, focus="the soup")
            assert (await session.messages())[0].text == "There was soup."
            (turn,) = {event.turn for event in await events_so_far(session) if isinstance(event.body, WindowOpened)}
            assert turn is not None
            usage = (await (await session.turn(turn)).read()).usage
            assert (usage.input_tokens, usage.output_tokens) == (70, 4)
        (request,) = provider.requests
        *before, wish = request.body["messages"]
        assert [said["role"] for said in before] == ["user", "assistant", "user", "assistant"]
        assert wish["role"] == "user"
        assert REQUEST in str(wish["content"])
        assert "the soup" in str(wish["content"])


async def test_a_provider_that_refuses_fails_the_compaction_with_its_reason(path: Path) -> None:
    async with FakeProvider(refuses(400, "no such model")) as provider:
        model = OpenAICompatible(provider.base_url, "tiny", "key")
        async with backstay.open(path, compaction=policy(summariser=model)) as app:
            session = await app.session()
            await fill(session)
            with pytest.raises(AgentFailed, match="no such model"):
                await session.compact(keep=0)
            assert len(await session.messages()) == 6


async def test_a_long_history_is_summarised_in_several_requests(path: Path) -> None:
    calls: list[AgentTurn] = []

    async def counted(turn: AgentTurn) -> AsyncIterator[Body]:
        yield Text(f"gist {len(calls)}")
        yield Usage(input_tokens=10)

    async with backstay.open(path, compaction=policy(summariser=counting(counted, calls))) as app:
        session = await app.session()
        await fill(session, 8)
        asked = await session.messages()
        await session.compact(keep=0)
        assert (await session.messages())[0].text == f"gist {len(calls)}"
        output_of = [one.id for turn in calls for one in turn.messages if one.role in ("user", "assistant") and one.id]
        assert output_of == [one.id for one in asked[:-2]], "everything, once, in order"
        (opener,) = {event.turn for event in await events_so_far(session) if isinstance(event.body, WindowOpened)}
        assert opener is not None
        usage = (await (await session.turn(opener)).read()).usage
        assert usage.input_tokens == 10 * len(calls)
    assert len(calls) > 2
    for number, turn in enumerate(calls):
        *roles_and_texts, wish = turn.messages
        assert wish == turn.input
        assert sum(map(count_words, roles_and_texts)) <= 30 + 2
        summaries = [one.text for one in roles_and_texts if one.role == "summary"]
        assert summaries == ([f"gist {number}"] if number else [])


async def test_a_call_and_its_results_stay_in_one_piece(path: Path) -> None:
    calls: list[AgentTurn] = []

    async with backstay.open(path, compaction=policy(summariser=counting(gist, calls))) as app:
        session = await app.session()
        for number in range(6):
            await session.record(
                [
                    message.user(f"question {number}"),
                    message.assistant([Text(LONG_WINDED), ToolCall("a", "look"), ToolCall("b", "look")]),
                    message.tool([Text(LONG_WINDED), ToolResult("a", 1)]),
                    message.tool([Text(LONG_WINDED), ToolResult("b", 2)]),
                ]
            )
        await session.compact(keep=0)
    assert len(calls) > 2
    for turn in calls:
        check_valid(turn.messages)
        results = [part for one in turn.messages for part in one.parts if isinstance(part, ToolResult)]
        assert all(not result.error for result in results)


async def test_a_summariser_gets_no_steering_and_no_tools(path: Path) -> None:
    @tool
    def pay() -> str:
        raise AssertionError("it may not act")

    async def eager(turn: AgentTurn) -> AsyncIterator[Body]:
        assert await turn.steering() == ()
        assert (turn.earlier_output, turn.cancelled, turn.session) == ((), False, backstay.current().session)
        assert (turn.id, turn.window, turn.owner) == (
            backstay.current().id,
            backstay.current().window,
            backstay.current().owner,
        )
        with pytest.raises(ToolFailed):
            await turn.call(pay, {})
        yield Thought("only what I say counts")
        yield Text("gist")

    async with backstay.open(path, compaction=policy(summariser=eager)) as app:
        session = await app.session()
        await fill(session)
        await session.compact(keep=0)
        assert (await session.messages())[0].text == "gist"


class Scribe(CountingAgent):
    """A summariser that counts how often it was closed."""

    async def stream(self, turn: AgentTurn) -> AsyncIterator[Body]:
        assert not self.closed
        yield Text("gist")


def test_a_summariser_is_closed_after_its_work_or_with_the_app_if_it_serves_all(path: Path) -> None:
    made: list[Scribe] = []

    def make() -> Scribe:
        made.append(Scribe())
        return made[-1]

    async def scenario(summariser: object, closed_meanwhile: list[int]) -> None:
        async with backstay.open(path, compaction=policy(summariser=summariser)) as app:
            session = await app.session()
            for _ in range(2):
                await fill(session)
                await session.compact(keep=0)
            assert [one.closed for one in made] == closed_meanwhile

    play(scenario(backstay.live(make), [1, 1]))
    made[:] = [Scribe()]
    play(scenario(made[0], [0]))
    assert [one.closed for one in made] == [1]


# --- without a model ------------------------------------------------------------------------------------------------


def summarised(messages: list[Message]) -> str:
    async def ask() -> str:
        asked = SummaryTurn(LooseTurn(), messages, "")
        return "".join([body.text async for body in extractive(asked) if isinstance(body, Text)])

    return play(ask())


def said(role: str, text: str, place: int) -> Message:
    new = {"user": message.user, "assistant": message.assistant, "summary": message.summary}[role](text)
    return Message(id=MessageId(f"{place}"), position=place, turn=None, role=new.role, parts=new.parts, at=0)


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["user", "assistant", "summary"]), st.text(st.characters(codec="utf-8"), max_size=400)
        ),
        max_size=20,
    )
)
def test_a_summary_without_a_model_is_short_and_always_the_same(roles_and_texts: list[tuple[str, str]]) -> None:
    messages = [said(role, text, place) for place, (role, text) in enumerate(roles_and_texts)]

    summary = summarised(messages)

    letters = sum(len(one.text) for one in messages)
    assert len(summary) <= letters / 3 + len(messages) + 60
    assert summary == summarised(messages)


def test_a_summary_without_a_model_keeps_the_start_the_end_and_earlier_summaries() -> None:
    middle = [said("user" if place % 2 else "assistant", f"turn {place} " * 40, place) for place in range(2, 400)]
    messages = [said("summary", "We met in May.", 0), said("user", "I want soup. " * 20, 1), *middle]

    summary = summarised(messages)

    assert summary.startswith("We met in May.\nPerson: I want soup.")
    assert "turn 399" in summary
    assert "more lines were left out" in summary
    assert len(summary) < 7000


async def test_the_default_summary_is_shorter_than_the_summarised_messages(path: Path) -> None:
    async with backstay.open(path, compaction=Compaction(budget=2000, keep=200)) as app:
        session = await app.session()
        for number in range(30):
            await session.record([message.user(f"what is {number}?"), message.assistant(f"{number}. " * 30)])
        before = sum(map(estimate, await session.messages()))
        await session.compact()
        assert sum(map(estimate, await session.messages())) < before / 2
