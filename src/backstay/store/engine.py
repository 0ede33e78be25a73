"""The interface that a database engine provides to the verbs."""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, Protocol, TypeVar

import msgspec

from backstay.errors import StoreUnavailable
from backstay.model.ids import IdSource, SessionId, WorkerId
from backstay.model.limits import Limits
from backstay.model.operations.store_info import About
from backstay.model.search.terms import SearchQuery

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

# A row as the driver returns it; the verbs convert it to a value where they read it.
Row = tuple[object, ...]
Parameter = str | bytes | int | float | None


class Overtaken(Exception):
    """Another transaction was first. The engine runs the verb again, which then sees the other one's changes."""


class SyncNeeded(Exception):
    """The verb started without a sync and must not be lost. The engine runs it again, with a sync."""


class WouldBlock(Exception):
    """A read would take long, or wait, on the thread of its caller. Run it on another thread."""


class Lease(msgspec.Struct, frozen=True, kw_only=True):
    """The lease of a session. The fence gives safety; the time only limits how long others wait.

    Attributes:
        session: The session.
        holder: The worker that has the lease.
        fence: The fence under which it writes.
        until: When it expires, on the boot clock of the holder's machine.
        boot_id: Identifies that machine and its boot.
        lasts: Milliseconds from each renewal; 0 for a lease taken by an earlier version.
    """

    session: SessionId
    holder: WorkerId
    fence: int
    until: int
    boot_id: str
    lasts: int = 0


class SeenLease(NamedTuple):
    """A session with a holder: its owner, and the lease."""

    owner: str
    lease: Lease


class Transaction(Protocol):
    """One transaction, as a verb sees it: atomic, all of its statements or none."""

    @property
    def seen_leases(self) -> list[SeenLease]:
        """The holdings in the session rows that the verb has read, as `session_row.note_holder` records them."""
        ...

    @property
    def limits(self) -> Limits:
        """The limits on input."""
        ...

    @property
    def host(self) -> str:
        """The name of this machine in workspace addresses."""
        ...

    @property
    def ids(self) -> IdSource:
        """The source of new ids."""
        ...

    @property
    def worker(self) -> WorkerId:
        """The worker on whose behalf the transaction runs."""
        ...

    @property
    def now(self) -> int:
        """The wall clock, the same during the whole transaction."""
        ...

    def one(self, query: str, /, **parameters: Parameter) -> Row | None:
        """The first row of a named statement, or None."""
        ...

    def all(self, query: str, /, **parameters: Parameter) -> list[Row]:
        """All rows of a named statement."""
        ...

    def expect(self, query: str, /, **parameters: Parameter) -> None:
        """Announce a read that follows the next one.

        An engine may send both together. It forgets the rows if the transaction writes to one of their tables before
        the verb reads them.
        """
        ...

    def run(self, query: str, /, **parameters: Parameter) -> None:
        """Run a named statement.

        An engine may send it later, together with the next statement whose result is read or with the commit. If it
        fails, that one raises its error. The order of the statements stays the same.
        """
        ...

    def run_many(self, query: str, rows: Sequence[Mapping[str, Parameter]], /) -> None:
        """Run a named statement for each of these rows, like `run`."""
        ...

    def run_guarded(self, query: str, /, **parameters: Parameter) -> None:
        """Run a named statement, like `run`, whose condition repeats the values that were read.

        If it changes no row, another transaction was first: the transaction ends with `Overtaken` and is run again.
        """
        ...

    def changed(self, query: str, /, **parameters: Parameter) -> int:
        """Run a named statement now; returns how many rows it changed."""
        ...

    def commit_unchanged(self) -> None:
        """Make earlier commits durable before their result is acknowledged again, as if they were written now."""
        ...

    def require_sync(self) -> None:
        """Return only if the commit will wait for the disk; otherwise the verb is run again in one that does."""
        ...

    def lease(self) -> tuple[int, str]:
        """The expiry of a lease taken now, and the id of the machine whose clock it counts on."""
        ...

    @property
    def lease_ms(self) -> int:
        """The duration of this worker's leases, in milliseconds."""
        ...

    def is_here(self, lease: Lease) -> bool:
        """Whether the holder is on this machine, so that a single check shows whether it is alive."""
        ...

    def lapsed(self, lease: Lease) -> bool:
        """Whether the holder is known to be gone: dead, or silent for longer than its lease."""
        ...

    @property
    def finds_phrases(self) -> bool:
        """Whether a match of the index needs no second check of the text."""
        ...

    @property
    def ranks_by_count(self) -> bool:
        """Whether the rank of a match follows from its count and length, as BM25 defines it."""
        ...

    def indexable(self, owner_token: str, text: str) -> str:
        """A text in the form for the search index; empty if there is nothing to find in it."""
        ...

    def matching(self, owner_token: str, query: SearchQuery) -> str:
        """A query in the language of the index. Where the index is not in order of owners, it names this one."""
        ...

    def widened(self, query: SearchQuery, text: str) -> SearchQuery:
        """The query for this text: each of its words also matches its other forms that occur in the text."""
        ...


class Pending(Protocol[T_co]):
    """A verb that was started and is not waited for."""

    def claim(self) -> bool:
        """True if it had not run yet; it will never run then."""
        ...

    def result(self) -> T_co:
        """Its result, or raises its error; only once it is done."""
        ...


class Engine(Protocol):
    """A database that runs verbs. A verb is a function of a transaction. One engine is one worker."""

    limits: Limits
    worker: WorkerId
    wait_seconds: float
    min_poll_delay: float
    """How long a process should rest after a hint, however many follow, in seconds."""

    @property
    def shows_only_durable(self) -> bool:
        """Whether readers see a synced commit only once it is durable. Then a read can replace a repeated write."""
        ...

    @property
    def host(self) -> str:
        """The name of this machine in the addresses of its directories."""
        ...

    def write(
        self,
        verb: Callable[[Transaction], T],
        *,
        durable: bool = True,
        exclusive: bool = False,
        read_first: bool = False,
    ) -> T:
        """Run a verb in a write transaction and return once it is committed.

        If the verb raises, nothing is written.

        Args:
            verb: A function of the transaction. It may run more than once; only one run is committed.
            durable: Whether the commit survives power loss when this returns; otherwise it survives the death of the
                process.
            exclusive: whether it must not share its transaction with other verbs.
            read_first: whether it often has nothing to change; if it then writes nothing, the version stays the same.
        """
        ...

    def begin(
        self,
        verb: Callable[[Transaction], T],
        *,
        durable: bool = True,
        exclusive: bool = False,
        read_first: bool = False,
        on_done: Callable[[], None],
    ) -> Pending[T]:
        """Start a write and return at once.

        `on_done` is called from another thread when it is committed or has failed.
        """
        ...

    def give_up(self, pending: Pending[T]) -> StoreUnavailable | None:
        """Stop waiting for a write that has not begun; returns the error to raise, or None if it has begun already."""
        ...

    def version(self) -> int:
        """A number that changes whenever any process has committed."""
        ...

    def watch_hints(self, hint: Callable[[], None]) -> None:
        """Notify other workers of commits here from now on, and call `hint` when they notify us.

        It is called from another thread, perhaps too often, perhaps never. The version is authoritative; a hint only
        means that it should be read.
        """
        ...

    def read(self, verb: Callable[[Transaction], T]) -> T:
        """Run a verb on one consistent snapshot. Never waits for a writer."""
        ...

    def peek(self, verb: Callable[[Transaction], T]) -> T:
        """Run a verb that is a single statement, which is consistent by itself."""
        ...

    def read_now(self, verb: Callable[[Transaction], T], *, snapshot: bool) -> T:
        """Run a short read on the caller's thread, which may be that of an event loop.

        Raises:
            WouldBlock: the read would take long, or wait. An engine behind a network always raises it.
        """
        ...

    def version_now(self) -> int:
        """The version, if it is known without waiting.

        Raises:
            WouldBlock: it is not.
        """
        ...

    def register_worker(self) -> None:
        """Register this worker as alive, before it takes a lease."""
        ...

    def lapsed(self, lease: Lease) -> bool:
        """Whether the holder is known to be gone."""
        ...

    def now(self) -> int:
        """The wall clock."""
        ...

    def about(self, sessions: int) -> About:
        """Information about this engine."""
        ...

    def run_upkeep(self) -> None:
        """Remove data of the engine itself that is no longer needed."""
        ...

    def close(self) -> None:
        """Release all resources."""
        ...
