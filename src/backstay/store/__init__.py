"""The durable store: every verb one transaction, the same verbs on every engine."""

import importlib
import re
from os import PathLike
from pathlib import Path
from types import ModuleType
from typing import cast

from backstay.clock import Clock, SystemClock
from backstay.errors import ConfigError
from backstay.model.limits import Limits
from backstay.model.operations.store_info import About
from backstay.store.engine import Engine
from backstay.store.sqlite.engine import SqliteEngine
from backstay.store.store import Store

_POSTGRES = ("postgresql://", "postgres://")
# The beginning of a URL after pathlib has joined its slashes.
_SHORTENED = ("postgresql:/", "postgres:/", "sqlite:/")
# How PostgreSQL's own programs also name a database.
_WORDS = re.compile(r"\s*(host|hostaddr|port|user|password|dbname|service)\s*=.*")

__all__ = ["About", "Store", "open_store"]


def open_store(
    where: str | Path,
    *,
    clock: Clock | None = None,
    limits: Limits | None = None,
    lease_seconds: float = 30.0,
    wait_seconds: float = 10.0,
) -> Store:
    """Open a store, and create it if it does not exist.

    Args:
        where: A path, or a URL such as `sqlite:///chat.db` or `postgresql://…`. `?connections=32` in the URL of a
            PostgreSQL database sets the size of the connection pool (16).
        clock: The source of time; None: the machine's. On PostgreSQL it replaces the server's clock too.
        limits: The limits for names, messages and attachments.
        lease_seconds: A worker that does not renew its leases for this time counts as dead.
        wait_seconds: How long a write may wait to begin while another process holds the store.

    Returns:
        The store, to be used with `with`.

    Raises:
        ConfigError: `where` does not name a store, or the PostgreSQL driver is not installed.
        StoreUnavailable: The database cannot be opened.
        SchemaMismatch: Another version of Backstay, or another program, wrote the database.
    """
    engine = _postgres if is_postgres(where) else _sqlite
    return Store(
        engine(
            where,
            clock=clock,
            limits=limits or Limits(),
            lease_seconds=lease_seconds,
            wait_seconds=wait_seconds,
        )
    )


def _sqlite(
    where: str | Path, *, clock: Clock | None, limits: Limits, lease_seconds: float, wait_seconds: float
) -> Engine:
    return SqliteEngine(
        sqlite_path(where),
        clock=clock or SystemClock(),
        limits=limits,
        lease_seconds=lease_seconds,
        wait_seconds=wait_seconds,
    )


def _postgres(
    where: str | Path, *, clock: Clock | None, limits: Limits, lease_seconds: float, wait_seconds: float
) -> Engine:
    module = load_postgres("backstay.store.postgres.engine")
    engine = module.PostgresEngine(
        str(where), clock=clock, limits=limits, lease_seconds=lease_seconds, wait_seconds=wait_seconds
    )
    return cast(Engine, engine)  # loaded by name, so without its types


def is_postgres(where: str | Path) -> bool:
    """Whether a PostgreSQL database is meant."""
    return str(where).startswith(_POSTGRES)


def load_postgres(name: str) -> ModuleType:
    """A module of the PostgreSQL engine; `ConfigError` if its driver is not installed."""
    try:
        # Not at the top: the driver is an extra, and takes longer to load than the rest of Backstay.
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not error.name.startswith("psycopg"):
            raise
        raise ConfigError(
            f"a PostgreSQL database needs {error.name}, which is not installed",
            hint="Install the extra: pip install 'backstay[postgres]'",
        ) from error


def sqlite_path(where: str | Path) -> Path:
    """The database file that a path or URL names."""
    if not isinstance(where, str | PathLike):
        raise ConfigError(
            f"{where!r} is not the name of a store", hint="Write a path or a URL; a setting may be missing."
        )
    text = _without_scheme(str(where))
    _refuse_server(text)
    if not text or text == ":memory:" or "\0" in text or not _is_text(text):
        raise ConfigError(f"{text!r} cannot hold a durable store", hint="Write the path of a file.")
    return Path(text).expanduser().absolute()


def _without_scheme(text: str) -> str:
    scheme, mark, rest = text.partition("://")
    if not mark:
        return text
    if scheme != "sqlite" or not rest.startswith("/"):
        # Only the scheme is shown: the rest may contain a password.
        raise ConfigError(
            f"{scheme + mark!r} is not the URL of a store",
            hint="Write a path, sqlite:/// and a path, or postgresql://host/database.",
        )
    return rest[1:]


def _refuse_server(text: str) -> None:
    """Raise if the text is meant to name a server: a file of that name would contain the password."""
    if text.startswith(_SHORTENED):
        raise ConfigError(
            f"the path that begins with {text.partition('/')[0] + '/'!r} was a URL before it became a path",
            hint="Pass a URL as text, not as a Path.",
        )
    if found := _WORDS.fullmatch(text):
        raise ConfigError(
            f"the text that begins with {found[1] + '='!r} names a PostgreSQL server, not a file",
            hint="Write it as a URL: postgresql://user@host:5432/database.",
        )


def _is_text(name: str) -> bool:
    """Whether a name can be encoded as UTF-8. SQLite cannot open a file whose name cannot."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True
