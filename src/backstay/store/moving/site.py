"""A site: one end of a move. A database seen from below the verbs, table by table."""

from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple, Protocol

from backstay.errors import ConfigError, SessionBusy
from backstay.store.engine import Row
from backstay.store.moving.tables import Table

State = Literal["leaving", "left", "arriving", "arrived"]


class Note(NamedTuple):
    """What a database remembers of a move: its id, how far it is, and where the other end is."""

    id: str
    state: State
    place: str


class Site(Protocol):
    """A database that a store leaves, or arrives in. Every method that changes something is one transaction."""

    @property
    def place(self) -> str:
        """Where it is, without secrets."""
        ...

    @property
    def machine(self) -> str:
        """What this machine calls itself there."""
        ...

    def is_store(self) -> bool:
        """Whether there is a store, whole or only partly arrived."""
        ...

    def note(self, *states: State) -> Note | None:
        """What is remembered of a move in one of these states."""
        ...

    # --- the source ---------------------------------------------------------------------------------------------------

    def leave(self, note: Note, now: int) -> None:
        """From now on refuse every write with `StoreMoved`; `SessionBusy` while a turn runs."""
        ...

    def stay(self, note: Note) -> None:
        """Take writes again, as if nobody had wanted to leave; `ConfigError` if everything is at the other end."""
        ...

    def left(self, note: Note) -> None:
        """Remember that everything is at the other end."""
        ...

    def hosts(self) -> dict[str, str]:
        """What machines are called in addresses, where that is not their own name."""
        ...

    def rows(self, table: Table, after: Row | None) -> list[Row]:
        """The next rows after a key, a step of them."""
        ...

    def count(self, table: Table) -> int:
        """How many rows there are."""
        ...

    # --- the target ---------------------------------------------------------------------------------------------------

    def arrive(self, note: Note, now: int) -> None:
        """Become a place that nobody can open before the move is done; `ConfigError` unless it is an empty store."""
        ...

    def last(self, table: Table) -> Row | None:
        """The key of the last row that has arrived."""
        ...

    def add(self, table: Table, rows: Sequence[Row]) -> None:
        """Take these rows."""
        ...

    def amend(self, table: Table, amendments: Sequence[Row]) -> None:
        """Fill in what was left for later."""
        ...

    def arrived(self, note: Note, hosts: Mapping[str, str]) -> None:
        """Become a store like any other; `ConfigError` if it is one already."""
        ...

    def close(self) -> None:
        """Let go of the database."""
        ...


def occupied(place: str, table: str) -> ConfigError:
    """The error for a database that holds something else."""
    return ConfigError(
        f"{place} is not empty: there is something in {table}", hint="Move to a database that does not exist yet."
    )


def busy(place: str, running: int) -> SessionBusy:
    """The error for a store in which turns run: they could not be ended anywhere else."""
    return SessionBusy(
        f"{running} turns are running in {place}", hint="Stop the programs that run agents there, then move."
    )


def departed(place: str, note: Note) -> ConfigError:
    """The error for a store that has gone elsewhere, or is on its way there."""
    return ConfigError(
        f"{place} {'was moved' if note.state == 'left' else 'is on its way'} to {note.place}",
        hint="Move it from there." if note.state == "left" else "Finish that move, or call it off.",
    )


def called_off(place: str) -> ConfigError:
    """The error for a source that was told to stay while its store was on its way."""
    return ConfigError(f"the move from {place} was called off meanwhile", hint="Drop what has arrived at the target.")


def gone(place: str, note: Note) -> ConfigError:
    """The error for a source that cannot stay: its store is open at the other end, or will be."""
    return ConfigError(
        f"no move from {place} can be called off: it is finished, and {note.place} has the store",
        hint="Nothing was changed.",
    )


def finished(place: str) -> ConfigError:
    """The error for a mover that comes late: what it would write is there, and may have changed since."""
    return ConfigError(f"another process has finished the move to {place}", hint="Open the store there.")
