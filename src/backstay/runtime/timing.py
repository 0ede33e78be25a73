"""How long the runtime waits for what."""

import msgspec

from backstay.errors import ConfigError

_MAY_BE_NOTHING = ("flush", "grace")
_SIZES = ("flush_bytes", "buffer_bytes")
_LIMITS = ("turn", "step")


class Timing(msgspec.Struct, frozen=True, kw_only=True):
    """All the runtime's times, in seconds, and the sizes that go with them. None means without limit."""

    flush: float = 0.05
    flush_bytes: int = 2_048
    buffer_bytes: int = 262_144
    poll: float = 0.025
    grace: float = 5.0
    turn: float | None = None
    step: float | None = None
    retry: float = 0.2
    reap: float = 0.5

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            value = getattr(self, name)
            if not (name in _LIMITS and value is None) and not _fits(name, value):
                raise ConfigError(f"Timing.{name} cannot be {value!r}", hint=_hint(name))


def _fits(name: str, value: object) -> bool:
    """Whether the runtime could go by this: it neither waits for ever nor without a pause. NaN is neither."""
    if isinstance(value, bool) or not isinstance(value, int if name in _SIZES else int | float):
        return False
    return value >= 0 if name in _MAY_BE_NOTHING else value > 0


def _hint(name: str) -> str:
    what = "a whole number of bytes" if name in _SIZES else "seconds"
    least = "0 or more" if name in _MAY_BE_NOTHING else "more than 0"
    return f"Give {what}, {least}{', or None for no limit' if name in _LIMITS else ''}."
