"""The exit statuses of commands. A test compares the table in `docs/reference/cli.md` with this one."""

from enum import IntEnum

from backstay.model.turn import Cancelled, Completed, Failed, Interrupted, Outcome


class Exit(IntEnum):
    """Exit statuses. Those of `send`, `retry`, `edit` and `chat --json` report the outcome of the turn."""

    COMPLETED = 0
    ERROR = 1
    USAGE = 2
    FAILED = 3
    CANCELLED = 4
    INTERRUPTED = 5
    UNSOUND = 6
    STOPPED = 130
    PIPE_CLOSED = 141


# The exit status for each outcome of a turn.
ENDINGS: dict[type[Outcome], Exit] = {
    Completed: Exit.COMPLETED,
    Failed: Exit.FAILED,
    Cancelled: Exit.CANCELLED,
    Interrupted: Exit.INTERRUPTED,
}
