"""Processes with built-in agents are killed: no payment is repeated, and the model learns of unknown effects."""

from pathlib import Path
from typing import Any

import pytest

from backstay import ToolCall, ToolResult
from backstay.model.event import TextDelta, ToolReturned, TurnEnded
from backstay.model.turn import Completed, Interrupted
from backstay.runtime.session_handle import Session
from tests.agents.provider.fake_provider import FakeProvider, answers, calls, stalls_after, wants, words
from tests.runtime_processes.agent_programs import model, script
from tests.runtime_processes.app_programs import CHAT
from tests.runtime_processes.child_process import Child
from tests.runtime_processes.turn_in_child import host, said, seen, until_said

PAY = wants(0, "a", "pay", '{"amount": 5}')
LOOK = wants(1, "b", "look", '{"at": "it"}')


@pytest.fixture
def payments(tmp_path: Path) -> Path:
    """A file with the key of every payment."""
    file = tmp_path / "payments"
    file.touch()
    return file


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "chat.db"


def paid(payments: Path) -> list[str]:
    """The recorded payments."""
    return payments.read_text().split()


def asked(provider: FakeProvider) -> list[dict[str, Any]]:
    """The messages of the provider's last request."""
    return list(provider.requests[-1].body["messages"])


async def ends(session: Session) -> list[Any]:
    """The outcomes of the ended turns of a session."""
    last = (await session.read()).last_event
    outcomes = []
    async for event in session.follow():
        if isinstance(event.body, TurnEnded):
            outcomes.append(event.body.outcome)
        if event.last == last:
            break
    return outcomes


# --- a model --------------------------------------------------------------------------------------------------------


async def test_a_model_killed_inside_its_payment_pays_once_and_learns_so_in_the_next_turn(
    path: Path, payments: Path
) -> None:
    async with FakeProvider(calls(PAY), answers("I may have paid")) as provider, host(path) as app:
        session = await app.session(CHAT)
        with Child(model, path, provider.base_url, payments) as first:
            turn = await session.send("pay 5", allow_unserved=True)
            (key,) = await first.receive_async("inside", "pay")
            first.kill()
        assert isinstance(await turn.outcome(), Interrupted)
        with Child(model, path, provider.base_url, payments) as second:
            assert await (await session.send("did you?", allow_unserved=True)).outcome() == Completed()
            second.terminate()
            second.ends_well()

        assert paid(payments) == [key]
        assert [message["role"] for message in asked(provider)] == ["user", "assistant", "tool", "user"]
        assert "this call may or may not have run" in asked(provider)[2]["content"]
        assert await said(session) == [
            ("user", "pay 5"),
            ("assistant", "…"),
            ("user", "did you?"),
            ("assistant", "I may have paid"),
        ]


async def test_a_resumed_model_that_wants_to_pay_again_learns_that_it_may_have_paid(path: Path, payments: Path) -> None:
    plays = (calls(PAY), calls(PAY), answers("I had better ask"))
    async with FakeProvider(*plays) as provider, host(path) as app:
        session = await app.session(CHAT)
        with Child(model, path, provider.base_url, payments) as first:
            turn = await session.send("pay 5", allow_unserved=True)
            (key,) = await first.receive_async("inside", "pay")
            first.kill()
        with Child(model, path, provider.base_url, payments, on_interrupt="resume") as second:
            await until_completed(session)
            second.terminate()
            second.ends_well()

        assert paid(payments) == [key]
        assert isinstance(await turn.outcome(), Interrupted)
        assert "and may have run" in asked(provider)[-1]["content"]
        assert (await said(session))[-1] == ("assistant", "I had better ask")


async def test_a_model_that_is_resumed_and_insists_on_paying_is_refused_every_time(path: Path, payments: Path) -> None:
    twice = calls(wants(0, "b", "pay", '{"amount":5}'), wants(1, "c", "pay", '{ "amount" : 5 }'))
    plays = (calls(PAY), calls(PAY), calls(PAY), twice, answers("I had better ask"))
    async with FakeProvider(*plays) as provider, host(path) as app:
        session = await app.session(CHAT)
        with Child(model, path, provider.base_url, payments) as first:
            turn = await session.send("pay 5", allow_unserved=True)
            (key,) = await first.receive_async("inside", "pay")
            first.kill()
        with Child(model, path, provider.base_url, payments, on_interrupt="resume") as second:
            await until_completed(session)
            second.terminate()
            second.ends_well()

        assert paid(payments) == [key]
        # First the result of the interrupted call; then each call of its own is rejected.
        refusals = [message["content"] for message in asked(provider) if message["role"] == "tool"]
        assert len(refusals) == 5
        assert all("and may have run" in refusal for refusal in refusals[1:])
        assert [line.effect for line in await turn.calls()] == ["unknown"]


async def test_of_two_parallel_calls_the_stored_result_is_reused_the_other_not_run(path: Path, payments: Path) -> None:
    plays = (calls(PAY, LOOK), calls(LOOK, PAY), answers("one of two"))
    async with FakeProvider(*plays) as provider, host(path) as app:
        session = await app.session(CHAT)
        with Child(model, path, provider.base_url, payments) as first:
            turn = await session.send("pay and look", allow_unserved=True)
            (key,) = await first.receive_async("inside", "pay")
            await first.receive_async("inside", "look")
            await seen(turn, ToolReturned)
            first.kill()
        assert [(line.name, line.effect) for line in await turn.calls()] == [
            ("pay", "unknown"),
            ("look", "returned"),
        ]
        with Child(model, path, provider.base_url, payments, on_interrupt="resume") as second:
            await until_completed(session)
            second.terminate()
            second.ends_well()
            assert not [words for words in second.everything() if words[0] == "inside"]

        assert paid(payments) == [key]
        looked, refused = [message["content"] for message in asked(provider) if message["role"] == "tool"][-2:]
        assert looked == "saw it"
        assert "and may have run" in refused


async def test_a_model_killed_while_streaming_keeps_the_visible_output(path: Path, payments: Path) -> None:
    plays = (stalls_after(words("The answer ")), answers("is 42"))
    async with FakeProvider(*plays) as provider, host(path) as app:
        session = await app.session(CHAT)
        with Child(model, path, provider.base_url, payments) as first:
            turn = await session.send("what is it?", allow_unserved=True)
            await until_said(turn, "The answer ")
            first.kill()
        with Child(model, path, provider.base_url, payments):
            assert await (await session.send("go on", allow_unserved=True)).outcome() == Completed()
        assert [message["content"] for message in asked(provider)] == ["what is it?", "The answer ", "go on"]
        assert await said(session) == [
            ("user", "what is it?"),
            ("assistant", "The answer …"),
            ("user", "go on"),
            ("assistant", "is 42"),
        ]


async def until_completed(session: Session) -> None:
    """Until a turn of the session has completed."""
    async for event in session.follow():
        if isinstance(event.body, TurnEnded) and isinstance(event.body.outcome, Completed):
            return


# --- the script -----------------------------------------------------------------------------------------------------


async def test_a_crashed_script_leaves_its_output_and_the_next_process_resumes(path: Path, payments: Path) -> None:
    async with host(path) as app:
        session = await app.session(CHAT)
        with Child(script, path, payments) as first:
            turn = await session.send("crash", allow_unserved=True)
            waiting = await session.send("hello", allow_unserved=True)
            assert isinstance(await turn.outcome(), Interrupted)
            assert first.exit_code() == -9
        with Child(script, path, payments):
            assert await waiting.outcome() == Completed()
        spoken = await said(session)
        assert spoken[:3] == [("user", "crash"), ("assistant", "I am about to crash.\n…"), ("user", "hello")]
        assert len(await ends(session)) == 2


async def test_a_script_that_crashes_inside_its_payment_pays_once_also_when_it_is_resumed(
    path: Path, payments: Path
) -> None:
    async with host(path) as app:
        session = await app.session(CHAT)
        with Child(script, path, payments) as first:
            turn = await session.send("pay 5 crash", allow_unserved=True)
            assert isinstance(await turn.outcome(), Interrupted)
            assert first.exit_code() == -9
        with Child(script, path, payments, on_interrupt="resume") as second:
            await until_completed(session)
            second.terminate()
            second.ends_well()
        (line,) = await turn.calls()
        assert paid(payments) == [line.key, "5"]
        assert "may have run already, so I do not repeat it" in (await said(session))[-1][1]
        parts = [part for message in await session.messages() for part in message.parts]
        assert [type(part) for part in parts if isinstance(part, ToolCall | ToolResult)] == [ToolCall]


async def test_a_long_answer_cut_off_by_a_crash_is_kept_as_far_as_it_was_seen(path: Path, payments: Path) -> None:
    async with host(path) as app:
        session = await app.session(CHAT)
        heard = ""
        with Child(script, path, payments) as first:
            turn = await session.send("long 2000", allow_unserved=True)
            async for event in turn.events():
                heard += event.body.text if isinstance(event.body, TextDelta) else ""
                if len(heard) > 10_000:
                    break
            first.kill()
        assert isinstance(await turn.outcome(), Interrupted | Completed)
        kept = "".join(message.text for message in await session.messages() if message.role == "assistant")
        assert kept.startswith(heard)
