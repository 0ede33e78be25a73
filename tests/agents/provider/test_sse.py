"""The reader of server-sent events, for every way in which bytes can arrive."""

import asyncio
from collections.abc import AsyncIterator
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backstay.agents.provider.transport.sse import EventTooLarge, events

ENDS = st.sampled_from([b"\n", b"\r\n", b"\r"])
DATA = st.text(st.characters(exclude_characters="\r\n", exclude_categories=["Cs"]), min_size=1).map(str.encode)


async def arriving(pieces: list[bytes]) -> AsyncIterator[bytes]:
    for piece in pieces:
        yield piece


def read(*pieces: bytes, limit: int = 1000) -> list[bytes]:
    async def all_of_it() -> list[bytes]:
        return [data async for data in events(arriving(list(pieces)), limit)]

    return asyncio.run(all_of_it())


@settings(deadline=None)
@given(st.lists(DATA, max_size=4), ENDS, st.lists(st.integers(0, 200), max_size=8))
def test_events_are_the_same_wherever_the_bytes_are_split(sent: list[bytes], end: bytes, cuts: list[int]) -> None:
    stream = b"".join(b"data: " + data + end + end for data in sent) + b":" + end
    edges = sorted({0, len(stream), *(cut for cut in cuts if cut < len(stream))})

    pieces = [stream[begin:stop] for begin, stop in pairwise(edges)]

    assert read(*pieces, limit=10_000) == sent


def test_data_of_several_lines_is_one_event() -> None:
    assert read(b"data: one\ndata:two\n\n") == [b"one\ntwo"]


def test_an_event_without_its_closing_line_was_cut_off() -> None:
    assert read(b"data: whole\n\ndata: half\n") == [b"whole"]


def test_an_event_larger_than_the_limit_is_refused() -> None:
    with pytest.raises(EventTooLarge):
        read(b"data: " + b"x" * 2000)
    with pytest.raises(EventTooLarge):
        read(*[b"data: " + b"x" * 100 + b"\n"] * 20)


def test_the_limit_is_for_one_event_not_for_all() -> None:
    assert len(read(*[b"data: " + b"x" * 100 + b"\n\n"] * 200)) == 200
