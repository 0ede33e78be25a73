"""Lines of text in which the terms of a search are looked up."""

import re
from bisect import bisect_left
from collections.abc import Iterator
from functools import lru_cache
from itertools import accumulate, islice, pairwise

from backstay.model.search.terms import ALONE, SearchQuery, SearchTerm, aligned, aligned_word, spans, words

# At most this many matches of a term are compared: no pair of text and query can make the choice slow.
_MATCHES_PER_TERM = 1_000

_LETTER = f"[^ {ALONE}]"
_LETTERS = re.compile(f"{_LETTER}*")
_LETTER_PAIR = re.compile(f"{_LETTER}{{2}}")


class Line:
    """A text without line breaks, to look up terms and words. A subclass knows how its words are folded."""

    def __init__(self, text: str) -> None:
        self.text = text

    def matches(self, query: SearchQuery) -> list[tuple[int, int, int]]:
        """Start, end and term number of each match, in reading order; of two with one start, the longer first."""
        every = enumerate(query.wanted)
        found = [(*match, n) for n, term in every for match in islice(self.ranges(term), _MATCHES_PER_TERM)]
        return sorted(found, key=lambda match: (match[0], -match[1]))

    def marks(self, query: SearchQuery) -> tuple[tuple[int, int], ...]:
        """The ranges of all terms; of overlapping ones only the first."""
        marks: list[tuple[int, int]] = []
        for start, end, _ in self.matches(query):
            if not marks or marks[-1][1] <= start:
                marks.append((start, end))
        return tuple(marks)

    def ranges(self, term: SearchTerm) -> Iterator[tuple[int, int]]:
        """The range of each match of a term."""
        raise NotImplementedError

    def word_around(self, at: int) -> tuple[int, int]:
        """The word that a cut at this index would split, or the empty range there."""
        raise NotImplementedError

    def part(self, start: int, end: int) -> "Line":
        """The text between two indexes, as a line."""
        return line_of(self.text[start:end])


def line_of(text: str) -> Line:
    """The text as a line. Nearly every text folds letter by letter; combining marks and ligatures do not."""
    folded = aligned(text)
    return _SplitLine(text) if folded is None else _AlignedLine(text, folded)


class _AlignedLine(Line):
    """A text and its folded form of the same length: a match in the one has the same range in the other."""

    def __init__(self, text: str, folded: str) -> None:
        super().__init__(text)
        self._folded = folded

    def ranges(self, term: SearchTerm) -> Iterator[tuple[int, int]]:
        for pattern in (_pattern(term.words, term.prefix), *(_pattern((word,), False) for word in term.akin)):
            for match in pattern.finditer(self._folded):
                yield match.start(), match.end(1)

    def word_around(self, at: int) -> tuple[int, int]:
        # A cut splits a word if there are letters on both sides of it.
        if not at or not _LETTER_PAIR.match(self._folded, at - 1):
            return at, at
        return at - _length(self._folded[at - 1 :: -1]), at + _length(self._folded[at:])

    def part(self, start: int, end: int) -> Line:
        return _AlignedLine(self.text[start:end], self._folded[start:end])


class _SplitLine(Line):
    """A text with the ranges of all its words, whatever they fold to."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self._spans = spans(text)
        folded = words(text)
        self._words = f" {' '.join(folded)} "
        self._spaces = list(accumulate((len(word) + 1 for word in folded), initial=0))

    def ranges(self, term: SearchTerm) -> Iterator[tuple[int, int]]:
        for sought in term.spellings:
            at = self._words.find(sought)
            while at >= 0:
                first = bisect_left(self._spaces, at)
                yield self._spans[first][0], self._spans[first + len(term.words) - 1][1]
                at = self._words.find(sought, at + 1)

    def word_around(self, at: int) -> tuple[int, int]:
        after = bisect_left(self._spans, (at,))
        return self._spans[after - 1] if after and self._spans[after - 1][1] > at else (at, at)


def _length(folded: str) -> int:
    """The number of letters of one word at the start of a folded text."""
    found = _LETTERS.match(folded)
    return 0 if found is None else found.end()


@lru_cache(maxsize=256)
def _pattern(sought: tuple[str, ...], prefix: bool) -> re.Pattern[str]:
    """Finds adjacent words in a folded line; its group 1 ends with the last of them.

    It begins with a literal, which is found by a fast search, and consumes the first word only: the next match may
    begin with the second.
    """
    written = [re.escape(aligned_word(word)) for word in sought]
    alone = [aligned_word(word) != word for word in sought]
    first = written[0] if alone[0] else f"{written[0]}(?<!{_LETTER}{written[0]})"
    gaps = [" *" if one or other else " +" for one, other in pairwise(alone)]
    rest = "".join(gap + word for gap, word in zip(gaps, written[1:], strict=True))
    end = "" if alone[-1] else f"{_LETTER}*" if prefix else f"(?!{_LETTER})"
    return re.compile(f"{first}(?=({rest}{end}))")
