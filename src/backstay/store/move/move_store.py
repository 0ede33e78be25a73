"""`move`: copies a whole store to another database of any engine; it never accepts writes in two places."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import cast
from uuid import uuid4

from backstay.clock import SystemClock
from backstay.errors import ConfigError
from backstay.model.operations.move_progress import Move, MovedTable, MoveProgress
from backstay.store import is_postgres, load_postgres, open_store, sqlite_path
from backstay.store.move.mover import Mover, Progress
from backstay.store.move.site import MoveState, Site, store_moved
from backstay.store.sqlite.maintenance.site import SqliteSite


def move(source_url: str | Path, target_url: str | Path, *, progress: Progress | None = None) -> Move:
    """Move everything from one database into another, empty one; the source does not accept writes afterwards.

    Ids, revisions, fences, request ids and the order of events stay the same. An interrupted move continues when it is
    run again. From its start every write at the source raises `StoreMoved`, so that no write is lost at
    the old location.

    Args:
        source_url: The path or URL of the store.
        target_url: The path or URL of an empty or new database.
        progress: Called after each step.

    Returns:
        The finished move, with a hash of each table.

    Raises:
        SessionBusy: A turn is running at the source.
        ConfigError: The source is not a store, or the target is not empty.
        CorruptRecord: A row differs after the copy.
    """
    report = progress or _ignore
    with _site(source_url) as source, _site(target_url) as target:
        mover = Mover(source, target, report)
        note = _start_or_find(mover, source, target, source_url, target_url)
        tables = () if target.note("arrived") else _carry(mover, note, source, target)
        messages = next((table.rows for table in tables if table.name == "messages"), 0)
        moved = Move(id=note.id, source=source.location, target=target.location, tables=tables)
    _index(target_url, messages, report)
    return moved


def call_off_move(source_url: str | Path) -> None:
    """Let the source of an unfinished move accept writes again. The rows at the target stay there, unused.

    A finished move cannot be called off: later writes at the target would be lost.

    Args:
        source_url: The path or URL of the source.

    Raises:
        ConfigError: There is no move, or it is finished.
    """
    with _site(source_url) as source:
        note = source.note("leaving", "left") if source.is_store() else None
        if note is None:
            raise ConfigError(f"there is no move from {source.location} to call off", hint="Nothing was changed.")
        source.allow_writes(note)


def _start_or_find(
    mover: Mover, source: Site, target: Site, source_url: str | Path, target_url: str | Path
) -> MoveState:
    """Start the move, or find the one that was started.

    Both databases have a note of it and are closed when this returns.
    """
    if source.location == target.location:
        raise ConfigError(f"{source.location} cannot be moved to itself", hint="Name another, empty database.")
    if not source.is_store():
        raise ConfigError(f"there is no store at {source.location}", hint="The first database is the one to move.")
    note = source.note("leaving", "left")
    if note is None:
        note = _begin(mover, source, target, source_url, target_url)
    there = target.note("arriving", "arrived") if target.is_store() else None
    if there is None or there.id != note.id:
        if note.state == "left" or note.location != target.location:
            raise store_moved(source.location, note)
        open_store(target_url).close()
        target.prepare_target(MoveState(note.id, "arriving", source.location), SystemClock().now())
    return note


def _begin(mover: Mover, source: Site, target: Site, source_url: str | Path, target_url: str | Path) -> MoveState:
    # The target first: a source must not be closed for a move that cannot continue.
    open_store(target_url).close()
    mover.refuse_occupied()
    with open_store(source_url) as store:
        store.reap()
    note = MoveState(f"mov_{uuid4().hex}", "leaving", target.location)
    source.block_writes(note, SystemClock().now())
    return note


def _carry(mover: Mover, note: MoveState, source: Site, target: Site) -> tuple[MovedTable, ...]:
    """Copy, compare, and hand over.

    First the source is given up for good, then the target opens: a crash between the two leaves no store open, and
    running the move again opens the target.
    """
    mover.copy()
    # Compared before the source is given up: after a difference the move can still be called off.
    tables = mover.compare()
    source.mark_moved(note)
    target.finish_target(note, mover.hosts())
    return tables


def _index(target_url: str | Path, messages: int, report: Progress) -> None:
    with open_store(target_url) as store:
        store.index(
            progress=lambda rows: report(
                MoveProgress(step="indexing", table="search", rows=rows, total=max(rows, messages))
            )
        )


@contextmanager
def _site(url: str | Path) -> Iterator[Site]:
    site = _postgres_site(str(url)) if is_postgres(url) else SqliteSite(sqlite_path(url))
    try:
        yield site
    finally:
        site.close()


def _postgres_site(url: str) -> Site:
    module = load_postgres("backstay.store.postgres.maintenance.site")
    return cast(Site, module.PostgresSite(url))  # loaded by name, so without its types


def _ignore(progress: MoveProgress) -> None:
    """Ignore the progress."""
