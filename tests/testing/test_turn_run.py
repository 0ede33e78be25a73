"""One turn of an agent runs in a test, which asserts on its events, messages, calls and outcome."""

import asyncio
from pathlib import Path

import pytest

import backstay
from backstay import Completed, Failed, Interrupted, Text, Timing
from backstay.agents import ScriptedAgent
from backstay.agents.adapters import AgentLike
from backstay.errors import ConfigError
from backstay.events import TextDelta, ThoughtDelta, ToolCalled, ToolReturned, TurnEnded, TurnStarted
from backstay.model.content import ToolCall
from backstay.testing import ManualClock, ModelHold, ScriptedModel, events_until, finish_turn, run_turn
from tests.testing.sample_agents import Companion, cashier, cleaner, counter


async def test_a_run_has_the_events_messages_calls_and_outcome_of_the_turn() -> None:
    run = await run_turn(cashier, "pay 5")

    assert run.outcome == Completed()
    kinds = [type(event.body) for event in run.events]
    assert kinds == [TurnStarted, ThoughtDelta, ToolCalled, ToolReturned, TextDelta, TurnEnded]
    assert [(message.role, message.text) for message in run.messages][0::3] == [
        ("user", "pay 5"),
        ("assistant", "paid 5"),
    ]
    assert run.text == "paid 5"
    assert [(call.name, call.effect) for call in run.calls] == [("pay", "returned")]
    assert [call.arguments for call in run.tool_calls] == [{"amount": 5}]
    assert run.info.state == "ended"


@pytest.mark.parametrize(
    ("agent", "text"),
    [
        (counter, "2"),
        (Companion, "turn 1"),
        (backstay.live(Companion), "turn 1"),
        (ScriptedAgent.script(["one ", Text("two")]), "one two"),
    ],
)
async def test_every_kind_of_agent_runs_behind_a_history(agent: AgentLike, text: str) -> None:
    history = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "Hello."}]

    run = await run_turn(agent, "and now?", history=history)

    assert (run.outcome, run.text, run.messages[0].text) == (Completed(), text, "and now?")


async def test_the_failure_of_an_agent_is_the_outcome() -> None:
    run = await run_turn(ScriptedAgent.script(["Half", ValueError("boom")]), "hello")

    assert isinstance(run.outcome, Failed)
    assert (run.outcome.code, run.text) == ("agent_raised", "Half")


@pytest.mark.parametrize(
    ("approve", "said"),
    [(True, "wiped sda"), (False, "denied"), (lambda call: call.arguments == {"disk": "sda"}, "wiped sda")],
)
async def test_the_test_decides_about_a_call_that_waits_for_a_person(approve: bool, said: str) -> None:
    run = await run_turn(cleaner, "sda", approve=approve)

    assert run.outcome == Completed()
    assert said in run.text


async def test_the_decision_sees_the_call_with_its_arguments() -> None:
    seen: list[ToolCall] = []

    def decide(call: ToolCall) -> bool:
        seen.append(call)
        return False

    await run_turn(cleaner, "sda", approve=decide)

    assert [(call.name, call.arguments, call.approval) for call in seen] == [("wipe", {"disk": "sda"}, True)]


async def test_a_call_that_nobody_decides_about_is_an_error_and_runs_nothing() -> None:
    with pytest.raises(ConfigError, match="the tool wipe waits for a person"):
        await run_turn(cleaner, "sda")


async def test_a_manual_clock_is_the_time_of_the_turn() -> None:
    clock = ManualClock(now=1_000_000_000_000)

    run = await run_turn(cashier, "pay 5", clock=clock)

    assert {event.at for event in run.events} == {1_000_000_000_000}


async def test_a_turn_in_a_session_of_the_test_is_followed_to_its_end(tmp_path: Path) -> None:
    async with backstay.open(tmp_path / "chat.db", agent=Companion) as app:
        session = await app.session()
        runs = [await finish_turn(session, await session.send(text)) for text in ("one", "two")]

    assert [run.text for run in runs] == ["turn 1", "turn 2"]
    assert [run.messages[0].text for run in runs] == ["one", "two"]


async def test_a_test_acts_in_the_middle_of_a_turn(tmp_path: Path) -> None:
    hold = ModelHold()
    with ScriptedModel(["one ", hold, "two"]) as model:
        agent = backstay.agents.OpenAICompatible(model.openai_url, "tiny")
        async with backstay.open(tmp_path / "chat.db", agent=agent, timing=Timing(grace=0.0)) as app:
            session = await app.session()
            turn = await session.send("count")
            events = await events_until(turn, TextDelta)
            await hold.reached()
            await app.close()

        async with backstay.open(tmp_path / "chat.db") as app:
            run = await finish_turn(app.handle(turn.session), await app.turn(turn.id))

    assert isinstance(events[-1].body, TextDelta)
    assert isinstance(run.outcome, Interrupted)
    assert run.text == "one "


async def test_an_event_that_never_comes_is_an_error_that_names_the_events(tmp_path: Path) -> None:
    async with backstay.open(tmp_path / "chat.db", agent=counter) as app:
        turn = await (await app.session()).send("count")
        with pytest.raises(TimeoutError, match="without an event ToolCalled; it has TurnStarted, TextDelta, TurnEnded"):
            await events_until(turn, ToolCalled)


async def test_a_turn_that_hangs_is_an_error_that_names_the_events(tmp_path: Path) -> None:
    forever = asyncio.Event()

    async def hang(turn: object) -> Text | None:
        await forever.wait()
        return None

    agent = ScriptedAgent.script(["Half", hang])
    with pytest.raises(TimeoutError, match="TurnStarted"):
        await run_turn(agent, "hello", timing=Timing(grace=0.0), timeout_seconds=0.2)
