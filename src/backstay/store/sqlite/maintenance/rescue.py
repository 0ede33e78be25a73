"""Rescue: saves the readable data of a damaged file, session by session, and names the records that cannot be read.

The readable rows go into an empty store beside the damaged file, which is only ever read. From there each session is
exported as usual. A complete session becomes a document that any store imports; the remains of the others are written
for people to read.
"""

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import apsw
import msgspec

from backstay.errors import BackstayError, StoreUnavailable
from backstay.model.codec import decode_parts
from backstay.model.documents.inspection import inspect
from backstay.model.documents.records import ENDING, records_in
from backstay.model.ids import SessionId
from backstay.model.operations.findings import ProgressCallback, Rescue, Rescued, Unreadable
from backstay.store.engine import Row
from backstay.store.move.moved_tables import TABLES
from backstay.store.soundness import NO_LIMITS
from backstay.store.sqlite.connection import open_reader, open_writer
from backstay.store.sqlite.faults import not_a_store, store_errors
from backstay.store.sqlite.maintenance.checkup import setting
from backstay.store.sqlite.maintenance.salvage import Damage, Salvage, StoreRow
from backstay.store.sqlite.migrations import migrate, shipped
from backstay.store.sqlite.transaction import SqliteTransaction
from backstay.store.transfer import exporter
from backstay.store.transfer.draft import DocumentDraft

REPORT = "rescue.json"
LOOSE = "loose.json"
_PAGE = 4_096
_MAGIC = b"SQLite format 3\x00"
_HEADER = 100
_INTERIOR = 5
_MOST_PAGES = 1 << 24
_SESSIONS = "SELECT id, owner FROM sessions WHERE state <> 'deleted' ORDER BY id"
_WORDS_OF = """
SELECT id, window_id, position, turn_id, role, partial, format, body, at FROM messages
WHERE window_id IN (SELECT id FROM windows WHERE session_id = ?) ORDER BY key
"""
_LOOSE_MESSAGES = """
SELECT id, window_id, position, turn_id, role, partial, format, body, at FROM messages
WHERE window_id NOT IN (SELECT w.id FROM windows w JOIN sessions s ON s.id = w.session_id) ORDER BY key
"""
# Ids that other tables name, for rows that were not found in their own table.
_KNOWN = {"sessions": "SELECT id FROM sessions", "windows": "SELECT id FROM windows"}
_NAMED = {
    "sessions": "SELECT session_id FROM windows UNION SELECT session_id FROM events UNION SELECT session_id FROM turns",
    "windows": "SELECT window_id FROM messages UNION SELECT window_id FROM sessions",
}


def rescue(path: Path, folder: Path, progress: ProgressCallback) -> Rescue:
    """Save the readable data into a folder that must be new or empty; the damaged file stays as it is."""
    _prepare(folder)
    with tempfile.TemporaryDirectory(prefix="rescue-", dir=folder) as scratch, store_errors(str(path)):
        copy = _empty_store(Path(scratch))
        try:
            source = _opened(path, Path(scratch))
            try:
                lost = _copy(source, copy, progress)
            finally:
                source.close()
            if not _holds_anything(copy) and _magic(path) != _MAGIC:
                raise not_a_store(str(path), "it is not an SQLite database")
            saved = tuple(_save(copy, folder, progress))
            loose = _save_loose(copy, folder)
        finally:
            copy.close()
    report = Rescue(source=str(path), folder=str(folder), sessions=saved, loose=loose, unreadable=tuple(lost))
    _write(folder / REPORT, msgspec.json.format(msgspec.json.encode(report)))
    return report


def _prepare(folder: Path) -> None:
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        taken = any(folder.iterdir())
    except OSError as error:
        raise StoreUnavailable(f"{folder} cannot be used: {error.strerror}", hint="Name another directory.") from error
    if taken:
        raise StoreUnavailable(f"{folder} is not empty", hint="Name a new directory; no file is overwritten.")


# --- the two databases ------------------------------------------------------------------------------------------------


def _empty_store(scratch: Path) -> apsw.Connection:
    """An empty store that accepts rows whose related rows are missing."""
    path = scratch / "readable.db"
    path.touch(mode=0o600)
    copy = open_writer(path)
    migrate(copy, path, shipped())
    copy.execute("PRAGMA foreign_keys = OFF; PRAGMA synchronous = OFF")
    return copy


def _opened(path: Path, scratch: Path) -> apsw.Connection:
    """The damaged file; if its schema table cannot be read, a copy of it with the schema table of an empty store."""
    try:
        return _checked(open_reader(path), str(path))
    except Damage:
        repaired = scratch / "grafted.db"
    shutil.copyfile(path, repaired)
    log = Path(f"{path}-wal")
    if log.exists():
        shutil.copyfile(log, Path(f"{repaired}-wal"))
    _copy_schema(scratch / "readable.db", repaired)
    try:
        return _checked(open_reader(repaired), str(path))
    except Damage as error:
        raise not_a_store(str(path), f"not even its first page can be read ({error})") from error


def _checked(source: apsw.Connection, path: str) -> apsw.Connection:
    try:
        found = {row[0] for row in source.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")}
    except BaseException:
        source.close()
        raise
    if {"sessions", "windows", "messages"} <= found:
        return source
    source.close()
    if not found & {table.name for table in TABLES}:
        raise not_a_store(path, "it belongs to another program")
    raise apsw.CorruptError("some tables of a store are missing")


def _copy_schema(healthy: Path, damaged: Path) -> None:
    """Give a damaged copy the schema table of an empty store: the same migrations made both."""
    intact = healthy.read_bytes()
    with damaged.open("r+b") as file:
        pages = _claimed(file.read(_HEADER), os.fstat(file.fileno()).st_size // _PAGE, len(intact) // _PAGE)
        # Fill up a truncated file: the empty pages are read as damaged ones, and the rest can be read.
        file.truncate(pages * _PAGE)
        for number in _contents(intact):
            file.seek((number - 1) * _PAGE)
            file.write(intact[(number - 1) * _PAGE : number * _PAGE])
        file.seek(28)
        file.write(pages.to_bytes(4))


def _claimed(header: bytes, pages: int, least: int) -> int:
    """The number of pages that the file should have, if its header can be believed."""
    claimed = int.from_bytes(header[28:32]) if header.startswith(_MAGIC) else 0
    return max(pages, least, claimed if claimed <= _MOST_PAGES else 0)


def _contents(intact: bytes, number: int = 1) -> Iterator[int]:
    """The pages of the schema table, which begins on the first page."""
    yield number
    page = intact[(number - 1) * _PAGE : number * _PAGE]
    head = 100 if number == 1 else 0
    if page[head] != _INTERIOR:
        return
    yield from _contents(intact, int.from_bytes(page[head + 8 : head + 12]))
    for cell in range(int.from_bytes(page[head + 3 : head + 5])):
        at = head + 12 + 2 * cell
        start = int.from_bytes(page[at : at + 2])
        yield from _contents(intact, int.from_bytes(page[start : start + 4]))


def _magic(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(len(_MAGIC))


# --- from one to the other --------------------------------------------------------------------------------------------


def _copy(source: apsw.Connection, copy: apsw.Connection, progress: ProgressCallback) -> list[Unreadable]:
    """Copy every readable row; returns the rows that could not be read."""
    passes = []
    copy.execute("BEGIN")
    for done, table in enumerate(TABLES, 1):
        salvage = Salvage(source, table, _storing(copy, table.insert()))
        salvage.run()
        passes.append((table.name, salvage))
        progress("reading", done, len(TABLES))
    for name, salvage in passes:
        if name in _NAMED and salvage.gap is not None:
            known = {row[0] for row in copy.execute(_KNOWN[name])}
            salvage.look_up([row for row in copy.execute(_NAMED[name]).fetchall() if row[0] not in known])
    copy.execute("COMMIT")
    return [one for _, salvage in passes for one in salvage.lost]


def _storing(copy: apsw.Connection, insert: str) -> StoreRow:
    def store(row: Row) -> str | None:
        try:
            copy.execute(insert, row)
        except (apsw.ConstraintError, apsw.MismatchError, UnicodeEncodeError) as error:
            return f"is invalid: {error}"
        return None

    return store


def _holds_anything(copy: apsw.Connection) -> bool:
    found = copy.execute("SELECT 1 FROM sessions UNION ALL SELECT 1 FROM messages LIMIT 1").fetchone()
    return found is not None


# --- and to the folder ------------------------------------------------------------------------------------------------


def _save(copy: apsw.Connection, folder: Path, progress: ProgressCallback) -> Iterator[Rescued]:
    tx = SqliteTransaction(copy, setting(folder))
    sessions = [(SessionId(str(session)), str(owner)) for session, owner in copy.execute(_SESSIONS)]
    for done, (session, owner) in enumerate(sessions, 1):
        yield _save_one(copy, tx, folder, session, owner)
        progress("saving", done, len(sessions))


def _save_one(copy: apsw.Connection, tx: SqliteTransaction, folder: Path, session: SessionId, owner: str) -> Rescued:
    # Ids are ours, but this one comes from a damaged file: keep only characters that are safe in a file name.
    name = "".join(letter for letter in session if letter.isalnum() or letter == "_")[:64] or "unnamed"
    file = f"{name}{ENDING}"
    try:
        count = _save_whole(tx, folder / file, session, owner)
    except (BackstayError, *Damage, msgspec.MsgspecError, ValueError, TypeError, KeyError) as error:
        (folder / file).unlink(missing_ok=True)
        problem = str(error.args[0]) if error.args else type(error).__name__
        file, words = f"{name}.partial.json", _remaining_messages(copy, session)
        _write(folder / file, _partial(copy, session, owner, words, problem))
        return Rescued(session=session, owner=owner, file=file, messages=len(words), whole=False, problem=problem)
    return Rescued(session=session, owner=owner, file=file, messages=count, whole=True, problem="")


def _save_whole(tx: SqliteTransaction, path: Path, session: SessionId, owner: str) -> int:
    """Write a valid session; returns the number of its messages."""
    with open(path, "xb", opener=_private) as file:
        exporter.export_to(lambda verb: verb(tx), session, owner, file)
    with path.open("rb") as file, DocumentDraft() as draft:
        draft.fill(records_in(file, NO_LIMITS.document_bytes))
        inspect(draft, NO_LIMITS)
        return sum(1 for _ in draft.message_ids())


def _remaining_messages(copy: apsw.Connection, session: SessionId) -> list[dict[str, object]]:
    return [_described(row) for row in copy.execute(_WORDS_OF, (session,))]


def _partial(
    copy: apsw.Connection, session: SessionId, owner: str, words: list[dict[str, object]], problem: str
) -> bytes:
    """The remains of a session, for people to read: no store imports them."""
    facts = copy.execute("SELECT title, state, created_at FROM sessions WHERE id = ?", (session,)).fetchone()
    title, state, created_at = facts or (None, None, None)
    turns = copy.execute("SELECT id, agent, state, outcome, reason, input FROM turns WHERE session_id = ?", (session,))
    events = copy.execute(
        "SELECT number, last, turn_id, kind, body, at FROM events WHERE session_id = ? ORDER BY number", (session,)
    )
    remains = {
        "backstay": "rescued",
        "session": session,
        "owner": owner,
        "title": title,
        "state": state,
        "created_at": created_at,
        "problem": problem,
        "messages": words,
        "turns": [dict(zip(("id", "agent", "state", "outcome", "reason", "input"), row, strict=True)) for row in turns],
        "events": [dict(zip(("number", "last", "turn", "kind", "body", "at"), row, strict=True)) for row in events],
    }
    return msgspec.json.encode(remains)


def _save_loose(copy: apsw.Connection, folder: Path) -> int:
    """Save the messages whose session is unknown; returns how many."""
    words = [_described(row) for row in copy.execute(_LOOSE_MESSAGES)]
    if words:
        _write(folder / LOOSE, msgspec.json.encode({"backstay": "rescued", "messages": words}))
    return len(words)


def _described(row: Row) -> dict[str, object]:
    message, window, position, turn, role, partial, version, body, at = row
    content: object = body
    if isinstance(message, str) and isinstance(version, int) and isinstance(body, str):
        with suppress(BackstayError):
            content = decode_parts(message, version, body)
    return {
        "id": message,
        "window": window,
        "position": position,
        "turn": turn,
        "role": role,
        "partial": bool(partial),
        "at": at,
        "content": content,
    }


def _write(path: Path, text: bytes) -> None:
    with open(path, "xb", opener=_private) as file:
        file.write(text)


def _private(name: str, flags: int) -> int:
    return os.open(name, flags, 0o600)
