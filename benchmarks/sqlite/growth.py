"""Costs that must not grow: verbs on 10,000 messages against 100, and the list of 20,000 sessions."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from itertools import count
from pathlib import Path
from statistics import mean, median

from backstay import Store, Text, open_store
from backstay.model.ids import SessionId
from backstay.model.turn import Completed, OpenTurn
from benchmarks.instruments.figure import Figure
from benchmarks.instruments.prepared_databases import PreparedDatabase, session_of, store_of
from benchmarks.instruments.sample_turns import DELTAS, OWNER, recorded, start
from benchmarks.instruments.scratch_folders import copy, in_memory
from benchmarks.instruments.sqlite_counters import SqliteCounters, counted
from benchmarks.instruments.stopwatch import as_a_server_would, micros, spent

SMALL, LARGE = 100, 10_000
FEW, MANY = 1_000, 20_000
_COUNTED, _TIMED = 40, 60


class Stage:
    """A store with one session, on which a verb is run repeatedly."""

    def __init__(self, store: Store, session: SessionId) -> None:
        self.store, self.session = store, session
        self._open: OpenTurn | None = None
        self._titles = count()

    def append(self) -> None:
        recorded(self.store, self.session)

    def checkpoint(self) -> None:
        opened = self._open or start(self.store, self.session)
        self._open = self.store.checkpoint(opened, [Text(DELTAS[0])]).open

    def undo(self) -> None:
        self.store.undo(self.session, owner=OWNER)

    def fork(self) -> None:
        self.store.fork(self.session, owner=OWNER)

    def rename(self) -> None:
        self.store.rename(self.session, f"title {next(self._titles)}", owner=OWNER)

    def list(self) -> None:
        self.store.list(owner=OWNER, limit=50)

    def before(self, verb: str) -> None:
        """Prepare the session for the verb; not measured."""
        if verb == "checkpoint" and self._open is None:
            self.checkpoint()
        if verb == "undo":
            self.append()

    def after(self) -> None:
        """End the turn that the verb left open."""
        if self._open is not None:
            self.store.finish(self._open, Completed())
            self._open = None

    def act(self, verb: str) -> Callable[[], None]:
        acts = {
            "append": self.append,
            "checkpoint": self.checkpoint,
            "undo": self.undo,
            "fork": self.fork,
            "rename": self.rename,
            "list": self.list,
        }
        return acts[verb]


def figures() -> Iterator[Figure]:
    """Steps, log bytes and time of each verb, large against small."""
    with in_memory() as folder:
        small, large = session_of(folder, SMALL), session_of(folder, LARGE)
        for verb in ("append", "checkpoint", "undo", "fork", "rename"):
            yield from _verb(folder, verb, small, large, f"{verb} at {LARGE:,} messages")
        few, many = store_of(folder, FEW), store_of(folder, MANY)
        yield from _verb(folder, "list", few, many, f"list of 50 at {MANY:,} sessions")


def _verb(folder: Path, verb: str, small: PreparedDatabase, large: PreparedDatabase, name: str) -> Iterator[Figure]:
    one, other = _count(folder, verb, small), _count(folder, verb, large)
    yield _growth(f"{name}: steps", [seen.steps for seen in one], [seen.steps for seen in other])
    if any(seen.log_bytes for seen in one):
        yield _growth(f"{name}: log bytes", [seen.log_bytes for seen in one], [seen.log_bytes for seen in other])
    quick, slow = as_a_server_would(lambda: _time(folder, verb, small, large))
    yield Figure(name=f"{name}: time", value=slow / quick, limit=1.5, detail=f"{micros(slow)} and {micros(quick)}")


def _growth(name: str, small: list[int], large: list[int]) -> Figure:
    few, many = mean(small), mean(large)
    return Figure(name=name, value=many / few, limit=1.15, detail=f"{many:,.0f} and {few:,.0f}")


def _count(folder: Path, verb: str, prepared: PreparedDatabase) -> list[SqliteCounters]:
    """The cost of the verb, each time it runs."""
    with counted() as counters, open_store(copy(prepared.path, folder / "counted.db")) as store:
        # The store closes its writer last; under a VFS in Python, a connection that can only read cannot be the last.
        store.pin(prepared.session, True, owner=OWNER)
        stepped = Stage(store, prepared.session)
        seen = []
        for turn in range(_COUNTED + 2):
            stepped.before(verb)
            earlier = counters.copy()
            stepped.act(verb)()
            if turn >= 2:
                seen.append(counters.since(earlier))
        stepped.after()
    return seen


def _time(folder: Path, verb: str, small: PreparedDatabase, large: PreparedDatabase) -> tuple[float, float]:
    """Median processor time on the small and on the large database, measured alternately."""
    times: tuple[list[float], list[float]] = ([], [])
    with ExitStack() as stack:
        stages = []
        for index, prepared in enumerate((small, large)):
            store = stack.enter_context(open_store(copy(prepared.path, folder / f"timed-{index}.db")))
            stages.append(Stage(store, prepared.session))
        for _ in range(_TIMED):
            for stepped, taken in zip(stages, times, strict=True):
                stepped.before(verb)
                taken.append(spent(stepped.act(verb)))
        for stepped in stages:
            stepped.after()
    return median(times[0][2:]), median(times[1][2:])
