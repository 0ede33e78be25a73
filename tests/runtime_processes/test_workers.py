"""Accepting and answering processes on one queue: each turn is answered once, although workers die."""

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator, Callable
from itertools import pairwise
from multiprocessing.connection import Connection
from typing import Any

import pytest

import backstay
from backstay import Address, App, Text, Timing
from backstay.agents.port import AgentTurn
from backstay.model.content import Body
from backstay.model.event import TurnEnded
from backstay.model.turn import Cancelled, Completed, Interrupted, Outcome
from backstay.runtime.turn_handle import Turn
from tests.crash.sql_audit import audit
from tests.crash.worker_processes import WorkerProcesses
from tests.databases import Place, Places
from tests.runtime_processes.app_programs import CHAT, LONG, report_trouble, work
from tests.runtime_processes.child_pipe import ChildPipe
from tests.runtime_processes.child_process import Child
from tests.runtime_processes.turn_in_child import busy, host, listening, play, said, seen, until_said

SESSIONS = 8
TURNS = 40
DEATHS = 3


# --- several on one queue -------------------------------------------------------------------------------------------


def test_two_processes_that_serve_one_queue_answer_each_turn_once(place: Place, auditor: WorkerProcesses) -> None:
    path = place

    async def scenario() -> tuple[list[Outcome], list[list[str]]]:
        with Child(answer, path) as one, Child(answer, path) as other:
            async with host(path) as app:
                turns = [await _send(app, number) for number in range(TURNS)]
                outcomes = [await turn.outcome() for turn in turns]
                return outcomes, [_answered_by(child) for child in (one, other)]

    outcomes, answered = play(scenario())

    assert outcomes == [Completed()] * TURNS
    assert Counter(answered[0] + answered[1]) == Counter(_text(number) for number in range(TURNS))
    _check_rooms(path, _whole)
    assert auditor.all(audit, path) == [[]]


def test_processes_that_send_to_and_serve_the_same_sessions_answer_each_turn_once(place: Place) -> None:
    path = place

    async def scenario() -> list[list[str]]:
        with Child(answer, path) as one, Child(answer, path) as other:
            for number in range(TURNS):
                (one if number % 2 else other).send_order("send", number)
            async with host(path) as app:
                for number in range(TURNS):
                    await (one if number % 2 else other).receive_async("sent", number)
                for number in range(TURNS):
                    assert await (await _send(app, number)).outcome() == Completed()
            return [_answered_by(child) for child in (one, other)]

    answered = play(scenario())

    assert Counter(answered[0] + answered[1]) == Counter(_text(number) for number in range(TURNS))
    _check_rooms(path, _whole)


def test_each_turn_ends_once_although_its_workers_are_killed(
    places: Places, auditor: WorkerProcesses, rounds: int
) -> None:
    for seed in range(max(1, rounds // DEATHS)):
        path = places.fresh()

        outcomes = play(_answer_among_deaths(path, random.Random(seed)))

        assert {type(outcome) for outcome in outcomes} <= {Completed, Interrupted}
        assert sum(isinstance(outcome, Interrupted) for outcome in outcomes) <= DEATHS * SESSIONS
        _check_rooms(path, _whole_or_cut)
        assert auditor.all(audit, path) == [[]]


async def _answer_among_deaths(path: Place, dice: random.Random) -> list[Outcome]:
    """The outcomes of all turns, when one process after the other was killed in the middle of some answers."""
    batch = TURNS // (DEATHS + 1)
    async with host(path) as app:
        turns = []
        for death in range(DEATHS):
            turns += [await _send(app, number) for number in range(death * batch, (death + 1) * batch)]
            with Child(answer, path) as mortal:
                for _ in range(dice.randrange(batch)):
                    await mortal.receive_async("answered")
                mortal.pass_away()
        turns += [await _send(app, number) for number in range(len(turns), TURNS)]
        with Child(answer, path):
            return [await turn.outcome() for turn in turns]


def answer(pipe: "Connection[Any, Any]", path: Place) -> None:
    """Serve an agent, and send the inputs of the test, until killed or stopped."""
    asyncio.run(_answer(ChildPipe(pipe), path))


async def _answer(line: ChildPipe, path: Place) -> None:
    async def agent(turn: AgentTurn) -> AsyncIterator[Body]:
        line.report("answered", turn.input.text)
        yield Text("re: ")
        await turn.steering()
        yield Text(turn.input.text)

    line.listen()
    report_trouble(line)
    async with backstay.open(path, agent=agent, notify=False, lease_seconds=LONG) as app:
        sending = asyncio.create_task(_send_all(app, line))
        await line.next_order("stop")
        sending.cancel()


async def _send_all(app: App, line: ChildPipe) -> None:
    while True:
        (number,) = await line.next_order("send")
        await _send(app, number)
        line.report("sent", number)


async def _send(app: App, number: int) -> Turn:
    """One of many messages, to one of several sessions; the same message again is the same turn."""
    session = await app.session(_room(number % SESSIONS))
    return await session.send(_text(number), request_id=_text(number))


def _room(number: int) -> Address:
    return Address.chat("matrix", "group", chat=f"room {number}")


def _text(number: int) -> str:
    return f"message {number}"


def _answered_by(child: Child) -> list[str]:
    """Stop the child; return the inputs that it was asked to answer."""
    child.send_order("stop")
    child.ends_well()
    return [words[1] for words in child.everything() if words[0] == "answered"]


def _check_rooms(path: Place, right: Callable[[str, str], bool]) -> None:
    """Check that each session has each message once, in the order of sending, followed by the right answer."""

    async def look() -> list[list[tuple[str, str]]]:
        async with host(path) as app:
            return [await said(await app.session(_room(room))) for room in range(SESSIONS)]

    for room, messages in enumerate(play(look())):
        asked = [text for role, text in messages if role == "user"]
        assert asked == [_text(number) for number in range(room, TURNS, SESSIONS)]
        for (before, question), (role, text) in pairwise(messages):
            assert role == "user" or (before == "user" and right(question, text))


def _whole(question: str, answer: str) -> bool:
    return answer == f"re: {question}"


def _whole_or_cut(question: str, answer: str) -> bool:
    return _whole(question, answer) or (answer.endswith("…") and f"re: {question}".startswith(answer[:-1]))


# --- one accepts, another answers -----------------------------------------------------------------------------------


async def test_a_turn_for_an_unserved_agent_waits_for_a_process_that_serves_it(place: Place) -> None:
    async with host(place) as app:
        session = await app.session(CHAT)
        turn = await session.send("anybody there?")
        with Child(work, place) as worker:
            await worker.receive_async("speaking", "anybody there?")
            worker.send_order("anybody there?", "say", "yes")
            worker.send_order("anybody there?", "end")
            assert await turn.outcome() == Completed()
        result = await said(session)

    assert result == [("user", "anybody there?"), ("assistant", "yes")]


async def test_after_a_killed_worker_the_next_one_answers_waiting_turns(place: Place) -> None:
    async with busy(place) as remote:
        second = await remote.session.send("second")
        remote.other.pass_away()
        with Child(work, place) as successor:
            await successor.receive_async("speaking", "second")
            successor.send_order("second", "say", "here I am")
            successor.send_order("second", "end")
            assert await second.outcome() == Completed()
        result = await said(remote.session)

    assert result == [
        ("user", "first"),
        ("assistant", "one …"),
        ("user", "second"),
        ("assistant", "here I am"),
    ]


async def test_after_a_killed_worker_a_running_one_answers_waiting_turns(place: Place) -> None:
    async with busy(place) as remote:
        second = await remote.session.send("second")
        with Child(work, place) as colleague:
            await colleague.receive_async("open")
            remote.other.pass_away()
            await colleague.receive_async("speaking", "second")
            colleague.send_order("second", "end")
            await second.outcome()


@pytest.mark.parametrize("wait", ["outcome", "events", "follow", "cancel"])
async def test_a_waiter_learns_that_the_process_of_its_turn_was_killed(place: Place, wait: str) -> None:
    async with busy(place, timing=Timing(grace=LONG)) as remote:
        if wait == "cancel":
            remote.other.send_order("first", "resist")
            await remote.other.receive_async("first", "resists")
        waiting = asyncio.create_task(_wait(remote.turn, remote.app, wait))
        # The waiter has seen all events that were seen here, and waits for the next one now.
        if wait == "cancel":
            await remote.other.receive_async("first", "resisted")
        else:
            remote.other.send_order("first", "say", "two")
            await until_said(remote.turn, "one two")
        remote.other.pass_away()
        result = await waiting

    assert isinstance(result, Cancelled if wait == "cancel" else Interrupted)


async def _wait(turn: Turn, app: App, how: str) -> Outcome:
    match how:
        case "outcome":
            return await turn.outcome()
        case "events":
            ended = (await seen(turn, TurnEnded))[-1].body
            assert isinstance(ended, TurnEnded)
            return ended.outcome
        case "follow":
            async with listening((await app.session(CHAT)).follow()) as scenario:
                async for event in scenario:
                    if isinstance(event.body, TurnEnded):
                        return event.body.outcome
            raise AssertionError("a story that is followed does not end")
        case _:
            return await turn.cancel()


@pytest.mark.parametrize("verb", ["retry", "edit"])
async def test_a_retry_by_a_process_without_agents_is_answered_by_one_with_agents(place: Place, verb: str) -> None:
    async with busy(place) as remote:
        remote.other.send_order("first", "end")
        await remote.turn.outcome()
        if verb == "retry":
            again = await remote.session.retry()
        else:
            again = await remote.session.edit((await remote.session.messages())[0].id, "first, again")
        name = "first" if verb == "retry" else "first, again"
        await remote.other.receive_async("speaking", name)
        remote.other.send_order(name, "say", "better")
        remote.other.send_order(name, "end")
        assert await again.outcome() == Completed()
        result = await said(remote.session)

    assert result[1:] == [("assistant", "better")]
