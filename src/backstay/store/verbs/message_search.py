"""Search: an index that is filled after the writes, and hits that are checked against readable messages."""

from collections.abc import Collection, Iterator
from hashlib import sha256
from itertools import count
from typing import NamedTuple

import msgspec

from backstay.errors import ConfigError
from backstay.model.codec import decode_parts
from backstay.model.content import Role, text_of
from backstay.model.ids import MessageId, SessionId
from backstay.model.search.results import SearchHit, SearchPage
from backstay.model.search.snippet import snippet
from backstay.model.search.terms import SearchQuery
from backstay.model.session import SessionFilter
from backstay.store.engine import Parameter, Transaction
from backstay.store.rows import Rows, value, values
from backstay.store.session_row import find
from backstay.store.verbs import best_matches
from backstay.store.verbs.best_matches import LearnedMatches
from backstay.store.verbs.message_reach import FoundMessage, MessageReach

_STEP = best_matches.KEPT
_PIECE = 20
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


_UNINDEXED = Rows("unindexed", _UnindexedMessage)
_MATCHED = Rows("matched_messages", FoundMessage)


def forget(tx: Transaction) -> None:
    """Empty the index. Every message has to be indexed again."""
    # The mark comes first: on PostgreSQL this waits for a transaction that is indexing.
    tx.run("set_indexed", key=0)
    tx.run("empty_index")
    tx.run("count_rewind")


def index(tx: Transaction, limit: int) -> int:
    """Index the next messages. Returns how many."""
    rows = _UNINDEXED.all(tx, limit=limit)
    entries = [_entry(tx, row.key, row.owner, text) for row in _in_index_order(tx, rows) if (text := _searchable(row))]
    tx.run_many("index_message", entries)
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
            f"a SQLite store does not support search languages such as {', '.join(wanted)}",
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


class SearchResult(NamedTuple):
    """A page, and the matches that the store should keep for the next search like this one."""

    page: SearchPage
    learned: LearnedMatches | None


def search(
    tx: Transaction, owner: str, query: SearchQuery, *, filter: SessionFilter, session: SessionId | None, limit: int
) -> SearchResult:
    """The best matches that the owner can read."""
    if session is not None:
        find(tx, session, owner)
    ranking = _Ranking(tx, owner, query, keeps=tx.ranks_by_count and session is None)
    reach = MessageReach(tx, owner, filter, session)
    hits = _first_hits(tx, ranking.best(), query, reach, limit)
    if len(hits) < limit:
        hits = _first_hits(tx, ranking.all(max(limit, _STEP)), query, reach, limit)
    return SearchResult(SearchPage(hits=tuple(hits), lag=lag(tx)), ranking.learned)


class _Ranking:
    """The keys of possible matches, best first."""

    def __init__(self, tx: Transaction, owner: str, query: SearchQuery, *, keeps: bool) -> None:
        self._tx, self._owner = tx, owner
        self._expression = tx.matching(owner_token(owner), query)
        # The order of the matches of a single term depends on each text alone; of several, on how rare each term is.
        self._keeps = keeps and len(query.terms) == 1
        self.learned: LearnedMatches | None = None

    def best(self) -> Iterator[list[int]]:
        """The first of them, if they are known without ranking all."""
        found = best_matches.known(self._tx, self._owner, self._expression) if self._keeps else None
        self._keeps = self._keeps and found is None
        yield found or []

    def all(self, step: int) -> Iterator[list[int]]:
        """All of them, in long pieces: each ranks all matches again."""
        for offset in count(0, step):
            found = self._ranked(step, offset)
            if self._keeps and not offset:
                self.learned = best_matches.learn(self._tx, self._owner, self._expression, found)
            yield found
            if len(found) < step:
                return

    def _ranked(self, limit: int, offset: int) -> list[int]:
        return values(
            self._tx,
            "found_messages",
            expression=self._expression,
            owner=self._owner,
            owner_token=owner_token(self._owner),
            limit=limit,
            offset=offset,
        )


def owner_token(owner: str) -> str:
    """A word of the index that stands for the owner: PostgreSQL finds the texts of an owner by it.

    On SQLite the texts of an owner are a range of rows. The word is there because each text is ranked by its length.
    """
    return "o" + sha256(owner.encode()).hexdigest()[:24]


def _in_index_order(tx: Transaction, rows: list[_UnindexedMessage]) -> list[_UnindexedMessage]:
    """The messages by owner: FTS5 writes what it has gathered each time that a row comes before the last one."""
    numbers = {owner: value(tx, "number_owner", owner=owner) for owner in {row.owner for row in rows}}
    return sorted(rows, key=lambda row: (numbers[row.owner], row.key))


def _entry(tx: Transaction, key: int, owner: str, text: str) -> dict[str, Parameter]:
    """The parameters that add a message to the index, or remove it."""
    whose = owner_token(owner)
    return {"key": key, "owner": owner, "owner_token": whose, "text": tx.indexable(whose, text)}


def _searchable(message: IndexedMessage) -> str:
    """The text that is indexed: that of people and agents, not of tools and summaries."""
    return text_of(decode_parts(message.id, message.format, message.body)) if message.role in _INDEXED else ""


def _first_hits(
    tx: Transaction, ranked: Iterator[list[int]], query: SearchQuery, reach: MessageReach, limit: int
) -> list[SearchHit]:
    """The first hits among ranked messages, read in pieces as long as a page: most pages need only one."""
    size = max(limit, _PIECE)
    hits: list[SearchHit] = []
    for keys in ranked:
        for low in range(0, len(keys), size):
            hits += _hits(tx, keys[low : low + size], query, reach)
            if len(hits) >= limit:
                return hits[:limit]
    return hits


def _hits(tx: Transaction, keys: list[int], query: SearchQuery, reach: MessageReach) -> list[SearchHit]:
    """The hits among these messages, in the same order."""
    found = {message.key: message for message in _MATCHED.all(tx, keys=str(keys))}
    reach.read_rows(message.session for message in found.values())
    every = (_hit(tx, found[key], query, reach) for key in keys if key in found)
    return [hit for hit in every if hit is not None]


def _hit(tx: Transaction, found: FoundMessage, query: SearchQuery, reach: MessageReach) -> SearchHit | None:
    reader = reach.reader_of(found)
    if reader is None:
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
