"""An app for many owners, and its observer."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

import backstay
from backstay import NewMessage, Text, Timing
from backstay.agents.port import AgentTurn
from backstay.errors import ConfigError, NotFound
from backstay.model.content import Body
from backstay.model.turn import Completed, Failed, OpenTurn, Outcome
from backstay.runtime.observer import Observer
from backstay.store import commands
from backstay.store.commands import Write
from tests.runtime.controlled_agents import echo


class Diary(Observer):
    """Notes its calls."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def wrote(self, verb: str, seconds: float) -> None:
        assert seconds >= 0
        self.lines.append(verb)

    def started(self, turn: OpenTurn) -> None:
        self.lines.append(f"started {turn.owner}")

    def ended(self, turn: OpenTurn, outcome: Outcome | None) -> None:
        self.lines.append(f"ended {type(outcome).__name__}")


async def test_an_owner_sees_only_its_own_data(path: Path) -> None:
    async with backstay.open(path, agent=echo) as app:
        anna, boris = app.owned_by("anna"), app.owned_by("boris")
        created = await anna.run(commands.create(owner=anna.owner))
        turn = await anna.handle(created.id).send("hello")
        assert isinstance(await turn.outcome(), Completed)

        assert (await anna.run(commands.session(created.id, owner=anna.owner))).turns == 1
        assert (await (await anna.turn(turn.id)).read()).id == turn.id
        with pytest.raises(NotFound):
            await boris.run(commands.session(created.id, owner=boris.owner))
        with pytest.raises(NotFound):
            await boris.run(commands.rename(created.id, "mine", owner=boris.owner))
        with pytest.raises(NotFound):
            await boris.handle(created.id).send("hello")
        with pytest.raises(NotFound):
            await boris.turn(turn.id)


async def test_a_subscription_is_woken_by_any_of_its_sessions(path: Path, notify: bool) -> None:
    async with backstay.open(path, notify=notify) as app, backstay.open(path) as elsewhere:
        anna = app.owned_by("anna")
        one, two = [(await anna.run(commands.create(owner=anna.owner))) for _ in range(2)]
        with anna.subscribe([one.id, two.id]) as subscription:
            for session, title, writer in ((one, "a", app), (two, "b", elsewhere), (one, "c", elsewhere)):
                seen = (await anna.run(commands.events_after(session.id, owner=anna.owner))).next
                assert not subscription.must_read(session.id, seen)
                await writer.owned_by("anna").run(commands.rename(session.id, title, owner="anna"))
                while not subscription.must_read(session.id, seen):
                    subscription.changed.clear()
                    await subscription.changed.wait()


async def test_a_subscription_to_everything_is_woken_by_unknown_sessions(path: Path, notify: bool) -> None:
    async with backstay.open(path, notify=notify) as app:
        with app.owned_by("anna").subscribe([], everything=True) as subscription:
            subscription.changed.clear()
            await app.owned_by("anna").run(commands.create(owner="anna"))
            await subscription.changed.wait()


async def test_an_observer_is_called_for_writes_and_ended_turns(path: Path) -> None:
    async def broken(turn: AgentTurn) -> AsyncIterator[Body]:
        yield Text("well")
        raise RuntimeError("no")

    diary = Diary()
    async with backstay.open(path, agents={"good": echo, "bad": broken}) as app:
        app.observe_with(diary)
        session = await app.session()
        await (await session.send("hello", agent="good")).outcome()
        assert isinstance(await (await session.send("hello", agent="bad")).outcome(), Failed)
    lines = diary.lines
    assert [line for line in lines if line.startswith(("started", "ended"))] == [
        "started local",
        "ended Completed",
        "started local",
        "ended Failed",
    ]
    assert {"create", "submit", "finish"} <= set(lines)


async def test_a_command_for_another_owner_is_refused_and_not_run(path: Path) -> None:
    async with backstay.open(path) as app:
        anna = app.owned_by("anna")
        session = await anna.run(commands.create(owner="anna"))
        with pytest.raises(ConfigError, match="rename is for 'anna', not for 'boris'"):
            await app.owned_by("boris").run(commands.rename(session.id, "mine", owner="anna"))
        with pytest.raises(ConfigError, match="session is for 'anna', not for 'local'"):
            await app.run(commands.session(session.id, owner="anna"))
        assert (await anna.run(commands.session(session.id, owner="anna"))).title is None


async def test_an_app_is_the_part_of_its_own_owner(path: Path) -> None:
    async with backstay.open(path, owner="anna") as app:
        session = await app.run(commands.create(owner=app.owner))
        await app.handle(session.id).rename("a title")
        assert (await app.owned_by("anna").session(session.id)).id == session.id
        assert [one.title for one in (await app.sessions()).sessions] == ["a title"]


async def test_followers_are_woken_after_every_write_to_the_session(path: Path) -> None:
    """For every result type of a write: no change here is found by polling."""
    async with backstay.open(path, timing=Timing(poll=3600)) as app:
        session = await app.session()
        first, second, third = [await session.send(text, allow_unserved=True) for text in ("one", "two", "three")]
        owner = app.owner
        writes: list[Write[object]] = [
            commands.edit_waiting(second.id, "deux", owner=owner),
            commands.reorder(session.id, [third.id, first.id, second.id], owner=owner),
            commands.withdraw(third.id, owner=owner),
            commands.cancel(first.id, owner=owner),
            commands.withdraw(second.id, owner=owner),
            commands.record(session.id, [NewMessage(role="user", parts=(Text("hello"),))], owner=owner),
            commands.undo(session.id, owner=owner),
            commands.redo(session.id, owner=owner),
            commands.delete(session.id, owner=owner),
        ]
        with app.subscribe([session.id]) as subscription:
            for write in writes:
                seen = (await app.run(commands.events_after(session.id, owner=owner))).next
                subscription.must_read(session.id, seen)
                await app.run(write)
                while not subscription.must_read(session.id, seen):
                    subscription.changed.clear()
                    await subscription.changed.wait()
