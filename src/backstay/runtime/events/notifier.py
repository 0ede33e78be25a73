"""The notifier: wakes the readers of a session when its event log changes, in this process or another."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from backstay.errors import StoreError, StoreUnavailable
from backstay.model.event import START, UNSEEN, Cursor
from backstay.model.ids import SessionId
from backstay.model.session import Resolved, SessionInfo
from backstay.model.turn import Accepted, Recorded
from backstay.runtime.async_store import AsyncStore
from backstay.runtime.events.poll_delay import PollDelay
from backstay.store import commands


class Subscription:
    """The subscription of one reader to one session.

    With `deltas=False`, the deltas of a running turn do not wake it at once.

    The reader passes its cursor, and the subscription has the cursor where the event log ends (`head`). They differ
    when the log became longer. They also differ when a crash of the database made it shorter, or put other events under
    the same numbers.
    """

    def __init__(
        self, session: SessionId, owner: str, *, deltas: bool = True, changed: asyncio.Event | None = None
    ) -> None:
        self.session, self.owner, self.deltas = session, owner, deltas
        self.head = START
        """The cursor after the last known event."""
        self.change = 0
        """The change number of the notifier at which `head` was last read or published."""
        self._unread = False
        self._seen = START
        self._closed = False
        self._changed = changed or asyncio.Event()

    def must_read(self, seen: Cursor) -> bool:
        """Whether a reader at this cursor must read. If so, it must start to read before the next check.

        Only a head that was published since the reader's last read began counts: an older one may be behind the reader.
        """
        self._seen = seen
        due = self._unread and self._differs()
        self._unread = False
        return due

    async def wait_past(self, seen: Cursor) -> None:
        """Wait until a reader at this cursor must read.

        Raises:
            StoreUnavailable: The app was closed.
        """
        while not self.must_read(seen):
            if self._closed:
                raise StoreUnavailable("the app was closed", hint="Open it again and continue after the last event.")
            self._changed.clear()
            await self._changed.wait()

    def advance(self, head: Cursor, change: int) -> None:
        """Set the end of the event log; wakes the reader if it is elsewhere."""
        self.head, self.change, self._unread = head, change, True
        if self._differs():
            self._changed.set()

    def close(self) -> None:
        """Wake the reader for the last time; its next wait raises."""
        self._closed = True
        self._changed.set()

    def _differs(self) -> bool:
        """Whether the log ends elsewhere than at the reader's cursor.

        A cursor without a fence has seen no event yet.
        """
        if self._seen.fence == UNSEEN:
            return self._seen.number != self.head.number
        return self._seen != self.head


class Notifier:
    """Polls the store's version while there are subscriptions.

    Writes of this process are published at once, as a shortcut.

    The shortcut only reduces the delay: without it (`notify=False`) everything works the same after the next poll.
    """

    def __init__(self, store: AsyncStore, delay: PollDelay, *, notify: bool = True) -> None:
        self._store, self._delay, self._notify = store, delay, notify
        self._subscriptions: dict[SessionId, set[Subscription]] = {}
        self._any_change: set[asyncio.Event] = set()
        self._subscribed = asyncio.Event()
        # Sessions that this process wrote to since the current poll began. The poll may not see these writes.
        self._written: set[SessionId] = set()
        self._version = -1
        self.changes = 0
        """The change number: grows with every write that this process makes or sees."""
        self.closed = False

    @contextmanager
    def subscribe(
        self, session: SessionId, owner: str, *, deltas: bool = True, changed: asyncio.Event | None = None
    ) -> Iterator[Subscription]:
        """Subscribe to a session inside the block.

        Args:
            session: The session.
            owner: Its owner.
            deltas: Whether each checkpoint of a running turn wakes the reader at once, not only the next poll.
            changed: The event to set; a reader of several sessions passes the same one for all of them.
        """
        self._store.require_own_loop()
        subscription = Subscription(session, owner, deltas=deltas, changed=changed)
        if self.closed:
            subscription.close()
        self._subscriptions.setdefault(session, set()).add(subscription)
        # The version may be unchanged since the last poll: force one, so that the new subscription gets its head.
        self._version = -1
        self._subscribed.set()
        try:
            yield subscription
        finally:
            others = self._subscriptions[session]
            others.discard(subscription)
            if not others:
                del self._subscriptions[session]

    @contextmanager
    def subscribe_all(self, changed: asyncio.Event | None = None) -> Iterator[asyncio.Event]:
        """Inside the block, set an event on every write to any session, and when the app closes.

        Args:
            changed: The event to set; None makes a new one.
        """
        self._store.require_own_loop()
        changed = changed or asyncio.Event()
        self._any_change.add(changed)
        self._subscribed.set()
        try:
            yield changed
        finally:
            self._any_change.discard(changed)

    def publish(self, session: SessionId, fence: int, number: int, *, deltas: bool = False) -> None:
        """Publish an event that this process has just written. `deltas`: it is output of a turn that continues."""
        head = Cursor(fence=fence, number=number)
        # Also without the shortcut: a poll that is under way may have read the head before this write.
        self._written.add(session)
        if self._notify:
            self._count_change()
            for subscription in self._subscriptions.get(session, ()):
                # Never move a head back: two writes may be published in the reverse of their order.
                if (subscription.deltas or not deltas) and _is_before(subscription.head, head):
                    subscription.advance(head, self.changes)

    def publish_result(self, result: object) -> None:
        """Publish a write of this process to a session, given the result of its command.

        A result that contains the new end of the session's event log wakes its followers at once. After any other
        result the store is polled at once.
        """
        match result:
            case SessionInfo(id=session, fence=fence, last_event=number):
                self.publish(session, fence, number)
            case Accepted(session=written) | Recorded(session=written) | Resolved(session=written):
                self.publish(written.id, written.fence, written.last_event)
            case _:
                if self._notify:
                    self._delay.wake()

    def close(self) -> None:
        """Wake all waiting readers for the last time; later waits raise."""
        self.closed = True
        self._count_change()
        for group in self._subscriptions.values():
            for subscription in group:
                subscription.close()

    async def run(self) -> None:
        """Poll until cancelled. Without subscriptions it waits and does not query the store."""
        clock = asyncio.get_running_loop().time
        while True:
            if not self._subscriptions and not self._any_change:
                self._subscribed.clear()
                await self._subscribed.wait()
            began = clock()
            await self._poll()
            await self._delay.wait(clock() - began)

    async def _poll(self) -> None:
        self._written.clear()
        try:
            version = await self._store.version()
            if version == self._version:
                return
            # Before the next await: a subscription that starts meanwhile resets it and gets another poll.
            self._version = version
            # However many subscriptions a session has, its head is read once.
            watched = {(one.session, one.owner) for group in self._subscriptions.values() for one in group}
            heads = await self._store.run(commands.heads(watched))
        except StoreError:
            self._version = -1  # A database that was away may have lost commits and reused their numbers.
            return  # Each reader meets the error at its own next read and reports it.
        self._count_change()
        for session, _ in watched:
            self._publish_head(session, heads.get(session, START))

    def _publish_head(self, session: SessionId, head: Cursor) -> None:
        """Publish a head that was read to the subscriptions of its session. A session lost in a crash has no events."""
        for subscription in self._subscriptions.get(session, ()):
            if session in self._written and _is_before(head, subscription.head):
                # Either the head was read before this process wrote, or the write was lost: poll again.
                self._version = -1
            else:
                subscription.advance(head, self.changes)

    def _count_change(self) -> None:
        self.changes += 1
        for changed in self._any_change:
            changed.set()


def _is_before(one: Cursor, other: Cursor) -> bool:
    """Whether `other` is newer. The fence grows whenever lost event numbers are used again."""
    return (one.fence, one.number) < (other.fence, other.number)
