"""How a command ends, for scripts. The table in `docs/reference/cli.md` is held against this one by a test."""

from enum import IntEnum

from backstay.model.turn import Cancelled, Completed, Failed, Interrupted, Outcome


class Exit(IntEnum):
    """Exit statuses. Those of `send`, `retry`, `edit` and `chat --json` tell how the turn ended."""

    COMPLETED = 0
    ERROR = 1
    USAGE = 2
    FAILED = 3
    CANCELLED = 4
    INTERRUPTED = 5
    UNSOUND = 6
    STOPPED = 130
    PIPE_CLOSED = 141


# How a turn ended, as the status of the command that had it answered.
ENDINGS: dict[type[Outcome], Exit] = {
    Completed: Exit.COMPLETED,
    Failed: Exit.FAILED,
    Cancelled: Exit.CANCELLED,
    Interrupted: Exit.INTERRUPTED,
}
