"""Rescue: all that can be read of a damaged file is saved, session by session, and what cannot be read is named.

The readable rows go into an empty store beside the damaged one, which is only ever read; there each session is exported
as always. One that is whole becomes a document that any store imports; of the others, what is left is written down.
"""

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import apsw
import msgspec

from backstay.errors import BackstayError, StoreUnavailable
from backstay.model.codec import decode_parts
from backstay.model.ids import SessionId
from backstay.model.inspection import inspect
from backstay.model.upkeep import Rescue, Rescued, Tell, Unreadable
from backstay.store.engine import Row
from backstay.store.moving.tables import TABLES
from backstay.store.soundness import ANYTHING_GOES
from backstay.store.sqlite.checkup import setting
from backstay.store.sqlite.connection import open_reader, open_writer
from backstay.store.sqlite.faults import in_our_words, not_ours
from backstay.store.sqlite.migrations import migrate, shipped
from backstay.store.sqlite.salvage import Damage, Keep, Salvage
from backstay.store.sqlite.transaction import SqliteTransaction
from backstay.store.verbs import exporting

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
_LOOSE_WORDS = """
SELECT id, window_id, position, turn_id, role, partial, format, body, at FROM messages
WHERE window_id NOT IN (SELECT w.id FROM windows w JOIN sessions s ON s.id = w.session_id) ORDER BY key
"""
# Ids that other tables name, where the row itself was not met on the way through its own table.
_KNOWN = {"sessions": "SELECT id FROM sessions", "windows": "SELECT id FROM windows"}
_NAMED = {
    "sessions": "SELECT session_id FROM windows UNION SELECT session_id FROM events UNION SELECT session_id FROM turns",
    "windows": "SELECT window_id FROM messages UNION SELECT window_id FROM sessions",
}


def rescue(path: Path, folder: Path, tell: Tell) -> Rescue:
    """Save what is readable into a folder that must be new or empty; the damaged file stays as it is."""
    _prepare(folder)
    with tempfile.TemporaryDirectory(prefix="rescue-", dir=folder) as scratch, in_our_words(str(path)):
        copy = _empty_store(Path(scratch))
        try:
            source = _opened(path, Path(scratch))
            try:
                lost = _copy(source, copy, tell)
            finally:
                source.close()
            if not _holds_anything(copy) and _magic(path) != _MAGIC:
                raise not_ours(str(path), "it is not an SQLite database")
            saved = tuple(_save(copy, folder, tell))
            loose = _save_loose(copy, folder)
        finally:
            copy.close()
    told = Rescue(source=str(path), folder=str(folder), sessions=saved, loose=loose, unreadable=tuple(lost))
    _write(folder / REPORT, msgspec.json.format(msgspec.json.encode(told)))
    return told


def _prepare(folder: Path) -> None:
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        taken = any(folder.iterdir())
    except OSError as error:
        raise StoreUnavailable(f"{folder} cannot be used: {error.strerror}", hint="Name another directory.") from error
    if taken:
        raise StoreUnavailable(f"{folder} is not empty", hint="Name a new directory: nothing is ever overwritten.")


# --- the two databases ------------------------------------------------------------------------------------------------


def _empty_store(scratch: Path) -> apsw.Connection:
    """A store with nothing in it, which takes rows whose neighbours are missing."""
    path = scratch / "readable.db"
    path.touch(mode=0o600)
    copy = open_writer(path)
    migrate(copy, path, shipped())
    copy.execute("PRAGMA foreign_keys = OFF; PRAGMA synchronous = OFF")
    return copy


def _opened(path: Path, scratch: Path) -> apsw.Connection:
    """The damaged file; if not even its table of contents can be read, a copy of it with that of an empty store."""
    try:
        return _checked(open_reader(path), str(path))
    except Damage:
        grafted = scratch / "grafted.db"
    shutil.copyfile(path, grafted)
    log = Path(f"{path}-wal")
    if log.exists():
        shutil.copyfile(log, Path(f"{grafted}-wal"))
    _graft(scratch / "readable.db", grafted)
    try:
        return _checked(open_reader(grafted), str(path))
    except Damage as error:
        raise not_ours(str(path), f"not even its first page can be read ({error})") from error


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
        raise not_ours(path, "it belongs to another program")
    raise apsw.CorruptError("not all tables of a store are in it")


def _graft(healthy: Path, damaged: Path) -> None:
    """Give a damaged copy the table of contents of an empty store: the same migrations made both."""
    book = healthy.read_bytes()
    with damaged.open("r+b") as file:
        pages = _claimed(file.read(_HEADER), os.fstat(file.fileno()).st_size // _PAGE, len(book) // _PAGE)
        # What was cut off is missing: empty pages in its place are read as damaged ones, and the rest can be read.
        file.truncate(pages * _PAGE)
        for number in _contents(book):
            file.seek((number - 1) * _PAGE)
            file.write(book[(number - 1) * _PAGE : number * _PAGE])
        file.seek(28)
        file.write(pages.to_bytes(4))


def _claimed(header: bytes, pages: int, least: int) -> int:
    """How many pages the file should have, if what it says of itself can be believed."""
    told = int.from_bytes(header[28:32]) if header.startswith(_MAGIC) else 0
    return max(pages, least, told if told <= _MOST_PAGES else 0)


def _contents(book: bytes, number: int = 1) -> Iterator[int]:
    """The pages of the table of contents, which begins on the first page."""
    yield number
    page = book[(number - 1) * _PAGE : number * _PAGE]
    head = 100 if number == 1 else 0
    if page[head] != _INTERIOR:
        return
    yield from _contents(book, int.from_bytes(page[head + 8 : head + 12]))
    for cell in range(int.from_bytes(page[head + 3 : head + 5])):
        at = head + 12 + 2 * cell
        start = int.from_bytes(page[at : at + 2])
        yield from _contents(book, int.from_bytes(page[start : start + 4]))


def _magic(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(len(_MAGIC))


# --- from one to the other --------------------------------------------------------------------------------------------


def _copy(source: apsw.Connection, copy: apsw.Connection, tell: Tell) -> list[Unreadable]:
    """Every readable row; what could not be read."""
    passes = []
    copy.execute("BEGIN")
    for done, table in enumerate(TABLES, 1):
        salvage = Salvage(source, table, _keeper(copy, table.insert()))
        salvage.run()
        passes.append((table.name, salvage))
        tell("reading", done, len(TABLES))
    for name, salvage in passes:
        if name in _NAMED and salvage.gap is not None:
            known = {row[0] for row in copy.execute(_KNOWN[name])}
            salvage.look_up([row for row in copy.execute(_NAMED[name]).fetchall() if row[0] not in known])
    copy.execute("COMMIT")
    return [one for _, salvage in passes for one in salvage.lost]


def _keeper(copy: apsw.Connection, insert: str) -> Keep:
    def keep(row: Row) -> str | None:
        try:
            copy.execute(insert, row)
        except (apsw.ConstraintError, apsw.MismatchError, UnicodeEncodeError) as error:
            return f"is not what it should be: {error}"
        return None

    return keep


def _holds_anything(copy: apsw.Connection) -> bool:
    found = copy.execute("SELECT 1 FROM sessions UNION ALL SELECT 1 FROM messages LIMIT 1").fetchone()
    return found is not None


# --- and to the folder ------------------------------------------------------------------------------------------------


def _save(copy: apsw.Connection, folder: Path, tell: Tell) -> Iterator[Rescued]:
    tx = SqliteTransaction(copy, setting(folder))
    sessions = [(SessionId(str(session)), str(owner)) for session, owner in copy.execute(_SESSIONS)]
    for done, (session, owner) in enumerate(sessions, 1):
        yield _save_one(copy, tx, folder, session, owner)
        tell("saving", done, len(sessions))


def _save_one(copy: apsw.Connection, tx: SqliteTransaction, folder: Path, session: SessionId, owner: str) -> Rescued:
    try:
        document = exporting.export(tx, session, owner)
        inspect(document, ANYTHING_GOES)
        text = document.to_json()
        said, whole, problem = sum(len(window.messages) for window in document.windows), True, ""
    except (BackstayError, *Damage, msgspec.MsgspecError, ValueError, TypeError, KeyError) as error:
        problem = str(error.args[0]) if error.args else type(error).__name__
        words = _left(copy, session)
        text, said, whole = _partial(copy, session, owner, words, problem), len(words), False
    # An id is a name of ours, but this one comes from a damaged file.
    name = "".join(letter for letter in session if letter.isalnum() or letter == "_")[:64] or "unnamed"
    file = f"{name}{'' if whole else '.partial'}.json"
    _write(folder / file, text)
    return Rescued(session=session, owner=owner, file=file, messages=said, whole=whole, problem=problem)


def _left(copy: apsw.Connection, session: SessionId) -> list[dict[str, object]]:
    return [_said(row) for row in copy.execute(_WORDS_OF, (session,))]


def _partial(
    copy: apsw.Connection, session: SessionId, owner: str, words: list[dict[str, object]], problem: str
) -> bytes:
    """What is left of a session, for people to read: no store takes it."""
    facts = copy.execute("SELECT title, state, created_at FROM sessions WHERE id = ?", (session,)).fetchone()
    title, state, created_at = facts or (None, None, None)
    turns = copy.execute("SELECT id, agent, state, outcome, reason, input FROM turns WHERE session_id = ?", (session,))
    events = copy.execute(
        "SELECT number, last, turn_id, kind, body, at FROM events WHERE session_id = ? ORDER BY number", (session,)
    )
    left = {
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
    return msgspec.json.encode(left)


def _save_loose(copy: apsw.Connection, folder: Path) -> int:
    """Messages of which nobody knows any more in which session they were said."""
    words = [_said(row) for row in copy.execute(_LOOSE_WORDS)]
    if words:
        _write(folder / LOOSE, msgspec.json.encode({"backstay": "rescued", "messages": words}))
    return len(words)


def _said(row: Row) -> dict[str, object]:
    message, window, position, turn, role, partial, version, body, at = row
    try:
        said: object = decode_parts(message, version, body)
    except BackstayError:
        said = body
    return {
        "id": message,
        "window": window,
        "position": position,
        "turn": turn,
        "role": role,
        "partial": bool(partial),
        "at": at,
        "said": said,
    }


def _write(path: Path, text: bytes) -> None:
    with open(path, "xb", opener=lambda name, flags: os.open(name, flags, 0o600)) as file:
        file.write(text)
