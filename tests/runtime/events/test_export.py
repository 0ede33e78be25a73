"""A session that moves from one app to another."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

import backstay
from backstay import Address, Export
from backstay.errors import InvalidPayload
from backstay.model.event import FeedEvent
from backstay.model.turn import Completed, Interrupted
from tests.runtime.controlled_agents import Follower, Gate, echo, first_words, roles_and_texts, stopping_at

CHAT = Address.chat("telegram", "dm", chat="42")


async def test_an_exported_session_continues_in_another_app(tmp_path: Path) -> None:
    async with backstay.open(tmp_path / "here.db", agent=echo) as here:
        session = await here.session(CHAT)
        await (await session.send("hello")).outcome()
        document = (await session.export()).to_json()
    async with backstay.open(tmp_path / "there.db", agent=echo) as there:
        imported = await there.import_session(Export.from_json(document), addresses=True)
        moved = await there.session(CHAT)
        assert (imported.session.id, imported.copied, moved.id) == (session.id, False, session.id)
        await (await moved.send("again")).outcome()
        result = roles_and_texts(await moved.messages())

    assert result == [
        ("user", "hello"),
        ("assistant", "heard hello"),
        ("user", "again"),
        ("assistant", "heard again"),
    ]


async def test_imported_waiting_turns_are_answered_once_they_are_released(tmp_path: Path) -> None:
    async with backstay.open(tmp_path / "here.db") as here:
        session = await here.session(CHAT)
        waiting = await session.send("is anybody there?", allow_unserved=True)
        document = await session.export()
    async with backstay.open(tmp_path / "there.db", agent=echo) as there:
        imported = await there.import_session(document)
        held = await there.turn(waiting.id)
        # The app answers the new message, and not the held ones.
        moved = await there.session(session.id)
        await (await moved.send("hello")).outcome()
        assert (imported.held, (await held.read()).held) == ((waiting.id,), True)
        await held.release()
        await held.outcome()
        result = roles_and_texts(await moved.messages())

    assert result == [
        ("user", "hello"),
        ("assistant", "heard hello"),
        ("user", "is anybody there?"),
        ("assistant", "heard is anybody there?"),
    ]


async def test_an_exported_running_turn_continues_here_and_is_imported_interrupted(tmp_path: Path) -> None:
    gate = Gate()
    async with (
        backstay.open(tmp_path / "here.db", agent=stopping_at(gate)) as here,
        backstay.open(tmp_path / "there.db") as there,
    ):
        session = await here.session(CHAT)
        turn = await session.send("hello")
        await first_words(turn)
        await there.import_session(await session.export(), addresses=True)

        assert isinstance(await (await there.turn(turn.id)).outcome(), Interrupted)
        assert roles_and_texts(await (await there.session(CHAT)).messages()) == [
            ("user", "hello"),
            ("assistant", "one "),
        ]
        gate.open()
        assert await turn.outcome() == Completed()


async def test_a_follower_of_all_sessions_gets_the_events_of_an_import(tmp_path: Path) -> None:
    async with backstay.open(tmp_path / "here.db", agent=echo) as here:
        session = await here.session(CHAT)
        await (await session.send("hello")).outcome()
        document = await session.export()
    async with backstay.open(tmp_path / "there.db") as there:
        imported = await there.import_session(document)
        follower = Follower(await there.session(session.id))
        await follower.caught_up()
        fed = [one.event async for one in _until(there, imported.session.last_event)]
        assert fed == follower.events
        await (await there.session(session.id)).delete()
        await follower.until_the_end()


async def _until(app: backstay.App, number: int) -> AsyncIterator[FeedEvent]:
    async for one in app.follow(after=0):
        yield one
        if one.event.last == number:
            return


def test_a_script_exports_and_imports(tmp_path: Path) -> None:
    with backstay.open_blocking(tmp_path / "chat.db", agent=echo) as app:
        session = app.session(CHAT)
        session.send("hello").outcome()

        imported = app.import_session(Export.from_json(session.export().to_json()), addresses=True)

        assert (imported.copied, imported.elsewhere) == (True, (CHAT.spelling,))
        assert roles_and_texts(app.session(imported.session.id).messages()) == roles_and_texts(session.messages())
        with pytest.raises(InvalidPayload):
            app.import_session(Export.from_json(b"{}"))
