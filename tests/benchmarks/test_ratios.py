"""The statistics of the benchmarks beside the peers."""

import pytest

from benchmarks.peers.report.ratios import Pair, percentile, shown, spread


def test_a_peer_that_takes_twice_the_time_of_the_floor_has_ratio_one_half() -> None:
    assert Pair(floor=1.0, peer=2.0).ratio == 0.5


def test_a_spread_has_the_median_and_the_extremes_of_the_rounds() -> None:
    found = spread([Pair(floor=1.0, peer=peer) for peer in (1.0, 2.0, 4.0)])
    assert (found.median, found.low, found.high, found.rounds) == (0.5, 0.25, 1.0, 3)


def test_a_spread_pairs_each_round_with_its_own_floor() -> None:
    slow_moment = Pair(floor=10.0, peer=20.0)
    assert spread([Pair(floor=1.0, peer=2.0), slow_moment]).median == 0.5


def test_a_spread_without_rounds_is_an_error() -> None:
    with pytest.raises(ValueError, match="at least one round"):
        spread([])


@pytest.mark.parametrize(
    ("ratio", "text"),
    [(12.4, "12"), (9.96, "10"), (2.04, "2.0"), (1.0, "1.0"), (0.994, "0.99"), (0.12, "0.12"), (0.0151, "0.015")],
)
def test_ratios_are_shown_with_two_significant_digits(ratio: float, text: str) -> None:
    assert shown(ratio) == text


def test_a_tiny_ratio_is_not_shown_as_zero() -> None:
    assert shown(0.0034) == "0.0034"


@pytest.mark.parametrize(("part", "value"), [(0.0, 1.0), (0.5, 51.0), (0.99, 100.0), (1.0, 100.0)])
def test_a_percentile_is_a_measured_value(part: float, value: float) -> None:
    assert percentile([float(number) for number in range(1, 101)], part) == value


def test_a_percentile_of_nothing_is_an_error() -> None:
    with pytest.raises(ValueError, match="at least one value"):
        percentile([], 0.5)
