"""Search terms: matches that a person expects, and their snippets."""

import unicodedata

import apsw
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backstay.errors import InvalidPayload, Rejected, TooLarge
from backstay.model.search.snippet import ELLIPSIS, NARROWEST, Snippet, snippet
from backstay.model.search.terms import (
    QUERY_LENGTH,
    QUERY_TERMS,
    SearchQuery,
    SearchTerm,
    fts5_expression,
    parse_query,
    segmented,
    spans,
    words,
)


class Index:
    """A full-text table as the SQLite store has it, here in memory."""

    def __init__(self, *texts: str) -> None:
        self._texts = texts
        self._db = apsw.Connection(":memory:")
        self._db.execute(
            "CREATE VIRTUAL TABLE search USING fts5(text, content='', tokenize='unicode61 remove_diacritics 2')"
        )
        self._db.execute("CREATE VIRTUAL TABLE vocabulary USING fts5vocab(search, instance)")
        self._db.executemany("INSERT INTO search (rowid, text) VALUES (?, ?)", enumerate(map(segmented, texts)))

    def find(self, query: str | SearchQuery) -> list[str]:
        asked = parse_query(query) if isinstance(query, str) else query
        sql = "SELECT rowid FROM search WHERE search MATCH ? ORDER BY rowid"
        return [self._texts[row] for (row,) in self._db.execute(sql, (fts5_expression(asked),))]

    def tokens(self) -> list[str]:
        return [term for (term,) in self._db.execute('SELECT term FROM vocabulary ORDER BY doc, "offset"')]


def marked(found: Snippet) -> list[str]:
    return [found.text[start:end] for start, end in found.marks]


def says(text: str, term: SearchTerm) -> bool:
    """Whether the text is the term and nothing else."""
    *head, last = words(text) or [""]
    *wanted_head, wanted = term.words
    return head == wanted_head and (last.startswith(wanted) if term.prefix else last == wanted)


# Characters that are awkward together: case, accents before and after composition, widths, scripts without spaces,
# vowel signs, joiners, symbols that spell letters, and everything FTS5 would read as syntax.
LETTERS = "aAbéÉßﬁＡœİı12½²ⅣΣςЖйאبहनक東京都々〇かがカガヴｶﾊｰ각가한ㄱᄀนำกໄြမកខ👩🏽™№Ⓐ\u1025\U00020000\U0001e900"
SIGNS = "\u0301\u0327\u3099\u309aﾞﾟ\u1161\u11a8ัื้ि्ः\u102e\u103b\u17d2\u05b8\u064b\u0640\u20dd\u200d\ufe0f\u00ad"
BREAKS = " \n\t\u3000\u00a0\"“”*-+:^(){}'.,/_、。…\u200b\ue000"
GRAPHEMES = st.builds(str.__add__, st.sampled_from(LETTERS + BREAKS * 2), st.text(SIGNS, max_size=2))
TEXTS = st.lists(GRAPHEMES, max_size=60).map("".join) | st.text(max_size=40)


@st.composite
def texts_and_queries(draw: st.DrawFn) -> tuple[str, str]:
    """A text, and a query mostly made of pieces of it."""
    text = draw(TEXTS)
    places = st.integers(0, max(0, len(text) - 1))
    pieces = st.builds(lambda start, length: text[start : start + length], places, st.integers(1, 6))
    written = st.sampled_from(["{}", '"{}"', "{}*", '"{}"*', "{}", '"{}"', "-{}", '-"{}'])
    terms = st.lists(st.builds(str.format, written, pieces), min_size=1, max_size=3)
    return text, " ".join(draw(terms) + draw(st.lists(GRAPHEMES, max_size=1)))


def readable(query: str) -> SearchQuery | None:
    """The query, or None if it is refused, which is then done with a hint."""
    try:
        return parse_query(query)
    except Rejected as refusal:
        if not refusal.hint:
            raise
        return None


@pytest.mark.parametrize(
    ("query", "found", "not_found"),
    [
        ("北京", "我明天去北京大学。", "京北"),
        ("北京大学", "我明天去北京大学。", "北京的大学"),
        ("東京", "私は東京に住んでいます", "京東"),
        ("か", "まかせて", "がく"),
        ("ータ", "データベース", "デタ"),
        ("서울", "서울특별시에서", "울서"),
        ("가", "가나다", "각"),
        ("ㅋㅋ", "ㅋㅋㅋ", "ㅋ ㅎ ㅋ"),
        ("น้ำ", "ฉันดื่มน้ำเย็น", "นา"),
        ("ที่", "ไปที่บ้าน", "ทีบ้าน"),
        ("ລາວ", "ພາສາລາວ", "ລວາ"),
        ("ខ្មែរ", "ភាសាខ្មែរ", "ខមរ"),
        ("မြန်မာ", "ကမြန်မာစာ", "မန်မာ"),
    ],
)
def test_a_script_without_spaces_is_found_by_any_part_of_it_and_only_there(
    query: str, found: str, not_found: str
) -> None:
    assert Index(found, not_found).find(query) == [found]


@given(
    st.sampled_from(["東京都", "かがき", "ハバパ", "각가나", "นำ้", "กัิ", "မြန်", "ក្ខ", "ລຳາ", "𠀀𠀁東"]).flatmap(
        lambda script: st.tuples(st.text(script, max_size=8), st.text(script, min_size=1, max_size=3))
    )
)
def test_a_run_without_spaces_is_found_exactly_where_it_is_contained(drawn: tuple[str, str]) -> None:
    text, query = drawn

    assert (Index(text).find(query) == [text]) == (query in text)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("ガギグ", "ｶﾞｷﾞｸﾞ"),
        ("データ", "ﾃﾞｰﾀ"),
        ("Backstay 42", "Ｂａｃｋｓｔａｙ　４２"),
        ("がん", unicodedata.normalize("NFD", "がん")),
        ("한국어", unicodedata.normalize("NFD", "한국어")),
        ("ဦး", unicodedata.normalize("NFD", "ဦး")),
        ("École Ångström", unicodedata.normalize("NFD", "École Ångström")),
        ("ECOLE", "école"),
        ("Straße", "STRASSE"),
        ("ὈΔΥΣΣΕΎΣ", "οδυσσευς"),
        ("İstanbul", "istanbul"),
        ("office", "oﬃce"),
        ("cooperate", "co\u00adope\u200drate"),
        ("محمد", "مُحَمَّد"),
        ("שלום", "שָׁלוֹם"),
        ("हिन्दी", "हिन्दी\u200d"),
        ("⼭", "山"),
        ("葛", "葛\U000e0100"),
    ],
)
def test_two_spellings_of_one_word_find_each_other(one: str, other: str) -> None:
    index = Index(one, other)

    assert index.find(one) == index.find(other) == [one, other]


@pytest.mark.parametrize(("query", "text"), [("की", "कि"), ("कमल", "क म ल"), ("ı", "i"), ("caf", "café")])
def test_two_words_do_not_find_each_other(query: str, text: str) -> None:
    assert Index(text).find(query) == []


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("red", ["red fox", "the red, fat fox", "fox red"]),
        ("red fox", ["red fox", "the red, fat fox", "fox red"]),
        ('"red fox"', ["red fox"]),
        ("“red fox”", ["red fox"]),
        ("red-fox", ["red fox"]),
        ("fo*", ["red fox", "the red, fat fox", "fox red", "a forest"]),
        ('"red f"*', ["red fox", "the red, fat fox"]),
        ("fox -fat", ["red fox", "fox red"]),
        ('fox -"red fox"', ["the red, fat fox", "fox red"]),
        ('fox -"red fox', ["the red, fat fox", "fox red"]),
        ("-fo* the", []),
        ('fox" red', ["red fox", "the red, fat fox", "fox red"]),
        ("--fox - ™ * -* red", ["red fox", "the red, fat fox", "fox red"]),
        ("fo", []),
    ],
)
def test_words_are_all_wanted_and_phrases_prefixes_and_exclusions_act(query: str, found: list[str]) -> None:
    assert Index("red fox", "the red, fat fox", "fox red", "a forest").find(query) == found


@pytest.mark.parametrize(
    "query",
    ["cat AND dog", "cat OR dog", "NOT dog", "NEAR(cat dog, 2)", "text:cat", "^cat", "{text}:(cat)", "cat+dog", "'cat"],
)
def test_syntax_characters_of_fts5_are_literal(query: str) -> None:
    literal = query.lower()

    assert Index("cat dog", "cat", "dog", literal).find(query)[-1] == literal
    assert "NEAR" not in fts5_expression(parse_query(query))


@given(TEXTS | texts_and_queries().map(lambda drawn: drawn[1]))
def test_any_query_is_refused_or_runs(query: str) -> None:
    asked = readable(query)

    assert asked is None or len(Index("anything").find(asked)) <= 1


@pytest.mark.parametrize("query", ["", "  ", "-word", '-"a phrase" -b*', "™ … (*)", '""', '"', "-", "\u0301", "\ue000"])
def test_a_query_without_a_word_to_find_is_refused(query: str) -> None:
    with pytest.raises(InvalidPayload, match="no word to find"):
        parse_query(query)


@pytest.mark.parametrize("query", ["a\0b", "a \ud800", "\udfff"])
def test_a_query_that_is_not_text_is_rejected(query: str) -> None:
    with pytest.raises(InvalidPayload, match=r"U\+"):
        parse_query(query)


def test_a_query_may_be_as_large_as_the_limits_and_no_larger() -> None:
    Index("x").find("字" * QUERY_LENGTH)
    Index("x").find(" ".join(f"{n} -{n}" for n in range(QUERY_TERMS // 2)))

    with pytest.raises(TooLarge):
        parse_query("a" * (QUERY_LENGTH + 1))
    with pytest.raises(TooLarge):
        parse_query("a " * (QUERY_TERMS + 1))


def test_the_tokenizer_of_sqlite_splits_every_character_as_ours_does() -> None:
    codes = [*range(0xD800), *range(0xE000, 0x34000), *range(0xE0000, 0x110000, 97)]
    text = " ".join(f"{chr(code)} {chr(code)}e" for code in codes)

    assert Index(text).tokens() == words(text)


@given(TEXTS)
def test_the_tokenizer_finds_our_words(text: str) -> None:
    assert Index(text).tokens() == words(text)


@given(TEXTS)
def test_each_word_has_its_position(text: str) -> None:
    places = spans(text)

    assert [words(text[start:end]) for start, end in places] == [[word] for word in words(text)]
    assert places == sorted(places)


@given(st.text(st.characters(max_codepoint=127)))
def test_ascii_is_indexed_as_it_is(text: str) -> None:
    assert segmented(text) is text
    assert Index(text).tokens() == words(text)


@settings(max_examples=300)
@given(texts_and_queries(), st.integers(NARROWEST, 40))
def test_the_snippet_marks_every_match_of_the_index(drawn: tuple[str, str], width: int) -> None:
    text, query = drawn
    asked = readable(query)
    if asked is None or not Index(text).find(asked):
        return

    shown = snippet(text, asked, width=width)

    first, *_ = marked(shown)
    wider_than_shown = shown.text in {f"{first}{ELLIPSIS}", f"{ELLIPSIS}{first}{ELLIPSIS}"}
    assert wider_than_shown or all(any(says(mark, term) for term in asked.wanted) for mark in marked(shown))


@settings(max_examples=300)
@given(texts_and_queries(), st.integers(NARROWEST, 40))
def test_a_snippet_is_a_piece_of_its_text_on_one_line(drawn: tuple[str, str], width: int) -> None:
    text, query = drawn
    line = " ".join(text.split())
    asked = readable(query) or parse_query("a")

    shown = snippet(text, asked, width=width)

    edges = [edge for mark in shown.marks for edge in mark]
    assert len(shown.text) <= width
    assert edges == sorted(edges)
    assert all(mark.strip() for mark in marked(shown))
    assert shown.text == line or shown.text in cuts(line, len(shown.text))


def cuts(line: str, length: int) -> set[str]:
    """Every piece of the line with its ellipses that is this long and tears no character apart."""
    whole = [at for at in range(len(line) + 1) if at in {0, len(line)} or unicodedata.category(line[at])[0] != "M"]
    return {
        ELLIPSIS * (start > 0) + line[start:end] + ELLIPSIS * (end < len(line))
        for start in whole
        for end in whole
        if start < end and (start > 0) + end - start + (end < len(line)) == length
    }


def test_a_snippet_shows_the_most_terms_and_cuts_between_words() -> None:
    text = f"A fox. {'And so on. ' * 30}A red\n\nFÓX, reddish; {'and so on ' * 30}red"

    shown = snippet(text, parse_query("red* fox -wolf"), width=60)

    assert shown.text == "…And so on. A red FÓX, reddish; and so on and so on and so…"
    assert marked(shown) == ["red", "FÓX", "reddish"]


def test_a_snippet_of_a_script_without_spaces_surrounds_the_match() -> None:
    text = "天地玄黄宇宙洪荒" * 20 + "東京都" + "日月盈昃辰宿列張" * 20

    shown = snippet(text, parse_query("京都"), width=20)

    assert shown.text == "…宇宙洪荒東京都日月盈昃辰宿列張日月盈…"
    assert marked(shown) == ["京都"]


def test_marks_that_would_overlap_are_one_term_each() -> None:
    assert marked(snippet("東京都庁", parse_query("東京 京都 都庁 東"))) == ["東京", "都庁"]


def test_a_phrase_is_marked_across_punctuation_between_its_words() -> None:
    assert marked(snippet("see (red --\n fox).", parse_query('"red fox"'))) == ["red -- fox"]


def test_a_match_wider_than_the_snippet_is_marked_as_far_as_it_is_shown() -> None:
    shown = snippet("before " + "x" * 500 + " after", parse_query("x*"), width=20)

    assert shown == Snippet(text="…" + "x" * 18 + "…", marks=((1, 19),))


def test_a_text_without_the_terms_is_shown_from_its_start() -> None:
    assert snippet("one two three four five", parse_query("six"), width=16) == Snippet(text="one two three…")


def test_a_snippet_too_narrow_to_read_is_refused() -> None:
    with pytest.raises(InvalidPayload):
        snippet("text", parse_query("text"), width=NARROWEST - 1)


@pytest.mark.parametrize(
    ("text", "query"),
    [
        ("e" + "\u0301\u0316" * (1 << 18), "e"),
        ("x" * (1 << 20), "x*"),
        ("a " * (1 << 19), " ".join("a" * n for n in range(1, 30))),
        ("啊" * 350_000, " ".join("啊" * n for n in range(1, 32))),
        ("啊" * 350_000 + "吧", "啊" * 900 + "吧"),
    ],
    ids=["marks", "one-word", "short-words", "overlapping", "nearly"],
)
def test_the_worst_megabyte_still_has_a_snippet(text: str, query: str) -> None:
    assert snippet(text, parse_query(query)).marks
