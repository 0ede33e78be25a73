"""The cost of the runtime: turns, bodies and the first word, against the store running the same verbs."""

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
from benchmarks.instruments.figure import Figure
from benchmarks.instruments.prepared_databases import PreparedDatabase, session_of
from benchmarks.instruments.sample_turns import ANSWER, DELTAS, OWNER, QUESTION, start
from benchmarks.instruments.scratch_folders import copy, in_memory, on_disk
from benchmarks.instruments.sqlite_counters import SqliteCounters, counted
from benchmarks.instruments.stopwatch import Comparison, as_a_server_would, compare, micros, paired
from benchmarks.runtime import concurrent_turns, store_turn
from benchmarks.runtime.stepped_app import (
    STEPWISE,
    AgentFunction,
    SteppedApp,
    answering_with,
    ask,
    converse,
    stepped_app,
)
from benchmarks.runtime.store_turn import VERBS, CommandRunner, OwnThread, other_threads, own_thread

HISTORIES = (10, 1_000, 10_000)
PIECES = 300
# No polling for writes of others: a count must not depend on the duration.
_QUIET = msgspec.structs.replace(STEPWISE, poll=3_600.0)
_COUNTED, _BODIES = 10, 200


def figures() -> Iterator[Figure]:
    """Counts, processor time, latency, turns per second, and the cost of a checkpoint as the history grows."""
    with in_memory() as folder:
        yield from _counts(folder)
        yield from as_a_server_would(lambda: list(_processor(folder)))
        yield from as_a_server_would(lambda: list(_pieces(folder)))
        yield as_a_server_would(lambda: _first_body(folder, "in memory"))
    with on_disk() as folder:
        yield as_a_server_would(lambda: _first_body(folder, f"in {folder.parent}"))
        yield from concurrent_turns.figures(folder)
    with in_memory() as folder:
        yield from _checkpoints(folder)


# --- counts ---------------------------------------------------------------------------------------------------------


def _counts(folder: Path) -> Iterator[Figure]:
    """Exact syncs and steps of the writer for a turn."""
    ours = _count(folder / "counted.db", answering_with(DELTAS))
    theirs = _count_alone(folder / "counted-alone.db")
    each = f"{ours.statements / _COUNTED:g} statements, {ours.log_bytes / _COUNTED / 1024:.1f} KiB of log each"
    yield _exact("syncs per streamed turn, 3 deltas", ours.syncs / _COUNTED, 2, f"{_COUNTED} turns; {each}")
    called = _count(folder / "called.db", _calling_a_tool)
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


def _count(path: Path, agent: AgentFunction) -> SqliteCounters:
    with counted(readers=False) as counters, stepped_app(path, agent, _QUIET) as stepped:
        session = stepped.do(stepped.app.session())
        stepped.do(ask(session))
        before = counters.copy()
        for _ in range(_COUNTED):
            stepped.do(ask(session))
        return counters.since(before)


def _count_alone(path: Path) -> SqliteCounters:
    with counted(readers=False) as counters, own_thread(path) as runner:
        session = runner.store.create(owner=OWNER).id
        store_turn.run_turn(runner, session, DELTAS)
        before = counters.copy()
        for _ in range(_COUNTED):
            store_turn.run_turn(runner, session, DELTAS)
        return counters.since(before)


@tool
def look_up(word: str) -> str:
    return f"{word}: a place where ships lie"


async def _calling_a_tool(turn: AgentTurn) -> AsyncIterator[Body]:
    yield Text(DELTAS[0])
    yield Text(await turn.call(look_up, {"word": "harbour"}))
    yield Text(DELTAS[1])


# --- processor time -------------------------------------------------------------------------------------------------


def _processor(folder: Path) -> Iterator[Figure]:
    """Turns of three checkpoints, and long ones in which only the checkpoints count."""
    with (
        stepped_app(folder / "turns.db", answering_with(DELTAS)) as stepped,
        stepped_app(folder / "bodies.db", answering_with(DELTAS[:1] * _BODIES)) as long_stepped,
        own_thread(folder / "own.db") as own,
        other_threads(folder / "others.db") as others,
    ):
        both = _compare_turns(stepped, own, DELTAS, turns=10)
        detail = f"{both.detail('runtime', 'store')}: {VERBS}, on the caller's own thread"
        yield Figure(name="processor time per turn / store alone", value=both.ratio, detail=detail)
        both = _compare_turns(stepped, others, DELTAS, turns=10)
        detail = f"{both.detail('runtime', 'store')}: the same, on the writer's and a reader's thread"
        yield Figure(name="processor time per turn / store on threads", value=both.ratio, detail=detail)
        body = _compare_turns(long_stepped, own, DELTAS[:1] * _BODIES, turns=1).per(_BODIES)
        detail = f"{body.detail('runtime', 'store')}: turns of {_BODIES} checkpoints of one body"
        yield Figure(name="processor time per checkpointed body / store", value=body.ratio, detail=detail)
        body = _compare_turns(long_stepped, others, DELTAS[:1] * _BODIES, turns=1).per(_BODIES)
        detail = f"{body.detail('runtime', 'store')}: the same, on the writer's thread"
        yield Figure(name="per checkpointed body / store on threads", value=body.ratio, detail=detail)


def _compare_turns(stepped: SteppedApp, runner: CommandRunner, deltas: Sequence[str], *, turns: int) -> Comparison:
    """The same turns through the runtime and by the store alone, in a new session each round, which stays short."""
    stepped.do(converse(stepped.app, 1))
    store_turn.converse(runner, 1, deltas)
    return compare(
        lambda: stepped.do(converse(stepped.app, turns)),
        lambda: store_turn.converse(runner, turns, deltas),
        rounds=30,
        units=turns,
    )


def _pieces(folder: Path) -> Iterator[Figure]:
    """Bodies that are joined in the buffer: the stored text is the same for any number of pieces."""
    size = len(ANSWER) // PIECES
    pieces = [ANSWER[at : at + size] for at in range(0, len(ANSWER), size)]
    with (
        stepped_app(folder / "pieces.db", answering_with(pieces), Timing()) as many,
        stepped_app(folder / "whole.db", answering_with([ANSWER]), Timing()) as one,
    ):
        both = compare(lambda: many.do(converse(many.app, 5)), lambda: one.do(converse(one.app, 5)), rounds=30, units=5)
    each = micros((both.ours - both.raw) / (PIECES - 1))
    detail = f"{each} for each body of {size} letters; nothing of it is the store's"
    yield Figure(name=f"a turn of {PIECES} bodies / of one", value=both.ratio, detail=detail)


# --- latency --------------------------------------------------------------------------------------------------------


def _first_body(folder: Path, where: str) -> Figure:
    """From sending until a follower receives the first text, while the agent is still streaming."""
    go_on = asyncio.Event()

    async def speaking(_: AgentTurn) -> AsyncIterator[Body]:
        yield Text(DELTAS[0])
        await go_on.wait()

    with (
        stepped_app(folder / "first.db", speaking, Timing()) as stepped,
        own_thread(folder / "first-alone.db") as runner,
    ):
        both = paired(
            lambda: stepped.do(_send_and_receive(stepped, go_on)), lambda: _submit_and_read(runner), rounds=200
        )
    detail = f"{both.detail('runtime', 'store')} of wall time: submit, messages, checkpoint, events_after"
    return Figure(name=f"send to first body received / store, {where}", value=both.ratio, detail=detail)


async def _send_and_receive(stepped: SteppedApp, go_on: asyncio.Event) -> float:
    session = await stepped.app.session()
    go_on.clear()
    sent, received = perf_counter(), 0.0
    turn = await session.send(QUESTION)
    async for event in turn.events():
        if isinstance(event.body, TextDelta):
            received = perf_counter()
            go_on.set()
    return received - sent


def _submit_and_read(runner: OwnThread) -> float:
    session = runner.store.create(owner=OWNER).id
    sent = perf_counter()
    turn = start(runner.store, session)
    runner.store.messages(session, owner=OWNER)
    runner.store.checkpoint(turn, [Text(DELTAS[0])])
    runner.store.events_after(session, Cursor(fence=UNSEEN, number=0), owner=OWNER)
    return perf_counter() - sent


# --- growth ---------------------------------------------------------------------------------------------------------


def _checkpoints(folder: Path) -> Iterator[Figure]:
    """The exact writes of a checkpoint in a session of 10, 1,000 and 10,000 messages."""
    few, *more = (_checkpointing(folder, session_of(folder, messages)) for messages in HISTORIES)
    for messages, many in zip(HISTORIES[1:], more, strict=True):
        name = f"checkpoint at {messages:,} messages / at {HISTORIES[0]}"
        yield _flat(f"{name}: steps", many.steps, few.steps)
        yield _flat(f"{name}: log bytes", many.log_bytes, few.log_bytes)


def _flat(name: str, many: int, few: int) -> Figure:
    writes = _BODIES + 1
    detail = f"{many / writes:,.1f} and {few / writes:,.1f} for each of {writes} checkpoints"
    return Figure(name=name, value=many / few, limit=1.15, detail=detail)


def _checkpointing(folder: Path, prepared: PreparedDatabase) -> SqliteCounters:
    """The writes of several checkpoints, between two moments at which everything is stored.

    Asking for steering waits until then, and the second time is one more checkpoint in the count.
    """
    seen: list[SqliteCounters] = []
    with counted(readers=False) as counters:

        async def agent(turn: AgentTurn) -> AsyncIterator[Body]:
            yield Text(DELTAS[0])
            await turn.steering()
            before = counters.copy()
            for _ in range(_BODIES):
                yield Text(DELTAS[0])
            await turn.steering()
            seen.append(counters.since(before))

        with stepped_app(copy(prepared.path, folder / "checkpoints.db"), agent, _QUIET) as stepped:
            stepped.do(ask(stepped.do(stepped.app.session(prepared.session))))
    return seen[0]
