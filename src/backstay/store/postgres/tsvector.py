"""Texts and queries for the search index: our own words as a tsvector, never split or folded by the server."""

import re
from collections.abc import Collection, Mapping, Sequence
from itertools import compress, pairwise
from operator import add, and_

from backstay.model.search.terms import SearchQuery, SearchTerm, characters, words

# The limits of a tsvector, with room for the additions of the server: bytes of a word, bytes in all, positions.
_WORD_BYTES = 2_000
_VECTOR_BYTES = 1 << 19
_POSITIONS = tuple(f":{position}" for position in range(1, 16_384))

# Marks a vector that has no room for pairs; no word looks like it.
_UNPAIRED = "~unpaired"
_SYNTAX = re.compile(r"(['\\])")

Stems = Mapping[str, Collection[str]]


def vector(owner_token: str, text: str) -> str:
    """The text's words with their positions, and its pairs, as a tsvector literal; empty if the text is too large."""
    found = words(text)
    if found and max(map(len, found)) > _WORD_BYTES // 4:
        found = [_clipped(word) for word in found]
    pairs = [] if text.isascii() else _pairs(found)
    # A word consists of letters only, so it needs no quotes.
    literal = " ".join([owner_token, *map(add, found, _POSITIONS), *found[len(_POSITIONS) :], *pairs])
    if not _fits(literal):
        literal = " ".join([owner_token, *set(found), *set(pairs)])
    if not _fits(literal):
        literal = " ".join([owner_token, *set(found), _UNPAIRED])
    return literal if _fits(literal) else ""


def expression(owner_token: str, query: SearchQuery, stems: Stems) -> str:
    """A tsquery that matches every text that the query could match; the caller checks phrases."""
    wanted = [_quoted(owner_token), *(_wanted(term, stems) for term in query.wanted)]
    unwanted = [f"!{_matched(term)}" for term in query.unwanted if term.is_word and _whole(term.words[0])]
    return " & ".join([*wanted, *unwanted])


def _wanted(term: SearchTerm, stems: Stems) -> str:
    if len(term.words) == 1:
        return _any([_matched(term), *map(_quoted, stems.get(term.words[0], ()))])
    *first, last = [_quoted(_clipped(word)) for word in term.words]
    every = [*first, f"{last}:*" if term.prefix else last]
    # The last word of a prefix may be incomplete, and then it is half of another pair.
    whole = term.words[:-1] if term.prefix else term.words
    inside = {at + half for at, pair in enumerate(pairwise(characters(whole))) if all(pair) for half in (0, 1)}
    if not inside:
        return " & ".join(every)
    paired = [*map(_quoted, _pairs(whole)), *(word for at, word in enumerate(every) if at not in inside)]
    return _any([_all(paired), _all([_quoted(_UNPAIRED), *every])])


def _pairs(found: Sequence[str]) -> list[str]:
    """Pairs of adjacent characters: rarer than each character, and found as fast."""
    alone = characters(found)
    both = map(and_, alone, alone[1:])
    return [one + other for one, other in compress(pairwise(found), both)]


def _matched(term: SearchTerm) -> str:
    return _quoted(_clipped(term.words[0])) + (":*" if term.prefix else "")


def _any(parts: list[str]) -> str:
    return parts[0] if len(parts) == 1 else f"({' | '.join(parts)})"


def _all(parts: list[str]) -> str:
    return parts[0] if len(parts) == 1 else f"({' & '.join(parts)})"


def _fits(literal: str) -> bool:
    return len(literal.encode()) <= _VECTOR_BYTES


def _clipped(word: str) -> str:
    return word if _whole(word) else word.encode()[:_WORD_BYTES].decode(errors="ignore")


def _whole(word: str) -> bool:
    return len(word) <= _WORD_BYTES // 4


def _quoted(word: str) -> str:
    return "'" + _SYNTAX.sub(r"\1\1", word) + "'"
