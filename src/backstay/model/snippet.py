"""The few words of a text that show why a search found it."""

import re
import unicodedata
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator
from itertools import accumulate, islice

import msgspec

from backstay.errors import InvalidPayload
from backstay.model.searchtext import SearchQuery, SearchTerm, spans, words

ELLIPSIS = "…"
NARROWEST = 16
# So often a term is looked up before the best stretch is chosen: no pair of text and query can make that slow.
_PLACES_PER_TERM = 1_000


class Snippet(msgspec.Struct, frozen=True, kw_only=True):
    """A piece of a text on one line, and where in it the wanted terms stand: half-open, in order, apart."""

    text: str
    marks: tuple[tuple[int, int], ...] = ()


def snippet(text: str, query: SearchQuery, *, width: int = 160) -> Snippet:
    """The stretch of the text with most of what was looked for, at most `width` characters; its start if nothing is."""
    if width < NARROWEST:
        raise InvalidPayload(f"a snippet of {width} characters is too narrow", hint=f"Ask for {NARROWEST} or more.")
    line = _Line(" ".join(text.split()))
    if len(line.text) <= width:
        return Snippet(text=line.text, marks=line.marks(query))
    places = line.places(query)
    start, end = _framed(line, _densest(places, width - 2), width - 2)
    return _cut(line.text, start, end, query, found=bool(places))


class _Line:
    """A text whose words were found, so that terms can be looked up."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.spans = spans(text)
        folded = words(text)
        self._words = f" {' '.join(folded)} "
        self._spaces = list(accumulate((len(word) + 1 for word in folded), initial=0))

    def places(self, query: SearchQuery) -> list[tuple[int, int, int]]:
        """Start, end and term number of what was looked for, in reading order, of two at one start the longer first."""
        every = enumerate(query.wanted)
        found = [(*place, n) for n, term in every for place in islice(self._places(term), _PLACES_PER_TERM)]
        return sorted(found, key=lambda place: (place[0], -place[1]))

    def _places(self, term: SearchTerm) -> Iterator[tuple[int, int]]:
        for sought in term.spellings:
            at = self._words.find(sought)
            while at >= 0:
                first = bisect_left(self._spaces, at)
                yield self.spans[first][0], self.spans[first + len(term.words) - 1][1]
                at = self._words.find(sought, at + 1)

    def marks(self, query: SearchQuery) -> tuple[tuple[int, int], ...]:
        """The places of all terms; of those that overlap only the first."""
        marks: list[tuple[int, int]] = []
        for start, end, _ in self.places(query):
            if not marks or marks[-1][1] <= start:
                marks.append((start, end))
        return tuple(marks)

    def word_around(self, at: int) -> tuple[int, int]:
        """The word a cut at this place would go through, or the place itself."""
        after = bisect_left(self.spans, (at,))
        return self.spans[after - 1] if after and self.spans[after - 1][1] > at else (at, at)


def _densest(places: list[tuple[int, int, int]], room: int) -> tuple[int, int]:
    """The first stretch of `room` characters with the most terms, and of these the most places; (0, 0) of none."""
    best, densest = (0, 0), (0, 0)
    inside: Counter[int] = Counter()
    first = 0
    for last, (_, end, term) in enumerate(places):
        inside[term] += 1
        while first < last and end - places[first][0] > room:
            inside[places[first][2]] -= 1
            first += 1
        score = (sum(count > 0 for count in inside.values()), last - first)
        if score > best:
            best, densest = score, (places[first][0], end)
    return densest


def _framed(line: _Line, stretch: tuple[int, int], room: int) -> tuple[int, int]:
    """The stretch and what surrounds it, `room` characters at most; only what is wider than that is cut itself."""
    first, last = _whole(line.text, *stretch)
    if last - first > room:
        return first, _last_cut(line, first, first + room) or first + room
    start = max(0, first - (room - (last - first)) // 3)
    end = min(len(line.text), start + room)
    # If nothing was found, `last` is 0; if the text then starts with one endless word, that is cut.
    return _first_cut(line, max(0, end - room), first), _last_cut(line, last, end) or last or end


def _whole(text: str, first: int, last: int) -> tuple[int, int]:
    """The stretch without half a character at either end."""
    while _continues(text, first):
        first -= 1
    while _continues(text, last):
        last += 1
    return first, last


def _first_cut(line: _Line, start: int, first: int) -> int:
    """The first place from `start` on, `first` at the latest, where the text can be cut."""
    cut = min(first, line.word_around(start)[1])
    while cut < first and (line.text[cut] == " " or _continues(line.text, cut)):
        cut += 1
    return cut


def _last_cut(line: _Line, last: int, end: int) -> int | None:
    """The last place up to `end` where the text can be cut; None if there is none after `last`."""
    cut = line.word_around(end)[0]
    while cut > last and (line.text[cut - 1] == " " or _continues(line.text, cut)):
        cut -= 1
    return cut if cut > last else None


# What Unicode does not call a mark and yet belongs to the character before: joiners, skin tones, two vowels.
_TRAILING = re.compile("[\u0e33\u0eb3\u200d\U0001f3fb-\U0001f3ff]")


def _continues(text: str, at: int) -> bool:
    """Whether a cut at this place would tear a character apart."""
    if not 0 < at < len(text):
        return False
    mark = unicodedata.category(text[at])[0] == "M" or _TRAILING.match(text[at])
    return bool(mark) or text[at - 1] == "\u200d"


def _cut(text: str, start: int, end: int, query: SearchQuery, *, found: bool) -> Snippet:
    """The text from start to end; if it was found and has no whole term, its one term is wider than the snippet."""
    before, after = ELLIPSIS * (start > 0), ELLIPSIS * (end < len(text))
    piece = text[start:end]
    marks = _Line(piece).marks(query) or ((0, len(piece)),) * found
    shift = len(before)
    return Snippet(text=f"{before}{piece}{after}", marks=tuple((a + shift, b + shift) for a, b in marks))
