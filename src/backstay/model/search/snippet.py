"""Snippets: the part of a text that shows why a search found it."""

import re
import unicodedata
from collections import Counter

import msgspec

from backstay.errors import InvalidPayload
from backstay.model.search.lines import Line, line_of
from backstay.model.search.terms import SearchQuery

ELLIPSIS = "…"
NARROWEST = 16


class Snippet(msgspec.Struct, frozen=True, kw_only=True):
    """A part of a message on one line, and where the wanted terms are in it.

    Attributes:
        text: The part.
        marks: The first character and the one after the last of each wanted term, in order, not overlapping.
    """

    text: str
    marks: tuple[tuple[int, int], ...] = ()


def snippet(text: str, query: SearchQuery, *, width: int = 160) -> Snippet:
    """The part of the text with the most wanted terms, at most `width` characters; its start if there are none.

    Raises:
        InvalidPayload: `width` is too small.
    """
    if width < NARROWEST:
        raise InvalidPayload(f"a snippet of {width} characters is too narrow", hint=f"Use {NARROWEST} or more.")
    line = line_of(" ".join(text.split()))
    if len(line.text) <= width:
        return Snippet(text=line.text, marks=line.marks(query))
    matches = line.matches(query)
    start, end = _framed(line, _densest(matches, width - 2), width - 2)
    return _cut(line, start, end, query, found=bool(matches))


def _densest(matches: list[tuple[int, int, int]], room: int) -> tuple[int, int]:
    """The first range of `room` characters with the most terms, then the most matches; (0, 0) if there are none."""
    best, densest = (0, 0), (0, 0)
    inside: Counter[int] = Counter()
    first = terms = 0
    for last, (_, end, term) in enumerate(matches):
        terms += not inside[term]
        inside[term] += 1
        while first < last and end - matches[first][0] > room:
            inside[matches[first][2]] -= 1
            terms -= not inside[matches[first][2]]
            first += 1
        score = (terms, last - first)
        if score > best:
            best, densest = score, (matches[first][0], end)
    return densest


def _framed(line: Line, span: tuple[int, int], room: int) -> tuple[int, int]:
    """The range with its surroundings, at most `room` characters; it is cut itself only if it is wider than that."""
    first, last = _whole(line.text, *span)
    if last - first > room:
        return first, _last_cut(line, first, first + room) or first + room
    start = max(0, first - (room - (last - first)) // 3)
    end = min(len(line.text), start + room)
    # If nothing was found, `last` is 0; if the text then starts with one very long word, that is cut.
    return _first_cut(line, max(0, end - room), first), _last_cut(line, last, end) or last or end


def _whole(text: str, first: int, last: int) -> tuple[int, int]:
    """The range, extended so that it splits no character."""
    while _continues(text, first):
        first -= 1
    while _continues(text, last):
        last += 1
    return first, last


def _first_cut(line: Line, start: int, first: int) -> int:
    """The first index from `start` on, `first` at the latest, where the text can be cut."""
    cut = min(first, line.word_around(start)[1])
    while cut < first and (line.text[cut] == " " or _continues(line.text, cut)):
        cut += 1
    return cut


def _last_cut(line: Line, last: int, end: int) -> int | None:
    """The last index up to `end` where the text can be cut; None if there is none after `last`."""
    cut = line.word_around(end)[0]
    while cut > last and (line.text[cut - 1] == " " or _continues(line.text, cut)):
        cut -= 1
    return cut if cut > last else None


# Characters that Unicode does not call marks but that belong to the one before: joiners, skin tones, two vowels.
_TRAILING = re.compile("[\u0e33\u0eb3\u200d\U0001f3fb-\U0001f3ff]")


def _continues(text: str, at: int) -> bool:
    """Whether a cut at this index would split a character."""
    if not 0 < at < len(text):
        return False
    mark = unicodedata.category(text[at])[0] == "M" or _TRAILING.match(text[at])
    return bool(mark) or text[at - 1] == "\u200d"


def _cut(line: Line, start: int, end: int, query: SearchQuery, *, found: bool) -> Snippet:
    """The text from start to end. If it matched and contains no whole term, its only term is wider than the snippet."""
    before, after = ELLIPSIS * (start > 0), ELLIPSIS * (end < len(line.text))
    piece = line.part(start, end)
    marks = piece.marks(query) or ((0, len(piece.text)),) * found
    shift = len(before)
    return Snippet(text=f"{before}{piece.text}{after}", marks=tuple((a + shift, b + shift) for a, b in marks))
