"""The best matches of a search that matches very many messages, kept so that the next one need not rank all of them.

BM25 orders the matches of a single term by `times / (0.25 + 0.75 * length / usual)`: how often the term is in the text,
the length of the text, and the usual length of all texts. Neither number of a text ever changes. If the usual length
grows by a factor, no text gains more than that factor. So a match that was not kept cannot exceed a certain
value now. Every kept or newer match above this value is in its exact place.
"""

from hashlib import sha256
from typing import NamedTuple

import msgspec

from backstay.store.engine import Transaction
from backstay.store.rows import Rows, value

# The number of kept matches, and the number of matching messages from which they are kept. Ranking fewer is cheap.
KEPT, COMMON = 250, 1_000
# All are ranked again after this many further matches, or after the usual length has grown by this factor.
_NEWER, _GROWTH = 500, 1.05
_SEARCHES = 200

# The parameters of FTS5's BM25, and what sums of floats may differ by.
_SATURATION, _LENGTH_WEIGHT = 1.2, 0.75
_ROUNDING = 1 + 1e-9
_LENGTH_BITS = 32


class RankedMatch(NamedTuple):
    """A match: the key of its message, how often the term is in it, and its length in words."""

    key: int
    times: int
    length: int

    def density(self, usual: float) -> float:
        """The value that BM25 grows with."""
        return self.times / (1 - _LENGTH_WEIGHT + _LENGTH_WEIGHT * self.length / usual)

    def rank(self, usual: float) -> tuple[float, int]:
        """The order of FTS5, with the same roundings: the best first, of equals the newest."""
        room = _SATURATION * (1 - _LENGTH_WEIGHT + _LENGTH_WEIGHT * self.length / usual)
        return -(self.times * (_SATURATION + 1.0)) / (self.times + room), -self.key


class BestMatches(NamedTuple):
    """The best matches of a search among all messages up to `key`."""

    key: int
    usual: float
    matches: bytes

    def certain(self, newer: list[RankedMatch], usual: float) -> list[int]:
        """The keys of those matches, old and new, before which no other match can stand; best first."""
        kept = _MATCHES.decode(self.matches)
        limit = min(match.density(self.usual) for match in kept) * max(1.0, usual / self.usual) * _ROUNDING
        above = [match for match in (*kept, *newer) if match.density(usual) > limit]
        return [match.key for match in sorted(above, key=lambda match: match.rank(usual))]


class LearnedMatches(msgspec.Struct, frozen=True, kw_only=True):
    """Best matches that a search has just found, to be kept."""

    query: bytes
    best: BestMatches
    rewound: int


_MATCHES = msgspec.msgpack.Decoder(list[RankedMatch])
_BEST = Rows("best_matches", BestMatches)


class _Shape(NamedTuple):
    """A match as the index describes it: count and length in one number."""

    key: int
    shape: int

    def match(self) -> RankedMatch:
        return RankedMatch(self.key, self.shape >> _LENGTH_BITS, self.shape & ((1 << _LENGTH_BITS) - 1))


_NEW_MATCHES = Rows("new_matches", _Shape)
_SHAPES = Rows("match_shapes", _Shape)


def known(tx: Transaction, owner: str, expression: str) -> list[int] | None:
    """The keys of the best matches, as many as are certain; None if they are not known, or not well enough."""
    best = _BEST.one(tx, query=_named(owner, expression))
    usual = None if best is None else value(tx, "usual_length", owner=owner, expression=expression)
    if best is None or usual is None or usual > best.usual * _GROWTH:
        return None
    newer = _NEW_MATCHES.all(tx, owner=owner, expression=expression, after=best.key, limit=_NEWER)
    return None if len(newer) == _NEWER else best.certain([shape.match() for shape in newer], usual)


def learn(tx: Transaction, owner: str, expression: str, ranked: list[int]) -> LearnedMatches | None:
    """The part of a search result to keep for the next search; None if the search matches few messages."""
    if len(ranked) < KEPT or value(tx, "match_beyond", owner=owner, expression=expression, count=COMMON - 1) is None:
        return None
    shapes = _SHAPES.all(tx, owner=owner, expression=expression, keys=str(ranked[:KEPT]))
    usual = value(tx, "usual_length", owner=owner, expression=expression)
    matches = msgspec.msgpack.encode([shape.match() for shape in shapes])
    best = BestMatches(key=value(tx, "indexed_key"), usual=usual, matches=matches)
    return LearnedMatches(query=_named(owner, expression), best=best, rewound=value(tx, "rewound"))


def keep(tx: Transaction, learned: LearnedMatches) -> None:
    """Keep the best matches of a search, and those of a bounded number of other searches."""
    best = learned.best
    tx.run(
        "keep_best_matches",
        query=learned.query,
        key=best.key,
        usual=best.usual,
        matches=best.matches,
        rewound=learned.rewound,
        now=tx.now,
    )
    tx.run("drop_best_matches", searches=_SEARCHES)


def _named(owner: str, expression: str) -> bytes:
    """A name for the search that does not reveal its words."""
    return sha256(f"{owner}\0{expression}".encode()).digest()[:16]
