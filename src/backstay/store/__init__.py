"""The durable store: every verb one transaction, the same verbs on every engine."""

from pathlib import Path

from backstay.clock import Clock, SystemClock
from backstay.errors import ConfigError
from backstay.model.about import About
from backstay.model.limits import Limits
from backstay.store.port import Store
from backstay.store.sqlite.engine import SqliteEngine
from backstay.store.sqlstore import SqlStore

__all__ = ["About", "Store", "open_store"]


def open_store(
    where: str | Path,
    *,
    clock: Clock | None = None,
    limits: Limits | None = None,
    lease_seconds: float = 30.0,
    wait_seconds: float = 10.0,
) -> Store:
    """Open a store, made if it is not there: a path, or a URL such as `sqlite:///chat.db`.

    A holder that is silent for `lease_seconds` may be taken for dead; a write that cannot begin within `wait_seconds`,
    because another process holds the store, raises `StoreUnavailable`.
    """
    engine = SqliteEngine(
        sqlite_path(where),
        clock=clock or SystemClock(),
        limits=limits or Limits(),
        lease_seconds=lease_seconds,
        wait_seconds=wait_seconds,
    )
    return SqlStore(engine)


def sqlite_path(where: str | Path) -> Path:
    """The database file that a path or URL names."""
    text = str(where)
    scheme, found, rest = text.partition("://")
    if found:
        if scheme != "sqlite" or not rest.startswith("/"):
            raise ConfigError(f"{text!r} names no store", hint="Write a path, or sqlite:/// and a path.")
        text = rest[1:]
    if not text or text == ":memory:" or "\0" in text:
        raise ConfigError(f"{text!r} cannot hold a durable store", hint="Write the path of a file.")
    return Path(text).expanduser().absolute()
