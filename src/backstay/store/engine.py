"""What a database engine must offer for the verbs to run on it."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, TypeVar

from backstay.errors import StoreUnavailable
from backstay.model.about import About
from backstay.model.ids import IdSource, WorkerId
from backstay.model.lease import Lease
from backstay.model.limits import Limits
from backstay.model.searchtext import SearchQuery

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

# A row is what the driver gives; the verbs turn it into a value where they read it.
Row = tuple[Any, ...]
Parameter = str | bytes | int | float | None


class Overtaken(Exception):
    """Another transaction was first: the engine runs the verb again, which then sees what they did."""


class Transaction(Protocol):
    """One transaction, as a verb sees it. Every statement in it happens, or none does."""

    @property
    def limits(self) -> Limits:
        """How much is accepted."""
        ...

    @property
    def ids(self) -> IdSource:
        """Where new ids come from."""
        ...

    @property
    def worker(self) -> WorkerId:
        """On whose behalf it runs."""
        ...

    @property
    def now(self) -> int:
        """The wall clock, the same for the whole transaction."""
        ...

    def one(self, query: str, /, **parameters: Parameter) -> Row | None:
        """The first row of a named statement, or None."""
        ...

    def all(self, query: str, /, **parameters: Parameter) -> list[Row]:
        """All rows of a named statement."""
        ...

    def run(self, query: str, /, **parameters: Parameter) -> int:
        """Run a named statement; how many rows it changed."""
        ...

    def run_many(self, query: str, rows: Sequence[Mapping[str, Parameter]], /) -> None:
        """Run a named statement for each of these rows."""
        ...

    def vouch(self) -> None:
        """What was found is about to be acknowledged again: it must be as durable as if it were written now."""
        ...

    def lease(self) -> tuple[int, str]:
        """When a lease taken now would lapse, and on which machine's clock."""
        ...

    def lapsed(self, lease: Lease) -> bool:
        """Whether the holder is known to be gone: dead, or silent for longer than its lease."""
        ...

    @property
    def finds_phrases(self) -> bool:
        """Whether what the index finds needs no second look at the text."""
        ...

    def indexable(self, owner_token: str, text: str) -> str:
        """A text as the search index takes it; empty if there is nothing to find in it."""
        ...

    def matching(self, owner_token: str, query: SearchQuery) -> str:
        """A query in the index's own language."""
        ...

    def widened(self, query: SearchQuery, text: str) -> SearchQuery:
        """The query for this text: it also takes for each of its words other forms of them that stand there."""
        ...


class Pending(Protocol[T_co]):
    """A verb that was begun and not waited for."""

    def claim(self) -> bool:
        """True if it had not run yet and now never will."""
        ...

    def result(self) -> T_co:
        """What it returned or raised; only once it is done."""
        ...


class Engine(Protocol):
    """A database that runs verbs. A verb is a function of a transaction. One engine is one worker."""

    limits: Limits
    worker: WorkerId
    wait_seconds: float

    @property
    def host(self) -> str:
        """What this machine is called in the addresses of its directories."""
        ...

    def write(self, verb: Callable[[Transaction], T], *, durable: bool = True, alone: bool = False) -> T:
        """Run a verb in a write transaction and return once it is committed.

        Durable verbs survive power loss when this returns; others survive the death of the process. A verb that must
        not share its transaction with others says so with `alone`. An error leaves no trace of the verb.
        """
        ...

    def begin(
        self,
        verb: Callable[[Transaction], T],
        *,
        durable: bool = True,
        alone: bool = False,
        on_done: Callable[[], None],
    ) -> Pending[T]:
        """Begin a write and return at once; `on_done` is called from another thread when it is committed or refused."""
        ...

    def give_up(self, pending: Pending[T]) -> StoreUnavailable | None:
        """Stop waiting for a write that has not begun; the error to raise, or None if it is too late for that."""
        ...

    def version(self) -> int:
        """A number that changes whenever anybody has committed anything."""
        ...

    def heed(self, hint: Callable[[], None]) -> None:
        """From now on tell other workers at once of what is committed here, and call this when they tell of theirs.

        It is called from another thread, perhaps too often, perhaps never: the version is the truth, a hint only says
        when it is worth asking for. An engine whose version costs nothing to ask for need not give any.
        """
        ...

    def read(self, verb: Callable[[Transaction], T]) -> T:
        """Run a verb on one consistent snapshot. Never waits for a writer."""
        ...

    def peek(self, verb: Callable[[Transaction], T]) -> T:
        """Run a verb that is a single statement, which is consistent by itself."""
        ...

    def enter(self) -> None:
        """Let others see that this worker lives, before it takes a lease."""
        ...

    def lapsed(self, lease: Lease) -> bool:
        """Whether the holder is known to be gone."""
        ...

    def now(self) -> int:
        """The wall clock."""
        ...

    def about(self, sessions: int) -> About:
        """What this engine is."""
        ...

    def tidy(self) -> None:
        """Drop what the engine itself no longer needs."""
        ...

    def close(self) -> None:
        """Let go of everything."""
        ...
