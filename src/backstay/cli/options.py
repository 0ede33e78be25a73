"""Options that several commands share, and the settings and store that they select."""

import logging
import os
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import wraps
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import click

from backstay.cli.output import safe_text
from backstay.config import Chosen, Settings, current, is_loopback, unknown_variables
from backstay.errors import ConfigError, StoreUnavailable
from backstay.store import Store, is_postgres, open_store, sqlite_path

if TYPE_CHECKING:
    from backstay.cli.session_store import SessionStore
    from backstay.client.blocking_client import BlockingClient
    from backstay.runtime.blocking import BlockingApp

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
    """Return the effective settings with these flags applied, and name unknown variables of the environment.

    An empty tuple counts as a flag that was not given.
    """
    effective = current({name: value for name, value in flags.items() if value != ()}, file=file)
    if effective.unknown and not _is_output_parsed():
        for sentence in unknown_variables(effective):
            click.echo(f"warning: {safe_text.one_line(sentence)}", err=True)
    return effective


def _is_output_parsed() -> bool:
    """Whether nothing but JSON, or completions of a shell, may be written."""
    return "--json" in takewhile("--".__ne__, sys.argv[1:]) or "_BACKSTAY_COMPLETE" in os.environ


class ServerOption(NamedTuple):
    """The server that a command uses instead of a database, and the token if one was given."""

    url: str
    token: str | None


class CommandOptions(NamedTuple):
    """The settings of one command, whether its output is JSON, and the server that it uses, if any."""

    effective: Chosen
    json: bool
    server: ServerOption | None = None

    @property
    def settings(self) -> Settings:
        return self.effective.settings

    @property
    def owner(self) -> str:
        return self.settings.owner

    @property
    def db(self) -> str:
        return self.settings.db

    def store(self) -> "AbstractContextManager[SessionStore]":
        """The sessions on the server, or the store, which must exist: a command that only reads creates none."""
        if self.server is None:
            return self.database()
        # Imported here: a command on a database needs no HTTP client.
        from backstay.cli.server_store import ServerStore  # noqa: PLC0415

        return ServerStore(self.client())

    def database(self) -> Store:
        """Open the store, which must exist."""
        self.refuse_missing()
        return open_store(self.db)

    def client(self) -> "BlockingClient":
        """A client of the server, to be opened with `with`."""
        from backstay.cli.local_token import local_token  # noqa: PLC0415
        from backstay.client.blocking_client import connect_blocking  # noqa: PLC0415
        from backstay.client.server_connection import base_url  # noqa: PLC0415

        if self.server is None:
            raise ConfigError("no server is named", hint="Use --server.")
        url, token = self.server
        base = base_url(url, "--server")
        return connect_blocking(url, token=token or local_token(self.effective, base), retry_seconds=5.0)

    def app(self) -> "BlockingApp | BlockingClient":
        """The server, or an app on the store that runs no agent; to be opened with `with`."""
        if self.server is not None:
            return self.client()
        from backstay.runtime.blocking import open_blocking  # noqa: PLC0415

        return open_blocking(self.db, owner=self.owner)

    @property
    def is_local(self) -> bool:
        """Whether the sessions are on this machine, or the database knows the machines by itself."""
        if self.server is None:
            return True
        from backstay.client.server_connection import base_url  # noqa: PLC0415

        return is_loopback(base_url(self.server.url, "--server").host)

    def has_store(self) -> bool:
        """Whether the SQLite file of the store exists; always true for PostgreSQL and for a server."""
        return self.server is not None or is_postgres(self.db) or sqlite_path(self.db).exists()

    def refuse_missing(self) -> None:
        """Raise StoreUnavailable if the SQLite file of the store does not exist."""
        if not self.has_store():
            raise StoreUnavailable(
                f"there is no store at {self.db}",
                hint="`backstay send` creates one. To use another store, set --db or BACKSTAY_DB.",
            )


def store_options(command: Callable[..., None]) -> Callable[..., None]:
    """Make a command that receives an `CommandOptions`, built from --db, --config, --owner and --json."""

    @wraps(command)
    def run(
        file: Path | None,
        db: str | None,
        owner: str | None,
        *,
        as_json: bool,
        **rest: Any,  # Any: the command's own options
    ) -> None:
        _silence_logs()
        return command(CommandOptions(chosen(file, db=db, owner=owner), as_json), **rest)

    return settings_options(_owner_option(_json_option(run)))


def session_options(command: Callable[..., None]) -> Callable[..., None]:
    """Make a command that receives an `CommandOptions`, and works on a store or with --server."""

    @wraps(command)
    def run(
        file: Path | None,
        db: str | None,
        owner: str | None,
        *,
        as_json: bool,
        server: str | None,
        token: str | None,
        token_file: str | None,
        **rest: Any,  # Any: the command's own options
    ) -> None:
        _silence_logs()
        if server is not None and (db is not None or owner is not None):
            raise click.UsageError("--server excludes --db and --owner: the token names the owner.")
        effective = chosen(file, db=db, owner=owner, **({} if token_file is None else {"token_file": token_file}))
        return command(
            CommandOptions(effective, as_json, None if server is None else ServerOption(server, token)), **rest
        )

    return settings_options(_owner_option(server_options(_json_option(run))))


def server_options(command: F) -> F:
    """Add --server, --token and --token-file."""
    server = click.option(
        "--server",
        metavar="URL",
        envvar="BACKSTAY_SERVER",
        help="Use a server instead of a database. [env: BACKSTAY_SERVER]",
    )
    token = click.option(
        "--token",
        envvar="BACKSTAY_TOKEN",
        help="The token for the server. [env: BACKSTAY_TOKEN; default: from --token-file]",
    )
    file = click.option("--token-file", help="The file of the token. [default: beside the database]")
    return server(token(file(command)))


def _owner_option(command: F) -> F:
    return click.option("--owner", help="The owner of the sessions. [env: BACKSTAY_OWNER; default: local]")(command)


def _json_option(command: F) -> F:
    return click.option("--json", "as_json", is_flag=True, help="Print JSON.")(command)


def _silence_logs() -> None:
    # Without a handler, Python prints the store's warnings to stderr. Users see errors as messages instead.
    logging.getLogger("backstay").addHandler(logging.NullHandler())
