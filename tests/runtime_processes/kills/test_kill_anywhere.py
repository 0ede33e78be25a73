"""A process is killed at any change of its files while turns run: all visible output is there, once."""

import asyncio
from collections.abc import AsyncIterator
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest

import backstay
from backstay import Address, App, Text, Thought, Timing
from backstay.agents.adapters import AgentLike
from backstay.agents.port import AgentTurn
from backstay.agents.tools import MayHaveRun, Tool
from backstay.model.content import Body
from backstay.model.event import Event, TextDelta, TurnEnded
from backstay.model.turn import Completed, Interrupted, Outcome
from backstay.runtime.session_handle import Session
from tests.crash.sql_audit import audit
from tests.crash.worker_processes import WorkerProcesses, die
from tests.runtime_processes.app_programs import LONG
from tests.runtime_processes.child_pipe import ChildPipe, Words
from tests.runtime_processes.child_process import Child
from tests.runtime_processes.kills.killing_disk import MortalDisk
from tests.runtime_processes.turn_in_child import echo, host, listening, said

NEVER = 1 << 40
TEXTS = ("first", "second", "third")
ROOMS = [Address.chat("matrix", "group", chat=room) for room in ("kitchen", "garden")]


async def test_a_process_killed_at_any_file_change_leaves_all_that_was_seen_exactly_once(
    tmp_path: Path, auditor: WorkerProcesses, rounds: int
) -> None:
    (changes,) = [words[1] for words in _live(tmp_path / "counted" / "chat.db", NEVER) if words[0] == "changes"]
    deaths = 4 * rounds

    for number in range(1, changes, max(1, changes // deaths)):
        path = tmp_path / f"{number}" / "chat.db"
        heard = _live(path, number)

        await _tell(path, heard)
        assert auditor.all(audit, path) == [[]], f"killed at change {number}"


@pytest.mark.parametrize("idempotent", [True, False])
async def test_a_process_killed_at_any_change_of_its_files_never_pays_twice_unknowingly(
    tmp_path: Path, rounds: int, idempotent: bool
) -> None:
    (changes,) = _pay(tmp_path / "counted", NEVER, idempotent=idempotent)[-1][1:]
    deaths = 4 * rounds

    for number in range(1, changes, max(1, changes // deaths)):
        _pay(tmp_path / f"{number}", number, idempotent=idempotent)

        _pay(tmp_path / f"{number}", NEVER, idempotent=idempotent)

        paid = (tmp_path / f"{number}" / "payments").read_text().split()
        messages = await _answer(tmp_path / f"{number}" / "chat.db")
        assert messages[0] == ("user", "pay")
        assert messages[-1] in [("assistant", "paid 5"), ("assistant", "perhaps")]
        if idempotent:
            assert (len(set(paid)), messages[-1][1]) == (1, "paid 5")
        else:
            assert len(paid) == 1 or (not paid and messages[-1][1] == "perhaps")
        assert [message for message in messages if message[0] == "user"] == [("user", "pay")]


# --- a process ------------------------------------------------------------------------------------------------------


def _live(path: Path, number: int) -> list[Words]:
    """All reports of the process before it died."""
    path.parent.mkdir()
    with Child(live_and_die, path, number) as child:
        return child.everything()


def live_and_die(pipe: "Connection[Any, Any]", path: Path, number: int) -> None:
    """Run two conversations at once, and report all visible events; dies at the n-th change of a file."""
    disk = MortalDisk(number, die)
    asyncio.run(_live_and_report(ChildPipe(pipe), path))
    pipe.send(("changes", disk.changes))


async def _live_and_report(line: ChildPipe, path: Path) -> None:
    async with backstay.open(path, agent=talker, notify=False, lease_seconds=LONG, timing=Timing(flush=0.002)) as app:
        await asyncio.gather(*(_converse(app, room, line) for room in ROOMS))


async def _converse(app: App, room: Address, line: ChildPipe) -> None:
    session = await app.session(room)
    following = asyncio.create_task(_report(session, room, line))
    turns = []
    for text in TEXTS:
        turns.append(await session.send(text, request_id=f"{room.spelling} {text}"))
        line.report("sent", room.spelling, text)
    for turn in turns:
        await turn.outcome()
    following.cancel()


async def _report(session: Session, room: Address, line: ChildPipe) -> None:
    async for event in session.follow():
        line.report("seen", room.spelling, event.number, _gist(event))


# --- a payment ------------------------------------------------------------------------------------------------------


def _pay(folder: Path, number: int, *, idempotent: bool) -> list[Words]:
    """Request a payment and wait for its end, in a process that dies at the n-th change; or continue where one died."""
    folder.mkdir(exist_ok=True)
    (folder / "payments").touch()
    with Child(pay_and_die, folder, number, idempotent=idempotent) as child:
        return child.everything()


def pay_and_die(pipe: "Connection[Any, Any]", folder: Path, number: int, *, idempotent: bool) -> None:
    """Request one payment; an interrupted one is resumed."""

    def pay(amount: int, key: str) -> str:
        with (folder / "payments").open("a") as file:
            file.write(f"{key}\n")
        return f"paid {amount}"

    async def agent(turn: AgentTurn) -> AsyncIterator[Body]:
        try:
            yield Text(await turn.call(Tool(name="pay", function=pay, idempotent=idempotent), {"amount": 5}))
        except MayHaveRun:
            yield Text("perhaps")

    disk = MortalDisk(number, die)
    asyncio.run(_ask_for_payment(folder / "chat.db", agent))
    pipe.send(("changes", disk.changes))


async def _ask_for_payment(path: Path, agent: AgentLike) -> None:
    async with backstay.open(path, agent=agent, notify=False, lease_seconds=LONG, on_interrupt="resume") as app:
        session = await app.session(ROOMS[0])
        await (await session.send("pay", request_id="pay")).outcome()
        async with listening(session.follow()) as story:
            async for _ in story:
                if (await session.read()).running is None:
                    return


async def _answer(path: Path) -> list[tuple[str, str]]:
    async with host(path) as app:
        return await said(await app.session(ROOMS[0]))


# --- a conversation -------------------------------------------------------------------------------------------------


async def talker(turn: AgentTurn) -> AsyncIterator[Body]:
    """Sends some output at the pace of the disk, with a tool call in between."""
    yield Text("let me ")
    yield Thought("hm")
    yield Text(await turn.call(LOOK, {"at": turn.input.text}))
    await turn.steering()
    yield Text("! " * 3000)


def look(at: str) -> str:
    """Look at something."""
    return f"looked at {at}"


LOOK = Tool(name="look", function=look)


# --- checks afterwards ----------------------------------------------------------------------------------------------


async def _tell(path: Path, heard: list[Words]) -> None:
    """Check that every reported event exists, and that every accepted turn ended once and is in the window once."""
    async with backstay.open(path, agent=echo, notify=False, lease_seconds=LONG) as app:
        for room in ROOMS:
            session = await app.session(room)
            turns = [await session.send(text, request_id=f"{room.spelling} {text}") for text in TEXTS]
            accepted = {words[2] for words in heard if words[:2] == ("sent", room.spelling)}
            assert accepted <= {text for text, turn in zip(TEXTS, turns, strict=True) if turn.repeated}
            outcomes = [await turn.outcome() for turn in turns]
            _check_outcomes(outcomes)
            story = await _story(session)
            _check_story(story, {words[2]: words[3] for words in heard if words[:2] == ("seen", room.spelling)})
            asked = [message.text for message in await session.messages() if message.role == "user"]
            assert asked == list(TEXTS)


def _check_outcomes(outcomes: list[Outcome]) -> None:
    assert {type(outcome) for outcome in outcomes} <= {Completed, Interrupted}
    assert sum(isinstance(outcome, Interrupted) for outcome in outcomes) <= 1, "at most one turn ran in this room"


def _check_story(story: list[Event], seen: dict[int, str]) -> None:
    told = {event.number: _gist(event) for event in story}
    assert seen.items() <= told.items()
    assert list(told) == list(range(1, len(story) + 1))
    ended = [event.turn for event in story if isinstance(event.body, TurnEnded)]
    assert len(ended) == len(set(ended)) == len(TEXTS)


async def _story(session: Session) -> list[Event]:
    last = (await session.read()).last_event
    async with listening(session.follow()) as story:
        return [await anext(story) for _ in range(last)]


def _gist(event: Event) -> str:
    return event.body.text if isinstance(event.body, TextDelta) else type(event.body).__name__
