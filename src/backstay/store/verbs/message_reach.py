"""Reach: which sessions can read a message now. No session reads undone text; a session still reads compacted text."""

from collections.abc import Iterable
from typing import NamedTuple

import msgspec

from backstay.model.content import Role
from backstay.model.ids import MessageId, SessionId, TurnId, WindowId
from backstay.model.session import SessionFilter
from backstay.store.engine import Transaction
from backstay.store.rows import Rows, values
from backstay.store.session_row import SessionRow, note_holder
from backstay.store.verbs.history import window_segments
from backstay.store.verbs.history.window_segments import WindowSegment


class FoundMessage(NamedTuple):
    """A message that the index has found, and where it was written.

    `current`: whether the current window of this session has it; if not, a summary may stand for it.
    """

    key: int
    window: WindowId
    position: int
    id: MessageId
    turn: TurnId | None
    role: Role
    format: int
    body: str
    at: int
    session: SessionId
    current: int


_ROWS = Rows("session_rows", SessionRow)


class MessageReach:
    """The sessions of one owner, for one search; each is read once, and only as far as a message needs it."""

    def __init__(self, tx: Transaction, owner: str, filter: SessionFilter, session: SessionId | None) -> None:
        self._tx, self._owner, self._filter, self._session = tx, owner, filter, session
        self._families: dict[SessionId, list[SessionId]] = {}
        self._rows: dict[SessionId, SessionRow | None] = {}
        self._segments: dict[SessionId, list[WindowSegment]] = {}

    def read_rows(self, sessions: Iterable[SessionId]) -> None:
        """Read the rows of these sessions in one statement, those of them that were not read yet."""
        missing = {session for session in sessions if session not in self._rows}
        if not missing:
            return
        self._rows.update(dict.fromkeys(missing))
        names = msgspec.json.encode(sorted(missing)).decode()
        for row in _ROWS.all(self._tx, sessions=names, owner=self._owner):
            note_holder(self._tx, row)
            if self._passes(row):
                self._rows[row.id] = row

    def reader_of(self, message: FoundMessage) -> SessionRow | None:
        """The session that reads this message: the one where it was written, or else a fork of it."""
        home = self._rows.get(message.session)
        if message.current and home is not None and self._session in (None, home.id):
            return home
        family = self._family(message.session)
        self.read_rows(family)
        wanted = family if self._session is None else [session for session in family if session == self._session]
        rows = filter(None, map(self._rows.get, wanted))
        return next((row for row in rows if self._reads(row, message)), None)

    def _reads(self, row: SessionRow, message: FoundMessage) -> bool:
        if row.id not in self._segments:
            self._segments[row.id] = window_segments.reading(self._tx, row.window)
        return any(
            part.source == message.window and part.low <= message.position < part.high
            for part in self._segments[row.id]
        )

    def _family(self, session: SessionId) -> list[SessionId]:
        if session not in self._families:
            members = values(self._tx, "fork_family", session=session, owner=self._owner)
            self._families[session] = sorted(members, key=lambda member: (member != session, member))
        return self._families[session]

    def _passes(self, session_row: SessionRow) -> bool:
        wanted = self._filter
        if wanted == _EVERY:
            return True
        session = session_row.value(self._tx.now)
        return (
            wanted.state in (None, session.state)
            and wanted.pinned in (None, session.pinned)
            and wanted.archived in (None, session.archived)
            and wanted.family in (None, session.family)
            and wanted.place in (None, session.place)
            and wanted.agent in (None, session.agent)
            and (wanted.tag is None or wanted.tag in session.tags)
        )


_EVERY = SessionFilter()
