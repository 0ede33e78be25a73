"""A live agent is reused only if it knows exactly the messages of its session, after any change elsewhere.

Every test calls an agent that answers with the ids of the messages it knows, and compares them with the expected ids.
No result may depend on notifications: everything holds with and without the wake-up inside the process.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple

import apsw
import pytest

import backstay
from backstay import App, Timing
from backstay.agents.port import AgentTurn
from backstay.model.content import Body
from backstay.model.ids import MessageId
from backstay.model.turn import Cancelled, Completed, Failed
from backstay.runtime.session_handle import Session
from backstay.runtime.turns.agent_pool import Reason
from tests.crash.worker_processes import WorkerProcesses
from tests.databases import Place
from tests.runtime.controlled_agents import Gate
from tests.runtime.remembering_agents import Knowing, Learning, heard_and_known
from tests.runtime_processes.app_programs import CHAT, LONG
from tests.runtime_processes.child_pipe import ChildPipe
from tests.runtime_processes.child_process import Child
from tests.runtime_processes.other_process_actions import elsewhere
from tests.runtime_processes.turn_in_child import play


class Scene(NamedTuple):
    """An app whose default agent answers with its memory, a session, and another process that can change it."""

    app: App
    session: Session
    others: WorkerProcesses
    place: Place

    async def ask(self, session: Session | None = None) -> None:
        """Send a message; the agent must have known exactly the messages before it."""
        session = session or self.session
        turn = await session.send("what do you know?")
        assert await turn.outcome() == Completed()
        heard, known = await heard_and_known(session, turn.id)
        assert known == heard

    async def meanwhile(self, *deeds: str) -> None:
        """Have the other process run these actions."""
        await asyncio.to_thread(self.others.all, elsewhere, self.place, self.session.id, deeds)

    @property
    def reused(self) -> int:
        return self.app.pool.statistics.hits

    @property
    def built(self) -> dict[Reason, int]:
        return self.app.pool.statistics.built


Scenario = Callable[[Scene], Coroutine[Any, Any, None]]
Perform = Callable[..., None]


@pytest.fixture(scope="module")
def others() -> Iterator[WorkerProcesses]:
    """Another process."""
    with WorkerProcesses(1) as workers:
        yield workers


@pytest.fixture(params=[True, False], ids=["told", "polling"])
def perform(request: pytest.FixtureRequest, place: Place, others: WorkerProcesses) -> Perform:
    """Runs a scenario on its own scene."""

    async def whole(scenario: Scenario, make: Callable[[], Knowing]) -> None:
        agent, timing = backstay.live(make), Timing(grace=1)
        async with backstay.open(place, agent=agent, notify=request.param, lease_seconds=LONG, timing=timing) as app:
            await scenario(Scene(app, await app.session(CHAT), others, place))

    def perform(scenario: Scenario, make: Callable[[], Knowing] = Knowing) -> None:
        play(whole(scenario, make))

    return perform


# --- before a turn --------------------------------------------------------------------------------------------------


def test_consecutive_turns_of_one_process_reuse_the_same_agent(perform: Perform) -> None:
    async def scenario(scene: Scene) -> None:
        for _ in range(5):
            await scene.ask()
        assert (scene.reused, scene.built) == (4, {"first": 1})

    perform(scenario)


@pytest.mark.engines("sqlite")  # the tests around it compare revisions on both
@pytest.mark.parametrize(
    "deeds",
    [("rename",), ("pin",), ("draft",), ("tag",), ("mark_read",), ("fork",), ("rename", "pin", "draft", "rename")],
    ids="-".join,
)
def test_changes_that_an_agent_does_not_read_do_not_rebuild_it(perform: Perform, deeds: tuple[str, ...]) -> None:
    async def scenario(scene: Scene) -> None:
        await scene.ask()
        await scene.meanwhile(*deeds)
        await scene.ask()
        assert (scene.reused, scene.built) == (1, {"first": 1})

    perform(scenario)


DISTURBANCES: dict[tuple[str, ...], Reason] = {
    ("record",): "foreign",
    ("speak",): "foreign",
    ("speak_and_die",): "foreign",
    ("undo", "redo", "record"): "foreign",
    ("undo",): "undo",
    ("undo", "redo"): "undo",
    ("undo", "record"): "undo",
    ("undo", "speak"): "undo",
    ("record", "undo"): "undo",
    ("edit",): "undo",
    ("retry",): "undo",
    ("compact",): "window",
    ("rotate",): "window",
    ("compact", "speak"): "window",
    ("compact", "record", "compact"): "window",
    ("compact", "undo"): "undo",
    ("undo", "compact"): "undo",
    ("fork_and_switch", "record"): "foreign",
}


@pytest.mark.engines("sqlite")  # the tests around it compare revisions on both
@pytest.mark.parametrize(("deeds", "reason"), DISTURBANCES.items(), ids=map("-".join, DISTURBANCES))
def test_any_change_of_the_context_rebuilds_the_agent(perform: Perform, deeds: tuple[str, ...], reason: Reason) -> None:
    async def scenario(scene: Scene) -> None:
        await scene.ask()
        await scene.ask()
        await scene.meanwhile(*deeds)
        await scene.ask()
        assert (scene.reused, scene.built) == (1, {"first": 1, reason: 1})
        await scene.ask()
        assert scene.reused == 2, "and then it is used again"

    perform(scenario)


def test_an_undo_and_an_append_of_equal_length_are_noticed(perform: Perform) -> None:
    async def scenario(scene: Scene) -> None:
        await scene.ask()
        before = await scene.session.read()
        await scene.meanwhile("undo", "record")
        assert (await scene.session.read()).length == before.length
        await scene.ask()
        assert (scene.reused, scene.built) == (0, {"first": 1, "undo": 1})

    perform(scenario)


# --- during a turn --------------------------------------------------------------------------------------------------


class Halting(Knowing):
    """Stops in the middle of every turn that requests it, until the test opens the gate."""

    gate = Gate()

    async def stream(self, turn: AgentTurn) -> AsyncIterator[Body]:
        async for body in super().stream(turn):
            if turn.input.text == "wait":
                await self.gate.stop_here()
            yield body


@pytest.fixture(autouse=True)
def _new_gate(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Halting, "gate", Gate())


@pytest.mark.parametrize(
    ("deed", "reused", "built"),
    [
        ("rename", 1, {"first": 1}),
        ("draft", 1, {"first": 1}),
        ("record", 0, {"first": 1, "foreign": 1}),
    ],
)
def test_writes_of_another_process_during_a_turn_are_never_taken_for_the_agents_own(
    perform: Perform, deed: str, reused: int, built: dict[Reason, int]
) -> None:
    async def scenario(scene: Scene) -> None:
        turn = await scene.session.send("wait")
        await Halting.gate.reached()
        await scene.meanwhile(deed)
        Halting.gate.open()
        assert await turn.outcome() == Completed()
        await scene.ask()
        assert (scene.reused, scene.built) == (reused, built)

    perform(scenario, Halting)


def test_a_turn_that_another_process_sent_meanwhile_is_answered_by_the_same_agent(perform: Perform) -> None:
    async def scenario(scene: Scene) -> None:
        turn = await scene.session.send("wait")
        await Halting.gate.reached()
        await scene.meanwhile("enqueue", "rename")
        (waiting,) = await scene.session.waiting()
        Halting.gate.open()
        assert await turn.outcome() == Completed()
        following = await scene.session.turn(waiting.id)
        assert await following.outcome() == Completed()
        heard, known = await heard_and_known(scene.session, following.id)
        assert known == heard
        assert (scene.reused, scene.built) == (1, {"first": 1})

    perform(scenario, Halting)


@pytest.mark.parametrize(
    "deeds", [("cancel",), ("take",), ("take", "record"), ("take", "undo", "record")], ids="-".join
)
def test_an_agent_whose_turn_was_ended_by_another_process_is_not_used_again(
    perform: Perform, deeds: tuple[str, ...]
) -> None:
    async def scenario(scene: Scene) -> None:
        await scene.ask()
        turn = await scene.session.send("wait")
        await Halting.gate.reached()
        await scene.meanwhile(*deeds)
        assert isinstance(await turn.outcome(), Cancelled)
        await scene.ask()
        assert scene.reused == 1, "only by the turn that was ended"
        assert sum(scene.built.values()) == 2

    perform(scenario, Halting)


def test_a_session_cannot_be_compacted_or_undone_during_a_turn(perform: Perform) -> None:
    async def scenario(scene: Scene) -> None:
        await scene.ask()
        turn = await scene.session.send("wait")
        await Halting.gate.reached()
        for deed in ("compact", "rotate", "undo", "retry", "edit"):
            with pytest.raises(AssertionError, match="SessionBusy"):
                await scene.meanwhile(deed)
        Halting.gate.open()
        assert await turn.outcome() == Completed()
        await scene.ask()
        assert (scene.reused, scene.built) == (2, {"first": 1})

    perform(scenario, Halting)


# --- two sessions under one address ---------------------------------------------------------------------------------


def test_switching_between_sessions_under_one_address_reuses_both_agents(perform: Perform) -> None:
    async def scenario(scene: Scene) -> None:
        await scene.ask()
        await scene.meanwhile("fork_and_switch")
        other = await scene.app.session(CHAT)
        assert other.id != scene.session.id
        await scene.ask(other)
        for _ in range(3):
            await scene.meanwhile("switch_back")
            assert (await scene.app.session(CHAT)).id == scene.session.id
            await scene.ask(await scene.app.session(CHAT))
            await scene.ask(other)
        assert (scene.reused, scene.built) == (6, {"first": 2})

    perform(scenario)


# --- catching up ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "deeds", [("record",), ("speak",), ("record", "record"), ("undo", "redo", "record")], ids="-".join
)
def test_an_agent_that_can_catch_up_gets_added_messages_and_is_not_rebuilt(
    perform: Perform, deeds: tuple[str, ...]
) -> None:
    async def scenario(scene: Scene) -> None:
        await scene.ask()
        await scene.meanwhile(*deeds)
        await scene.ask()
        await scene.ask()
        statistics = scene.app.pool.statistics
        assert (statistics.caught_up, statistics.hits, statistics.built) == (1, 1, {"first": 1})

    perform(scenario, Learning)


@pytest.mark.engines("sqlite")  # the tests around it compare revisions on both
@pytest.mark.parametrize(
    "deeds",
    [
        ("undo",),
        ("undo", "redo"),
        ("undo", "record"),
        ("undo", "record", "record"),
        ("edit",),
        ("compact",),
        ("rotate",),
    ],
    ids="-".join,
)
def test_an_agent_that_can_catch_up_is_rebuilt_for_all_but_an_append(perform: Perform, deeds: tuple[str, ...]) -> None:
    async def scenario(scene: Scene) -> None:
        await scene.ask()
        await scene.meanwhile(*deeds)
        await scene.ask()
        assert scene.app.pool.statistics.caught_up == 0
        assert sum(scene.built.values()) == 2

    perform(scenario, Learning)


# --- unreadable messages --------------------------------------------------------------------------------------------


async def test_a_history_that_cannot_be_read_fails_the_turn_with_that_reason(
    tmp_path: Path, others: WorkerProcesses
) -> None:
    path = tmp_path / "chat.db"

    async with backstay.open(path, agent=Knowing, lease_seconds=LONG) as app:
        scene = Scene(app, await app.session(CHAT), others, path)
        await scene.ask()
        await scene.meanwhile("record")
        broken = (await scene.session.messages())[-1].id
        (sound,) = await asyncio.to_thread(others.all, set_format, path, broken, 99)
        outcome = await (await scene.session.send("what do you know?")).outcome()
        assert isinstance(outcome, Failed)
        assert (outcome.code, outcome.reason) == ("corrupt_record", "A record cannot be read.")
        assert (scene.reused, scene.built) == (0, {"first": 1})
        await asyncio.to_thread(others.all, set_format, path, broken, sound)
        await scene.ask()


def set_format(rank: int, path: Path, said: MessageId, version: int) -> int:
    """Change the stored format of a message, as a broken disk might; returns the previous one."""
    connection = apsw.Connection(str(path))
    try:
        (before,) = connection.execute("SELECT format FROM messages WHERE id = ?", (said,)).fetchall()
        connection.execute("DROP TRIGGER IF EXISTS messages_never_change")
        connection.execute("UPDATE messages SET format = ? WHERE id = ?", (version, said))
    finally:
        connection.close()
    return int(str(before[0]))


# --- live agents on both sides --------------------------------------------------------------------------------------


@pytest.mark.parametrize("make", [Knowing, Learning])
def test_two_processes_that_answer_by_turns_never_answer_from_memory_alone(
    perform: Perform, make: type[Knowing]
) -> None:
    async def scenario(scene: Scene) -> None:
        with Child(answer_by_turns, scene.place, make) as child:
            for _ in range(4):
                await scene.ask()
                child.send_order("app", "ask")
                await child.receive_async("knew", True)
            child.send_order("app", "ask")
            await child.receive_async("knew", True)
            child.send_order("app", "end")
            assert await child.receive_async("reused") == (1,)
        assert scene.reused == 0

    perform(scenario, make)


def answer_by_turns(pipe: "Connection[Any, Any]", place: Place, make: type[Knowing]) -> None:
    """Answer in the chat on request, with its own live agent."""
    asyncio.run(_answer_by_turns(ChildPipe(pipe), place, make))


async def _answer_by_turns(line: ChildPipe, place: Place, make: type[Knowing]) -> None:
    line.listen()
    async with backstay.open(place, agent=backstay.live(make), notify=False, lease_seconds=LONG) as app:
        session = await app.session(CHAT)
        while await line.next_order("app") == ("ask",):
            turn = await session.send("what do you know?")
            await turn.outcome()
            heard, known = await heard_and_known(session, turn.id)
            line.report("knew", heard == known)
        line.report("reused", app.pool.statistics.hits)
