"""An input that a provider refuses fails its turn and nothing else: later turns are answered without it."""

from typing import Any

import pytest

import backstay
from backstay import Text
from backstay.agents.port import AgentTurn
from backstay.agents.provider.openai_compatible import OpenAICompatible
from backstay.errors import InputRefused
from backstay.model.turn import Completed, Failed, Outcome
from backstay.runtime.session_handle import Session
from tests.agents.provider.fake_provider import FakeProvider, Play, answers, calls, refuses, wants
from tests.databases import Place

FLAGGED = refuses(403, {"error": {"message": "your input was flagged", "code": 403}})
INVALID = refuses(400, {"error": {"message": "Invalid 'messages[1].content'", "type": "invalid_request_error"}})
TOO_LONG = refuses(413, "request too large")


def look(at: str) -> str:
    """Look."""
    return f"saw {at}"


def agent_of(provider: FakeProvider) -> OpenAICompatible:
    return OpenAICompatible(provider.base_url, "tiny", tools=[look])


async def outcomes(session: Session, *texts: str) -> list[Outcome]:
    return [await (await session.send(text)).outcome() for text in texts]


def sent(provider: FakeProvider) -> list[Any]:
    return [message["content"] for message in provider.requests[-1].body["messages"]]


@pytest.mark.parametrize(
    ("refusal", "code"),
    [(FLAGGED, "input_refused"), (INVALID, "input_refused"), (TOO_LONG, "context_overflow")],
    ids=["flagged", "400", "too long"],
)
async def test_a_refused_input_is_seen_by_people_and_not_by_agents(path: Place, refusal: Play, code: str) -> None:
    async with FakeProvider(answers("Hello."), refusal, answers("Yes."), answers("Again.")) as provider:
        async with backstay.open(path, agent=agent_of(provider)) as app:
            session = await app.session()
            hello, refused, later = await outcomes(session, "hi", "evil", "still there?")
            shown = [message.text for message in await session.messages() if message.role == "user"]
        assert (hello, later) == (Completed(), Completed())
        assert isinstance(refused, Failed)
        assert (refused.code, refused.hint != "") == (code, True)
        assert shown == ["hi", "evil", "still there?"]
        assert sent(provider) == ["hi", "Hello.", "still there?"]

        async with backstay.open(path, agent=agent_of(provider)) as app:
            assert await outcomes(await app.session(session.id), "and after a restart?") == [Completed()]
        assert sent(provider) == ["hi", "Hello.", "still there?", "Yes.", "and after a restart?"]


async def test_the_code_and_the_hint_of_a_failure_are_stored(path: Place) -> None:
    async def refuse(turn: AgentTurn) -> Any:
        yield Text("no")
        raise InputRefused("not this", hint="Send something else.")

    async with backstay.open(path, agent=refuse) as app:
        turn = await (await app.session()).send("evil")
        outcome = await turn.outcome()
    assert outcome == Failed("not this", code="input_refused", hint="Send something else.")
    async with backstay.open(path) as app:
        assert (await (await app.turn(turn.id)).read()).outcome == outcome


async def test_a_retried_or_edited_input_is_read_again(path: Place) -> None:
    plays = [answers("Hello."), FLAGGED, answers("Fine."), FLAGGED, answers("Better.")]
    async with FakeProvider(*plays) as provider, backstay.open(path, agent=agent_of(provider)) as app:
        session = await app.session()
        await outcomes(session, "hi", "evil")
        assert await (await session.retry()).outcome() == Completed()
        assert sent(provider) == ["hi", "Hello.", "evil"]
        await outcomes(session, "worse")
        message = [message for message in await session.messages() if message.role == "user"][-1]
        assert await (await session.edit(message.id, "good")).outcome() == Completed()
        assert sent(provider) == ["hi", "Hello.", "evil", "Fine.", "good"]


async def test_agents_learn_which_tools_a_refused_turn_has_called(path: Place) -> None:
    plays = [calls(wants(0, "a", "look", '{"at": "it"}')), FLAGGED, answers("Yes.")]
    async with FakeProvider(*plays) as provider, backstay.open(path, agent=agent_of(provider)) as app:
        session = await app.session()
        refused, later = await outcomes(session, "look at it", "what did you do?")
        assert isinstance(refused, Failed)
        assert later == Completed()
        [only] = sent(provider)
        assert "look" in only
        assert "look at it" not in only
        assert "saw it" not in only


@pytest.mark.parametrize("status", [500, 401, 404])
async def test_an_input_that_failed_for_another_reason_is_read_again(path: Place, status: int) -> None:
    async with FakeProvider(*[refuses(status)] * 5, answers("Yes.")) as provider:
        agent = OpenAICompatible(provider.base_url, "tiny", pause=_no_pause)
        async with backstay.open(path, agent=agent) as app:
            session = await app.session()
            [failed] = await outcomes(session, "hi")
            while len(provider.requests) < 5:
                await outcomes(session, "hi")
            assert await outcomes(session, "there?") == [Completed()]
    assert isinstance(failed, Failed)
    assert failed.code in ("agent_failed", "key_refused", "model_unknown")
    assert sent(provider)[0].startswith("hi\n\n")


async def _no_pause(seconds: float) -> None:
    """Do not wait."""
