"""Options that several verbs share, and what they amount to: settings, a store, a way to answer."""

import logging
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import click

from backstay.config import Chosen, Settings, current
from backstay.errors import StoreUnavailable
from backstay.store import Store, is_postgres, open_store, sqlite_path

F = TypeVar("F", bound=Callable[..., Any])  # Any: click hands over whatever options were declared


def settings_options(command: F) -> F:
    """--db and --config, which every verb that opens a store has."""
    db = click.option(
        "--db",
        metavar="PATH|URL",
        help="The database. [env: BACKSTAY_DB; default: backstay/backstay.db in $XDG_DATA_HOME or ~/.local/share]",
    )
    file = click.option(
        "--config",
        "file",
        type=click.Path(dir_okay=False, path_type=Path),
        help="A file of settings. [env: BACKSTAY_CONFIG; default: ~/.config/backstay/config.toml]",
    )
    return db(file(command))


def chosen(file: Path | None, **flags: object) -> Chosen:
    """The settings in force, these flags included; an empty list is one that was not given."""
    return current({name: value for name, value in flags.items() if value != ()}, file=file)


class Ask(NamedTuple):
    """Who asks, of which store, and whether a machine reads the answer."""

    told: Chosen
    json: bool

    @property
    def settings(self) -> Settings:
        return self.told.settings

    @property
    def owner(self) -> str:
        return self.settings.owner

    @property
    def db(self) -> str:
        return self.settings.db

    def store(self) -> Store:
        """The store, which must be there: looking at nothing makes nothing."""
        self.refuse_missing()
        return open_store(self.db)

    def refuse_missing(self) -> None:
        """Raise if there is no file where the store should be."""
        if not is_postgres(self.db) and not sqlite_path(self.db).exists():
            raise StoreUnavailable(
                f"there is no store at {self.db}",
                hint="`backstay send` makes one; another is named with --db or BACKSTAY_DB.",
            )


def asks(command: Callable[..., None]) -> Callable[..., None]:
    """A verb that is given an `Ask`, made of --db, --config, --owner and --json."""

    @wraps(command)
    def run(
        file: Path | None,
        db: str | None,
        owner: str | None,
        *,
        as_json: bool,
        **rest: Any,  # Any: the verb's own options
    ) -> None:
        # What the store has to say to an operator's log is said to a person as an error, or not at all.
        logging.getLogger("backstay").addHandler(logging.NullHandler())
        return command(Ask(chosen(file, db=db, owner=owner), as_json), **rest)

    whose = click.option("--owner", help="Whose sessions. [env: BACKSTAY_OWNER; default: local]")
    machines = click.option("--json", "as_json", is_flag=True, help="Answer in JSON, for machines.")
    return settings_options(whose(machines(run)))
