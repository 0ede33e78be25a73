"""A session that moves from one app to another."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

import backstay
from backstay import Address, Export
from backstay.errors import InvalidPayload
from backstay.model.event import FeedEvent
from backstay.model.turn import Completed, Interrupted
from tests.runtime.controlled_agents import Follower, Gate, echo, first_words, stopping_at, told

CHAT = Address.chat("telegram", "dm", chat="42")


async def test_a_session_goes_on_in_another_app(tmp_path: Path) -> None:
    async with backstay.open(tmp_path / "here.db", agent=echo) as here:
        session = await here.session(CHAT)
        await (await session.send("hello")).outcome()
        document = (await session.export()).to_json()
    async with backstay.open(tmp_path / "there.db", agent=echo) as there:
        imported = await there.import_session(Export.from_json(document), addresses=True)
        moved = await there.session(CHAT)
        assert (imported.session.id, imported.copied, moved.id) == (session.id, False, session.id)
        await (await moved.send("again")).outcome()
        result = told(await moved.messages())

    assert result == [
        ("user", "hello"),
        ("assistant", "heard hello"),
        ("user", "again"),
        ("assistant", "heard again"),
    ]


async def test_what_waited_is_answered_by_the_app_that_imports_it_once_it_is_released(tmp_path: Path) -> None:
    async with backstay.open(tmp_path / "here.db") as here:
        session = await here.session(CHAT)
        waiting = await session.send("is anybody there?", allow_unserved=True)
        document = await session.export()
    async with backstay.open(tmp_path / "there.db", agent=echo) as there:
        imported = await there.import_session(document)
        held = await there.turn(waiting.id)
        # The app answers what is sent now, and not what is held.
        moved = await there.session(session.id)
        await (await moved.send("hello")).outcome()
        assert (imported.held, (await held.read()).held) == ((waiting.id,), True)
        await held.release()
        await held.outcome()
        result = told(await moved.messages())

    assert result == [
        ("user", "hello"),
        ("assistant", "heard hello"),
        ("user", "is anybody there?"),
        ("assistant", "heard is anybody there?"),
    ]


async def test_an_exported_running_turn_goes_on_here_and_is_interrupted_where_imported(tmp_path: Path) -> None:
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
        assert told(await (await there.session(CHAT)).messages()) == [("user", "hello"), ("assistant", "one ")]
        gate.open()
        assert await turn.outcome() == Completed()


async def test_whoever_follows_all_sessions_is_told_of_an_imported_one(tmp_path: Path) -> None:
    async with backstay.open(tmp_path / "here.db", agent=echo) as here:
        session = await here.session(CHAT)
        await (await session.send("hello")).outcome()
        document = await session.export()
    async with backstay.open(tmp_path / "there.db") as there:
        imported = await there.import_session(document)
        follower = Follower(await there.session(session.id))
        await follower.caught_up()
        fed = [one.event async for one in _until(there, imported.session.last_event)]
        assert fed == follower.told
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
        assert told(app.session(imported.session.id).messages()) == told(session.messages())
        with pytest.raises(InvalidPayload):
            app.import_session(Export.from_json(b"{}"))
