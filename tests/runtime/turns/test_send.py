"""Sending: an accepted input is durable, and is answered once, by its agent."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

import backstay
from backstay import Address, Text, ToolResult, Ttl, open_store
from backstay.agents.port import AgentTurn
from backstay.errors import InvalidPayload, NotFound, Rejected, RequestMismatch, RevisionMismatch, UnknownAgent
from backstay.model import message
from backstay.model.content import Body
from backstay.model.turn import Completed
from backstay.runtime.turn_handle import Turn
from backstay.testing import ManualClock
from tests.databases import Place
from tests.runtime.controlled_agents import (
    Gate,
    HeldClock,
    echo,
    first_words,
    roles_and_texts,
    saying,
    stopping_at,
    until_end,
)

CHAT = Address.chat("telegram", "dm", chat="42")


async def test_the_input_is_stored_before_the_agent_is_called(path: Place) -> None:
    async def looking(turn: AgentTurn) -> AsyncIterator[Body]:
        with open_store(path) as store:
            yield Text(" | ".join(message.text for message in store.messages(turn.session, owner="local").messages))

    async with backstay.open(path, agent=looking) as app:
        session = await app.session(CHAT)
        await (await session.send("are you there?")).outcome()
        result = (await session.messages())[-1].text

    assert result == "are you there?"


async def test_sending_returns_when_the_input_is_durable_and_not_when_it_is_answered(path: Place) -> None:
    gate = Gate()
    async with backstay.open(path, agent=stopping_at(gate)) as app:
        session = await app.session(CHAT)
        turn = await session.send("hello")
        assert (await turn.read()).outcome is None
        assert roles_and_texts(await session.messages()) == [("user", "hello")]
        gate.open()
        assert await turn.outcome() == Completed()


async def test_a_sender_has_its_answer_before_the_agent_takes_its_first_step(path: Place) -> None:
    steps: list[str] = []

    async def noting(_: AgentTurn) -> AsyncIterator[Body]:
        steps.append("agent")
        yield Text("hello")

    async with backstay.open(path, agent=noting) as app:
        session = await app.session(CHAT)
        turn = await session.send("hello")
        steps.append("sender")
        assert await turn.outcome() == Completed()

    assert steps == ["sender", "agent"]


async def test_a_repeated_request_is_the_first_turn_while_it_runs_and_after_it(path: Place) -> None:
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
        assert roles_and_texts(await session.messages()) == [("user", "pay"), ("assistant", "one two")]


async def test_a_request_is_answered_once_through_any_handle(path: Place) -> None:
    async with backstay.open(path, agent=echo) as app:
        first = await app.send(CHAT, "pay", request_id="telegram/42/1")
        assert await first.outcome() == Completed()
        session = await app.session(CHAT)
        again = [
            await app.send(CHAT, "pay", request_id="telegram/42/1"),
            await app.send(session.id, "pay", request_id="telegram/42/1"),
            await session.send("pay", request_id="telegram/42/1"),
            await session.send("pay", request_id="telegram/42/1", if_busy="fork"),
        ]
        assert [(turn.id, turn.repeated) for turn in again] == [(first.id, True)] * 4
        with pytest.raises(RequestMismatch):
            await app.send(Address.chat("telegram", "dm", chat="43"), "pay", request_id="telegram/42/1")
        assert len((await app.sessions()).sessions) == 1


async def test_a_redelivery_to_a_chat_whose_session_expired_is_not_answered_again(path: Place) -> None:
    clock = ManualClock()

    async def deliver(app: backstay.App) -> Turn:
        session = await app.session(CHAT, ttl=Ttl(idle=60))
        return await session.send("pay", request_id="telegram/42/1")

    async with backstay.open(path, agent=echo, clock=clock) as app:
        first = await deliver(app)
        assert await first.outcome() == Completed()
        clock.advance(60)
        again = await deliver(app)
        assert (again.id, again.repeated) == (first.id, True)
        assert (await app.session(CHAT)).id != first.session


async def test_a_request_repeated_while_it_waits_waits_once(path: Place) -> None:
    gate = Gate()
    async with backstay.open(path, agent=stopping_at(gate, "", "")) as app:
        session = await app.session(CHAT)
        await session.send("first")
        waiting = await session.send("second", request_id="m-2")
        again = await session.send("second", request_id="m-2")
        assert (again.id, again.repeated, (await session.read()).waiting) == (waiting.id, True, 1)
        gate.open()
        assert await again.outcome() == await waiting.outcome()


async def test_a_request_sent_by_many_at_once_is_accepted_once(path: Place) -> None:
    async with backstay.open(path, agent=echo) as app:
        session = await app.session(CHAT)
        turns = await asyncio.gather(*(session.send("pay", request_id="m-1") for _ in range(20)))
        assert len({turn.id for turn in turns}) == 1
        assert [turn.repeated for turn in turns].count(False) == 1
        await turns[0].outcome()
        assert roles_and_texts(await session.messages()) == [("user", "pay"), ("assistant", "heard pay")]


async def test_a_request_id_used_for_something_else_is_refused(path: Place) -> None:
    async with backstay.open(path, agent=echo) as app:
        session = await app.session(CHAT)
        await (await session.send("pay 5", request_id="m-1")).outcome()
        with pytest.raises(RequestMismatch):
            await session.send("pay 500", request_id="m-1")
        assert roles_and_texts(await session.messages()) == [("user", "pay 5"), ("assistant", "heard pay 5")]


async def test_a_rejected_input_leaves_nothing_behind(path: Place) -> None:
    async with backstay.open(path, agent=echo) as app:
        session = await app.session(CHAT)
        before = await session.read()
        with pytest.raises(RevisionMismatch):
            await session.send("hello", expect_revision=before.revision + 1)
        for nothing in ("", "  \n", "\ud800"):
            with pytest.raises(Rejected):
                await session.send(nothing)
        assert await session.read() == before


async def test_an_address_leads_to_the_same_session_and_an_id_too(path: Place) -> None:
    async with backstay.open(path, agent=echo) as app:
        first, again = await app.session(CHAT), await app.session(CHAT)
        by_id, another = await app.session(first.id), await app.session()
        assert first.id == again.id == by_id.id != another.id


async def test_another_owners_session_is_not_found(path: Place) -> None:
    async with backstay.open(path, agent=echo, owner="ann") as anns, backstay.open(path, owner="bob") as bobs:
        session = await anns.session()
        turn = await session.send("hello")
        await turn.outcome()
        with pytest.raises(NotFound):
            await bobs.session(session.id)
        assert (await bobs.sessions()).sessions == ()
        assert (await bobs.search("hello")).hits == ()


async def test_each_turn_is_answered_by_the_agent_it_names(path: Place) -> None:
    agents = {"poet": saying("roses"), "clerk": saying("form 7")}
    async with backstay.open(path, agents=agents) as app:
        session = await app.session(agent="poet")
        await (await session.send("hello")).outcome()
        await (await session.send("hello", agent="clerk")).outcome()
        result = [message.text for message in await session.messages() if message.role == "assistant"]

    assert result == ["roses", "form 7"]


async def test_a_turn_for_an_unserved_agent_waits_until_it_is_served(path: Place, notify: bool) -> None:
    async with backstay.open(path, agent=echo, notify=notify) as app:
        session = await app.session()
        turn = await session.send("hello", agent="poet", allow_unserved=True)
        await (await (await app.session()).send("something else")).outcome()
        assert (await turn.read()).state == "waiting"
        async with backstay.open(path, agents={"poet": saying("roses")}, notify=notify):
            assert await turn.outcome() == Completed()
        assert roles_and_texts(await session.messages()) == [("user", "hello"), ("assistant", "roses")]


async def test_an_agent_that_was_never_served_is_refused_with_the_nearest_name(path: Place) -> None:
    async with backstay.open(path, agents={"poet": saying("roses")}) as app:
        session = await app.session()
        before = await session.read()
        with pytest.raises(UnknownAgent, match=r"'peot'.*Did you mean 'poet'"):
            await session.send("hello", agent="peot")
        with pytest.raises(UnknownAgent, match="'peot'"):
            await app.send(session.id, "hello", agent="peot")
        await (await session.send("hello", agent="poet")).outcome()
        with pytest.raises(UnknownAgent, match="'peot'"):
            await session.retry(agent="peot")
        assert (await session.read()).waiting == before.waiting == 0


async def test_an_agent_that_was_served_before_can_be_asked_while_no_process_serves_it(path: Place) -> None:
    async with backstay.open(path, agents={"poet": saying("roses")}):
        pass
    async with backstay.open(path, agent=echo) as app:
        turn = await (await app.session()).send("hello", agent="poet")
        assert (await turn.read()).state == "waiting"


async def test_an_untaken_steering_input_is_answered_by_the_agent_it_was_meant_for(path: Place) -> None:
    gate = Gate()
    async with backstay.open(path, agents={"poet": stopping_at(gate)}) as app:
        session = await app.session()
        running = await session.send("hello", agent="poet")
        await gate.reached()
        steered = await session.steer("shorter")
        gate.open()
        await running.outcome()
        assert await steered.outcome() == Completed()
        assert (await steered.read()).agent == "poet"


async def test_an_agent_reads_all_earlier_messages_and_its_input_last(path: Place) -> None:
    async def reciting(turn: AgentTurn) -> AsyncIterator[Body]:
        assert turn.messages[-1] == turn.input
        yield Text(f"{len(turn.messages)} messages")

    async with backstay.open(path, agent=reciting) as app:
        session = await app.session()
        await session.record([message.user("from elsewhere"), message.assistant("noted")])
        await (await session.send("go on")).outcome()
        result = roles_and_texts(await session.messages())

    assert result[2:] == [("user", "go on"), ("assistant", "3 messages")]


async def test_a_record_that_would_poison_the_session_is_refused(path: Place) -> None:
    async with backstay.open(path, agent=echo) as app:
        session = await app.session()
        with pytest.raises(InvalidPayload):
            await session.record([message.user("pay"), message.tool(ToolResult("c1", "paid"))])
        assert await session.messages() == ()


async def test_retrying_answers_the_same_input_again_and_keeps_the_first_answer(path: Place) -> None:
    answers = iter(("first", "second"))

    async def fickle(turn: AgentTurn) -> AsyncIterator[Body]:
        yield Text(next(answers))

    async with backstay.open(path, agent=fickle) as app:
        session = await app.session()
        await (await session.send("hello")).outcome()
        before = (await session.read()).window
        await (await session.retry()).outcome()
        assert roles_and_texts(await session.messages()) == [("user", "hello"), ("assistant", "second")]
        assert roles_and_texts(await session.messages(window=before)) == [("user", "hello"), ("assistant", "first")]


async def test_editing_answers_the_new_input_in_place_of_the_old(path: Place) -> None:
    async with backstay.open(path, agent=echo) as app:
        session = await app.session()
        await (await session.send("helo")).outcome()
        helo = (await session.messages())[0].id
        await (await session.edit(helo, "hello")).outcome()
        assert roles_and_texts(await session.messages()) == [("user", "hello"), ("assistant", "heard hello")]


@pytest.mark.parametrize("verb", ["retry", "edit"])
async def test_retrying_and_editing_are_left_to_an_app_that_serves_the_agent(
    path: Place, verb: str, notify: bool
) -> None:
    async with backstay.open(path, notify=notify) as door, backstay.open(path, agent=echo, notify=notify):
        session = await door.session()
        await (await session.send("hello")).outcome()
        first = (await session.messages())[0].id
        turn = await (session.retry() if verb == "retry" else session.edit(first, "hello"))
        assert await turn.outcome() == Completed()
        assert roles_and_texts(await session.messages()) == [("user", "hello"), ("assistant", "heard hello")]


async def test_an_input_whose_sender_was_cancelled_is_still_answered(path: Place) -> None:
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


async def test_turns_of_one_session_run_one_after_the_other(path: Place) -> None:
    speaking: list[str] = []

    async def alone(turn: AgentTurn) -> AsyncIterator[Body]:
        speaking.append(turn.input.text)
        yield Text("a")
        await asyncio.sleep(0)
        assert speaking == [turn.input.text]
        yield Text("b")
        speaking.clear()

    async with backstay.open(path, agent=alone) as app:
        session = await app.session()
        turns = await asyncio.gather(*(session.send(f"input {number}") for number in range(10)))
        assert [await turn.outcome() for turn in turns] == [Completed()] * 10


async def test_the_output_of_a_running_turn_is_not_a_message_until_it_ends(path: Place) -> None:
    gate = Gate()
    async with backstay.open(path, agent=stopping_at(gate)) as app:
        session = await app.session()
        turn = await session.send("hello")
        assert await first_words(turn) == "one "
        assert roles_and_texts(await session.messages()) == [("user", "hello")]
        gate.open()
        await turn.outcome()
        assert roles_and_texts(await session.messages()) == [("user", "hello"), ("assistant", "one two")]


@pytest.mark.parametrize("agent", ["", " ", 5, b"echo"], ids=repr)
async def test_an_invalid_agent_name_is_rejected_and_not_replaced_by_the_default(path: Place, agent: Any) -> None:
    async with backstay.open(path, agent=echo) as app:
        session = await app.session()
        before = await session.read()
        with pytest.raises(InvalidPayload):
            await session.send("hello", agent=agent)
        assert await session.read() == before
