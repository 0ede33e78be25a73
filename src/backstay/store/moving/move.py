"""`move`: a whole store goes from one database to another, whatever their engines, and never in two places at once."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import cast
from uuid import uuid4

from backstay.clock import SystemClock
from backstay.errors import ConfigError
from backstay.model.move import Move, MovedTable, MoveProgress
from backstay.store import is_postgres, load_postgres, open_store, sqlite_path
from backstay.store.moving.mover import Mover, Progress
from backstay.store.moving.site import Note, Site, departed
from backstay.store.sqlite.site import SqliteSite


def move(source_url: str | Path, target_url: str | Path, *, progress: Progress | None = None) -> Move:
    """Bring everything from one database into another, empty one, and leave the source closed for writing.

    Ids, revisions, fences, request ids and the order of events stay what they were. A move that was cut off goes on
    when it is run again. From its beginning every write at the source raises `StoreMoved`, so that nothing is written
    where nobody will look for it; while a turn runs there, the move is refused with `SessionBusy`.
    """
    tell = progress or _nobody
    with _site(source_url) as source, _site(target_url) as target:
        mover = Mover(source, target, tell)
        note = _departure(mover, source, target, source_url, target_url)
        tables = () if target.note("arrived") else _carry(mover, note, source, target)
        messages = next((table.rows for table in tables if table.name == "messages"), 0)
        moved = Move(id=note.id, source=source.place, target=target.place, tables=tables)
    _index(target_url, messages, tell)
    return moved


def call_off_move(source_url: str | Path) -> None:
    """Let the source of a move that was not finished take writes again. What has arrived elsewhere stays there, unused.

    A move that is finished cannot be called off: what was written at the new place since would be forgotten.
    """
    with _site(source_url) as source:
        note = source.note("leaving", "left") if source.is_store() else None
        if note is None:
            raise ConfigError(
                f"no move from {source.place} can be called off: there is none", hint="Nothing was changed."
            )
        source.stay(note)


def _departure(mover: Mover, source: Site, target: Site, source_url: str | Path, target_url: str | Path) -> Note:
    """Begin the move, or find where it was begun; both ends know of it and are closed when this returns."""
    if source.place == target.place:
        raise ConfigError(f"{source.place} cannot be moved to where it is", hint="Name another, empty database.")
    if not source.is_store():
        raise ConfigError(f"there is no store at {source.place}", hint="Name the database that is to be moved first.")
    note = source.note("leaving", "left")
    if note is None:
        note = _begin(mover, source, target, source_url, target_url)
    there = target.note("arriving", "arrived") if target.is_store() else None
    if there is None or there.id != note.id:
        if note.state == "left" or note.place != target.place:
            raise departed(source.place, note)
        open_store(target_url).close()
        target.arrive(Note(note.id, "arriving", source.place), SystemClock().now())
    return note


def _begin(mover: Mover, source: Site, target: Site, source_url: str | Path, target_url: str | Path) -> Note:
    # The target first: a source must not be closed for a move that cannot go on.
    open_store(target_url).close()
    mover.refuse_occupied()
    with open_store(source_url) as store:
        store.reap()
    note = Note(f"mov_{uuid4().hex}", "leaving", target.place)
    source.leave(note, SystemClock().now())
    return note


def _carry(mover: Mover, note: Note, source: Site, target: Site) -> tuple[MovedTable, ...]:
    """Copy, compare, and hand over: first the source gives up for good, then the target opens."""
    mover.copy()
    tables = mover.compare()
    source.left(note)
    target.arrived(note, mover.hosts())
    return tables


def _index(target_url: str | Path, messages: int, tell: Progress) -> None:
    with open_store(target_url) as store:
        store.index(
            progress=lambda rows: tell(
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
    module = load_postgres("backstay.store.postgres.site")
    return cast(Site, module.PostgresSite(url))  # the module is loaded by its name, which tells no types


def _nobody(progress: MoveProgress) -> None:
    """Nobody wants to know."""
