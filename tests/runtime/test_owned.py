"""An app that speaks for many owners, and a witness who hears what happens in it."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

import backstay
from backstay import Text
from backstay.agents.port import AgentTurn
from backstay.errors import NotFound
from backstay.model.content import Body
from backstay.model.turn import Completed, Failed, OpenTurn, Outcome
from backstay.runtime.witness import Witness
from backstay.store import Store
from tests.runtime.stage import echo, play


class Diary(Witness):
    """Writes down what it is told."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def wrote(self, verb: str, seconds: float) -> None:
        assert seconds >= 0
        self.lines.append(verb)

    def started(self, turn: OpenTurn) -> None:
        self.lines.append(f"started {turn.owner}")

    def ended(self, turn: OpenTurn, outcome: Outcome | None) -> None:
        self.lines.append(f"ended {type(outcome).__name__}")


def test_an_owner_sees_what_is_theirs_and_nothing_else(path: Path) -> None:
    async def story() -> None:
        async with backstay.open(path, agent=echo) as app:
            anna, boris = app.owned_by("anna"), app.owned_by("boris")
            created = await anna.write(Store.create)
            turn = await anna.session(created.id).send("hello")
            assert isinstance(await turn.outcome(), Completed)

            assert (await anna.read(Store.session, created.id)).turns == 1
            assert (await (await anna.turn(turn.id)).read()).id == turn.id
            with pytest.raises(NotFound):
                await boris.read(Store.session, created.id)
            with pytest.raises(NotFound):
                await boris.write(Store.rename, created.id, "mine")
            with pytest.raises(NotFound):
                await boris.session(created.id).send("hello")
            with pytest.raises(NotFound):
                await boris.turn(turn.id)

    play(story())


def test_a_lookout_is_woken_by_any_of_its_sessions(path: Path, prompt: bool) -> None:
    async def story() -> None:
        async with backstay.open(path, prompt=prompt) as app, backstay.open(path) as elsewhere:
            anna = app.owned_by("anna")
            one, two = [(await anna.write(Store.create)) for _ in range(2)]
            with anna.lookout([one.id, two.id]) as lookout:
                for session, writer in ((one, app), (two, elsewhere), (one, elsewhere)):
                    renamed = await writer.owned_by("anna").write(Store.rename, session.id, f"by {writer}")
                    while lookout.head(session.id) < renamed.last_event:
                        lookout.news.clear()
                        await lookout.news.wait()

    play(story())


def test_a_lookout_on_everything_is_woken_by_what_it_does_not_know(path: Path, prompt: bool) -> None:
    async def story() -> None:
        async with backstay.open(path, prompt=prompt) as app:
            with app.owned_by("anna").lookout([], everything=True) as lookout:
                lookout.news.clear()
                await app.owned_by("anna").write(Store.create)
                await lookout.news.wait()

    play(story())


def test_a_witness_hears_of_writes_and_of_the_ends_of_turns(path: Path) -> None:
    async def broken(turn: AgentTurn) -> AsyncIterator[Body]:
        yield Text("well")
        raise RuntimeError("no")

    async def story() -> list[str]:
        diary = Diary()
        async with backstay.open(path, agents={"good": echo, "bad": broken}) as app:
            app.report_to(diary)
            session = await app.session()
            await (await session.send("hello", agent="good")).outcome()
            assert isinstance(await (await session.send("hello", agent="bad")).outcome(), Failed)
        return diary.lines

    lines = play(story())
    assert [line for line in lines if line.startswith(("started", "ended"))] == [
        "started local",
        "ended Completed",
        "started local",
        "ended Failed",
    ]
    assert {"create", "submit", "finish"} <= set(lines)
