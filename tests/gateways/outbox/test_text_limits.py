"""Long texts are cut at the ends of blocks, nothing is lost, and every piece is Markdown of its own."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backstay.gateways.outbox.text_limits import fence_at, next_cut, piece, units

LIMIT = 100

lines = st.one_of(
    st.sampled_from(["", "```", "```python", "~~~~", "````", "- a point", "# Heading", "    ", "``` not a fence ```"]),
    st.text(max_size=160),
)
texts = st.lists(lines, max_size=30).map("\n".join)


def cuts_of(text: str, limit: int = LIMIT) -> list[tuple[int, int]]:
    cuts, start = [], 0
    while start < len(text):
        end = next_cut(text, start, limit)
        cuts.append((start, end))
        start = end
    return cuts


@given(texts)
def test_every_character_is_in_exactly_one_piece(text: str) -> None:
    cuts = cuts_of(text)

    assert "".join(text[start:end] for start, end in cuts) == text
    assert all(end > start for start, end in cuts)


@given(texts)
def test_no_piece_is_longer_than_the_limit(text: str) -> None:
    assert all(units(piece(text, start, end)) <= LIMIT for start, end in cuts_of(text))


@given(texts)
def test_no_piece_but_the_last_leaves_a_fence_open(text: str) -> None:
    pieces = [piece(text, start, end) for start, end in cuts_of(text)]

    assert [fence_at(part, len(part)) for part in pieces[:-1]] == [None] * len(pieces[:-1])


@given(texts)
def test_a_piece_follows_from_its_range_alone(text: str) -> None:
    for start, end in cuts_of(text):
        assert next_cut(text, start, LIMIT) == end


def test_a_short_text_is_one_piece() -> None:
    assert cuts_of("hello\n\nworld") == [(0, 12)]
    assert piece("hello\n\nworld", 0, 12) == "hello\n\nworld"


def test_a_text_is_cut_between_paragraphs() -> None:
    one, two = "a " * 30, "b " * 30
    text = f"{one}\n\n{two}"

    assert [text[start:end] for start, end in cuts_of(text)] == [f"{one}\n\n", two]


def test_a_paragraph_is_cut_between_words() -> None:
    text = "word " * 50

    assert all(text[end - 1] == " " for _, end in cuts_of(text))


def test_a_code_block_is_closed_and_opened_again_with_its_language() -> None:
    text = "```python\n" + "x = 1  # a line of code\n" * 8 + "```\nThat is it."

    pieces = [piece(text, start, end) for start, end in cuts_of(text)]

    assert all(part.startswith("```python\n") for part in pieces)
    assert all(part.rstrip().endswith("```") for part in pieces[:-1])
    assert pieces[-1].endswith("```\nThat is it.")


def test_a_text_is_cut_before_rather_than_within_a_code_block() -> None:
    text = "a " * 30 + "\n\n```\n" + "code\n" * 10 + "```"

    (first, *_) = cuts_of(text)

    assert text[: first[1]] == "a " * 30 + "\n\n"


def test_the_limit_counts_utf_16_units() -> None:
    text = "😀" * 120

    assert max(units(text[start:end]) for start, end in cuts_of(text)) <= LIMIT
    assert units("a😀") == 3


def test_a_limit_that_is_too_short_is_refused() -> None:
    with pytest.raises(ValueError, match="99"):
        next_cut("hello", 0, 99)
