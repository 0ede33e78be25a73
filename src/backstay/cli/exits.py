"""How a command ends, for scripts. The table in `docs/reference/cli.md` is held against this one by a test."""

from enum import IntEnum


class Exit(IntEnum):
    """Exit statuses. Those of `send`, `retry` and `edit` tell how the turn ended."""

    COMPLETED = 0
    ERROR = 1
    USAGE = 2
    FAILED = 3
    CANCELLED = 4
    INTERRUPTED = 5
    UNSOUND = 6
    STOPPED = 130
    PIPE_CLOSED = 141
