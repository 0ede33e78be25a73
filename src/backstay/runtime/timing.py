"""Timeouts and intervals of the runtime."""

import msgspec

from backstay.errors import ConfigError

_MAY_BE_ZERO = ("flush", "grace")
_SIZES = ("flush_bytes", "buffer_bytes")
_LIMITS = ("turn_timeout", "silence_timeout")


class Timing(msgspec.Struct, frozen=True, kw_only=True):
    """All times of the runtime, in seconds, and the buffer sizes. None means no limit.

    Args:
        flush: The longest time that output of an agent waits before it is stored; 0 stores it at once.
        flush_bytes: Output of this size is stored without waiting for `flush`.
        buffer_bytes: With this much output not stored yet, the agent waits.
        poll: Between two polls of the database for changes by other processes.
        grace: For running turns when the app closes, and for agents and tasks to stop after they were cancelled.
        turn_timeout: The longest duration of a turn; the turn fails after it. None means no limit.
        silence_timeout: The longest silence of an agent that does not wait for a person or the disk; the turn fails
            after it. None means no limit.
        retry: Between two attempts of a write that failed.
        reap: Between two searches for turns whose worker is dead.

    Raises:
        ConfigError: A value has the wrong type, is negative or NaN, or is 0 where it must be positive.
    """

    flush: float = 0.05
    flush_bytes: int = 2_048
    buffer_bytes: int = 262_144
    poll: float = 0.025
    grace: float = 5.0
    turn_timeout: float | None = None
    silence_timeout: float | None = None
    retry: float = 0.2
    reap: float = 0.5

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            value = getattr(self, name)
            if not (name in _LIMITS and value is None) and not _fits(name, value):
                raise ConfigError(f"invalid Timing.{name}: {value!r}", hint=_hint(name))


def _fits(name: str, value: object) -> bool:
    """Whether the value is usable: it neither waits forever nor polls without a pause. NaN is not."""
    if isinstance(value, bool) or not isinstance(value, int if name in _SIZES else int | float):
        return False
    return value >= 0 if name in _MAY_BE_ZERO else value > 0


def _hint(name: str) -> str:
    what = "a whole number of bytes" if name in _SIZES else "seconds"
    least = "0 or more" if name in _MAY_BE_ZERO else "more than 0"
    return f"Give {what}, {least}{', or None for no limit' if name in _LIMITS else ''}."
