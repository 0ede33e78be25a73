"""Growth: the cost of a verb follows the turn, not the history and not the number of sessions.

Costs are counted, never timed: statements, steps of SQLite's machine, bytes in the log, and Python's memory.
"""

import tracemalloc
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from statistics import mean, median
from typing import NamedTuple

import pytest

from backstay import Address, Completed, Store, Text, ToolCall, ToolResult
from backstay.model import message
from backstay.model.event import UNSEEN, Cursor
from backstay.model.history.snapshot import SnapshotQuery
from backstay.model.turn import OpenTurn
from backstay.testing import ManualClock
from benchmarks.instruments.sqlite_counters import SqliteCounters, counted
from tests.open_sqlite import open_sqlite

pytestmark = pytest.mark.engines("sqlite")

ME = "local"
SMALL, LARGE = 40, 4_000
FEW, MANY = 200, 2_000
ROUNDS = 8
CHAT = Address.chat("telegram", "dm", chat="42")
# It does not advance while a verb runs: a session moves up in the list once a second, which costs a statement.
CLOCK = ManualClock()
# A deeper B-tree costs a few steps, and now and then a page.
STEPS, BYTES, MEMORY = 1.15, 1.5, 1.5


class Stage:
    """A store with one session, on which a verb runs again and again."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.session = store.at(CHAT, owner=ME).id
        self._numbers = count()
        self._open: OpenTurn | None = None

    def open_turn(self) -> OpenTurn:
        if self._open is None:
            self._open = self.store.submit(self.session, "question", owner=ME, start=True).opened
        assert self._open is not None
        return self._open

    def record(self) -> None:
        self.store.record(self.session, [message.user("question"), message.assistant("answer")], owner=ME)

    def submit(self) -> None:
        self.open_turn()

    def delta(self) -> None:
        self._open = self.store.checkpoint(self.open_turn(), [Text("words")]).open

    def tool_step(self) -> None:
        call = f"call-{next(self._numbers)}"
        self._open = self.store.checkpoint(self.open_turn(), [ToolCall(call, "look_up", {})]).open
        self._open = self.store.checkpoint(self._open, [ToolResult(call, "found")]).open

    def finish(self) -> None:
        self.store.finish(self.open_turn(), Completed())
        self._open = None

    def undo(self) -> None:
        self.store.undo(self.session, owner=ME)

    def fork(self) -> None:
        self.store.fork(self.session, owner=ME)

    def rename(self) -> None:
        self.store.rename(self.session, f"title {next(self._numbers)}", owner=ME)

    def create(self) -> None:
        place = Address.chat("telegram", "dm", chat=f"new {next(self._numbers)}")
        self.store.record(place, [message.user("question")], owner=ME)

    def resolve(self) -> None:
        self.store.resolve(CHAT, owner=ME)

    def list(self) -> None:
        self.store.list(owner=ME, limit=10)

    def look_for_turns(self) -> None:
        self.store.awaited(["default"])
        self.store.has_work(["default"])

    def snapshot(self) -> None:
        self.store.snapshot(self.session, SnapshotQuery(last=10), owner=ME)

    def last_messages(self) -> None:
        self.store.messages(self.session, owner=ME, last=10)

    def last_events(self) -> None:
        last = self.store.session(self.session, owner=ME).last_event
        self.store.events_after(self.session, Cursor(number=max(0, last - 10), fence=UNSEEN), owner=ME)

    def before(self, verb: str) -> None:
        """Prepare for the verb; this is not counted."""
        if verb in ("delta", "tool step", "finish"):
            self.open_turn()
        if verb in ("undo", "last messages"):
            self.record()

    def after(self, verb: str) -> None:
        """End the turn that the verb opened; this is not counted."""
        if verb in ("submit", "delta", "tool step", "finish") and self._open is not None:
            self.finish()


class Cost(NamedTuple):
    """The cost of each run of a verb, and the memory of one."""

    counters: list[SqliteCounters]
    memory: int


Build = Callable[[Store], None]

VERBS: dict[str, Callable[[Stage], None]] = {
    "record": Stage.record,
    "submit": Stage.submit,
    "delta": Stage.delta,
    "tool step": Stage.tool_step,
    "finish": Stage.finish,
    "undo": Stage.undo,
    "fork": Stage.fork,
    "rename": Stage.rename,
    "create": Stage.create,
    "resolve": Stage.resolve,
    "list": Stage.list,
    "look for turns": Stage.look_for_turns,
    "snapshot": Stage.snapshot,
    "last messages": Stage.last_messages,
    "last events": Stage.last_events,
}


def long_session(messages: int) -> Build:
    """A session with this number of messages. The last turns are short."""

    def build(store: Store) -> None:
        said = [message.user("a question"), message.assistant("an answer")]
        while messages > store.record(CHAT, said * 20, owner=ME).session.length:
            pass
        for _ in range(3):
            store.record(CHAT, said, owner=ME)

    return build


def many_sessions(sessions: int) -> Build:
    """This number of sessions with one turn each."""

    def build(store: Store) -> None:
        for number in range(sessions):
            place = CHAT if number == 0 else Address.chat("telegram", "dm", chat=f"other {number}")
            store.record(place, [message.user("a question"), message.assistant("an answer")], owner=ME)

    return build


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, Build], Path]:
    """Databases, each built once."""
    folder, built = tmp_path_factory.mktemp("growth"), {}

    def place(name: str, build: Build) -> Path:
        if name not in built:
            built[name] = folder / f"{name}.db"
            with opened(built[name]) as store:
                build(store)
        return built[name]

    return place


@pytest.mark.parametrize("verb", VERBS)
def test_the_cost_of_a_verb_does_not_follow_the_length_of_the_session(
    verb: str, places: Callable[[str, Build], Path]
) -> None:
    small = cost(places(f"messages-{SMALL}", long_session(SMALL)), verb)
    large = cost(places(f"messages-{LARGE}", long_session(LARGE)), verb)

    require_equal(small, large)


@pytest.mark.parametrize("verb", VERBS)
def test_the_cost_of_a_verb_does_not_follow_the_number_of_sessions(
    verb: str, places: Callable[[str, Build], Path]
) -> None:
    few = cost(places(f"sessions-{FEW}", many_sessions(FEW)), verb)
    many = cost(places(f"sessions-{MANY}", many_sessions(MANY)), verb)

    require_equal(few, many)


def test_a_tool_call_costs_the_same_however_many_the_turn_has_made(places: Callable[[str, Build], Path]) -> None:
    with counted() as counters, opened(places(f"messages-{SMALL}", long_session(SMALL))) as store:
        stage, runs = Stage(store), []
        for _ in range(100):
            earlier = counters.copy()
            stage.tool_step()
            runs.append(counters.since(earlier))
        stage.finish()

    require_equal(Cost(runs[2:10], 1), Cost(runs[-8:], 1))


def opened(path: Path) -> Store:
    """The store at this path, some time later. Its ids are greater than all before."""
    CLOCK.advance(10)
    return open_sqlite(path, clock=CLOCK)


def cost(path: Path, verb: str) -> Cost:
    """The cost of a verb in this database."""
    with counted() as counters, opened(path) as store:
        # The store closes its writer last; under a VFS in Python, a connection that only reads cannot be the last.
        store.resolve(Address.chat("telegram", "dm", chat="first"), owner=ME)
        stage = Stage(store)
        runs = [*_runs(stage, verb, counters)]
        memory = _memory(stage, verb)
    return Cost(runs, memory)


def _runs(stage: Stage, verb: str, counters: SqliteCounters) -> Iterator[SqliteCounters]:
    for number in range(ROUNDS + 2):
        stage.before(verb)
        earlier = counters.copy()
        VERBS[verb](stage)
        if number >= 2:  # The first runs fill caches.
            yield counters.since(earlier)
        stage.after(verb)


def _memory(stage: Stage, verb: str) -> int:
    """The most memory that Python has allocated at a time during the verb."""
    stage.before(verb)
    tracemalloc.start()
    try:
        VERBS[verb](stage)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
        stage.after(verb)


def require_equal(small: Cost, large: Cost) -> None:
    """Both cost the same, but for the depth of a B-tree."""
    assert median(run.statements for run in large.counters) == median(run.statements for run in small.counters)
    assert mean(run.steps for run in large.counters) <= STEPS * mean(run.steps for run in small.counters)
    assert mean(run.log_bytes for run in large.counters) <= BYTES * mean(run.log_bytes for run in small.counters)
    assert large.memory <= MEMORY * small.memory
