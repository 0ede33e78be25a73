"""Checks a database with SQL alone, for states that no reader of the store may ever see.

Runs in a process of its own: it opens the database beside the store.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import apsw
import psycopg

Rows = list[tuple[Any, ...]]  # Any: whatever was selected
Ask = Callable[[str], Rows]

_ALIVE = "SELECT w.id FROM windows w JOIN sessions s ON s.id = w.session_id WHERE s.state <> 'deleted'"
_LEADS_TO = "SELECT base_id FROM windows WHERE id = '{}' UNION SELECT summarises_id FROM windows WHERE id = '{}'"
_READS = "SELECT source_id, low, high FROM segments WHERE window_id = '{}'"
# Where keys can be assigned again, those of deleted messages must not count as indexed.
_BEYOND = "SELECT key FROM indexed WHERE key > (SELECT coalesce(max(key), 0) FROM messages)"
# Each statement lists faults; none may find any.
_WRONG = {
    "events with a gap": """
        SELECT s.id FROM sessions s JOIN events e ON e.session_id = s.id WHERE s.state <> 'deleted' GROUP BY s.id
        HAVING sum(e.last - e.number + 1) <> s.last_event OR max(e.last) <> s.last_event OR min(e.number) <> 1""",
    "sessions without a story": """
        SELECT id FROM sessions WHERE id NOT IN (SELECT session_id FROM events)""",
    "a queue that is miscounted": """
        SELECT s.id FROM sessions s WHERE s.waiting <>
        (SELECT count(*) FROM turns t WHERE t.session_id = s.id AND t.state = 'waiting')""",
    "a running turn that the door does not know": """
        SELECT t.id FROM turns t JOIN sessions s ON s.id = t.session_id
        WHERE t.state = 'running'
        AND s.running_id IS DISTINCT FROM t.id
        AND (t.taken_by IS NULL OR t.taken_by IS DISTINCT FROM s.running_id)""",
    "a door that knows a turn which does not run": """
        SELECT s.id FROM sessions s WHERE s.running_id IS NOT NULL
        AND NOT EXISTS (SELECT 1 FROM turns t WHERE t.id = s.running_id AND t.state = 'running')""",
    "a session whose window is not its own": """
        SELECT s.id FROM sessions s WHERE s.state <> 'deleted'
        AND NOT EXISTS (SELECT 1 FROM windows w WHERE w.id = s.window_id AND w.session_id = s.id)""",
    "addresses that lead to deleted sessions": """
        SELECT a.spelling FROM addresses a JOIN sessions s ON s.id = a.session_id WHERE s.state = 'deleted'""",
    "deliveries of deleted sessions": """
        SELECT d.id FROM deliveries d JOIN sessions s ON s.id = d.session_id WHERE s.state = 'deleted'""",
    "deliveries ahead of their session": """
        SELECT d.id FROM deliveries d JOIN sessions s ON s.id = d.session_id WHERE d.cursor > s.last_event""",
    "turns of deleted sessions": """
        SELECT t.id FROM turns t JOIN sessions s ON s.id = t.session_id WHERE s.state = 'deleted'""",
    "blobs that are kept for nobody": """
        SELECT holder_id FROM blob_uses WHERE holder_id NOT IN (SELECT id FROM messages UNION SELECT id FROM turns)""",
    "schedules without their newest entry": """
        SELECT s.id FROM schedules s WHERE s.revision IS DISTINCT FROM
        (SELECT max(number) FROM schedule_log l WHERE l.schedule_id = s.id)""",
    "entries of deleted schedules": """
        SELECT schedule_id FROM schedule_log WHERE schedule_id NOT IN (SELECT id FROM schedules)""",
}


def audit(rank: int, place: Path | str) -> list[str]:
    """All faults of the database, as sentences. Worker processes run it; only the first one checks."""
    if rank:
        return []
    return _audit_file(place) if isinstance(place, Path) else _audit_server(place)


def _audit_file(path: Path) -> list[str]:
    connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE)
    connection.set_busy_timeout(10_000)

    def ask(sql: str) -> Rows:
        return connection.execute(sql).fetchall()

    try:
        damage = [f"integrity: {answer}" for (answer,) in ask("PRAGMA integrity_check") if answer != "ok"]
        damage += [f"foreign key: {row}" for row in ask("PRAGMA foreign_key_check")]
        if not ask("PRAGMA user_version")[0][0]:
            return damage
        return [*damage, *(f"index beyond the messages: {row}" for row in ask(_BEYOND)), *_complaints(ask)]
    except apsw.Error as error:
        return [f"it cannot be read: {error}"]
    finally:
        connection.close()


def _audit_server(url: str) -> list[str]:
    with psycopg.connect(url) as connection:
        return list(_complaints(lambda sql: connection.execute(sql.encode()).fetchall()))


def _complaints(ask: Ask) -> Iterator[str]:
    for wrong, sql in _WRONG.items():
        yield from (f"{wrong}: {row}" for row in ask(sql))
    yield from _orphans(ask)


def _orphans(ask: Ask) -> Iterator[str]:
    """Windows and messages that no living session reads: deletion forgot them."""
    reached: set[object] = set()
    read: set[tuple[object, ...]] = set()
    ahead = [row[0] for row in ask(_ALIVE)]
    while ahead:
        here = ahead.pop()
        if here in reached:
            continue
        reached.add(here)
        read.update(ask(_READS.format(here)))
        ahead += [row[0] for row in ask(_LEADS_TO.format(here, here)) if row[0] is not None]
    places = reached | {source for source, _, _ in read}
    windows = {row[0] for row in ask("SELECT id FROM windows")}
    yield from (f"window without a reader: {window}" for window in windows - places)
    yield from (f"window that is gone: {window}" for window in places - windows)
    for message, window, position in ask("SELECT id, window_id, position FROM messages"):
        if not any(source == window and low <= position < high for source, low, high in read):
            yield f"message without a reader: {message}"
