"""The recorder stores the output of a running turn, renews its lease and reads its inbox."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TypeVar

from backstay.errors import (
    BackstayError,
    CommitUnknown,
    CorruptRecord,
    InvalidPayload,
    LeaseLost,
    Rejected,
    StoreError,
    StoreFull,
    StoreReplaced,
    StoreUnavailable,
)
from backstay.model.codec import check_body
from backstay.model.content import BODIES, Body, Text, Thought, ToolCall, Usage
from backstay.model.event import START
from backstay.model.ids import WindowId
from backstay.model.message import NewMessage
from backstay.model.turn import Checkpointed, Inbox, OpenTurn, Rotated, Steering
from backstay.runtime.async_store import AsyncStore
from backstay.runtime.events.notifier import Notifier, Subscription
from backstay.runtime.timing import Timing
from backstay.runtime.turns.buffer import Buffer
from backstay.store import commands

T = TypeVar("T")

_READ_TRIES = 5


class TurnHasEnded(BackstayError):
    """The turn has ended; it accepts no more output."""


class _SyncRequest:
    """A request to store all output so far."""

    def __init__(self, *, steering: bool) -> None:
        self.steering = steering
        self.answer: asyncio.Future[Checkpointed] = asyncio.get_running_loop().create_future()

    def settle(self, answer: Checkpointed | BackstayError) -> None:
        """Set the result, unless the waiting task was cancelled."""
        if self.answer.done():
            return
        if isinstance(answer, BackstayError):
            self.answer.set_exception(answer)
        else:
            self.answer.set_result(answer)


class _RotationRequest:
    """A request to open the next window."""

    def __init__(self, summary: Sequence[NewMessage], parent: WindowId, keep_from: int) -> None:
        self.summary, self.parent, self.keep_from = summary, parent, keep_from
        self.answer: asyncio.Future[Rotated] = asyncio.get_running_loop().create_future()


class Recorder:
    """Writes for one running turn, one write after another; each uses the `OpenTurn` that the previous one returned.

    The agent's task only ever touches the buffer. Cancelling it can therefore never interrupt a write and lose the
    `OpenTurn` that the write returns.

    Attributes:
        opened: The open turn that the last write returned; the next write needs it.
        has_output: Whether the agent has produced any output.
        usage: The last reported usage.
        output_bytes: The size of the output so far.
        cancel_requested: Whether a client has asked to cancel the turn.
        attention: Set when the runner must look at the turn again; the runner clears it.
        over: Set when the turn accepts no more output.
        agent_ended: Set by the driver when the agent has no more output.
        last_activity: When the agent last gave a sign of life, on the loop's clock.
        waits: Greater than 0 while the agent waits for a person or the disk.
    """

    def __init__(
        self,
        store: AsyncStore,
        notifier: Notifier,
        opened: OpenTurn,
        timing: Timing,
        lease_seconds: float,
        *,
        on_store_replaced: Callable[[], None],
    ) -> None:
        self.opened = opened
        self.has_output = False
        self.usage = Usage()
        self.output_bytes = 0
        self.cancel_requested = False
        self.attention = asyncio.Event()
        self.over = asyncio.Event()
        self.last_activity = asyncio.get_running_loop().time()
        self._store, self._notifier, self._timing = store, notifier, timing
        self._lease_seconds, self._on_store_replaced = lease_seconds, on_store_replaced
        # The start of the last write that was answered, and of the current one. A lease counts from the start of its
        # write: the store may have committed at any time after it.
        self._last_write = self._began = self.last_activity
        self._buffer = Buffer(timing.flush_bytes)
        self._oldest = 0.0
        self._sync_requests: list[_SyncRequest] = []
        self._rotation_requests: list[_RotationRequest] = []
        self._keys: dict[str, str] = {}
        self._repeats: dict[str, int] = {}
        self._steering: list[Steering] = []
        self.waits = 0
        self._wake = asyncio.Event()
        self._room = asyncio.Event()
        # The first output is stored, and so shown, at once.
        self._nothing_stored = True
        self.agent_ended = False
        self._seen = START
        # Another process may have taken the session over: the next write will show whether the turn is still ours.
        self._in_doubt = False

    # --- the agent's side -------------------------------------------------------------------------------------------

    async def enqueue(self, body: Body) -> None:
        """Add output of the agent. Waits while the buffer is full, so that the agent is not faster than the disk."""
        self.enqueue_nowait(body)
        while self._buffer.bytes >= self._timing.buffer_bytes and not self.over.is_set():
            self._room.clear()
            with self.waiting_for_others():
                await self._room.wait()

    def enqueue_nowait(self, body: Body) -> None:
        """Add output without waiting.

        Raises:
            InvalidPayload: The output is not a body, or its content is invalid.
            TooLarge: It exceeds a limit.
            TurnOver: The turn has ended.
        """
        if not isinstance(body, BODIES):
            raise InvalidPayload(
                f"the agent yielded {type(body).__name__}",
                hint="Yield Text, Thought, ToolCall, ToolResult, Usage or Custom.",
            )
        if self.over.is_set():
            raise TurnHasEnded(f"{self.opened.id} has ended")
        # Keep the checked copy: the agent may change the lists and mappings that it yielded.
        body = check_body(body, self._store.limits)
        now = self.last_activity = asyncio.get_running_loop().time()
        if isinstance(body, Text | Thought) and not body.text:
            return  # A sign of life; there is nothing to store.
        before = self._buffer.bytes
        if not before:
            self._oldest = now
            self._wake.set()
        self._buffer.add(body)
        self.output_bytes += self._buffer.bytes - before
        if isinstance(body, Usage):
            self.usage = body
        self.has_output = True
        if self._buffer.bytes >= self._timing.flush_bytes:
            self._wake.set()

    def record_intent(self, call: ToolCall, repeats: int | None) -> None:
        """Record a call whose tool is about to run. `repeats` is the ordinal of the earlier call that it repeats."""
        if repeats is not None:
            self._repeats[call.id] = repeats
        self.enqueue_nowait(call)

    async def key_of(self, call: str) -> str:
        """The idempotency key of a recorded call, once the call is durable."""
        while call not in self._keys:
            await self.sync()
        return self._keys[call]

    @contextmanager
    def waiting_for_others(self) -> Iterator[None]:
        """Inside the block the agent waits for a person or the disk: the silence timeout does not count."""
        self.waits += 1
        try:
            yield
        finally:
            self.waits -= 1
            self.last_activity = asyncio.get_running_loop().time()

    async def steering(self) -> tuple[Steering, ...]:
        """Take the steering inputs that arrived since the last call; each is returned once."""
        await self.sync(steering=True)
        taken, self._steering = tuple(self._steering), []
        return taken

    async def sync(self, *, steering: bool = False) -> Checkpointed:
        """Wait until all output so far is stored; durably, if it contains more than text.

        Raises:
            TurnOver: The turn has ended.
        """
        if self.over.is_set():
            raise TurnHasEnded(f"{self.opened.id} has ended")
        wanted = _SyncRequest(steering=steering)
        self._sync_requests.append(wanted)
        self._wake.set()
        return await wanted.answer

    async def rotate(self, summary: Sequence[NewMessage], *, parent: WindowId, keep_from: int) -> Rotated:
        """Open the session's next window within this turn, after all output so far is stored.

        Raises:
            TurnOver: The turn has ended.
        """
        if self.over.is_set():
            raise TurnHasEnded(f"{self.opened.id} has ended")
        wanted = _RotationRequest(summary, parent, keep_from)
        self._rotation_requests.append(wanted)
        self._wake.set()
        return await wanted.answer

    # --- the writing side -------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Write until stopped.

        Raises:
            LeaseLost: The turn is no longer ours.
        """
        opened = self.opened
        try:
            with self._notifier.subscribe(opened.session, opened.owner, changed=self._wake) as subscription:
                while not self.over.is_set():
                    await self._until_due(subscription)
                    if self.over.is_set():
                        return  # The write that ends the turn follows at once, and takes the rest of the output along.
                    await self._write_or_read(subscription)
        finally:
            self.stop()

    async def _write_or_read(self, subscription: Subscription) -> None:
        # Every write returns the inbox: it is read only if nothing is to be written.
        if not self._due():
            await self._read_inbox(subscription)
        # Output before rotations: messages that the agent produced before belong to the old window.
        elif self._buffer.bytes or self._sync_requests:
            await self._checkpoint()
        elif self._rotation_requests:
            await self._rotate(self._rotation_requests.pop(0))
        else:
            await self._renew()

    async def _read_inbox(self, subscription: Subscription) -> None:
        """Read the inbox after another process wrote to the session."""
        self._seen = subscription.head
        try:
            # A read that hangs must not keep the lease from being renewed.
            async with asyncio.timeout(self._seconds_until_renewal()):
                self._apply(await self._store.run(commands.inbox(self.opened)))
        except (LeaseLost, StoreError, TimeoutError):
            # Do not decide here: only a write can distinguish a lost lease from a failing read.
            self._in_doubt = True

    def _has_mail(self, subscription: Subscription) -> bool:
        """Whether another process wrote to the session. The result of our own write contained the inbox."""
        head = subscription.head
        if head.fence == self.opened.fence and head.number <= self.opened.event:
            self._seen = head
        return head != self._seen

    def stop(self) -> None:
        """Stop writing; the caller writes the rest of the buffer.

        Tasks that wait in `sync` get `TurnHasEnded`; those that wait for a rotation are cancelled.
        """
        # First refuse new requests, then answer the old ones: a task in `sync` would otherwise wait forever.
        self.over.set()
        self._wake.set()
        self._room.set()
        for one in self._sync_requests:
            one.settle(TurnHasEnded(f"{self.opened.id} has ended"))
        for rotation in self._rotation_requests:
            rotation.answer.cancel()
        self._sync_requests, self._rotation_requests = [], []

    async def retry_while_leased(self, write: Callable[[], Awaitable[T]]) -> T:
        """Retry a write while the store is full, locked or unavailable, as long as the lease allows.

        A holder without an answer gives up while its lease is still valid: after that, another process may take the
        session. A read error is retried a few times only: SQLite reports a file as damaged also after a transient disk
        error.

        Raises:
            StoreUnavailable: No write succeeded before the lease ends.
            BackstayError: The write failed in a way that a retry does not repair.
        """
        damaged = 0
        while True:
            # An attempt without an answer may have been committed. The store recognises output that it already has
            # (`tail_recovery.repeated`), so a retry stores nothing twice.
            self._began = asyncio.get_running_loop().time()
            try:
                async with asyncio.timeout(max(self._seconds_left(), self._timing.retry)):
                    return await write()
            except TimeoutError:
                raise StoreUnavailable(f"{self.opened.session} could not be written before its lease ends") from None
            except (StoreFull, StoreUnavailable, CorruptRecord) as error:
                damaged += isinstance(error, CorruptRecord)
                if isinstance(error, StoreReplaced):
                    self._on_store_replaced()
                if self._seconds_left() <= 0 or damaged >= _READ_TRIES:
                    raise
                await asyncio.sleep(self._timing.retry)

    def _seconds_left(self) -> float:
        """Seconds for which we may continue without an answer. Counts from the start of the last answered write."""
        # The lease is renewed after one third. The last third is a margin: after it another process may write.
        return self._lease_seconds * 2 / 3 - self._age(self._last_write)

    def take_unwritten(self) -> Sequence[Body]:
        """Take the output that is not written yet."""
        return self._buffer.take()

    async def store_valid_bodies(self, bodies: Sequence[Body]) -> None:
        """One of these bodies cannot be stored: store those before it."""
        for body in bodies:
            try:
                self._accept(await self._checkpoint_while_leased([body], steering=False))
            except Rejected:
                return

    # --- internal ---------------------------------------------------------------------------------------------------

    async def _until_due(self, subscription: Subscription) -> None:
        """Wait until a write is due (enough output, old output, a request, an old lease), or the inbox changed."""
        while not self.over.is_set() and not self._due() and not self._has_mail(subscription):
            # No wake-up is lost: there is no `await` between the check and this line.
            self._wake.clear()
            with suppress(TimeoutError):  # Check again: the deadline may have moved.
                async with asyncio.timeout(self._seconds_until_due()):
                    await self._wake.wait()

    def _due(self) -> bool:
        if self._sync_requests or self._rotation_requests or self._in_doubt or self._lease_is_old():
            return True
        # If the agent has ended, the write that ends the turn follows at once, and takes this output along.
        if not self._buffer.bytes or self.agent_ended:
            return False
        full = self._buffer.bytes >= self._timing.flush_bytes
        return self._nothing_stored or full or self._age(self._oldest) >= self._timing.flush

    def _seconds_until_due(self) -> float:
        renewal = self._seconds_until_renewal()
        waiting = self._buffer.bytes and not self.agent_ended
        flush = self._timing.flush - self._age(self._oldest) if waiting else renewal
        return max(0.001, min(renewal, flush))

    def _seconds_until_renewal(self) -> float:
        return self._lease_seconds / 3 - self._age(self._last_write)

    def _age(self, moment: float) -> float:
        return asyncio.get_running_loop().time() - moment

    def _lease_is_old(self) -> bool:
        return self._age(self._last_write) >= self._lease_seconds / 3

    async def _checkpoint(self) -> None:
        # One write answers all requests so far. Requests that arrive during the write are for output that it lacks.
        bodies, wanted = self.take_unwritten(), self._sync_requests
        self._sync_requests = []
        # The buffer is empty now: let the agent continue while this write is under way.
        self._room.set()
        try:
            answer = await self._checkpoint_while_leased(bodies, steering=any(one.steering for one in wanted))
        except BackstayError as error:
            if isinstance(error, Rejected):
                await self.store_valid_bodies(bodies)
            elif isinstance(error, StoreError) and not isinstance(error, CommitUnknown):
                # Keep the output for the last write of the turn. A call whose intent was not stored has not run and
                # leaves no trace. After `CommitUnknown` the output may be stored already, and must not be written
                # twice.
                self._buffer.put_back([body for body in bodies if not isinstance(body, ToolCall)])
            for one in wanted:
                one.settle(error)
            raise
        self._accept(answer)
        self._nothing_stored = self._nothing_stored and not bodies
        for one in wanted:
            one.settle(answer)

    async def _checkpoint_while_leased(self, bodies: Sequence[Body], *, steering: bool) -> Checkpointed:
        return await self.retry_while_leased(
            lambda: self._store.run(
                commands.checkpoint(self.opened, bodies, take_steering=steering, repeats=self._repeats)
            )
        )

    async def _rotate(self, wanted: _RotationRequest) -> None:
        try:
            rotated = await self.retry_while_leased(
                lambda: self._store.run(
                    commands.rotate(
                        self.opened.session,
                        wanted.summary,
                        owner=self.opened.owner,
                        parent=wanted.parent,
                        keep_from=wanted.keep_from,
                        turn=self.opened,
                    )
                )
            )
        except Rejected as error:
            # The summary was rejected; the turn itself can continue.
            if not wanted.answer.done():
                wanted.answer.set_exception(error)
        else:
            # Before the answer: the agent's next output must be written to the new window.
            self.opened = rotated.open or self.opened
            if not wanted.answer.done():
                wanted.answer.set_result(rotated)
        finally:
            wanted.answer.cancel()

    async def _renew(self) -> None:
        answer = await self.retry_while_leased(lambda: self._store.run(commands.renew(self.opened)))
        self._written(answer.open, answer.inbox)

    def _accept(self, answer: Checkpointed) -> None:
        self._keys.update(answer.keys)
        self._steering += answer.steering
        self._written(answer.open, answer.inbox)

    def _written(self, opened: OpenTurn, inbox: Inbox) -> None:
        # The answer proves the lease as of the start of the write, not as of now.
        self._last_write = self._began
        self._in_doubt = False
        self.opened = opened
        self._notifier.publish(opened.session, opened.fence, opened.event, deltas=True)
        self._apply(inbox)

    def _apply(self, inbox: Inbox) -> None:
        if inbox.cancel:
            self.cancel_requested = True
            self.attention.set()
