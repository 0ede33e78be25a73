"""Search: an index behind the write path, and hits that are checked against what the owner can reach now."""

from collections.abc import Collection, Sequence
from hashlib import sha256
from typing import Any

from backstay.errors import ConfigError
from backstay.model.codec import decode_parts
from backstay.model.content import text_of
from backstay.model.ids import SessionId
from backstay.model.search import SearchHit, SearchPage
from backstay.model.searchtext import SearchQuery
from backstay.model.session import SessionFilter
from backstay.model.snippet import snippet
from backstay.store.door import Door, find
from backstay.store.engine import Parameter, Row, Transaction
from backstay.store.verbs import windows
from backstay.store.verbs.windows import Stretch

Columns = Sequence[Any]  # Any: what the driver gives of a message
_STEP = 100
_INDEXED = ("user", "assistant")


def forget(tx: Transaction) -> None:
    """Empty the index, as if no message had been read into it yet."""
    # First the mark, for which whoever indexes just now is waited.
    tx.run("set_indexed", key=0)
    tx.run("empty_index")


def index(tx: Transaction, limit: int) -> int:
    """Read the next messages into the index; how many there were."""
    rows = tx.all("unindexed", limit=limit)
    tx.run_many(
        "index_message",
        [_entry(tx, message, owner, text) for *message, owner in rows if (text := _searchable(message))],
    )
    if rows:
        tx.run("set_indexed", key=rows[-1][0])
    return len(rows)


def unindex(tx: Transaction, message: Columns, owner: str) -> None:
    """Take a message out of the index before it is deleted."""
    text = _searchable(message)
    if text:
        tx.run("unindex_message", **_entry(tx, message, owner, text))


def speak(tx: Transaction, languages: Collection[str]) -> tuple[str, ...]:
    """From now on find words by their forms in these languages too; what is indexed already follows step by step."""
    wanted = tuple(sorted(set(languages)))
    current = spoken(tx)
    known = [row[0] for row in tx.all("known_languages")]
    for language in wanted:
        if language not in known:
            raise ConfigError(
                f"this store's search does not know the language {language!r}",
                hint=f"It knows {', '.join(known)}." if known else "Languages need PostgreSQL.",
            )
    if wanted != current:
        tx.run("set_languages", languages=" ".join(wanted))
    return wanted


def spoken(tx: Transaction) -> tuple[str, ...]:
    """The languages in which other forms of a word are found too."""
    return tuple(row[0] for row in tx.all("languages"))


def stem(tx: Transaction, limit: int) -> int:
    """Give the next texts their stems in the languages of now; how many there were."""
    keys = [row[0] for row in tx.all("unstemmed", limit=limit)]
    if keys:
        tx.run("stem_texts", low=keys[-1], high=keys[0])
        tx.run("set_unstemmed", key=keys[-1] - 1)
    return len(keys)


def indexed_to(tx: Transaction) -> int:
    """The key of the newest message that the index has read."""
    row = tx.one("indexed_key")
    return row[0] if row else 0


def lag(tx: Transaction) -> int:
    """How many messages the index has not read yet, at most."""
    row = tx.one("index_lag")
    return row[0] if row else 0


def search(
    tx: Transaction, owner: str, query: SearchQuery, *, filter: SessionFilter, session: SessionId | None, limit: int
) -> SearchPage:
    """The best matches that the owner can reach."""
    if session is not None:
        find(tx, session, owner)
    whose = owner_token(owner)
    expression = tx.matching(whose, query)
    reach = _Reach(tx, owner, filter, session)
    hits: list[SearchHit] = []
    offset = 0
    while len(hits) < limit:
        found = tx.all("found_messages", expression=expression, owner_token=whose, limit=_STEP, offset=offset)
        hits += [hit for row in found if (hit := _hit(tx, row[0], query, reach))]
        offset += _STEP
        if len(found) < _STEP:
            break
    return SearchPage(hits=tuple(hits[:limit]), lag=lag(tx))


def owner_token(owner: str) -> str:
    """One word of the index that stands for the owner, so that other owners' texts are never looked at."""
    return "o" + sha256(owner.encode()).hexdigest()[:24]


def _entry(tx: Transaction, message: Columns, owner: str, text: str) -> dict[str, Parameter]:
    """A message as it goes into the index, or out of it."""
    whose = owner_token(owner)
    return {"key": message[0], "owner_token": whose, "text": tx.indexable(whose, text)}


def _searchable(message: Columns) -> str:
    """What the index takes of a message: the words of people and agents, nothing of tools and summaries."""
    _, role, record, version, body = message
    return text_of(decode_parts(record, version, body)) if role in _INDEXED else ""


def _hit(tx: Transaction, key: int, query: SearchQuery, reach: "_Reach") -> SearchHit | None:
    row = tx.one("found_message", key=key)
    door = None if row is None else reach.reader_of(row)
    if row is None or door is None:
        return None
    _, _, message, turn, role, version, body, at, _ = row
    text = text_of(decode_parts(message, version, body))
    query = tx.widened(query, text)
    if not (tx.finds_phrases or query.matches(text)):
        return None
    return SearchHit(
        session=door.id, title=door.title, message=message, turn=turn, role=role, at=at, snippet=snippet(text, query)
    )


class _Reach:
    """Which sessions can read a message now. Undone text can be read by none, compacted text still by its own."""

    def __init__(self, tx: Transaction, owner: str, filter: SessionFilter, session: SessionId | None) -> None:
        self._tx, self._owner, self._filter, self._session = tx, owner, filter, session
        self._families: dict[SessionId, list[SessionId]] = {}
        self._doors: dict[SessionId, Door | None] = {}
        self._stretches: dict[SessionId, list[Stretch]] = {}

    def reader_of(self, row: Row) -> Door | None:
        """The session that reads this message: the one it was said in, or else a fork of it."""
        window, position, said_in = row[0], row[1], row[8]
        for session in self._family(said_in):
            door = self._door(session)
            if door is None or (self._session is not None and session != self._session):
                continue
            if any(part.source == window and part.low <= position < part.high for part in self._reading(door)):
                return door
        return None

    def _family(self, session: SessionId) -> list[SessionId]:
        if session not in self._families:
            rows = self._tx.all("fork_family", session=session, owner=self._owner)
            self._families[session] = sorted((row[0] for row in rows), key=lambda member: (member != session, member))
        return self._families[session]

    def _door(self, session: SessionId) -> Door | None:
        if session not in self._doors:
            row = self._tx.one("door", session=session, owner=self._owner)
            door = None if row is None else Door(*row)
            self._doors[session] = door if door and self._passes(door) else None
        return self._doors[session]

    def _reading(self, door: Door) -> list[Stretch]:
        if door.id not in self._stretches:
            self._stretches[door.id] = windows.reading(self._tx, door.window)
        return self._stretches[door.id]

    def _passes(self, door: Door) -> bool:
        session, wanted = door.value(self._tx.now), self._filter
        return (
            wanted.state in (None, session.state)
            and wanted.pinned in (None, session.pinned)
            and wanted.archived in (None, session.archived)
            and wanted.family in (None, session.family)
            and wanted.place in (None, session.place)
            and wanted.agent in (None, session.agent)
            and (wanted.tag is None or wanted.tag in session.tags)
        )
