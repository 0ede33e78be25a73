"""Lines: a term is found where its words stand beside each other, however the characters of the text fold."""

from hypothesis import example, given
from hypothesis import strategies as st

from backstay.model.search.lines import line_of
from backstay.model.search.terms import SearchTerm, spans, words

# Letters that fold one to one, to several letters, to none, and to words of their own; whole and in sequences.
_PIECES = """
    a b A é e\u0301 ß ﬁ ａ Å 1 ² 东 京 塔 さ ザ サ\u3099 ｻﾞ 서 ᄉ ᅥ ᆼ ဥ ီ กา ำ की \u00ad \u200d ا\u0640
    . , - _ ' 👍🏽 \U00020000 \U00030000
""".split()
texts = st.lists(st.sampled_from([*_PIECES, " ", " "]), max_size=24).map("".join) | st.text(max_size=12)


def _ranges(text: str, term: SearchTerm) -> set[tuple[int, int]]:
    """The ranges of all words that match, one place after the other."""
    found, where, size = words(text), spans(text), len(term.words)
    places = [at for at in range(len(found) - size + 1) if _here(found[at : at + size], term)]
    return {(where[at][0], where[at + size - 1][1]) for at in places}


def _here(found: list[str], term: SearchTerm) -> bool:
    *first, last = found
    return tuple(first) == term.words[:-1] and (
        last.startswith(term.words[-1]) if term.prefix else last == term.words[-1]
    )


@given(text=texts, at=st.integers(0, 20), size=st.integers(1, 3), prefix=st.booleans())
@example(text="a a a", at=0, size=2, prefix=False)
@example(text="ab a.a京a", at=1, size=1, prefix=True)
def test_a_term_is_found_wherever_its_words_stand_beside_each_other(
    text: str, at: int, size: int, prefix: bool
) -> None:
    line = " ".join(text.split())
    chosen = tuple(words(line)[at : at + size]) or ("a",)
    term = SearchTerm(words=chosen, prefix=prefix)

    assert set(line_of(line).ranges(term)) == _ranges(line, term)


@given(text=texts, sought=texts, prefix=st.booleans())
def test_a_term_of_other_words_is_found_only_where_it_stands(text: str, sought: str, prefix: bool) -> None:
    line = " ".join(text.split())
    term = SearchTerm(words=tuple(words(sought)) or ("b",), prefix=prefix)

    assert set(line_of(line).ranges(term)) == _ranges(line, term)


@given(text=texts)
def test_the_word_around_a_cut_is_the_word_that_the_cut_splits(text: str) -> None:
    line = " ".join(text.split())
    for at in range(len(line) + 1):
        split = [span for span in spans(line) if span[0] < at < span[1]]

        assert line_of(line).word_around(at) == (split[0] if split else (at, at))
