"""Snippets: the part with the most terms, on one line, cut between words and never within a character."""

import pytest

from backstay.errors import InvalidPayload
from backstay.model.search.snippet import ELLIPSIS, NARROWEST, Snippet, snippet
from backstay.model.search.terms import parse_query


def shown(text: str, query: str, width: int = 160) -> str:
    """The snippet with each mark in brackets."""
    found = snippet(text, parse_query(query), width=width)
    marked, end = "", 0
    for start, stop in found.marks:
        marked += f"{found.text[end:start]}[{found.text[start:stop]}]"
        end = stop
    return marked + found.text[end:]


@pytest.mark.parametrize(
    ("text", "query", "expected"),
    [
        ("the red fox", "fox", "the red [fox]"),
        ("Fox and FÓX", "fox", "[Fox] and [FÓX]"),
        ("foxes and fox", "fox*", "[foxes] and [fox]"),
        ("foxes and fox", "fox", "foxes and [fox]"),
        ("the red fox", '"red fox"', "the [red fox]"),
        ("the red, fox", '"red fox"', "the [red, fox]"),
        ("red red fox", 'red "red fox"', "[red] [red fox]"),
        ("a\n\n  fox\tran", "fox", "a [fox] ran"),
        ("the red fox", "fox -wolf", "the red [fox]"),
        ("no such word", "fox", "no such word"),
        ("", "fox", ""),
    ],
)
def test_a_short_text_is_shown_whole_with_its_terms_marked(text: str, query: str, expected: str) -> None:
    assert shown(text, query) == expected


@pytest.mark.parametrize(
    ("text", "query", "expected"),
    [
        ("fox " + "word " * 20, "fox", "[fox] word word word…"),
        ("word " * 20 + "fox", "fox", "…word word word [fox]"),
        ("word " * 20, "fox", "word word word word…"),
        ("fox " + "word " * 20 + "fox wolf", "fox wolf", "…word word [fox] [wolf]"),
        ("fox one " + "word " * 20 + "fox two", "fox", "[fox] one word word word…"),
        ("x" * 40, "fox", "x" * 22 + "…"),
        ("x" * 40, "x*", "[" + "x" * 22 + "]…"),
    ],
)
def test_a_long_text_is_cut_around_the_most_terms(text: str, query: str, expected: str) -> None:
    assert shown(text, query, width=24) == expected


@pytest.mark.parametrize("width", [NARROWEST, 17, 30, 80])
@pytest.mark.parametrize(
    "text",
    [
        "word " * 30 + "fox " + "word " * 30,
        "e\u0301" * 100 + " fox " + "e\u0301" * 100,
        "👩‍👧" * 60 + " fox " + "👍🏽" * 60,
        "漢字" * 60 + "fox" + "漢字" * 60,
    ],
)
def test_a_snippet_is_never_wider_than_asked_and_shows_the_term(text: str, width: int) -> None:
    found = snippet(text, parse_query("fox"), width=width)

    assert len(found.text) <= width
    assert [found.text[start:end] for start, end in found.marks] == ["fox"]
    assert found.text.strip(ELLIPSIS) in " ".join(text.split())


@pytest.mark.parametrize("width", range(NARROWEST, 40))
def test_a_cut_splits_no_character(width: int) -> None:
    text = "e\u0301" * 50 + " fox " + "👩\u200d👧" * 50
    found = snippet(text, parse_query("fox"), width=width).text.strip(ELLIPSIS)

    assert not found.startswith(("\u0301", "\u200d"))
    assert not found.endswith("\u200d")
    assert not found.endswith("e")


def test_a_snippet_that_is_too_narrow_is_rejected() -> None:
    with pytest.raises(InvalidPayload, match="15 characters is too narrow"):
        snippet("fox", parse_query("fox"), width=NARROWEST - 1)


def test_a_text_as_long_as_the_width_is_not_cut() -> None:
    assert snippet("x" * NARROWEST, parse_query("fox"), width=NARROWEST) == Snippet(text="x" * NARROWEST)
