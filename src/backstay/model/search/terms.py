"""Text as search sees it: words, folded alike in the index, in the query and in the snippet.

Case, accents and letter widths do not count. Scripts without spaces give one word per character, so that a run of
characters is found anywhere. The words are made here and not by the database, so every engine finds the same text.
"""

import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from backstay.errors import InvalidPayload, TooLarge

QUERY_LENGTH = 1_000
QUERY_TERMS = 32

_HOW_TO_ASK = 'Enter words to find. "A phrase", a prefix* and -word to exclude a word also work.'


class SearchTerm(msgspec.Struct, frozen=True, kw_only=True):
    """Folded words that are adjacent in a text; with `prefix`, the last one may be the start of a word.

    `akin` are other forms of a single word; each counts as a match.
    """

    words: tuple[str, ...]
    prefix: bool = False
    excluded: bool = False
    literal: bool = False
    akin: tuple[str, ...] = ()

    @property
    def is_word(self) -> bool:
        """Whether it is one word, whole or a prefix, and not a phrase."""
        return len(self.words) == 1

    @property
    def has_forms(self) -> bool:
        """Whether other inflected forms may match. Excluded, quoted and truncated words are meant literally."""
        return self.is_word and not self.prefix and not self.excluded and not self.literal

    @property
    def spellings(self) -> tuple[str, ...]:
        """The forms to look for in words that each have a space on both sides."""
        written = f" {' '.join(self.words)}{'' if self.prefix else ' '}"
        return (written, *(f" {word} " for word in self.akin))

    def stands_in(self, folded: str) -> bool:
        """Whether it occurs in these words. Each word has a space on both sides."""
        return any(spelling in folded for spelling in self.spellings)


class SearchQuery(msgspec.Struct, frozen=True, kw_only=True):
    """A search: texts with every wanted term and no excluded one.

    Raises:
        InvalidPayload: There is no wanted term.
    """

    terms: tuple[SearchTerm, ...]

    def __post_init__(self) -> None:
        if not self.wanted:
            raise InvalidPayload("the search contains no word to find", hint=_HOW_TO_ASK)

    @property
    def inflected(self) -> tuple[str, ...]:
        """The words that may have other inflected forms."""
        return tuple(term.words[0] for term in self.terms if term.has_forms)

    def with_forms(self, akin: Mapping[str, Iterable[str]]) -> "SearchQuery":
        """The same query, with these words as further forms of its own."""
        return SearchQuery(
            terms=tuple(
                msgspec.structs.replace(term, akin=tuple(sorted(akin.get(term.words[0], ()))))
                if term.has_forms
                else term
                for term in self.terms
            )
        )

    @property
    def wanted(self) -> tuple[SearchTerm, ...]:
        """The terms that a match must contain; never empty."""
        return tuple(term for term in self.terms if not term.excluded)

    @property
    def unwanted(self) -> tuple[SearchTerm, ...]:
        """The terms that a match must not contain."""
        return tuple(term for term in self.terms if term.excluded)

    def matches(self, text: str) -> bool:
        """Whether the text has every wanted term and no excluded one."""
        folded = f" {' '.join(words(text))} "
        return all(term.stands_in(folded) for term in self.wanted) and not any(
            term.stands_in(folded) for term in self.unwanted
        )


def segmented(text: str) -> str:
    """The text for the index: a tokenizer that splits at everything but letters finds our words in it."""
    return text if text.isascii() else _folded(text)


def words(text: str) -> list[str]:
    """The words of the text, folded, in order."""
    return _folded(text).split()


def characters(found: Sequence[str]) -> list[bool]:
    """For each of these words, whether it is a character of a script without spaces, so perhaps a part of a word."""
    return [len(word) == 1 and _CHARACTERS[word] for word in found]


def aligned(text: str) -> str | None:
    """The text folded letter by letter, at its own length, for fast searches; None if it cannot be folded like that.

    A space separates words, and so does each character of a script without spaces: these are moved to a range of their
    own, `ALONE`, which contains no other letter.
    """
    runs = (text,) if text.isascii() else _RUNS.findall(text)
    folded = "".join([run.translate(_ALIGNED) for run in runs])
    return None if _UNALIGNED in folded else folded


def aligned_word(word: str) -> str:
    """A word of a query as `aligned` writes it."""
    return _moved(word) if len(word) == 1 and _CHARACTERS[word] else word


def spans(text: str) -> list[tuple[int, int]]:
    """The range of each of `words(text)` in the text; ranges never overlap."""
    return [word.span() for word in _WORD.finditer(_JOINABLE.sub(_glued, text).translate(_KINDS))]


def parse_query(text: str) -> SearchQuery:
    """Parse a search. Everything but phrases, prefixes and exclusions is literal.

    Raises:
        InvalidPayload: There is no word to find, or an invalid character.
        TooLarge: The search is too long or has too many terms.
    """
    _refuse_unreadable(text)
    terms = [term for written in _TERM.finditer(text) if (term := _term(written)).words]
    if len(terms) > QUERY_TERMS:
        raise TooLarge(f"the search has {len(terms)} terms, the limit is {QUERY_TERMS}", hint="Search for fewer words.")
    return SearchQuery(terms=tuple(dict.fromkeys(terms)))


def fts5_expression(query: SearchQuery) -> str:
    """The query as an FTS5 MATCH expression over the column `text`; no word in it can act as syntax."""
    wanted = " AND ".join(_phrase(term) for term in query.wanted)
    unwanted = "".join(f" NOT {_phrase(term)}" for term in query.unwanted)
    return f"text : ({wanted}{unwanted})"


# A quote opens a phrase only at the start of a term, so the one in `24" monitor` is literal. Typographic quotes count
# as quotes. A minus excludes only directly before its word: `--verbose` and `a - b` are literal.
_TERM = re.compile(
    r'(?P<minus>(?<!\S)-(?=[^\s-]))?(?:["“”＂](?P<phrase>[^"“”＂]*)(?:["“”＂]|\Z)(?P<star>\*)?|(?P<word>\S+))'
)


def _term(written: re.Match[str]) -> SearchTerm:
    literal = written["word"] or written["phrase"] or ""
    prefix = written["word"].endswith("*") if written["word"] else bool(written["star"])
    return SearchTerm(
        words=tuple(words(literal)),
        prefix=prefix,
        excluded=bool(written["minus"]),
        literal=written["phrase"] is not None,
    )


def _refuse_unreadable(text: str) -> None:
    if len(text) > QUERY_LENGTH:
        raise TooLarge(
            f"the search has {len(text):,} characters, the limit is {QUERY_LENGTH:,}", hint="Search for fewer words."
        )
    if found := re.search("[\0\ud800-\udfff]", text):
        raise InvalidPayload(
            f"the search contains the invalid character U+{ord(found[0]):04X} at {found.start()}",
            hint="Send plain UTF-8.",
        )


def _phrase(term: SearchTerm) -> str:
    quoted = " + ".join('"' + word.replace('"', '""') + '"' for word in term.words)
    return f"{quoted} *" if term.prefix else quoted


# The scripts without spaces between words: Thai and Lao, Myanmar, Khmer, Hangul, Han, Kana and Bopomofo.
_UNSPACED = re.compile(
    "[\u0e00-\u0eff\u1000-\u109f\u1100-\u11ff\u1780-\u17ff\u2e80-\u2fdf\u3005-\u3007\u3021-\u302f\u3031-\u303c"
    "\u3041-\u30ff\u3105-\u312f\u3131-\u318e\u31a0-\u31bf\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\ua960-\ua97f"
    "\ua9e0-\ua9ff\uaa60-\uaa7f\uac00-\ud7ff\uf900-\ufaff\uff66-\uffdc"
    "\U00016fe0-\U00018cff\U0001aff0-\U0001b16f\U00020000-\U0003fffd]"
)

# Characters that can be written as a sequence and are still one letter: voiced kana (also of half width), Hangul
# syllables, one Myanmar vowel. Every other composed character folds like its sequence.
_JOINABLE = re.compile(
    "[\u1025\u1100-\u1112\u3046-\u30fd\uac00-\ud7a3\uff66-\uff9d]"
    "(?:[\u102e\u11a8-\u11c2\u3099\u309a\uff9e\uff9f]|[\u1161-\u1175][\u11a8-\u11c2]?)"
)

# The second half of such a sequence. The other second halves, which voice kana, are ignored without a first one.
_JOINED = re.compile("[\u102e\u1161-\u1175\u11a8-\u11c2]")

# Soft hyphen, joiners, variation selectors, the Arabic tatweel: with or without them, it is the same word.
_UNSEEN = re.compile("[\u00ad\u034f\u0640\u180b-\u180f\u200d\u2060\ufe00-\ufe0f\ufeff\U000e0100-\U000e01ef]")

# Characters that are letters today, but marks in the older tables of FTS5's tokenizer.
_ONCE_MARKS = re.compile("[\u19b0-\u19c0\u19c8\u19c9\u1cf2\u1cf3]")
_PRIVATE_USE = 0xF0000

# Where `aligned` moves characters that are words by themselves: no text has letters there.
_ALONE = 0xB0000
ALONE = "\U000b0000-\U000effff"
_UNALIGNED = "\1"
# A text with some characters that are not ASCII is folded in pieces: translating pure ASCII is ten times as fast.
_RUNS = re.compile("[\0-\x7f]+|[^\0-\x7f]+")


def _folded(text: str) -> str:
    return _JOINABLE.sub(_joined, text).translate(_FOLDS)


def _joined(sequence: re.Match[str]) -> str:
    return unicodedata.normalize("NFKC", sequence[0])


def _glued(sequence: re.Match[str]) -> str:
    """The sequence at its own length, with ignored characters after the first one if it is one letter."""
    written = sequence[0]
    return written[0].ljust(len(written), "\u034f") if len(_joined(sequence)) == 1 else written


def _fold(character: str) -> str:
    """A character as search sees it: letters, nothing, a space, or a letter between spaces."""
    form = unicodedata.normalize("NFKC", character)
    plain = form if len(form) == 1 else character
    if _ignored(plain):
        return ""
    if not _lettered(plain):
        return " "
    return f" {_indexable(plain)} " if _alone(plain) else _spelled(plain)


def _spelled(character: str) -> str:
    """The character in lower case without accents; ligatures become separate letters."""
    parts = [part for part in unicodedata.normalize("NFKD", character) if not _ignored(part)]
    if not all(_lettered(part) and not _alone(part) for part in parts):
        parts = [character]
    return "".join(_indexable(letter) for letter in "".join(parts).casefold())


def _indexable(letter: str) -> str:
    """The letter, or its replacement: the tokenizer splits words at vowel signs, but keeps private-use characters."""
    if unicodedata.category(letter)[0] == "M" or _ONCE_MARKS.match(letter):
        return chr(_PRIVATE_USE + ord(letter))
    return letter


def _ignored(character: str) -> bool:
    """Whether a word stays the same word without this character."""
    # By canonical combining class: vowel signs (0), nuktas (7), viramas (9) and the tones of Thai, Lao and Tibetan
    # (84 to 132) make another word; the points of Hebrew and Arabic (10 to 36) and all accents do not.
    order = unicodedata.combining(character)
    accent = order in (1, 6, 8) or 10 <= order <= 36 or order >= 200 or unicodedata.category(character) == "Me"
    return accent or _UNSEEN.match(character) is not None


def _lettered(character: str) -> bool:
    return unicodedata.category(character)[0] in "LNM"


def _alone(character: str) -> bool:
    """Whether the character is a word by itself; digits of any script form numbers."""
    return _UNSPACED.match(character) is not None and unicodedata.category(character) != "Nd"


class _Folds(dict[int, str]):
    """Folds for `str.translate`, computed when a character is first seen."""

    def __missing__(self, code: int) -> str:
        fold = _fold(chr(code))
        if code < _RARE:
            self[code] = fold
        return fold


class _Kinds(dict[int, str]):
    """The kind of each character, for `str.translate`: (w)ord, (a)lone, (i)gnored, or a space."""

    def __missing__(self, code: int) -> str:
        fold = _FOLDS[code]
        kind = "i" if not fold else " " if fold == " " else "a" if fold[0] == " " else "w"
        if code < _RARE:
            self[code] = kind
        return kind


class _Aligned(dict[int, str]):
    """Folds of the same length, for `str.translate`; `_UNALIGNED` for characters that have none."""

    def __missing__(self, code: int) -> str:
        fold = _FOLDS[code]
        letter = _moved(fold[1]) if fold[:1] == " " and len(fold) == 3 else fold
        found = letter if len(letter) == 1 and not _JOINED.match(chr(code)) else _UNALIGNED
        if code < _RARE:
            self[code] = found
        return found


def _moved(letter: str) -> str:
    """A character that is a word by itself, in its place in `ALONE`."""
    code = ord(letter)
    return chr(_ALONE + (code - _PRIVATE_USE if code > _PRIVATE_USE else code))


class _Characters(dict[str, bool]):
    """Whether a letter of the index is a word by itself."""

    def __missing__(self, letter: str) -> bool:
        code = ord(letter)
        written = code - _PRIVATE_USE if code > _PRIVATE_USE else code
        alone = _alone(chr(written))
        if written < _RARE:
            self[letter] = alone
        return alone


# Characters from here on are not cached: a text of a million different characters must not stay in memory.
_RARE = 0x20000
_FOLDS = _Folds()
_KINDS = _Kinds()
_ALIGNED = _Aligned()
_CHARACTERS = _Characters()
_WORD = re.compile("w[wi]*|ai*")
