"""A session that moves from one app to another."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

import backstay
from backstay import Address, Export
from backstay.errors import InvalidPayload
from backstay.model.event import FeedEvent
from backstay.model.turn import Completed, Interrupted
from tests.runtime.stage import Follower, Gate, echo, first_words, play, stopping_at, told

CHAT = Address.chat("telegram", "dm", chat="42")


def test_a_session_goes_on_in_another_app(tmp_path: Path) -> None:
    async def story() -> list[tuple[str, str]]:
        async with backstay.open(tmp_path / "here.db", agent=echo) as here:
            session = await here.session(CHAT)
            await (await session.send("hello")).outcome()
            document = (await session.export()).to_json()
        async with backstay.open(tmp_path / "there.db", agent=echo) as there:
            imported = await there.import_session(Export.from_json(document))
            moved = await there.session(CHAT)
            assert (imported.session.id, imported.copied, moved.id) == (session.id, False, session.id)
            await (await moved.send("again")).outcome()
            return told(await moved.messages())

    assert play(story()) == [
        ("user", "hello"),
        ("assistant", "heard hello"),
        ("user", "again"),
        ("assistant", "heard again"),
    ]


def test_what_waited_is_answered_by_the_app_that_imports_it(tmp_path: Path) -> None:
    async def story() -> list[tuple[str, str]]:
        async with backstay.open(tmp_path / "here.db") as here:
            session = await here.session(CHAT)
            waiting = await session.send("is anybody there?")
            document = await session.export()
        async with backstay.open(tmp_path / "there.db", agent=echo) as there:
            await there.import_session(document)
            await (await there.turn(waiting.id)).outcome()
            return told(await (await there.session(session.id)).messages())

    assert play(story()) == [("user", "is anybody there?"), ("assistant", "heard is anybody there?")]


def test_a_turn_that_runs_goes_on_where_it_runs_and_is_interrupted_where_it_was_imported(tmp_path: Path) -> None:
    async def story() -> None:
        gate = Gate()
        async with (
            backstay.open(tmp_path / "here.db", agent=stopping_at(gate)) as here,
            backstay.open(tmp_path / "there.db") as there,
        ):
            session = await here.session(CHAT)
            turn = await session.send("hello")
            await first_words(turn)
            await there.import_session(await session.export())

            assert isinstance(await (await there.turn(turn.id)).outcome(), Interrupted)
            assert told(await (await there.session(CHAT)).messages()) == [("user", "hello"), ("assistant", "one ")]
            gate.open()
            assert await turn.outcome() == Completed()

    play(story())


def test_whoever_follows_all_sessions_is_told_of_an_imported_one(tmp_path: Path) -> None:
    async def story() -> None:
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

    play(story())


async def _until(app: backstay.App, number: int) -> AsyncIterator[FeedEvent]:
    async for one in app.follow(after=0):
        yield one
        if one.event.last == number:
            return


def test_a_script_exports_and_imports(tmp_path: Path) -> None:
    with backstay.open_blocking(tmp_path / "chat.db", agent=echo) as app:
        session = app.session(CHAT)
        session.send("hello").outcome()

        imported = app.import_session(Export.from_json(session.export().to_json()))

        assert (imported.copied, imported.elsewhere) == (True, (CHAT.spelling,))
        assert told(app.session(imported.session.id).messages()) == told(session.messages())
        with pytest.raises(InvalidPayload):
            app.import_session(Export.from_json(b"{}"))
