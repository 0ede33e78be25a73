"""The scripted agent: the same answer to the same words, with real tools, and no model."""

import asyncio
import signal
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest

from backstay.agents.port import Agent, AgentTurn
from backstay.agents.scripted.builtin_tools import clock_of
from backstay.agents.scripted.scripted_agent import ScriptedAgent
from backstay.agents.tools import Tool, tool
from backstay.errors import AgentFailed
from backstay.model.content import Body, Custom, Text, Thought, ToolCall, Usage
from backstay.model.ids import MessageId
from backstay.model.message import Message, assistant, user
from backstay.testing import ManualClock
from tests.agents.fake_turn import LooseTurn, output_of, text_in

PROJECT = Path(__file__).parents[2]


class Waits:
    """A pause that only records its length."""

    def __init__(self) -> None:
        self.seconds: list[float] = []

    async def __call__(self, seconds: float) -> None:
        self.seconds.append(seconds)


@tool
def search(query: str) -> str:
    """Search."""
    return f"nothing about {query}"


def agent(
    *tools: Tool, payments: list[str] | None = None, pause: Waits | None = None, pace: float = 0.0
) -> ScriptedAgent:
    tools = (clock_of(ManualClock()), *tools)
    return ScriptedAgent(tools=tools, payments=payments, pause=pause or Waits(), pace=pace)


def said(text: str, *tools: Tool, turn: LooseTurn | None = None) -> list[Body]:
    return asyncio.run(output_of(agent(*tools), turn or LooseTurn(text)))


def test_it_is_an_agent() -> None:
    assert isinstance(ScriptedAgent(), Agent)
    assert isinstance(ScriptedAgent.script([]), Agent)


def test_the_scripted_agent_names_itself_and_repeats_the_input() -> None:
    answer = text_in(said("What is love?"))

    assert "scripted" in answer
    assert "“What is love?”" in answer
    assert "help" in answer


def test_the_scripted_agent_streams_small_pieces() -> None:
    pieces = [body for body in said("What is love?") if isinstance(body, Text)]

    assert len(pieces) > 5
    assert all(len(piece.text) < 60 for piece in pieces)


def test_the_same_input_gets_the_same_answer() -> None:
    assert said("think\ncalc 1+1\nlong 2") == said("think\ncalc 1+1\nlong 2")


def test_a_long_message_is_not_repeated_in_full() -> None:
    assert len(text_in(said("word " * 10_000))) < 500


def test_a_message_without_text_is_answered() -> None:
    attachment = user([Text(" ")]).parts

    assert "scripted" in text_in(asyncio.run(output_of(agent(), LooseTurn(attachment))))


def test_thoughts_are_separate_from_the_answer() -> None:
    bodies = said("think about the sea and its tides")

    assert "".join(body.text for body in bodies if isinstance(body, Thought)) == "about the sea and its tides"
    assert "tides" not in text_in(bodies)


@pytest.mark.parametrize("text", ["tool clock", "/tool clock", "TOOL clock", "  tool   clock  "])
def test_the_scripted_agent_gets_the_time_from_a_tool(text: str) -> None:
    turn = LooseTurn(text)

    assert "2027-01-15T08:00:00Z" in text_in(said(text, turn=turn))
    assert turn.calls == [("clock", {})]


def test_the_scripted_agent_calculates_with_a_tool() -> None:
    turn = LooseTurn("calc 2+3*4")

    assert "14" in text_in(said("", turn=turn))
    assert turn.calls == [("calculator", {"expression": "2+3*4"})]


def test_a_tool_that_fails_is_an_answer_not_a_failure() -> None:
    assert "divide by zero" in text_in(said("calc 1/0"))


def test_a_tool_that_may_have_run_is_reported_and_not_repeated() -> None:
    turn = LooseTurn("calc 1+1", interrupted=["calculator"])

    assert "may have run" in text_in(said("", turn=turn))
    assert len(turn.calls) == 1


def test_the_scripted_agent_searches_with_its_search_tool() -> None:
    assert "nothing about old boats" in text_in(said("search old boats", search))


def test_without_one_it_searches_the_persons_sessions() -> None:
    assert "nothing was found" in text_in(said("search old boats"))


def test_a_tool_is_called_with_the_arguments_in_the_text() -> None:
    assert "nothing about x" in text_in(said('tool search {"query": "x"}', search))


def test_an_unknown_tool_is_answered_with_the_known_ones() -> None:
    answer = text_in(said("tool sail {}"))

    assert "no tool sail" in answer
    assert "calculator" in answer


def test_text_that_resembles_a_command_is_repeated() -> None:
    for sentence in ("slow down please", "long time no see", "pay me", "tool belts are nice", "usage of words"):
        assert f"“{sentence}”" in text_in(said(sentence))


def test_every_line_is_a_command_of_its_own() -> None:
    bodies = said("dear agent\nplease:\n\ncalc 1+1\nthink twice\ncalc 2+2\nthank you")

    answer = text_in(bodies)
    assert answer.index("“dear agent\nplease:”") < answer.index("calculator: 2") < answer.index("calculator: 4")
    assert answer.index("calculator: 4") < answer.index("“thank you”")


def test_the_scripted_agent_can_call_a_tool_that_needs_approval() -> None:
    turn = LooseTurn("ask Shall I?")

    said("", turn=turn)

    assert turn.calls == [("confirm", {"question": "Shall I?"})]


def test_a_payment_is_noted_with_the_key_of_its_call() -> None:
    payments: list[str] = []
    turn = LooseTurn("pay 5\npay 7")

    bodies = asyncio.run(output_of(agent(payments=payments), turn))

    assert payments == [f"{turn.keys[0]} 5", f"{turn.keys[1]} 7"]
    assert "paid 5" in text_in(bodies)


def test_payments_can_be_noted_in_a_file(tmp_path: Path) -> None:
    turn = LooseTurn("pay 5")

    asyncio.run(output_of(ScriptedAgent(payments=tmp_path / "paid"), turn))

    assert (tmp_path / "paid").read_text() == f"{turn.keys[0]} 5\n"


def test_without_a_place_to_pay_into_nothing_is_paid() -> None:
    turn = LooseTurn("pay 5")

    assert "no ledger" in text_in(said("", turn=turn))
    assert turn.calls == []


def test_slow_pauses_between_its_pieces_and_nowhere_else() -> None:
    waits = Waits()

    bodies = asyncio.run(output_of(agent(pause=waits), LooseTurn("slow 3")))

    assert text_in(bodies) == "1 of 3. 2 of 3. 3 of 3. "
    assert waits.seconds == [0.5, 0.5]


def test_every_answer_is_paced_if_asked() -> None:
    waits = Waits()

    pieces = asyncio.run(output_of(agent(pause=waits, pace=0.02), LooseTurn("hello")))

    assert waits.seconds == [0.02] * (len([piece for piece in pieces if isinstance(piece, Text)]) - 1)


def test_long_writes_exactly_as_many_kilobytes() -> None:
    bodies = said("long 5")

    assert len(text_in(bodies).encode()) == 5 * 1024
    assert max(len(body.text) for body in bodies if isinstance(body, Text)) == 512


def test_fail_raises_the_given_reason() -> None:
    spoken: list[Body] = []

    with pytest.raises(AgentFailed, match="the moon is full"):
        asyncio.run(output_of(agent(), LooseTurn("fail the moon is full"), spoken.append))

    assert text_in(spoken) != ""


def test_the_scripted_agent_reports_its_usage_in_words() -> None:
    turn = LooseTurn("slow 2", history=[user("one two"), assistant("three")])

    assert said("", turn=turn)[-1] == Usage(input_tokens=5, output_tokens=6, model="scripted")


def test_usage_reports_the_same_number_of_words() -> None:
    assert "3 words read, 6 said" in text_in(said("slow 2\nusage"))


def test_help_names_every_command() -> None:
    answer = text_in(said("help"))

    for word in "think tool calc search ask pay slow long usage fail crash help".split():
        assert f"\n- `{word}" in "\n" + answer
        assert word in (ScriptedAgent.__doc__ or "")


def test_the_scripted_agent_repeats_steering_between_two_pieces() -> None:
    turn = LooseTurn("slow 3", steering=[None, "hurry up"])

    assert text_in(said("", turn=turn)) == "1 of 3. 2 of 3. \n(You said in between: “hurry up”)\n3 of 3. "


@pytest.mark.parametrize("text", ["slow 9", "think one two three four five six seven", "calc 1+1\nslow 9"])
def test_the_scripted_agent_stops_when_its_turn_is_cancelled(text: str) -> None:
    turn = LooseTurn(text)

    def cancel(_: Body) -> None:
        turn.cancelled = True

    bodies = asyncio.run(output_of(agent(), turn, cancel))

    assert len(bodies) <= 2
    assert not any(isinstance(body, Usage) for body in bodies)


@pytest.mark.parametrize("text", ["crash", "pay 3 crash"])
def test_the_scripted_agent_crashes_only_if_allowed(text: str) -> None:
    payments: list[str] = []

    bodies = asyncio.run(output_of(agent(payments=payments), LooseTurn(text)))

    assert "not allowed to crash" in text_in(bodies)
    assert payments == []


CRASH = """
import asyncio, pathlib, sys
from backstay.agents.scripted.scripted_agent import ScriptedAgent
from tests.agents.fake_turn import LooseTurn, output_of
agent = ScriptedAgent(allow_crash=True, payments=pathlib.Path(sys.argv[2]))
asyncio.run(output_of(agent, LooseTurn(sys.argv[1]), lambda body: print(body, flush=True)))
"""


def test_a_crash_is_a_real_one(tmp_path: Path) -> None:
    child = subprocess.run(
        [sys.executable, "-c", CRASH, "slow 2\ncrash", tmp_path / "paid"],
        capture_output=True,
        text=True,
        check=False,
        cwd=PROJECT,
    )

    assert child.returncode == -signal.SIGKILL
    assert "2 of 2" in child.stdout


def test_a_crash_inside_a_payment_comes_after_the_payment(tmp_path: Path) -> None:
    child = subprocess.run(
        [sys.executable, "-c", CRASH, "pay 9 crash", tmp_path / "paid"],
        capture_output=True,
        text=True,
        check=False,
        cwd=PROJECT,
    )

    assert child.returncode == -signal.SIGKILL
    assert (tmp_path / "paid").read_text().endswith(".1 9\n")


def test_a_script_yields_its_lines_in_every_turn() -> None:
    script = ScriptedAgent.script(["one ", Text("two"), Thought("hm"), Custom("mood", "good")])

    for _ in range(2):
        assert asyncio.run(output_of(script, LooseTurn())) == [
            Text("one "),
            Text("two"),
            Thought("hm"),
            Custom("mood", "good"),
        ]


def test_a_script_calls_its_functions_with_the_turn() -> None:
    async def ask(turn: AgentTurn) -> Body:
        return Text(await turn.call(search, {"query": turn.input.text}))

    def listen(turn: AgentTurn) -> None:
        owners.append(turn.owner)

    owners: list[str] = []
    bodies = asyncio.run(output_of(ScriptedAgent.script([ask, listen]), LooseTurn("boats")))

    assert bodies == [Text("nothing about boats")]
    assert owners == ["me"]


def test_a_script_raises_its_exceptions_after_its_output() -> None:
    spoken: list[Body] = []

    with pytest.raises(KeyError):
        asyncio.run(output_of(ScriptedAgent.script(["so ", KeyError("far")]), LooseTurn(), spoken.append))

    assert spoken == [Text("so ")]


def test_a_script_stops_when_its_turn_is_cancelled() -> None:
    turn = LooseTurn()

    def cancel(turn_: AgentTurn) -> None:
        turn.cancelled = True

    assert asyncio.run(output_of(ScriptedAgent.script(["one", cancel, "two"]), turn)) == [Text("one")]


def resumed(text: str, *output: Body) -> LooseTurn:
    """A turn that resumes one which had this output."""
    turn = LooseTurn(text)
    turn.earlier_output = (assistant_message(output),)
    turn.messages = (*turn.messages, *turn.earlier_output)
    return turn


def assistant_message(output: Iterable[Body]) -> Message:
    parts = tuple(body for body in output if isinstance(body, Text | Thought | ToolCall))
    return Message(id=MessageId("msg_earlier"), position=1, turn=None, role="assistant", parts=parts, at=0)


@pytest.mark.parametrize("text", ["hello", "slow 4", "think of the sea", "calc 1+1\nusage\nlong 1"])
def test_a_resumed_turn_continues_where_the_output_stopped(text: str) -> None:
    whole = said(text)

    for cut in range(len(whole)):
        rest = said("", turn=resumed(text, *whole[:cut]))
        assert text_in(whole[:cut]) + text_in(rest) == text_in(whole)
        assert thoughts_in(whole[:cut]) + thoughts_in(rest) == thoughts_in(whole)


def thoughts_in(bodies: Iterable[Body]) -> str:
    return "".join(body.text for body in bodies if isinstance(body, Thought))


def test_a_resumed_turn_does_not_pause_for_output_that_was_sent() -> None:
    waits = Waits()
    asyncio.run(output_of(agent(pause=waits), resumed("slow 4", Text("1 of 4. "), Text("2 of 4. "))))

    assert len(waits.seconds) == 2


def test_a_resumed_turn_continues_after_steering_that_it_reported() -> None:
    turn = resumed("slow 2", Text("1 of 2. "), Text("\n(You said in between: “faster”)\n"))

    assert text_in(said("", turn=turn)) == "2 of 2. "


def test_a_resumed_turn_does_not_crash_a_second_time() -> None:
    crashing = ScriptedAgent(allow_crash=True, payments=[])

    answer = text_in(asyncio.run(output_of(crashing, resumed("crash\ncalc 1+1", Text("I am about to crash.\n")))))
    paid = text_in(asyncio.run(output_of(crashing, resumed("pay 5 crash", ToolCall("c1", "pay", {"amount": 5})))))

    assert "I continue from this point" in answer
    assert "calculator: 2" in answer
    assert "about to crash" not in answer
    assert "paid 5" in paid
