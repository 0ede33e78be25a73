"""Sending: what is accepted is durable, is answered once, and is answered by the agent it was meant for."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

import backstay
from backstay import Address, Text, ToolResult, open_store
from backstay.agents.port import AgentTurn
from backstay.errors import InvalidPayload, NotFound, Rejected, RequestMismatch, RevisionMismatch
from backstay.model import message
from backstay.model.content import Body
from backstay.model.turn import Completed
from tests.databases import Place
from tests.runtime.stage import Gate, HeldClock, echo, first_words, play, saying, stopping_at, told, until_end

CHAT = Address.chat("telegram", "dm", chat="42")


def test_the_input_is_stored_before_the_agent_is_called(path: Place) -> None:
    async def looking(turn: AgentTurn) -> AsyncIterator[Body]:
        with open_store(path) as store:
            yield Text(" | ".join(message.text for message in store.messages(turn.session, owner="local").messages))

    async def story() -> str:
        async with backstay.open(path, agent=looking) as app:
            session = await app.session(CHAT)
            await (await session.send("are you there?")).outcome()
            return (await session.messages())[-1].text

    assert play(story()) == "are you there?"


def test_sending_returns_when_the_input_is_durable_and_not_when_it_is_answered(path: Place) -> None:
    async def story() -> None:
        gate = Gate()
        async with backstay.open(path, agent=stopping_at(gate)) as app:
            session = await app.session(CHAT)
            turn = await session.send("hello")
            assert (await turn.read()).outcome is None
            assert told(await session.messages()) == [("user", "hello")]
            gate.open()
            assert await turn.outcome() == Completed()

    play(story())


def test_a_repeated_request_is_the_first_turn_while_it_runs_and_after_it(path: Place) -> None:
    async def story() -> None:
        gate = Gate()
        async with backstay.open(path, agent=stopping_at(gate)) as app:
            session = await app.session(CHAT)
            first = await session.send("pay", request_id="m-1")
            await gate.reached()
            again = await session.send("pay", request_id="m-1")
            gate.open()
            await again.outcome()
            late = await session.send("pay", request_id="m-1")
            assert [(turn.id, turn.repeated) for turn in (again, late)] == [(first.id, True), (first.id, True)]
            assert told(await session.messages()) == [("user", "pay"), ("assistant", "one two")]

    play(story())


def test_a_request_repeated_while_it_waits_waits_once(path: Place) -> None:
    async def story() -> None:
        gate = Gate()
        async with backstay.open(path, agent=stopping_at(gate, "", "")) as app:
            session = await app.session(CHAT)
            await session.send("first")
            waiting = await session.send("second", request_id="m-2")
            again = await session.send("second", request_id="m-2")
            assert (again.id, again.repeated, (await session.read()).waiting) == (waiting.id, True, 1)
            gate.open()
            assert await again.outcome() == await waiting.outcome()

    play(story())


def test_a_request_sent_by_many_at_once_is_accepted_once(path: Place) -> None:
    async def story() -> None:
        async with backstay.open(path, agent=echo) as app:
            session = await app.session(CHAT)
            turns = await asyncio.gather(*(session.send("pay", request_id="m-1") for _ in range(20)))
            assert len({turn.id for turn in turns}) == 1
            assert [turn.repeated for turn in turns].count(False) == 1
            await turns[0].outcome()
            assert told(await session.messages()) == [("user", "pay"), ("assistant", "heard pay")]

    play(story())


def test_a_request_id_used_for_something_else_is_refused(path: Place) -> None:
    async def story() -> None:
        async with backstay.open(path, agent=echo) as app:
            session = await app.session(CHAT)
            await (await session.send("pay 5", request_id="m-1")).outcome()
            with pytest.raises(RequestMismatch):
                await session.send("pay 500", request_id="m-1")
            assert told(await session.messages()) == [("user", "pay 5"), ("assistant", "heard pay 5")]

    play(story())


def test_what_is_refused_leaves_nothing_behind(path: Place) -> None:
    async def story() -> None:
        async with backstay.open(path, agent=echo) as app:
            session = await app.session(CHAT)
            before = await session.read()
            with pytest.raises(RevisionMismatch):
                await session.send("hello", expect_revision=before.revision + 1)
            for nothing in ("", "  \n", "\ud800"):
                with pytest.raises(Rejected):
                    await session.send(nothing)
            assert await session.read() == before

    play(story())


def test_an_address_leads_to_the_same_session_and_an_id_too(path: Place) -> None:
    async def story() -> None:
        async with backstay.open(path, agent=echo) as app:
            first, again = await app.session(CHAT), await app.session(CHAT)
            by_id, another = await app.session(first.id), await app.session()
            assert first.id == again.id == by_id.id != another.id

    play(story())


def test_another_owners_session_is_not_found(path: Place) -> None:
    async def story() -> None:
        async with backstay.open(path, agent=echo, owner="ann") as anns, backstay.open(path, owner="bob") as bobs:
            session = await anns.session()
            turn = await session.send("hello")
            await turn.outcome()
            with pytest.raises(NotFound):
                await bobs.session(session.id)
            assert (await bobs.sessions()).sessions == ()
            assert (await bobs.search("hello")).hits == ()

    play(story())


def test_each_turn_is_answered_by_the_agent_it_names(path: Place) -> None:
    async def story() -> list[str]:
        agents = {"poet": saying("roses"), "clerk": saying("form 7")}
        async with backstay.open(path, agents=agents) as app:
            session = await app.session(agent="poet")
            await (await session.send("hello")).outcome()
            await (await session.send("hello", agent="clerk")).outcome()
            return [message.text for message in await session.messages() if message.role == "assistant"]

    assert play(story()) == ["roses", "form 7"]


def test_a_turn_for_an_agent_that_nobody_serves_waits_until_somebody_does(path: Place, prompt: bool) -> None:
    async def story() -> None:
        async with backstay.open(path, agent=echo, prompt=prompt) as app:
            session = await app.session()
            turn = await session.send("hello", agent="poet")
            await (await (await app.session()).send("something else")).outcome()
            assert (await turn.read()).state == "waiting"
            async with backstay.open(path, agents={"poet": saying("roses")}, prompt=prompt):
                assert await turn.outcome() == Completed()
            assert told(await session.messages()) == [("user", "hello"), ("assistant", "roses")]

    play(story())


def test_an_agent_reads_everything_said_before_and_its_input_last(path: Place) -> None:
    async def reciting(turn: AgentTurn) -> AsyncIterator[Body]:
        assert turn.messages[-1] == turn.input
        yield Text(f"{len(turn.messages)} messages")

    async def story() -> list[tuple[str, str]]:
        async with backstay.open(path, agent=reciting) as app:
            session = await app.session()
            await session.record([message.user("from elsewhere"), message.assistant("noted")])
            await (await session.send("go on")).outcome()
            return told(await session.messages())

    assert play(story())[2:] == [("user", "go on"), ("assistant", "3 messages")]


def test_a_record_that_would_poison_the_session_is_refused(path: Place) -> None:
    async def story() -> None:
        async with backstay.open(path, agent=echo) as app:
            session = await app.session()
            with pytest.raises(InvalidPayload):
                await session.record([message.user("pay"), message.tool(ToolResult("c1", "paid"))])
            assert await session.messages() == ()

    play(story())


def test_retrying_answers_the_same_input_again_and_keeps_the_first_answer(path: Place) -> None:
    answers = iter(("first", "second"))

    async def fickle(turn: AgentTurn) -> AsyncIterator[Body]:
        yield Text(next(answers))

    async def story() -> None:
        async with backstay.open(path, agent=fickle) as app:
            session = await app.session()
            await (await session.send("hello")).outcome()
            before = (await session.read()).window
            await (await session.retry()).outcome()
            assert told(await session.messages()) == [("user", "hello"), ("assistant", "second")]
            assert told(await session.messages(window=before)) == [("user", "hello"), ("assistant", "first")]

    play(story())


def test_editing_answers_the_new_input_in_place_of_the_old(path: Place) -> None:
    async def story() -> None:
        async with backstay.open(path, agent=echo) as app:
            session = await app.session()
            await (await session.send("helo")).outcome()
            helo = (await session.messages())[0].id
            await (await session.edit(helo, "hello")).outcome()
            assert told(await session.messages()) == [("user", "hello"), ("assistant", "heard hello")]

    play(story())


@pytest.mark.parametrize("verb", ["retry", "edit"])
def test_retrying_and_editing_are_left_to_an_app_that_serves_the_agent(path: Place, verb: str, prompt: bool) -> None:
    async def story() -> None:
        async with backstay.open(path, prompt=prompt) as door, backstay.open(path, agent=echo, prompt=prompt):
            session = await door.session()
            await (await session.send("hello")).outcome()
            first = (await session.messages())[0].id
            turn = await (session.retry() if verb == "retry" else session.edit(first, "hello"))
            assert await turn.outcome() == Completed()
            assert told(await session.messages()) == [("user", "hello"), ("assistant", "heard hello")]

    play(story())


def test_what_a_sender_who_went_away_had_sent_is_still_answered(path: Place) -> None:
    async def story() -> None:
        clock = HeldClock()
        async with backstay.open(path, agent=echo, clock=clock, lease_seconds=3600) as app:
            session = await app.session()
            clock.hold()
            sending = asyncio.create_task(session.send("hello"))
            await asyncio.to_thread(clock.wait_until_asked)  # The input is being stored right now.
            sending.cancel()
            clock.release()
            with pytest.raises(asyncio.CancelledError):
                await sending
            assert await until_end(session) == [Completed()]

    play(story())


def test_turns_of_one_session_run_one_after_the_other(path: Place) -> None:
    speaking: list[str] = []

    async def alone(turn: AgentTurn) -> AsyncIterator[Body]:
        speaking.append(turn.input.text)
        yield Text("a")
        await asyncio.sleep(0)
        assert speaking == [turn.input.text]
        yield Text("b")
        speaking.clear()

    async def story() -> None:
        async with backstay.open(path, agent=alone) as app:
            session = await app.session()
            turns = await asyncio.gather(*(session.send(f"input {number}") for number in range(10)))
            assert [await turn.outcome() for turn in turns] == [Completed()] * 10

    play(story())


def test_the_words_of_a_running_turn_are_no_message_until_it_ends(path: Place) -> None:
    async def story() -> None:
        gate = Gate()
        async with backstay.open(path, agent=stopping_at(gate)) as app:
            session = await app.session()
            turn = await session.send("hello")
            assert await first_words(turn) == "one "
            assert told(await session.messages()) == [("user", "hello")]
            gate.open()
            await turn.outcome()
            assert told(await session.messages()) == [("user", "hello"), ("assistant", "one two")]

    play(story())


@pytest.mark.parametrize("agent", ["", " ", 5, b"echo"], ids=repr)
def test_what_is_no_name_of_an_agent_is_refused_and_not_taken_for_the_sessions_own(path: Place, agent: Any) -> None:
    async def story() -> None:
        async with backstay.open(path, agent=echo) as app:
            session = await app.session()
            before = await session.read()
            with pytest.raises(InvalidPayload):
                await session.send("hello", agent=agent)
            assert await session.read() == before

    play(story())
