"""Signals: keeps a Ctrl-C from striking in the middle of a transaction on the main thread."""

import importlib
import signal
import threading
from collections.abc import Callable
from types import FrameType
from typing import TypeVar

T = TypeVar("T")

# Handlers of these run on the main thread and may raise there; what they would do is not ours to hold back.
_OTHERS = (signal.SIGTERM, signal.SIGALRM, signal.SIGHUP)

# The functions that `signal` wraps to turn numbers into enums, which costs ten times what they do.
_plain = importlib.import_module("_signal")


def undisturbed(work: Callable[[], bool]) -> bool:
    """Do the work on the main thread with Ctrl-C held back until it is done, and say what it says.

    Where somebody handles signals in their own way, the work is not done, and the answer is False.
    """
    for other in _OTHERS:
        if callable(_plain.getsignal(other)):
            return False
    handler = _plain.getsignal(signal.SIGINT)
    if handler is signal.default_int_handler:
        return _holding(work)
    # Ignored, or deadly: in either case nothing is raised in the middle.
    return False if callable(handler) else work()


def with_ctrl_c_held(work: Callable[[], T]) -> T:
    """Do the work, on whatever thread; a Ctrl-C that would raise in the middle of it is raised when it is done."""
    if threading.current_thread() is not threading.main_thread():
        return work()
    return _holding(work) if _plain.getsignal(signal.SIGINT) is signal.default_int_handler else work()


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
