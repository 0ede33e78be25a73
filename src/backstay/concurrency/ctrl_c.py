"""Defers Ctrl-C while a transaction runs on the main thread."""

import importlib
import signal
import threading
from collections.abc import Callable
from traceback import walk_tb
from types import FrameType
from typing import TypeVar

T = TypeVar("T")

# Handlers of these signals run on the main thread and may raise there. They are not ours to defer.
_OTHERS = (signal.SIGTERM, signal.SIGALRM, signal.SIGHUP)

# The functions that `signal` wraps to convert numbers to enums; the wrapper costs ten times as much as the function.
_plain = importlib.import_module("_signal")


def uninterrupted(work: Callable[[], bool]) -> bool:
    """Do the work on the main thread, with Ctrl-C deferred until it is done; returns its result.

    If the program has its own signal handlers, the work is not done, and the result is False.
    """
    for other in _OTHERS:
        if callable(_plain.getsignal(other)):
            return False
    handler = _plain.getsignal(signal.SIGINT)
    if handler is signal.default_int_handler:
        return _holding(work)
    # SIGINT is ignored or kills the process: in either case nothing is raised in the middle.
    return False if callable(handler) else work()


def with_ctrl_c_held(work: Callable[[], T]) -> T:
    """Do the work, on any thread. A Ctrl-C that would raise in the middle of it is raised when it is done."""
    if threading.current_thread() is not threading.main_thread():
        return work()
    return _holding(work) if _plain.getsignal(signal.SIGINT) is signal.default_int_handler else work()


def is_ctrl_c(error: BaseException) -> bool:
    """Whether a signal handler raised this exception, on the main thread, and not foreign code.

    Python's default handler leaves no frame in the traceback. While it is set, every KeyboardInterrupt counts.
    """
    if not isinstance(error, KeyboardInterrupt) or threading.current_thread() is not threading.main_thread():
        return False
    handler = _plain.getsignal(signal.SIGINT)
    if handler is signal.default_int_handler:
        return True
    code = getattr(handler, "__code__", None)
    return any(frame.f_code is code for frame, _ in walk_tb(error.__traceback__))


def _holding(work: Callable[[], T]) -> T:
    held: list[int] = []

    def hold(number: int, _: FrameType | None) -> None:
        held.append(number)

    _plain.signal(signal.SIGINT, hold)
    try:
        return work()
    finally:
        _plain.signal(signal.SIGINT, signal.default_int_handler)
        if held:
            raise KeyboardInterrupt
