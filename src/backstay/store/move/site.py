"""A site: one end of a move. A database below the verbs, table by table."""

from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple, Protocol

from backstay.errors import ConfigError, SessionBusy
from backstay.store.engine import Row
from backstay.store.move.moved_tables import Table

State = Literal["leaving", "left", "arriving", "arrived"]


class MoveState(NamedTuple):
    """The note of a move in a database: its id, its state, and the other end."""

    id: str
    state: State
    location: str


class Site(Protocol):
    """A database that a store leaves or arrives in. Every method that changes something is one transaction."""

    @property
    def location(self) -> str:
        """The path or URL, without secrets."""
        ...

    @property
    def machine(self) -> str:
        """The name of this machine there."""
        ...

    def is_store(self) -> bool:
        """Whether there is a store, complete or partly arrived."""
        ...

    def note(self, *states: State) -> MoveState | None:
        """The note of a move in one of these states."""
        ...

    # --- the source ---------------------------------------------------------------------------------------------------

    def block_writes(self, note: MoveState, now: int) -> None:
        """Reject every write with `StoreMoved` from now on. Raises `SessionBusy` while a turn runs."""
        ...

    def allow_writes(self, note: MoveState) -> None:
        """Accept writes again, as before the move. Raises `ConfigError` if the move is finished."""
        ...

    def mark_moved(self, note: MoveState) -> None:
        """Record that everything is at the other end."""
        ...

    def hosts(self) -> dict[str, str]:
        """The names of machines in addresses, where they differ from the machine's own name."""
        ...

    def rows(self, table: Table, after: Row | None) -> list[Row]:
        """The next rows after a key, at most one step."""
        ...

    def count(self, table: Table) -> int:
        """The number of rows."""
        ...

    # --- the target ---------------------------------------------------------------------------------------------------

    def prepare_target(self, note: MoveState, now: int) -> None:
        """Become a store that cannot be opened before the move is finished. Raises `ConfigError` unless it is empty."""
        ...

    def last(self, table: Table) -> Row | None:
        """The key of the last row that has arrived."""
        ...

    def add(self, table: Table, rows: Sequence[Row]) -> None:
        """Add these rows."""
        ...

    def amend(self, table: Table, amendments: Sequence[Row]) -> None:
        """Set the columns that were left out before."""
        ...

    def finish_target(self, note: MoveState, hosts: Mapping[str, str]) -> None:
        """Become a normal store. Raises `ConfigError` if it is one already."""
        ...

    def close(self) -> None:
        """Close the database."""
        ...


def occupied(location: str, table: str) -> ConfigError:
    """The error for a target that is not empty."""
    return ConfigError(f"{location} is not empty: {table} has rows", hint="Move to a database that does not exist yet.")


def busy(location: str, running: int) -> SessionBusy:
    """The error for a store with running turns: they could not be ended anywhere else."""
    return SessionBusy(
        f"{running} turns are running in {location}", hint="Stop the programs that run agents there, then move."
    )


def store_moved(location: str, note: MoveState) -> ConfigError:
    """The error for a store that was moved elsewhere, or is being moved."""
    return ConfigError(
        f"{location} {'was moved' if note.state == 'left' else 'is being moved'} to {note.location}",
        hint="Move it from there." if note.state == "left" else "Finish that move, or call it off.",
    )


def called_off(location: str) -> ConfigError:
    """The error for a source whose move was called off while it was running."""
    return ConfigError(f"the move from {location} was called off meanwhile", hint="Delete the incomplete target.")


def already_moved(location: str, note: MoveState) -> ConfigError:
    """The error for a move that cannot be called off: the store is open at the other end, or will be."""
    return ConfigError(
        f"no move from {location} can be called off: it is finished, and {note.location} has the store",
        hint="Nothing was changed.",
    )


def finished(location: str) -> ConfigError:
    """The error for a second mover that is late: the rows are there, and may have changed since."""
    return ConfigError(f"another process has finished the move to {location}", hint="Open the store there.")
