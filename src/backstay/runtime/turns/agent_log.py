"""The log of exceptions raised by agents and tools.

Only the log contains the text of such an exception: see `model.failure_reasons`.
"""

import asyncio
import logging
from typing import Protocol

from backstay.agents.tools import ToolFailed
from backstay.errors import BackstayError, LeaseLost
from backstay.model.failure_reasons import Exited, raised_by
from backstay.model.ids import SessionId, TurnId
from backstay.runtime.turns.recorder import TurnHasEnded

# A separate logger: the command line shows its records, and no others, in the terminal where an agent runs.
log = logging.getLogger("backstay.runtime.agent")


class _Turn(Protocol):
    @property
    def id(self) -> TurnId: ...
    @property
    def session(self) -> SessionId: ...
    @property
    def agent(self) -> str | None: ...


def log_tool_error(turn: _Turn, tool: str, error: BaseException) -> None:
    """Log the exception of a tool, with its traceback."""
    _log(turn, f"tool {tool!r}", error, traceback=True, tool=tool)


def log_agent_error(turn: _Turn, task: "asyncio.Task[str]") -> None:
    """Log the exception of an agent's task, with its traceback, however late the task ends."""
    error = None if task.cancelled() else task.exception()
    if error is None or isinstance(error, TurnHasEnded | LeaseLost):
        return  # An agent that stops because its turn has ended has not failed.
    # A tool's exception was already logged with its traceback.
    logged = isinstance(error, ToolFailed) and error.logged
    _log(turn, f"agent {turn.agent!r}", error, traceback=not logged)


def _log(turn: _Turn, source: str, error: BaseException, *, traceback: bool, **more: str) -> None:
    raised = raised_by(error)
    shown = raised if isinstance(error, Exited) else error
    # The ids are in the message too: without logging configuration, only the message and the traceback are printed.
    log.log(
        logging.WARNING if isinstance(raised, BackstayError) else logging.ERROR,
        "%s raised %s in turn %s of session %s",
        *(source, type(raised).__name__, turn.id, turn.session),
        extra={"session": turn.session, "turn": turn.id, "agent": turn.agent, **more},
        exc_info=shown if traceback else None,
    )
