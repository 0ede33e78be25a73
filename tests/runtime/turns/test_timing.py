"""Timing: an unusable value is rejected when it is set, not during a turn."""

import math
from typing import Any

import pytest

from backstay import Timing
from backstay.errors import ConfigError

NEVER_GOOD: list[Any] = [-1, -0.001, math.nan, "1", b"1", [1], True]
NAMES = Timing.__struct_fields__


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("value", NEVER_GOOD, ids=repr)
def test_an_invalid_time_or_size_is_rejected(name: str, value: object) -> None:
    with pytest.raises(ConfigError, match=name):
        Timing(**{name: value})  # type: ignore[arg-type]  # the mistake under test


@pytest.mark.parametrize(
    "name", ["flush_bytes", "buffer_bytes", "poll", "retry", "reap", "turn_timeout", "silence_timeout"]
)
def test_zero_is_rejected_where_it_would_mean_no_limit_or_no_pause(name: str) -> None:
    with pytest.raises(ConfigError, match="more than 0"):
        Timing(**{name: 0})


@pytest.mark.parametrize("name", sorted(set(NAMES) - {"turn_timeout", "silence_timeout"}))
def test_only_a_limit_can_be_left_out(name: str) -> None:
    with pytest.raises(ConfigError, match=name):
        Timing(**{name: None})  # type: ignore[arg-type]  # the mistake under test


@pytest.mark.parametrize("name", ["flush_bytes", "buffer_bytes"])
def test_a_size_is_whole(name: str) -> None:
    with pytest.raises(ConfigError, match="whole number"):
        Timing(**{name: 1.5})  # type: ignore[arg-type]  # the mistake under test


def test_valid_values_are_accepted() -> None:
    timing = Timing(
        flush=0, grace=0, reap=math.inf, turn_timeout=None, silence_timeout=0.5, buffer_bytes=1, flush_bytes=1
    )

    assert (timing.flush, timing.silence_timeout, timing.buffer_bytes) == (0, 0.5, 1)
