"""A process is killed while its agent streams: the first reader finds the turn ended once, with its output."""

import math
from collections.abc import Awaitable, Callable
from itertools import cycle, product
from typing import NamedTuple

import pytest

import backstay
from backstay import Address, App, Text, Thought, Timing, ToolCall, ToolResult, open_store
from backstay.model.content import Part
from backstay.model.event import Event, TurnEnded
from backstay.model.message import Message
from backstay.model.session import SessionInfo
from backstay.model.turn import Cancelled, Completed, IfBusy, Interrupted
from backstay.runtime.session_handle import Session
from backstay.runtime.turn_handle import Turn
from tests.crash.sql_audit import audit
from tests.crash.worker_processes import WorkerProcesses
from tests.databases import Place
from tests.effort import THOROUGH
from tests.runtime_processes.app_programs import CHAT, LONG, Setting, work
from tests.runtime_processes.child_pipe import Words
from tests.runtime_processes.child_process import Child
from tests.runtime_processes.turn_in_child import ME, echo, host, listening, play

# --- where the process dies -----------------------------------------------------------------------------------------


class Step(NamedTuple):
    """An order to the child, and the report that confirms its execution and storage."""

    order: Words
    report: Words


Entry = tuple[str, tuple[Part, ...], bool]


class Boundary(NamedTuple):
    """A point in the turn: the steps so far, the expected messages afterwards, and the calls that may have run."""

    steps: tuple[Step, ...]
    entries: tuple[Entry, ...]
    may_have_run: tuple[str, ...] = ()
    timing: Timing = Timing(flush=0.0)


CALL, AGAIN = ToolCall("ledger-1", "look", {"at": "sky"}), ToolCall("ledger-2", "look", {"at": "sea"})
RESULT = ToolResult("ledger-1", "looked at sky")

SPEAK = Step(("first", "say", "let me "), ("stored", "text_delta"))
THINK = Step(("first", "think", "hm"), ("stored", "thought_delta"))
INTEND = Step(("first", "call", "look", {"at": "sky"}), ("inside", "look"))
RETURN = Step(("look", "return"), ("stored", "tool_returned"))
STEER = Step(("app", "steer", "left!"), ("sent", "left!"))
TAKE = Step(("first", "steering"), ("stored", "steering_taken"))
GO_ON = Step(("first", "say", "see"), ("stored", "text_delta"))
INTEND_AGAIN = Step(("first", "call", "look", {"at": "sea"}), ("inside", "look"))
# Output that is still in the buffer of a child with a flush interval of an hour.
MUMBLE = Step(("first", "say", "unheard"), ("first", "did", "say"))

_THINKING = (Text("let me "), Thought("hm"))
_LOOKED: tuple[Entry, ...] = (("assistant", (*_THINKING, CALL), True), ("tool", (RESULT,), False))
_STEERED: tuple[Entry, ...] = (
    ("assistant", (*_THINKING, CALL), True),
    ("tool", (RESULT,), False),
    ("user", (Text("left!"),), False),
)
_SAW: tuple[Entry, ...] = (
    ("assistant", (*_THINKING, CALL), False),
    ("tool", (RESULT,), False),
    ("user", (Text("left!"),), False),
    ("assistant", (Text("see"),), True),
)
_LOOKS_AGAIN: tuple[Entry, ...] = (*_SAW[:-1], ("assistant", (Text("see"), AGAIN), True))

_UP_TO_TAKE = (SPEAK, THINK, INTEND, RETURN, STEER, TAKE)
BOUNDARIES = {
    "before its first word": Boundary((), ()),
    "after a word": Boundary((SPEAK,), (("assistant", (Text("let me "),), True),)),
    "in the middle of a word": Boundary(
        (SPEAK, MUMBLE), (("assistant", (Text("let me "),), True),), timing=Timing(flush=3600)
    ),
    "after a thought": Boundary((SPEAK, THINK), (("assistant", _THINKING, True),)),
    "inside a tool": Boundary((SPEAK, THINK, INTEND), (("assistant", (*_THINKING, CALL), True),), ("ledger-1",)),
    "after a tool": Boundary((SPEAK, THINK, INTEND, RETURN), _LOOKED),
    "after taking a steer": Boundary(_UP_TO_TAKE, _STEERED),
    "after going on": Boundary((*_UP_TO_TAKE, GO_ON), _SAW),
    "inside a second tool": Boundary((*_UP_TO_TAKE, GO_ON, INTEND_AGAIN), _LOOKS_AGAIN, ("ledger-2",)),
}
BEHIND = ("second", "third")


def go_to(boundary: Boundary, child: Child) -> None:
    """Run a turn in a separate process up to the boundary, with two others waiting behind it."""
    child.send_order("report")
    for text in ("first", *BEHIND):
        child.send_order("app", "send", text)
        child.receive("sent", text)
    child.receive("speaking", "first")
    for step in boundary.steps:
        child.send_order(*step.order)
        child.receive(*step.report)


# --- the first reader -----------------------------------------------------------------------------------------------


class Onlooker(NamedTuple):
    """The handles that a caller had when the process died."""

    app: App
    session: Session
    turn: Turn


Look = Callable[[Onlooker, Boundary], Awaitable[None]]


async def by_list(onlooker: Onlooker, _: Boundary) -> None:
    (session,) = (await onlooker.app.sessions()).sessions
    _free(session)


async def by_read(onlooker: Onlooker, _: Boundary) -> None:
    _free(await onlooker.session.read())


async def by_messages(onlooker: Onlooker, expected: Boundary) -> None:
    _, *entries = await onlooker.session.messages()
    assert tuple(map(_entry, entries)) == expected.entries


async def by_outcome(onlooker: Onlooker, _: Boundary) -> None:
    assert isinstance(await onlooker.turn.outcome(), Interrupted)


async def by_events(onlooker: Onlooker, expected: Boundary) -> None:
    events = [event async for event in onlooker.turn.events()]
    assert isinstance(events[-1].body, TurnEnded)
    assert events[-1].body.may_have_run == expected.may_have_run


async def by_follow(onlooker: Onlooker, expected: Boundary) -> None:
    async with listening(onlooker.session.follow()) as scenario:
        async for event in scenario:
            if isinstance(event.body, TurnEnded):
                assert event.body.may_have_run == expected.may_have_run
                return


async def by_send(onlooker: Onlooker, _: Boundary) -> None:
    fourth = await onlooker.session.send("fourth")
    scenario = await _whole_story(onlooker.session)
    ended = next(event.number for event in scenario if isinstance(event.body, TurnEnded))
    sent = next(event.number for event in scenario if event.turn == fourth.id)
    assert ended < sent, "what was dead had ended before the new message was accepted"
    await fourth.cancel()


async def by_address(onlooker: Onlooker, _: Boundary) -> None:
    _free(await (await onlooker.app.session(CHAT)).read())


async def by_id(onlooker: Onlooker, _: Boundary) -> None:
    _free(await (await onlooker.app.session(onlooker.session.id)).read())


LOOKS: dict[str, Look] = {
    "list": by_list,
    "read": by_read,
    "messages": by_messages,
    "outcome": by_outcome,
    "events": by_events,
    "follow": by_follow,
    "send": by_send,
}
REOPENING: dict[str, Look] = {"list": by_list, "address": by_address, "id": by_id}

# The point of death and the first reader are independent: `make test` tries each boundary with one reader, and so each
# reader at one boundary at least; `make crash` tries all pairs.
PAIRS = list(product(BOUNDARIES, LOOKS)) if THOROUGH else list(zip(BOUNDARIES, cycle(LOOKS), strict=False))


@pytest.mark.parametrize(("boundary", "look"), PAIRS)
def test_the_first_reader_finds_a_killed_turn_interrupted(
    place: Place, auditor: WorkerProcesses, boundary: str, look: str
) -> None:
    path, expected = place, BOUNDARIES[boundary]

    async def scenario() -> None:
        # The onlooker's app never polls, so only this read can find the dead holder.
        async with host(path, Timing(reap=math.inf)) as app:
            with Child(work, path, Setting(timing=expected.timing)) as child:
                go_to(expected, child)
                onlooker = await _onlooker(app)
                child.pass_away()
            await LOOKS[look](onlooker, expected)

    play(scenario())

    _check(path, expected, auditor)


@pytest.mark.parametrize("look", REOPENING)
def test_the_next_process_to_open_the_store_finds_a_killed_turn_interrupted(
    place: Place, auditor: WorkerProcesses, look: str
) -> None:
    path, expected = place, BOUNDARIES["inside a tool"]

    async def scenario() -> None:
        with Child(work, path, Setting(timing=expected.timing)) as child:
            go_to(expected, child)
            async with host(path) as app:
                before = await _onlooker(app)
            child.pass_away()
        async with host(path) as app:
            await REOPENING[look](before._replace(app=app), expected)

    play(scenario())

    _check(path, expected, auditor)


@pytest.mark.parametrize("if_busy", ["enqueue", "reject", "steer", "replace", "fork"])
async def test_a_session_whose_process_was_killed_is_not_busy(place: Place, if_busy: IfBusy) -> None:
    path = place

    async with host(path, Timing(reap=math.inf)) as app:
        with Child(work, path) as child:
            child.send_order("app", "send", "first")
            child.receive("speaking", "first")
            session, turn = (await _onlooker(app))[1:]
            child.pass_away()
        second = await session.send("second", if_busy=if_busy)
        async with backstay.open(path, agent=echo, notify=False, lease_seconds=LONG):
            assert isinstance(await turn.outcome(), Interrupted)
            assert await second.outcome() == Completed()
    assert second.session == session.id


async def test_one_read_of_the_list_ends_all_turns_of_a_killed_process(place: Place) -> None:
    path = place
    rooms = [Address.chat("matrix", "group", chat=f"{number}") for number in range(5)]

    async with host(path, Timing(reap=math.inf)) as app:
        with Child(work, path) as child:
            for number, room in enumerate(rooms):
                await (await app.session(room)).send(f"hello {number}")
                await child.receive_async("speaking", f"hello {number}")
            child.pass_away()
        result = [session.running for session in (await app.sessions()).sessions]

    assert result == [None] * len(rooms)


def test_a_turn_that_had_ended_before_its_process_was_killed_stays_completed(place: Place) -> None:
    path = place
    with Child(work, path) as child:
        child.send_order("report")
        child.send_order("app", "send", "first")
        child.send_order("first", "say", "done")
        child.send_order("first", "end")
        child.receive("stored", "turn_ended")
        child.pass_away()

    with open_store(path, lease_seconds=LONG) as store:
        (session,) = store.list(owner=ME).sessions
        messages = store.messages(session.id, owner=ME).messages

    assert [(message.text, message.partial) for message in messages] == [("first", False), ("done", False)]
    assert session.turns == 1


async def test_a_turn_that_follows_in_a_process_that_is_killed_is_interrupted_too(place: Place) -> None:
    path = place
    with Child(work, path) as child:
        for text in ("first", "second", "third"):
            child.send_order("app", "send", text)
            child.receive("sent", text)
        child.send_order("first", "end")
        child.receive("speaking", "second")
        child.pass_away()

    async with backstay.open(path, agent=echo, notify=False, lease_seconds=LONG) as app:
        session = await app.session(CHAT)
        turns = [await session.send(text, request_id=text) for text in ("first", "second", "third")]
        result = [type(await turn.outcome()) for turn in turns]

    assert result == [Completed, Interrupted, Completed]


def test_a_turn_with_a_cancel_request_is_cancelled_when_its_process_is_killed(place: Place) -> None:
    path = place
    with Child(work, path) as child, open_store(path, lease_seconds=LONG) as store:
        child.send_order("app", "send", "first")
        child.receive("speaking", "first")
        child.send_order("first", "resist")
        child.receive("first", "resists")
        (session,) = store.list(owner=ME).sessions
        assert session.running is not None
        store.cancel(session.running, owner=ME)
        child.receive("first", "resisted")
        child.pass_away()

        turn = store.turn(session.running, owner=ME)

    assert isinstance(turn.outcome, Cancelled)


# --- reading --------------------------------------------------------------------------------------------------------


async def _onlooker(app: App) -> Onlooker:
    """A caller that holds the session and its first turn while that still runs."""
    session = await app.session(CHAT)
    turn = await session.send("first", request_id="first")
    assert (await turn.read()).state == "running"
    return Onlooker(app, session, turn)


def _check(path: Place, expected: Boundary, auditor: WorkerProcesses) -> None:
    """The events of the dead turn are sound, waiting turns run, and nothing is there twice."""
    assert _first_turn(path) == (expected.entries, expected.may_have_run)
    assert _effects(path) == dict.fromkeys(expected.may_have_run, "unknown")
    assert play(_answer_the_rest(path)) == [Completed(), Completed()]
    assert _first_turn(path) == (expected.entries, expected.may_have_run)
    assert _answers(path) == [(text, f"re: {text}") for text in BEHIND]
    assert auditor.all(audit, path) == [[]]


def _entry(message: Message) -> Entry:
    return message.role, message.parts, message.partial


def _free(session: SessionInfo) -> None:
    assert (session.running, session.holder, session.waiting) == (None, None, len(BEHIND))


async def _whole_story(session: Session) -> list[Event]:
    last = (await session.read()).last_event
    async with listening(session.follow()) as scenario:
        return [await anext(scenario) for _ in range(last)]


def _first_turn(path: Place) -> tuple[tuple[Entry, ...], tuple[str, ...]]:
    """The messages of the first turn, and its calls that may have run. It has ended exactly once, interrupted."""
    with open_store(path, lease_seconds=LONG) as store:
        (session,) = store.list(owner=ME).sessions
        events = store.events_after(session.id, owner=ME).events
        messages = store.messages(session.id, owner=ME).messages
    first = messages[0].turn
    assert [event.number for event in events] == list(range(1, session.last_event + 1))
    endings = [event.turn for event in events if isinstance(event.body, TurnEnded)]
    assert len(endings) == len(set(endings)), "a turn ends once"
    (ended,) = [event.body for event in events if event.turn == first and isinstance(event.body, TurnEnded)]
    assert isinstance(ended.outcome, Interrupted)
    said = [_entry(message) for message in messages if message.turn == first]
    assert said[0] == ("user", (Text("first"),), False)
    return tuple(said[1:]), ended.may_have_run


def _effects(path: Place) -> dict[str, str]:
    """The calls of the first turn that have no known effect."""
    with open_store(path, lease_seconds=LONG) as store:
        (session,) = store.list(owner=ME).sessions
        first = store.messages(session.id, owner=ME).messages[0].turn
        assert first is not None
        calls = store.calls(first, owner=ME)
    return {call.call: call.effect for call in calls if call.effect != "returned"}


async def _answer_the_rest(path: Place) -> list[object]:
    """The outcomes of the waiting turns, once a process serves their agent."""
    async with backstay.open(path, agent=echo, notify=False, lease_seconds=LONG) as app:
        session = await app.session(CHAT)
        return [await (await session.send(text, request_id=text)).outcome() for text in BEHIND]


def _answers(path: Place) -> list[tuple[str, str]]:
    """The messages after the first turn."""
    with open_store(path, lease_seconds=LONG) as store:
        (session,) = store.list(owner=ME).sessions
        messages = store.messages(session.id, owner=ME).messages
    rest = [message.text for message in messages if message.turn != messages[0].turn]
    return list(zip(rest[::2], rest[1::2], strict=True))
