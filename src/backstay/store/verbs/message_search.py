"""Search: an index that is filled after the writes, and hits that are checked against what the owner can read now."""

from collections.abc import Collection
from hashlib import sha256
from typing import NamedTuple

import msgspec

from backstay.errors import ConfigError
from backstay.model.codec import decode_parts
from backstay.model.content import Role, text_of
from backstay.model.ids import MessageId, SessionId, TurnId, WindowId
from backstay.model.search.results import SearchHit, SearchPage
from backstay.model.search.snippet import snippet
from backstay.model.search.terms import SearchQuery
from backstay.model.session import SessionFilter
from backstay.store.engine import Parameter, Transaction
from backstay.store.rows import Rows, value, values
from backstay.store.session_row import SessionRow, find, find_if_there
from backstay.store.verbs.history import window_segments
from backstay.store.verbs.history.window_segments import WindowSegment

_STEP = 100
_INDEXED = ("user", "assistant")


class IndexedMessage(msgspec.Struct):
    """A message as the index needs it."""

    key: int
    role: Role
    id: MessageId
    format: int
    body: str


class _UnindexedMessage(IndexedMessage):
    """A message that the index has not read yet."""

    owner: str


class _FoundMessage(NamedTuple):
    """A message that the index has found, and where it was written."""

    window: WindowId
    position: int
    id: MessageId
    turn: TurnId | None
    role: Role
    format: int
    body: str
    at: int
    session: SessionId


_UNINDEXED = Rows("unindexed", _UnindexedMessage)
_FOUND_MESSAGE = Rows("found_message", _FoundMessage)


def forget(tx: Transaction) -> None:
    """Empty the index. Every message has to be indexed again."""
    # The mark comes first: on PostgreSQL this waits for a transaction that is indexing.
    tx.run("set_indexed", key=0)
    tx.run("empty_index")


def index(tx: Transaction, limit: int) -> int:
    """Index the next messages. Returns how many."""
    rows = _UNINDEXED.all(tx, limit=limit)
    tx.run_many(
        "index_message",
        [_entry(tx, row.key, row.owner, text) for row in rows if (text := _searchable(row))],
    )
    if rows:
        tx.run("set_indexed", key=rows[-1].key)
    return len(rows)


def unindex(tx: Transaction, message: IndexedMessage, owner: str) -> None:
    """Remove a message from the index before it is deleted."""
    text = _searchable(message)
    if text:
        tx.run("unindex_message", **_entry(tx, message.key, owner, text))


def set_languages(tx: Transaction, names: Collection[str]) -> tuple[str, ...]:
    """Find words by their inflected forms in these languages too. Indexed messages follow step by step."""
    wanted = tuple(sorted(set(names)))
    current = languages(tx)
    known = values(tx, "known_languages")
    if wanted and not known:
        raise ConfigError(
            f"a SQLite store cannot search in languages, here {', '.join(wanted)}",
            hint="Remove search_languages, or use a PostgreSQL database.",
        )
    for language in wanted:
        if language not in known:
            raise ConfigError(
                f"{language!r} is not a search language of this database", hint=f"Choose from {', '.join(known)}."
            )
    if wanted != current:
        tx.run("set_languages", languages=" ".join(wanted))
    return wanted


def languages(tx: Transaction) -> tuple[str, ...]:
    """The languages whose inflected forms are found."""
    return tuple(values(tx, "languages"))


def stem(tx: Transaction, limit: int) -> int:
    """Add the stems of the current languages to the next indexed texts. Returns how many."""
    keys = values(tx, "unstemmed", limit=limit)
    if keys:
        tx.run("stem_texts", low=keys[-1], high=keys[0])
        tx.run("set_unstemmed", key=keys[-1] - 1)
    return len(keys)


def indexed_to(tx: Transaction) -> int:
    """The key of the newest indexed message."""
    return value(tx, "indexed_key") or 0


def lag(tx: Transaction) -> int:
    """An upper bound of the number of messages that are not indexed yet."""
    return value(tx, "index_lag") or 0


def search(
    tx: Transaction, owner: str, query: SearchQuery, *, filter: SessionFilter, session: SessionId | None, limit: int
) -> SearchPage:
    """The best matches that the owner can read."""
    if session is not None:
        find(tx, session, owner)
    whose = owner_token(owner)
    expression = tx.matching(whose, query)
    reach = _Reach(tx, owner, filter, session)
    hits: list[SearchHit] = []
    offset = 0
    while len(hits) < limit:
        found = values(tx, "found_messages", expression=expression, owner_token=whose, limit=_STEP, offset=offset)
        hits += [hit for key in found if (hit := _hit(tx, key, query, reach))]
        offset += _STEP
        if len(found) < _STEP:
            break
    return SearchPage(hits=tuple(hits[:limit]), lag=lag(tx))


def owner_token(owner: str) -> str:
    """A word of the index that stands for the owner, so that a query never reads the texts of other owners."""
    return "o" + sha256(owner.encode()).hexdigest()[:24]


def _entry(tx: Transaction, key: int, owner: str, text: str) -> dict[str, Parameter]:
    """The parameters that add a message to the index, or remove it."""
    whose = owner_token(owner)
    return {"key": key, "owner_token": whose, "text": tx.indexable(whose, text)}


def _searchable(message: IndexedMessage) -> str:
    """The text that is indexed: that of people and agents, not of tools and summaries."""
    return text_of(decode_parts(message.id, message.format, message.body)) if message.role in _INDEXED else ""


def _hit(tx: Transaction, key: int, query: SearchQuery, reach: "_Reach") -> SearchHit | None:
    found = _FOUND_MESSAGE.one(tx, key=key)
    reader = None if found is None else reach.reader_of(found)
    if found is None or reader is None:
        return None
    text = text_of(decode_parts(found.id, found.format, found.body))
    query = tx.widened(query, text)
    if not (tx.finds_phrases or query.matches(text)):
        return None
    return SearchHit(
        session=reader.id,
        title=reader.title,
        message=found.id,
        turn=found.turn,
        role=found.role,
        at=found.at,
        snippet=snippet(text, query),
    )


class _Reach:
    """Which sessions can read a message now. No session reads undone text; a session still reads its compacted text."""

    def __init__(self, tx: Transaction, owner: str, filter: SessionFilter, session: SessionId | None) -> None:
        self._tx, self._owner, self._filter, self._session = tx, owner, filter, session
        self._families: dict[SessionId, list[SessionId]] = {}
        self._rows: dict[SessionId, SessionRow | None] = {}
        self._segments: dict[SessionId, list[WindowSegment]] = {}

    def reader_of(self, message: _FoundMessage) -> SessionRow | None:
        """The session that reads this message: the one where it was written, or else a fork of it."""
        for session in self._family(message.session):
            session_row = self._row_of(session)
            if session_row is None or (self._session is not None and session != self._session):
                continue
            if any(
                part.source == message.window and part.low <= message.position < part.high
                for part in self._reading(session_row)
            ):
                return session_row
        return None

    def _family(self, session: SessionId) -> list[SessionId]:
        if session not in self._families:
            members = values(self._tx, "fork_family", session=session, owner=self._owner)
            self._families[session] = sorted(members, key=lambda member: (member != session, member))
        return self._families[session]

    def _row_of(self, session: SessionId) -> SessionRow | None:
        if session not in self._rows:
            found = find_if_there(self._tx, session, self._owner)
            self._rows[session] = found if found and self._passes(found) else None
        return self._rows[session]

    def _reading(self, session_row: SessionRow) -> list[WindowSegment]:
        if session_row.id not in self._segments:
            self._segments[session_row.id] = window_segments.reading(self._tx, session_row.window)
        return self._segments[session_row.id]

    def _passes(self, session_row: SessionRow) -> bool:
        session, wanted = session_row.value(self._tx.now), self._filter
        return (
            wanted.state in (None, session.state)
            and wanted.pinned in (None, session.pinned)
            and wanted.archived in (None, session.archived)
            and wanted.family in (None, session.family)
            and wanted.place in (None, session.place)
            and wanted.agent in (None, session.agent)
            and (wanted.tag is None or wanted.tag in session.tags)
        )
