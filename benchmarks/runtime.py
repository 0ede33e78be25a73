"""What the runtime adds: turns, bodies and the first word, against the store alone doing the very same verbs."""

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path
from time import perf_counter

import msgspec

from backstay import Text, Timing
from backstay.agents.port import AgentTurn
from backstay.agents.tools import tool
from backstay.model.content import Body
from backstay.model.event import UNSEEN, Cursor, TextDelta
from benchmarks import alone, chorus
from benchmarks.alone import VERBS, OwnThread, Way, other_threads, own_thread
from benchmarks.census import Census, counted
from benchmarks.driven import STEPWISE, AgentFunction, Driven, ask, converse, driven, saying
from benchmarks.figure import Figure
from benchmarks.ground import Ground, session_of
from benchmarks.scratch import copy, in_memory, on_disk
from benchmarks.speech import ANSWER, DELTAS, OWNER, QUESTION, start
from benchmarks.stopwatch import Comparison, as_a_server_would, compare, micros, paired

HISTORIES = (10, 1_000, 10_000)
PIECES = 300
# Nobody looks whether others wrote: a count must not depend on how long it takes.
_QUIET = msgspec.structs.replace(STEPWISE, poll=3_600.0)
_COUNTED, _BODIES = 10, 200


def figures() -> Iterator[Figure]:
    """Counts, processor time, latency, turns per second, and what a checkpoint costs as the history grows."""
    with in_memory() as room:
        yield from _counts(room)
        yield from as_a_server_would(lambda: list(_processor(room)))
        yield from as_a_server_would(lambda: list(_pieces(room)))
        yield as_a_server_would(lambda: _first_body(room, "in memory"))
    with on_disk() as room:
        yield as_a_server_would(lambda: _first_body(room, f"in {room.parent}"))
        yield from chorus.figures(room)
    with in_memory() as room:
        yield from _checkpoints(room)


# --- counts ---------------------------------------------------------------------------------------------------------


def _counts(room: Path) -> Iterator[Figure]:
    """Syncs, and what the writer does for a turn, exactly."""
    ours = _count(room / "counted.db", saying(DELTAS))
    theirs = _count_alone(room / "counted-alone.db")
    each = f"{ours.statements / _COUNTED:g} statements, {ours.log_bytes / _COUNTED / 1024:.1f} KiB of log each"
    yield _exact("syncs per streamed turn, 3 deltas", ours.syncs / _COUNTED, 2, f"{_COUNTED} turns; {each}")
    called = _count(room / "called.db", _calling_a_tool)
    yield _exact("the same with a tool of the ledger", called.syncs / _COUNTED, 4, "input, intent, result, ending")
    detail = f"{ours.steps / _COUNTED:,.0f} and {theirs.steps / _COUNTED:,.0f}, by connections that write"
    yield Figure(
        name="steps to write a turn / store alone",
        value=ours.steps / theirs.steps,
        limit=1,
        exactly=True,
        detail=detail,
    )
    detail = f"{ours.log_bytes / _COUNTED:,.0f} and {theirs.log_bytes / _COUNTED:,.0f}"
    ratio = ours.log_bytes / theirs.log_bytes
    yield Figure(name="log bytes per turn / store alone", value=ratio, limit=1.02, detail=detail)


def _exact(name: str, value: float, limit: int, detail: str) -> Figure:
    return Figure(name=name, value=value, unit="", limit=limit, exactly=True, detail=detail)


def _count(path: Path, agent: AgentFunction) -> Census:
    with counted(readers=False) as census, driven(path, agent, _QUIET) as stage:
        session = stage.do(stage.app.session())
        stage.do(ask(session))
        before = census.copy()
        for _ in range(_COUNTED):
            stage.do(ask(session))
        return census.since(before)


def _count_alone(path: Path) -> Census:
    with counted(readers=False) as census, own_thread(path) as way:
        session = way.store.create(owner=OWNER).id
        alone.walk(way, session, DELTAS)
        before = census.copy()
        for _ in range(_COUNTED):
            alone.walk(way, session, DELTAS)
        return census.since(before)


@tool
def look_up(word: str) -> str:
    return f"{word}: a place where ships lie"


async def _calling_a_tool(turn: AgentTurn) -> AsyncIterator[Body]:
    yield Text(DELTAS[0])
    yield Text(await turn.call(look_up, {"word": "harbour"}))
    yield Text(DELTAS[1])


# --- processor time -------------------------------------------------------------------------------------------------


def _processor(room: Path) -> Iterator[Figure]:
    """Turns of three checkpoints, and long ones in which only the checkpoints count."""
    with (
        driven(room / "turns.db", saying(DELTAS)) as stage,
        driven(room / "bodies.db", saying(DELTAS[:1] * _BODIES)) as long_stage,
        own_thread(room / "own.db") as own,
        other_threads(room / "others.db") as others,
    ):
        both = _talk(stage, own, DELTAS, turns=10)
        detail = f"{both.detail('runtime', 'store')}: {VERBS}, on the caller's own thread"
        yield Figure(name="processor time per turn / store alone", value=both.ratio, detail=detail)
        both = _talk(stage, others, DELTAS, turns=10)
        detail = f"{both.detail('runtime', 'store')}: the same, on the writer's and a reader's thread"
        yield Figure(name="processor time per turn / store on threads", value=both.ratio, detail=detail)
        body = _talk(long_stage, own, DELTAS[:1] * _BODIES, turns=1).per(_BODIES)
        detail = f"{body.detail('runtime', 'store')}: turns of {_BODIES} checkpoints of one body"
        yield Figure(name="processor time per checkpointed body / store", value=body.ratio, detail=detail)
        body = _talk(long_stage, others, DELTAS[:1] * _BODIES, turns=1).per(_BODIES)
        detail = f"{body.detail('runtime', 'store')}: the same, on the writer's thread"
        yield Figure(name="per checkpointed body / store on threads", value=body.ratio, detail=detail)


def _talk(stage: Driven, way: Way, deltas: Sequence[str], *, turns: int) -> Comparison:
    """The same turns through the runtime and by the store alone; a new session each round, so that none grows long."""
    stage.do(converse(stage.app, 1))
    alone.converse(way, 1, deltas)
    return compare(
        lambda: stage.do(converse(stage.app, turns)),
        lambda: alone.converse(way, turns, deltas),
        rounds=30,
        units=turns,
    )


def _pieces(room: Path) -> Iterator[Figure]:
    """Bodies that are joined in the buffer: what is stored is the same however many pieces it was said in."""
    size = len(ANSWER) // PIECES
    pieces = [ANSWER[at : at + size] for at in range(0, len(ANSWER), size)]
    with (
        driven(room / "pieces.db", saying(pieces), Timing()) as many,
        driven(room / "whole.db", saying([ANSWER]), Timing()) as one,
    ):
        both = compare(lambda: many.do(converse(many.app, 5)), lambda: one.do(converse(one.app, 5)), rounds=30, units=5)
    each = micros((both.ours - both.raw) / (PIECES - 1))
    detail = f"{each} for each body of {size} letters; nothing of it is the store's"
    yield Figure(name=f"a turn said in {PIECES} bodies / in one", value=both.ratio, detail=detail)


# --- latency --------------------------------------------------------------------------------------------------------


def _first_body(room: Path, where: str) -> Figure:
    """From sending until a listener has the first words, while the agent is still speaking."""
    go_on = asyncio.Event()

    async def speaking(_: AgentTurn) -> AsyncIterator[Body]:
        yield Text(DELTAS[0])
        await go_on.wait()

    with driven(room / "first.db", speaking, Timing()) as stage, own_thread(room / "first-alone.db") as way:
        both = paired(lambda: stage.do(_send_and_hear(stage, go_on)), lambda: _submit_and_read(way), rounds=200)
    detail = f"{both.detail('runtime', 'store')} of wall time: submit, messages, checkpoint, events_after"
    return Figure(name=f"send to first body heard / store, {where}", value=both.ratio, detail=detail)


async def _send_and_hear(stage: Driven, go_on: asyncio.Event) -> float:
    session = await stage.app.session()
    go_on.clear()
    sent, heard = perf_counter(), 0.0
    turn = await session.send(QUESTION)
    async for event in turn.events():
        if isinstance(event.body, TextDelta):
            heard = perf_counter()
            go_on.set()
    return heard - sent


def _submit_and_read(way: OwnThread) -> float:
    session = way.store.create(owner=OWNER).id
    sent = perf_counter()
    turn = start(way.store, session)
    way.store.messages(session, owner=OWNER)
    way.store.checkpoint(turn, [Text(DELTAS[0])])
    way.store.events_after(session, Cursor(fence=UNSEEN, number=0), owner=OWNER)
    return perf_counter() - sent


# --- growth ---------------------------------------------------------------------------------------------------------


def _checkpoints(room: Path) -> Iterator[Figure]:
    """What a checkpoint writes in a session of 10, 1,000 and 10,000 messages, exactly."""
    few, *more = (_checkpointing(room, session_of(room, messages)) for messages in HISTORIES)
    for messages, many in zip(HISTORIES[1:], more, strict=True):
        name = f"checkpoint at {messages:,} messages / at {HISTORIES[0]}"
        yield _flat(f"{name}: steps", many.steps, few.steps)
        yield _flat(f"{name}: log bytes", many.log_bytes, few.log_bytes)


def _flat(name: str, many: int, few: int) -> Figure:
    writes = _BODIES + 1
    detail = f"{many / writes:,.1f} and {few / writes:,.1f} for each of {writes} checkpoints"
    return Figure(name=name, value=many / few, limit=1.15, detail=detail)


def _checkpointing(room: Path, ground: Ground) -> Census:
    """What is written for a row of checkpoints, from one moment at which all is stored to another.

    Asking for steering waits until then, and the second time is one more checkpoint in the count.
    """
    seen: list[Census] = []
    with counted(readers=False) as census:

        async def agent(turn: AgentTurn) -> AsyncIterator[Body]:
            yield Text(DELTAS[0])
            await turn.steering()
            before = census.copy()
            for _ in range(_BODIES):
                yield Text(DELTAS[0])
            await turn.steering()
            seen.append(census.since(before))

        with driven(copy(ground.path, room / "checkpoints.db"), agent, _QUIET) as stage:
            stage.do(ask(stage.do(stage.app.session(ground.session))))
    return seen[0]
