"""Unsynced output: kept by a holder until it is synced."""

from backstay.model.content import Text, Thought
from backstay.model.history.unsynced import SYNCED, Unsynced

ONE, TWO, OTHER = (Text("one"),), (Thought("hm"), Text("two")), (Text("other"),)


def test_unsynced_output_is_kept_in_order() -> None:
    both = SYNCED.plus(3, ONE).plus(7, TWO)

    assert both.since(0) == [(3, ONE), (7, TWO)]
    assert both.since(4) == [(7, TWO)]
    assert both.since(8) == []


def test_adding_output_does_not_change_the_earlier_value() -> None:
    one = SYNCED.plus(3, ONE)

    both, another = one.plus(4, TWO), one.plus(4, OTHER)

    assert (len(SYNCED), len(one)) == (0, 1)
    assert one.since(0) == [(3, ONE)]
    assert both.since(0) == [(3, ONE), (4, TWO)]
    assert another.since(0) == [(3, ONE), (4, OTHER)]
    assert SYNCED.plus(1, OTHER).since(0) == [(1, OTHER)]


def test_values_with_the_same_output_are_equal() -> None:
    assert SYNCED.plus(3, ONE).plus(4, TWO) == SYNCED.plus(3, ONE).plus(4, TWO)
    assert SYNCED.plus(3, ONE) != SYNCED.plus(3, TWO)
    assert Unsynced([], 0, 0) == SYNCED
    assert len({SYNCED.plus(3, ONE), SYNCED.plus(3, ONE)}) == 1


def test_the_size_grows_with_the_text_and_with_the_number_of_bodies() -> None:
    short, long = SYNCED.plus(0, ONE), SYNCED.plus(0, (Text("x" * 10_000),))
    many = SYNCED.plus(0, tuple(Text("") for _ in range(100)))

    assert long.size - short.size > 9_000
    assert many.size > 10_000
    assert long.plus(1, ONE).size > long.size
