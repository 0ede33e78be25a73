"""A search over plain lists: reads every message, counts words, sorts by the formula of BM25, and has no index."""

from math import log
from typing import NamedTuple

from backstay.model.ids import MessageId, SessionId
from backstay.model.search.snippet import Snippet, snippet
from backstay.model.search.terms import SearchQuery, SearchTerm, parse_query, words
from tests.store.plain_store import PlainSession, PlainStore, Said, reach

_SATURATION, _LENGTH_WEIGHT, _LEAST_WEIGHT = 1.2, 0.75, 1e-6


class PlainHit(NamedTuple):
    """A message that a search must find, in the session that shows it."""

    session: SessionId | None
    message: MessageId | None
    snippet: Snippet


class PlainSearch:
    """All indexed messages of a plain store, as they are now."""

    def __init__(self, store: PlainStore) -> None:
        self._reach = [(session, set(reach(session.window))) for session in store.sessions]
        self._texts = {said: " ".join(said.words) for said in store.existing if said.role in ("user", "assistant")}
        self._folded = {said: words(text) for said, text in self._texts.items()}
        # Each text has one hidden word more: its owner.
        total = sum(len(found) + 1 for found in self._folded.values())
        self._usual = total / len(self._folded) if self._folded else 1.0

    def hits(self, text: str, owner: str, session: PlainSession | None = None, *, limit: int) -> list[PlainHit]:
        """The first of all matches that the owner can read, best first, of equals the newest."""
        query = parse_query(text)
        ages = {said: age for age, said in enumerate(self._folded)}
        shown = {said: reader for said in self._matches(query) if (reader := self._reader(said, owner, session))}
        weights = [self._weight(term) for term in query.wanted]
        order = sorted(shown, key=lambda said: (self._score(said, query, weights), -ages[said]))
        return [PlainHit(shown[said].id, said.id, snippet(self._texts[said], query)) for said in order[:limit]]

    def _matches(self, query: SearchQuery) -> list[Said]:
        return [said for said, text in self._texts.items() if query.matches(text)]

    def _reader(self, said: Said, owner: str, only: PlainSession | None) -> PlainSession | None:
        """The session that shows a message: its home, or else the oldest fork that reads it."""
        readers = [one for one, reached in self._reach if one.owner == owner and said in reached]
        among = [one for one in readers if only is None or one is only]
        return min(among, key=lambda one: (one is not said.home, one.id), default=None)

    def _score(self, said: Said, query: SearchQuery, weights: list[float]) -> float:
        """BM25, negative: the least is the best."""
        length, score = len(self._folded[said]) + 1, 0.0
        for term, weight in zip(query.wanted, weights, strict=True):
            count = float(_count(term, self._folded[said]))
            room = 1.0 - _LENGTH_WEIGHT + _LENGTH_WEIGHT * length / self._usual
            score += weight * ((count * (_SATURATION + 1.0)) / (count + _SATURATION * room))
        return -score

    def _weight(self, term: SearchTerm) -> float:
        with_it = sum(_count(term, found) > 0 for found in self._folded.values())
        weight = log((len(self._folded) - with_it + 0.5) / (with_it + 0.5))
        return weight if weight > 0 else _LEAST_WEIGHT


def _count(term: SearchTerm, found: list[str]) -> int:
    """How often the words of a term are adjacent; the last word of a prefix may be longer."""
    size = len(term.words)
    if size == 1 and not term.prefix:
        return found.count(term.words[0])
    return sum(_begins(term, found[at : at + size]) for at in range(len(found) - size + 1))


def _begins(term: SearchTerm, here: list[str]) -> bool:
    whole = tuple(here[:-1]) == term.words[:-1]
    return whole and (here[-1].startswith(term.words[-1]) if term.prefix else here[-1] == term.words[-1])
