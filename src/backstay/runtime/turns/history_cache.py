"""The history cache: messages that this process has read, so that a turn reads only newer ones."""

from collections import OrderedDict
from typing import NamedTuple

from backstay.model.history.token_estimate import BYTES_PER_TOKEN, estimate
from backstay.model.ids import WindowId
from backstay.model.message import Message
from backstay.model.turn import OpenTurn
from backstay.runtime.async_store import AsyncStore
from backstay.store import commands

# The memory that a message takes beside its text.
_MESSAGE_BYTES = 500


class _Known(NamedTuple):
    messages: tuple[Message, ...]
    size: int


class HistoryCache:
    """The messages of windows, as of their last turn in this process.

    Messages never change, and a window only grows at its end. Hence, if the message at the last known position still
    has its id, all messages before it are the known ones. The query for newer messages includes that message, so the
    check is part of the same snapshot. It also notices a database that lost commits in a crash and reused their
    positions.

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
        newer = None if known is None else await self._newer(opened, known.messages)
        if known is None or newer is None:
            known, newer = _Known((), 0), await self._after(opened, None)
        messages = known.messages + newer
        self._keep(opened.window, _Known(messages, known.size + sum(map(_size_of, newer))))
        return messages

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


def _size_of(message: Message) -> int:
    return _MESSAGE_BYTES + estimate(message) * BYTES_PER_TOKEN
