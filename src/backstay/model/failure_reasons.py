"""Reasons: why a turn or a tool call failed, in a form that may be stored and shown to every client.

The text of a foreign exception may contain a password or a customer's data, so it goes to the log only. A reason names
the type of the exception and the turn. The message of a `BackstayError` is written for users, so a reason quotes it.
Only a store's error names files and hosts: a reason has the message of its class instead.
"""

import re

from backstay import errors
from backstay.errors import BackstayError, StoreError
from backstay.model.ids import TurnId
from backstay.model.turn import Failed

_LONGEST = 2_000
_LONGEST_NAME = 100
_LONGEST_TRACEBACK = 8_000
_MOST_NAMES = 5


class Exited(Exception):
    """Foreign code raised an exception that must not reach the event loop, such as SystemExit (`__cause__`)."""


def raised_by(error: BaseException) -> BaseException:
    """The exception that foreign code raised, without our wrapper and without a group around a single exception."""
    while True:
        if isinstance(error, Exited) and error.__cause__ is not None:
            error = error.__cause__
        elif isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
            error = error.exceptions[0]
        else:
            return error


def reason_of(error: BaseException, turn: TurnId, source: str = "the agent") -> str:
    """Why a turn or a call failed: the message of our own error, or the type of a foreign one and the turn's id."""
    error = raised_by(error)
    if isinstance(error, BackstayError):
        return message_of(error)
    return f"{source} raised {_type_of(error)} (turn {turn}; the log has the traceback)"


def failure_of(error: BaseException, turn: TurnId, source: str = "the agent") -> Failed:
    """The outcome of a turn whose agent, or whose output, raised this error."""
    error = raised_by(error)
    if not isinstance(error, BackstayError):
        return Failed(reason_of(error, turn, source), code="agent_raised")
    try:
        public = without_places(error)
        text, hint = str(public.args[0] if public.args else ""), str(public.hint)
    except Exception:  # noqa: BLE001  # an author's subclass may fail to spell itself
        text, hint = "", ""
    reason = _storable(text)[:_LONGEST] or type(error).__name__
    return Failed(reason, code=code_of(type(error)), hint=_storable(hint)[:_LONGEST])


def with_traceback(failed: Failed, traceback: str) -> Failed:
    """The outcome with a traceback below its reason. The traceback may contain messages of users."""
    return Failed(f"{failed.reason}\n{_storable(traceback)[-_LONGEST_TRACEBACK:]}", code=failed.code, hint=failed.hint)


def code_of(kind: type[BackstayError]) -> str:
    """The code of an error class: its name in snake case (`SessionBusy` becomes `session_busy`)."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", kind.__name__).lower()


def without_places(error: BackstayError) -> BackstayError:
    """The error; for a store's error one with the text of its class, which names no files or hosts."""
    if not isinstance(error, StoreError):
        return error
    return BackstayError(public_text(type(error)), hint=_own_class(type(error)).hint)


def public_text(kind: type[BackstayError]) -> str:
    """The default message of an error class, which may be shown to everyone."""
    return (_own_class(kind).__doc__ or "").splitlines()[0]


def _own_class(kind: type[BackstayError]) -> type[BackstayError]:
    """The class itself, or the nearest of ours that an author's class is derived from."""
    return next(one for one in kind.__mro__ if one.__module__ == errors.__name__)


def message_of(error: BackstayError) -> str:
    """The message of a `BackstayError`, short enough to be stored."""
    try:
        text = str(without_places(error))
    except Exception:  # noqa: BLE001  # an author's subclass may fail to spell itself
        text = type(error).__name__
    return _storable(text)[:_LONGEST]


def _type_of(error: BaseException) -> str:
    name = _storable(type(error).__name__)[:_LONGEST_NAME]
    if not isinstance(error, BaseExceptionGroup):
        return name
    inner = dict.fromkeys(_storable(type(one).__name__)[:_LONGEST_NAME] for one in error.exceptions)
    return f"{name} of {', '.join(list(inner)[:_MOST_NAMES])}"


def _storable(text: str) -> str:
    return text.encode(errors="replace").decode().replace("\0", "")
