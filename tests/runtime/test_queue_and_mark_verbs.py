"""Handles have the verbs of the queue, of marks and of addresses; a program needs no command for them."""

import asyncio

import backstay
from backstay import Address, Text
from backstay.agents import AgentTurn
from backstay.model.marks import Marks
from backstay.model.session import SessionPatch
from backstay.model.turn import Cancelled, Completed
from tests.databases import Place
from tests.runtime.controlled_agents import echo

CHAT = Address.chat("telegram", "dm", chat="42")


async def test_waiting_turns_are_edited_reordered_and_withdrawn_through_handles(path: Place) -> None:
    gate = asyncio.Event()

    async def patient(turn: AgentTurn):  # type: ignore[no-untyped-def]  # the protocol of agents gives it its type
        await gate.wait()
        yield Text(turn.input.text)

    async with backstay.open(path, agent=patient) as app:
        session = await app.session()
        running = await session.send("first")
        one, two, three = [await session.send(text) for text in ("one", "two", "three")]
        assert (running.accepted_state, one.accepted_state) == ("running", "waiting")

        await two.edit("two, changed")
        order = await session.reorder([three.id, two.id, one.id])
        assert [turn.id for turn in order] == [three.id, two.id, one.id]
        assert (await one.withdraw()).outcome == Cancelled("withdrawn")
        gate.set()
        assert await two.outcome() == Completed()

        inputs = [message.text for message in await session.messages() if message.role == "user"]
    assert inputs == ["first", "three", "two, changed"]


async def test_an_address_is_resolved_found_and_pointed_through_handles(path: Place) -> None:
    async with backstay.open(path, agent=echo) as app:
        made, again = await app.resolve(CHAT), await app.resolve(CHAT)
        assert (made.how, again.how, again.session.id) == ("created", "resumed", made.session.id)

        other = await app.session()
        await other.point(CHAT)
        assert (await app.at(CHAT)).id == other.id
        assert await other.addresses() == (CHAT.spelling,)
        assert [found.id for found in await app.beginning_with(other.id)] == [other.id]

        await other.end()
        assert (await app.resolve(CHAT)).how == "replaced"


async def test_a_draft_a_read_mark_and_notes_are_stored_through_handles(path: Place) -> None:
    async with backstay.open(path, agent=echo) as app:
        session = await app.session()
        await session.save_draft("half a sente")
        assert await session.mark_read(1) == Marks(draft="half a sente", read_to=1)
        assert await session.marks() == Marks(draft="half a sente", read_to=1)
        changed = await session.update(
            SessionPatch(title="Plans", pinned=True, add_tags=("a",), metadata={"ticket": "7"})
        )
    assert (changed.title, changed.pinned, changed.tags, changed.metadata) == ("Plans", True, ("a",), {"ticket": "7"})
