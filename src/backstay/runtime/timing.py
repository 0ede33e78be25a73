"""How long the runtime waits for what."""

import msgspec


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
