"""The sizes of windows in tokens, counted once: a turn counts only the messages that it has added."""

from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import NamedTuple

from backstay.model.ids import MessageId, WindowId
from backstay.model.message import Message

MOST_WINDOWS = 10_000


class _Counted(NamedTuple):
    """How many messages of a window were counted, the last of them, and their tokens."""

    length: int
    last: MessageId | None
    tokens: int


_NOTHING = _Counted(0, None, 0)


class WindowSizes:
    """The sizes of the windows that were used last. Messages never change, and a window only grows at its end."""

    def __init__(self, count: Callable[[Message], int]) -> None:
        self._count = count
        self._windows: OrderedDict[WindowId, _Counted] = OrderedDict()

    def size_of(self, window: WindowId, messages: Sequence[Message]) -> int:
        """The tokens of these messages, which are all messages of the window."""
        known = self._windows.pop(window, _NOTHING)
        if known.length > len(messages) or (known.length and messages[known.length - 1].id != known.last):
            known = _NOTHING
        tokens = known.tokens + sum(map(self._count, messages[known.length :]))
        if messages:
            self._windows[window] = _Counted(len(messages), messages[-1].id, tokens)
        if len(self._windows) > MOST_WINDOWS:
            self._windows.popitem(last=False)
        return tokens
