"""The history cache: messages that this process has read, so that a turn reads only newer ones."""

from collections import OrderedDict
from typing import NamedTuple

from backstay.model.history.token_estimate import BYTES_PER_TOKEN, estimate
from backstay.model.ids import WindowId
from backstay.model.message import Message
from backstay.model.turn import Finished, OpenTurn
from backstay.runtime.async_store import AsyncStore
from backstay.store import commands

# The memory that a message takes in addition to its text.
_MESSAGE_BYTES = 500


class _Known(NamedTuple):
    """The messages of a window at a context number, which changes with every change of them."""

    messages: tuple[Message, ...]
    size: int
    context: int


class HistoryCache:
    """The messages of windows, as of their last turn in this process.

    If the context number of a window is still the one that this process left, and the last known message exists, its
    messages are the known ones. Otherwise only the newer ones are read: messages never change, and a
    window only grows at its end. So if the message at the last known position still has its id, all messages before it
    are the known ones. Both ways notice a database that lost commits in a crash and reused their numbers.

    The windows that were used last are kept, up to a size. A window that is larger is not kept.
    """

    def __init__(self, store: AsyncStore, most_bytes: int = 64 << 20) -> None:
        self._store, self._most_bytes = store, most_bytes
        self._windows: OrderedDict[WindowId, _Known] = OrderedDict()
        self._size = 0

    async def read(self, opened: OpenTurn) -> tuple[Message, ...]:
        """All messages of the turn's window.

        Raises:
            NotFound: The session was deleted.
            StoreError: The store cannot be read.
        """
        known = self._forget(opened.window)
        if known is not None and _only_adds_input(opened, known) and await self._is_stored(opened, known):
            newer: tuple[Message, ...] | None = (opened.input,)
        else:
            newer = None if known is None else await self._newer(opened, known.messages)
        if known is None or newer is None:
            known, newer = _Known((), 0, 0), await self._after(opened, None)
        return self._extend(opened.window, known, newer, opened.context).messages

    def add(self, opened: OpenTurn, finished: Finished) -> None:
        """Add the messages of a turn that has ended here, if only the turn itself changed its window."""
        known = self._windows.get(opened.window)
        if known is None or not finished.unbroken or finished.window != opened.window:
            return
        # Others may have written between the start of the turn and its read.
        if known.context == opened.context and len(known.messages) + len(finished.messages) == finished.length:
            self._extend(opened.window, known, finished.messages, finished.context)

    def _extend(self, window: WindowId, known: _Known, newer: tuple[Message, ...], context: int) -> _Known:
        extended = _Known(known.messages + newer, known.size + sum(map(_size_of, newer)), context)
        self._keep(window, extended)
        return extended

    async def _is_stored(self, opened: OpenTurn, known: _Known) -> bool:
        return await self._store.run(commands.is_stored(opened, known.messages[-1].id))

    async def _newer(self, opened: OpenTurn, known: tuple[Message, ...]) -> tuple[Message, ...] | None:
        """The messages after the known ones; None if the known ones are not those of the store."""
        last = known[-1]
        found = await self._after(opened, last.position - 1)
        return found[1:] if found and found[0].id == last.id else None

    async def _after(self, opened: OpenTurn, position: int | None) -> tuple[Message, ...]:
        command = commands.messages(opened.session, owner=opened.owner, window=opened.window, after=position)
        return (await self._store.run(command)).messages

    def _forget(self, window: WindowId) -> _Known | None:
        known = self._windows.pop(window, None)
        self._size -= 0 if known is None else known.size
        return known

    def _keep(self, window: WindowId, known: _Known) -> None:
        self._forget(window)  # Another turn may have stored it meanwhile.
        if not known.messages or known.size > self._most_bytes:
            return
        self._windows[window] = known
        self._size += known.size
        while self._size > self._most_bytes:
            self._forget(next(iter(self._windows)))


def _only_adds_input(opened: OpenTurn, known: _Known) -> bool:
    """Whether the turn found the known messages, and appended its input to them."""
    appended = opened.context == opened.found + 1 and opened.input.position == len(known.messages)
    return appended and known.context == opened.found


def _size_of(message: Message) -> int:
    return _MESSAGE_BYTES + estimate(message) * BYTES_PER_TOKEN
