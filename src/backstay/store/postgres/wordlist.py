"""The search index's form of texts and queries: our own words as a tsvector, never split or folded by the server."""

import re
from collections import defaultdict

from backstay.model.searchtext import SearchQuery, SearchTerm, words

# What a tsvector can hold: positions up to here, this many of one word, this many bytes of a word, this much in all.
_POSITIONS = 16_383
_TIMES = 255
_WORD_BYTES = 2_000
_VECTOR_BYTES = 1 << 19

_SYNTAX = re.compile(r"(['\\])")


def vector(text: str) -> str:
    """The text's words with their places, as a tsvector literal. Empty: the text is too large to have one."""
    places: dict[str, list[int]] = defaultdict(list)
    for place, word in enumerate(words(text), 1):
        found = places[_clipped(word)]
        if len(found) < _TIMES and place <= _POSITIONS:
            found.append(place)
    literal = " ".join(_quoted(word) + (":" + ",".join(map(str, at)) if at else "") for word, at in places.items())
    if len(literal.encode()) <= _VECTOR_BYTES:
        return literal or " "
    literal = " ".join(map(_quoted, places))
    return literal if len(literal.encode()) <= _VECTOR_BYTES else ""


def expression(owner_token: str, query: SearchQuery) -> str:
    """A tsquery that lets pass every text the query could mean; phrases are the caller's to check."""
    wanted = [_quoted(owner_token), *(word for term in query.wanted for word in _words(term))]
    unwanted = [f"!{_words(term)[0]}" for term in query.unwanted if len(term.words) == 1 and _whole(term.words[0])]
    return " & ".join([*wanted, *unwanted])


def _words(term: SearchTerm) -> list[str]:
    *first, last = term.words
    return [*map(_matched, first), _matched(last, prefix=term.prefix)]


def _matched(word: str, *, prefix: bool = False) -> str:
    return _quoted(_clipped(word)) + (":*" if prefix else "")


def _clipped(word: str) -> str:
    return word if _whole(word) else word.encode()[:_WORD_BYTES].decode(errors="ignore")


def _whole(word: str) -> bool:
    return len(word) <= _WORD_BYTES // 4


def _quoted(word: str) -> str:
    return "'" + _SYNTAX.sub(r"\1\1", word) + "'"
