"""Options that several commands share, and the settings and store that they select."""

import logging
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import click

from backstay.config import Chosen, Settings, current
from backstay.errors import StoreUnavailable
from backstay.store import Store, is_postgres, open_store, sqlite_path

F = TypeVar("F", bound=Callable[..., Any])  # Any: click passes the options that were declared


def settings_options(command: F) -> F:
    """Add --db and --config, which every command that opens a store has."""
    db = click.option(
        "--db",
        metavar="PATH|URL",
        help="The database. [env: BACKSTAY_DB; default: backstay/backstay.db in $XDG_DATA_HOME or ~/.local/share]",
    )
    file = click.option(
        "--config",
        "file",
        type=click.Path(dir_okay=False, path_type=Path),
        help="The settings file. [env: BACKSTAY_CONFIG; default: ~/.config/backstay/config.toml]",
    )
    return db(file(command))


def chosen(file: Path | None, **flags: object) -> Chosen:
    """Return the effective settings with these flags applied. An empty tuple counts as a flag that was not given."""
    return current({name: value for name, value in flags.items() if value != ()}, file=file)


class Ask(NamedTuple):
    """The settings of one command, and whether its output is JSON."""

    effective: Chosen
    json: bool

    @property
    def settings(self) -> Settings:
        return self.effective.settings

    @property
    def owner(self) -> str:
        return self.settings.owner

    @property
    def db(self) -> str:
        return self.settings.db

    def store(self) -> Store:
        """Open the store, which must exist: a command that only reads does not create a store."""
        self.refuse_missing()
        return open_store(self.db)

    def has_store(self) -> bool:
        """Whether the SQLite file of the store exists; always true for a PostgreSQL store."""
        return is_postgres(self.db) or sqlite_path(self.db).exists()

    def refuse_missing(self) -> None:
        """Raise StoreUnavailable if the SQLite file of the store does not exist."""
        if not self.has_store():
            raise StoreUnavailable(
                f"there is no store at {self.db}",
                hint="`backstay send` creates one. To use another store, set --db or BACKSTAY_DB.",
            )


def asks(command: Callable[..., None]) -> Callable[..., None]:
    """Make a command that receives an `Ask`, built from --db, --config, --owner and --json."""

    @wraps(command)
    def run(
        file: Path | None,
        db: str | None,
        owner: str | None,
        *,
        as_json: bool,
        **rest: Any,  # Any: the command's own options
    ) -> None:
        # Without a handler, Python prints the store's warnings to stderr. Users see errors as messages instead.
        logging.getLogger("backstay").addHandler(logging.NullHandler())
        return command(Ask(chosen(file, db=db, owner=owner), as_json), **rest)

    whose = click.option("--owner", help="The owner of the sessions. [env: BACKSTAY_OWNER; default: local]")
    machines = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
    return settings_options(whose(machines(run)))
