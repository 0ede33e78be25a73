"""Compaction after a turn and on demand: kept messages, events, and unchanged state."""

import asyncio
import math
import threading
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

import backstay
from backstay import Compaction, Text, Timing, Usage, open_store
from backstay.agents.port import AgentTurn
from backstay.agents.summariser import REQUEST
from backstay.errors import AgentFailed, ConfigError, SessionBusy
from backstay.model import message
from backstay.model.content import Body
from backstay.model.event import TurnEnded, TurnStarted, WindowOpened
from backstay.model.ids import WindowId
from backstay.model.message import Message
from backstay.model.turn import Cancelled, Completed, Failed, Interrupted
from tests.runtime.agents.pool_setup import CountingAgent
from tests.runtime.compaction.word_tokens import (
    LONG_WINDED,
    at_rest,
    compactions,
    converse,
    counting,
    events_so_far,
    gist,
    policy,
    talkative,
    windows_opened,
    words,
)
from tests.runtime.controlled_agents import AgentFunction, Follower, Gate, echo, roles_and_texts, saying
from tests.runtime.remembering_agents import Knowing, heard_and_known

# These tests are about agents and their output in the runtime: the engine cannot matter.
pytestmark = pytest.mark.engines("sqlite")

# --- after a turn ---------------------------------------------------------------------------------------------------


async def test_a_session_that_got_too_long_is_compacted_after_its_turn(path: Path, notify: bool) -> None:
    async with backstay.open(path, agent=talkative, compaction=policy(), notify=notify) as app:
        session = await app.session()
        await converse(session, 2)
        assert await compactions(session) == []
        last = (await converse(session, 1))[0]
        assert roles_and_texts(await session.messages()) == [
            ("summary", "gist of 4"),
            ("user", "question 0"),
            ("assistant", LONG_WINDED),
        ]
        report = "4 messages became a summary and 2 stay: about 36 tokens became 15"
        assert await compactions(session) == [Completed(report)]
        bodies = [event.body for event in await events_so_far(session)]
        end = next(place for place, body in enumerate(bodies) if body == TurnEnded(Completed(report)))
        assert [type(body) for body in bodies[end - 3 : end + 1]] == [
            TurnEnded,
            TurnStarted,
            WindowOpened,
            TurnEnded,
        ]
        assert (await last.read()).outcome == Completed()
        assert (await session.read()).turns == 3


async def test_a_session_is_compacted_repeatedly_and_stays_short(path: Path) -> None:
    async with backstay.open(path, agent=talkative, compaction=policy()) as app:
        session = await app.session()
        await converse(session, 12)
        assert all(isinstance(outcome, Completed) for outcome in await compactions(session))
        assert len(await compactions(session)) == await windows_opened(session) >= 5
        assert sum(map(words, await session.messages())) < 30
        windows = await session.lineage()
        said = [await session.messages(window=window.id) for window in windows]
        inputs = {one.id for messages in said for one in messages if one.role == "user"}
        assert len(inputs) == 12, "every window is still there to be read"


async def test_a_message_sent_during_a_compaction_is_answered_in_the_next_window(path: Path, notify: bool) -> None:
    gate = Gate()

    async def slow(turn: AgentTurn) -> AsyncIterator[Body]:
        await gate.stop_here()
        yield Text("gist")

    async with backstay.open(path, agent=talkative, compaction=policy(summariser=slow), notify=notify) as app:
        session = await app.session()
        for number in range(3):
            turn = await session.send(f"question {number}")
            assert await turn.outcome() == Completed()
        await gate.reached()
        waiting = await session.send("and now?")
        assert (await waiting.read()).state == "waiting"
        with pytest.raises(SessionBusy):
            await session.undo()
        gate.open()
        assert await waiting.outcome() == Completed()
        window = (await session.lineage())[-1]
        assert window.reason == "compaction"
        said = await session.messages(window=window.id)
        assert [one.text for one in said][-2:] == ["and now?", LONG_WINDED]


@pytest.mark.parametrize(
    ("usage", "compacted"),
    [(Usage(input_tokens=29, output_tokens=1), True), (Usage(input_tokens=28, output_tokens=1), False)],
)
async def test_the_reported_usage_decides_whether_a_window_is_too_long(
    path: Path, usage: Usage, compacted: bool
) -> None:
    async def agent(turn: AgentTurn) -> AsyncIterator[Body]:
        yield Text(LONG_WINDED)
        yield Usage(input_tokens=1_000_000)
        yield usage

    async with backstay.open(path, agent=agent, compaction=policy()) as app:
        session = await app.session()
        await converse(session, 5)
        assert bool(await compactions(session)) == compacted


async def test_a_turn_counts_the_tokens_of_the_messages_it_added_and_no_others(path: Path) -> None:
    counted: list[str] = []

    def count(one: Message) -> int:
        counted.append(one.id)
        return words(one)

    async with backstay.open(path, agent=talkative, compaction=policy(budget=60_000, tokens=count)) as app:
        session = await app.session()
        await converse(session, 8)
        stored = await session.messages()
        # The answer of the last turn is counted by the next one.
        assert counted == [one.id for one in stored][:-1]


async def test_an_undone_turn_no_longer_counts(path: Path) -> None:
    async with backstay.open(path, agent=talkative, compaction=policy()) as app:
        session = await app.session()
        for _ in range(5):
            await converse(session, 1)
            await session.undo()
        assert await compactions(session) == []


async def test_without_reported_usage_the_length_is_estimated_from_bytes(path: Path) -> None:
    calls: list[AgentTurn] = []

    async def agent(turn: AgentTurn) -> AsyncIterator[Body]:
        yield Text("é" * 1000)

    # Each turn takes about 500 tokens and a few.
    compaction = Compaction(budget=2000, keep=600, summariser=counting(gist, calls))
    async with backstay.open(path, agent=agent, compaction=compaction) as app:
        session = await app.session()
        await converse(session, 3)
        assert calls == []
        await converse(session, 1)
        assert len(calls) == 1


async def test_without_a_policy_nothing_is_compacted_by_itself(path: Path) -> None:
    async def agent(turn: AgentTurn) -> AsyncIterator[Body]:
        yield Text(LONG_WINDED)
        yield Usage(input_tokens=10**9)

    async with backstay.open(path, agent=agent) as app:
        session = await app.session()
        await converse(session, 3)
        assert await windows_opened(session) == 0


async def test_a_live_agent_and_the_current_turn_agree_with_the_next_window_at_once(path: Path, notify: bool) -> None:
    seen: list[tuple[WindowId, WindowId]] = []

    class Looking(Knowing):
        async def stream(self, turn: AgentTurn) -> AsyncIterator[Body]:
            seen.append((turn.window, backstay.current().window))
            async for body in super().stream(turn):
                yield body

    compaction = Compaction(budget=200, threshold=0.5, keep=40, summariser=saying("so far"))
    async with backstay.open(path, agent=Looking, compaction=compaction, notify=notify) as app:
        session = await app.session()
        for _ in range(12):
            expected = (await session.read()).window
            turn = await session.send("what do you know?")
            assert await turn.outcome() == Completed()
            heard, known = await heard_and_known(session, turn.id, expected)
            assert known == heard
            assert seen.pop() == (expected, expected)
            await at_rest(session)
        rotations = len(await compactions(session))
        assert rotations >= 2
        assert app.pool.statistics.built["window"] in (rotations, rotations - 1)


async def test_the_summarisers_price_is_counted(path: Path) -> None:
    async def dear(turn: AgentTurn) -> AsyncIterator[Body]:
        yield Text("gist")
        yield Usage(input_tokens=400, output_tokens=3, cost=0.5, model="large")

    async with backstay.open(path, agent=talkative, compaction=policy(summariser=dear)) as app:
        session = await app.session()
        await converse(session, 3)
        (turn,) = {event.turn for event in await events_so_far(session) if isinstance(event.body, WindowOpened)}
        assert turn is not None
        usage = (await (await session.turn(turn)).read()).usage
        assert usage == Usage(input_tokens=400, output_tokens=3, cost=0.5, model="large")


# --- on demand ------------------------------------------------------------------------------------------------------


async def full(session: backstay.runtime.session_handle.Session) -> None:
    """Three turns of twelve tokens each."""
    for number in range(3):
        await session.record([message.user(f"question {number}"), message.assistant(LONG_WINDED)])


@pytest.mark.parametrize(("keep", "kept"), [(0, 2), (12, 2), (23, 2), (24, 4), (35, 4)])
async def test_on_demand_as_much_is_kept_as_was_asked_for(path: Path, keep: int, kept: int) -> None:
    async with backstay.open(path, compaction=policy()) as app:
        session = await app.session()
        await full(session)
        window = await session.compact(keep=keep)
        assert (window.reason, window.id) == ("compaction", (await session.read()).window)
        assert len(await session.messages()) == kept + 1
        assert window.summarises_until == 6 - kept


async def test_on_demand_the_summariser_gets_the_instructions(path: Path) -> None:
    calls: list[AgentTurn] = []

    async with backstay.open(path, compaction=policy(budget=600, summariser=counting(gist, calls))) as app:
        session = await app.session()
        await full(session)
        await session.compact(keep=0, focus="the soup")
        await full(session)
        await session.compact(keep=0)
    first, second = calls
    assert first.input.text.endswith("the soup")
    assert first.messages[-1] == first.input
    assert second.input.text == REQUEST
    assert [one.role for one in second.messages[:2]] == ["summary", "user"]


async def test_an_app_without_agents_or_a_policy_compacts_on_demand(path: Path) -> None:
    async with backstay.open(path) as app:
        session = await app.session()
        for number in range(10):
            await session.record([message.user(f"question {number} " * 50), message.assistant("answer " * 50)])
        window = await session.compact(keep=500)
        assert window.reason == "compaction"
        summary, *tail = await session.messages()
        assert summary.role == "summary"
        assert "question 0" in summary.text
        assert len(tail) == 4


async def test_a_compaction_that_can_drop_nothing_writes_nothing(path: Path) -> None:
    async with backstay.open(path, agent=talkative, compaction=policy()) as app:
        session = await app.session()
        await full(session)
        first = await session.compact(keep=0)
        with open_store(path) as onlooker:
            before, seen = onlooker.version(), await session.read()
            assert await session.compact(keep=0) == first
            assert await session.compact(keep=1000) == first
            assert await session.compact() == first
            assert (onlooker.version(), await session.read()) == (before, seen)


async def test_a_busy_session_is_not_compacted_on_demand(path: Path) -> None:
    gate = Gate()

    async def slow(turn: AgentTurn) -> AsyncIterator[Body]:
        await gate.stop_here()
        yield Text("done")

    async with backstay.open(path, agent=slow, compaction=policy()) as app:
        session = await app.session()
        await full(session)
        turn = await session.send("wait")
        await gate.reached()
        with pytest.raises(SessionBusy):
            await session.compact(keep=0)
        gate.open()
        assert await turn.outcome() == Completed()


async def test_a_request_during_a_compaction_gets_the_window_of_that_compaction(path: Path, notify: bool) -> None:
    gate = Gate()
    calls: list[AgentTurn] = []

    async def slow(turn: AgentTurn) -> AsyncIterator[Body]:
        await gate.stop_here()
        yield Text("gist")

    summariser = counting(slow, calls)
    async with (
        backstay.open(path, compaction=policy(summariser=summariser), notify=notify) as here,
        backstay.open(path, compaction=policy(summariser=summariser), notify=notify) as there,
    ):
        session = await here.session()
        elsewhere = await there.session(session.id)
        await full(session)
        first = asyncio.create_task(session.compact(keep=0))
        await gate.reached()
        others = [asyncio.create_task(handle.compact(keep=0)) for handle in (elsewhere, session, elsewhere)]
        await asyncio.sleep(0)
        gate.open()
        windows = await asyncio.gather(first, *others)
        assert len({window.id for window in windows}) == 1
        assert len(calls) == await windows_opened(session) == len(await compactions(session)) == 1


# --- failures -------------------------------------------------------------------------------------------------------


async def says_nothing(turn: AgentTurn) -> AsyncIterator[Body]:
    yield Text("  \n")


async def raises(turn: AgentTurn) -> AsyncIterator[Body]:
    yield Text("so f")
    raise OSError("no network")


async def exits(turn: AgentTurn) -> AsyncIterator[Body]:
    yield Text("so f")
    raise SystemExit(3)


async def interrupts(turn: AgentTurn) -> AsyncIterator[Body]:
    yield Text("so f")
    raise KeyboardInterrupt


async def rambles(turn: AgentTurn) -> AsyncIterator[Body]:
    yield Text("blah " * 10_000)


async def mumbles(turn: AgentTurn) -> AsyncIterator[Body]:
    yield Text("\ud800")


async def floods(turn: AgentTurn) -> AsyncIterator[Body]:
    yield Text("x" * (1 << 24))


class Nonsense(CountingAgent):
    """Its `stream` does not return a stream."""

    async def stream(self, turn: AgentTurn) -> str:  # type: ignore[override]  # that is the point
        return "so far"


def cannot_be_made() -> CountingAgent:
    raise LookupError("no key")


FAULTS = {
    "the summariser returned an empty summary": says_nothing,
    "the summariser raised OSError (turn trn_": raises,
    "the summariser raised SystemExit (turn trn_": exits,
    "the summariser raised KeyboardInterrupt (turn trn_": interrupts,
    "the summary is longer than the messages that it replaces": rambles,
    "surrogate": mumbles,
    "bytes": floods,
    "stream() did not return an async iterator": Nonsense,
    "the summariser raised LookupError (turn trn_": backstay.live(cannot_be_made),
}


@pytest.mark.parametrize(("reason", "summariser"), FAULTS.items(), ids=FAULTS)
async def test_a_failed_compaction_has_a_reason_and_leaves_the_window(
    path: Path, reason: str, summariser: AgentFunction
) -> None:
    async with backstay.open(path, agent=talkative, compaction=policy(summariser=summariser)) as app:
        session = await app.session()
        await converse(session, 3)
        (outcome,) = await compactions(session)
        assert isinstance(outcome, Failed)
        assert reason in outcome.reason
        assert await windows_opened(session) == 0
        assert len(await session.messages()) == 6
        with pytest.raises(AgentFailed, match="was not compacted"):
            await session.compact(keep=0)
        assert await (await session.send("and now?")).outcome() == Completed()


async def deaf(turn: AgentTurn) -> AsyncIterator[Body]:
    while True:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            if LET_GO.is_set():
                raise
    yield Text("never")


async def slow(turn: AgentTurn) -> AsyncIterator[Body]:
    await asyncio.Event().wait()
    yield Text("never")


# Even one that ignores cancellation must end with its test.
LET_GO = threading.Event()


@pytest.mark.parametrize("summariser", [slow, deaf])
async def test_a_summariser_that_takes_too_long_is_abandoned(path: Path, summariser: AgentFunction) -> None:
    LET_GO.clear()

    async def scenario() -> None:
        compaction = policy(summariser=summariser, timeout=0.05)
        async with backstay.open(path, agent=talkative, compaction=compaction, timing=Timing(grace=0.05)) as app:
            session = await app.session()
            await converse(session, 3)
            (outcome,) = await compactions(session)
            assert isinstance(outcome, Failed)
            assert outcome.reason.startswith("the summariser took longer than 0.05 s")
            assert await (await session.send("and now?")).outcome() == Completed()

    try:
        await scenario()
    finally:
        LET_GO.set()


async def test_a_cancelled_compaction_leaves_the_window_and_waiting_turns_run(path: Path, notify: bool) -> None:
    gate = Gate()

    async def halting(turn: AgentTurn) -> AsyncIterator[Body]:
        await gate.stop_here()
        yield Text("gist")

    async with backstay.open(path, agent=echo, compaction=policy(summariser=halting), notify=notify) as app:
        session = await app.session()
        await full(session)
        compacting = asyncio.create_task(session.compact(keep=0))
        await gate.reached()
        waiting = await session.send("and now?")
        running = (await session.read()).running
        assert running is not None
        assert isinstance(await (await session.turn(running)).cancel(), Cancelled)
        with pytest.raises(AgentFailed, match="cancelled on request"):
            await compacting
        assert await waiting.outcome() == Completed()
        assert await windows_opened(session) == 0
        gate.open()  # The answer made the window too long again: its compaction may end before the app closes.


async def test_an_input_that_replaces_a_compaction_runs_in_the_old_window(path: Path, notify: bool) -> None:
    gate = Gate()

    async def halting(turn: AgentTurn) -> AsyncIterator[Body]:
        await gate.stop_here()
        yield Text("gist")

    async with backstay.open(path, agent=echo, compaction=policy(summariser=halting), notify=notify) as app:
        session = await app.session()
        await full(session)
        compacting = asyncio.create_task(session.compact(keep=0))
        await gate.reached()
        turn = await session.send("this instead", if_busy="replace")
        assert await turn.outcome() == Completed()
        assert len(await session.messages()) == 8
        await asyncio.gather(compacting, return_exceptions=True)
        gate.open()  # The answer made the window too long again: its compaction may end before the app closes.


async def test_an_app_that_closes_interrupts_its_compaction_and_the_old_window_stands(path: Path) -> None:
    gate = Gate()

    async def halting(turn: AgentTurn) -> AsyncIterator[Body]:
        await gate.stop_here()
        yield Text("gist")

    async with backstay.open(path, compaction=policy(summariser=halting), timing=Timing(grace=0.05)) as app:
        session = await app.session()
        await full(session)
        compacting = asyncio.create_task(session.compact(keep=0))
        await gate.reached()
    assert isinstance((await asyncio.gather(compacting, return_exceptions=True))[0], Exception)
    async with backstay.open(path, compaction=policy(), on_interrupt="resume") as app:
        session = await app.session(session.id)
        (outcome,) = await compactions(session)
        assert isinstance(outcome, Interrupted)
        assert len(await session.messages()) == 6
        assert (await session.compact(keep=0)).reason == "compaction"


@pytest.mark.parametrize(
    "wrong",
    [
        {"budget": 0},
        {"threshold": 0.0},
        {"threshold": 1.1},
        {"threshold": math.nan},
        {"keep": -1},
        {"budget": 100, "keep": 80},
        {"timeout": 0},
        {"pause": -1},
        {"strategy": "forget"},
    ],
    ids=str,
)
def test_an_invalid_policy_is_rejected(wrong: dict[str, object]) -> None:
    with pytest.raises(ConfigError):
        Compaction(**wrong)  # type: ignore[arg-type]  # that is the point


# --- followers ------------------------------------------------------------------------------------------------------


async def test_followers_keep_their_cursor_across_rotations(path: Path, notify: bool) -> None:
    async with backstay.open(path, agent=talkative, compaction=policy(), notify=notify) as app:
        session = await app.session()
        live = Follower(session)
        await converse(session, 6)
        await live.caught_up()
        whole = await events_so_far(session)
        assert live.events == whole
        assert sum(isinstance(event.body, WindowOpened) for event in whole) >= 2
        for cut in range(len(whole)):
            rest = session.follow(after=cut)
            assert [await anext(rest) for _ in whole[cut:]] == whole[cut:]
            await rest.aclose()
        await session.delete()
        assert (await live.until_the_end())[: len(whole)] == whole
