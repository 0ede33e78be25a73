"""The recorder: gathers what a running turn's agent says and writes it down, and keeps the turn's lease and mail."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

from backstay.errors import BackstayError, InvalidPayload, LeaseLost, Rejected, StoreFull, StoreUnavailable
from backstay.model.codec import check_body
from backstay.model.content import BODIES, Body, Text, Thought, ToolCall, Usage
from backstay.model.ids import WindowId
from backstay.model.message import NewMessage
from backstay.model.turn import Checkpointed, Mail, OpenTurn, Rotated, Steering
from backstay.runtime.buffer import Buffer
from backstay.runtime.crossing import Crossing
from backstay.runtime.pulse import Pulse
from backstay.runtime.timing import Timing
from backstay.store.port import Store

T = TypeVar("T")


class TurnOver(BackstayError):
    """The turn has ended; nothing more can be said in it."""


class _Wanted:
    """Somebody waits until everything said so far is stored."""

    def __init__(self, *, steering: bool) -> None:
        self.steering = steering
        self.answer: asyncio.Future[Checkpointed] = asyncio.get_running_loop().create_future()

    def settle(self, answer: Checkpointed | BackstayError) -> None:
        """Answer, unless whoever waited has gone."""
        if self.answer.done():
            return
        if isinstance(answer, BackstayError):
            self.answer.set_exception(answer)
        else:
            self.answer.set_result(answer)


class _Rotation:
    """Somebody waits until the next window is open."""

    def __init__(self, summary: Sequence[NewMessage], parent: WindowId, keep_from: int) -> None:
        self.summary, self.parent, self.keep_from = summary, parent, keep_from
        self.answer: asyncio.Future[Rotated] = asyncio.get_running_loop().create_future()


class Recorder:
    """Writes for one running turn, one write after another, each with the proof the one before returned.

    An agent's task only ever touches the buffer, so cancelling it can never lose a proof.
    """

    def __init__(self, crossing: Crossing, pulse: Pulse, turn: OpenTurn, timing: Timing, lease_seconds: float) -> None:
        self.proof = turn
        self.spoken = False
        self.usage = Usage()
        self.said_bytes = 0
        self.cancel_asked = asyncio.Event()
        self.over = asyncio.Event()
        self.last_word = asyncio.get_running_loop().time()
        self._crossing, self._pulse, self._timing = crossing, pulse, timing
        self._lease_seconds = lease_seconds
        # When the last write began that was answered, and when the one under way did.
        self._last_write = self._began = self.last_word
        self._buffer = Buffer(timing.flush_bytes)
        self._oldest = 0.0
        self._wanted: list[_Wanted] = []
        self._rotations: list[_Rotation] = []
        self._keys: dict[str, str] = {}
        self._repeats: dict[str, int] = {}
        self._steering: list[Steering] = []
        self.kept_waiting = 0
        self._wake = asyncio.Event()
        self._room = asyncio.Event()
        # The first words are stored, and so shown, at once.
        self._silent_so_far = True
        # Somebody else wrote what only a holder may: the next write will tell whether the turn is still ours.
        self._in_doubt = False

    # --- the agent's side -------------------------------------------------------------------------------------------

    async def put(self, body: Body) -> None:
        """Take something the agent said; waits while more is said than the disk can take."""
        self.keep(body)
        while self._buffer.bytes >= self._timing.buffer_bytes and not self.over.is_set():
            self._room.clear()
            with self.waiting_for_others():
                await self._room.wait()

    def keep(self, body: Body) -> None:
        """Take something without waiting, or refuse it for what is wrong with it."""
        if not isinstance(body, BODIES):
            raise InvalidPayload(
                f"the agent yielded {type(body).__name__}",
                hint="Yield Text, Thought, ToolCall, ToolResult, Usage or Custom.",
            )
        if self.over.is_set():
            raise TurnOver(f"{self.proof.id} has ended")
        # What was checked is what is kept: the agent may change the lists and mappings that it said.
        body = check_body(body, self._crossing.store.limits)
        now = self.last_word = asyncio.get_running_loop().time()
        if isinstance(body, Text | Thought) and not body.text:
            return  # A sign of life, and nothing to store.
        before = self._buffer.bytes
        if not before:
            self._oldest = now
            self._wake.set()
        self._buffer.add(body)
        self.said_bytes += self._buffer.bytes - before
        if isinstance(body, Usage):
            self.usage = body
        self.spoken = True
        if self._buffer.bytes >= self._timing.flush_bytes:
            self._wake.set()

    async def intend(self, call: ToolCall, repeats: int | None) -> str:
        """Write down that a tool is about to run; returns its key once that is durable."""
        if repeats is not None:
            self._repeats[call.id] = repeats
        self.keep(call)
        while call.id not in self._keys:
            await self.sync()
        return self._keys[call.id]

    @contextmanager
    def waiting_for_others(self) -> Iterator[None]:
        """Inside the block the agent's silence is not its own: a person, or the disk, is being waited for."""
        self.kept_waiting += 1
        try:
            yield
        finally:
            self.kept_waiting -= 1
            self.last_word = asyncio.get_running_loop().time()

    async def steering(self) -> tuple[Steering, ...]:
        """Take what was sent to steer the turn; each of it is given to one asker, once."""
        await self.sync(steering=True)
        taken, self._steering = tuple(self._steering), []
        return taken

    async def sync(self, *, steering: bool = False) -> Checkpointed:
        """Wait until everything said so far is stored, durably if it holds more than words."""
        if self.over.is_set():
            raise TurnOver(f"{self.proof.id} has ended")
        wanted = _Wanted(steering=steering)
        self._wanted.append(wanted)
        self._wake.set()
        return await wanted.answer

    async def rotate(self, summary: Sequence[NewMessage], *, parent: WindowId, keep_from: int) -> Rotated:
        """Open the session's next window in this turn's name, once everything said before is stored."""
        if self.over.is_set():
            raise TurnOver(f"{self.proof.id} has ended")
        wanted = _Rotation(summary, parent, keep_from)
        self._rotations.append(wanted)
        self._wake.set()
        return await wanted.answer

    # --- the writing side -------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Write until stopped. Raises `LeaseLost` when the turn is no longer ours."""
        try:
            while not self.over.is_set():
                await self._until_due()
                if self._buffer.bytes or self._wanted:
                    await self._checkpoint()
                elif self._rotations:
                    await self._rotate(self._rotations.pop(0))
                elif self._in_doubt or self._lease_is_old():
                    await self._renew()
        finally:
            self.stop()

    async def read_mail(self) -> None:
        """Look for mail whenever somebody else wrote to the session; ends by cancellation."""
        with self._pulse.watch(self.proof.session, self.proof.owner) as watch:
            seen = 0
            while True:
                seen = max(seen, self.proof.event)
                await watch.beyond(seen)
                seen = watch.head
                if seen <= self.proof.event:
                    continue  # Our own write, whose answer brought the mail.
                try:
                    self._deliver(await self._crossing.read(self._crossing.store.mail, self.proof))
                except (LeaseLost, StoreUnavailable):
                    self._in_doubt = True
                    self._wake.set()

    def stop(self) -> None:
        """No more writes; what is still in the buffer is the caller's to write. Whoever waits is told."""
        self.over.set()
        self._wake.set()
        self._room.set()
        for one in self._wanted:
            one.settle(TurnOver(f"{self.proof.id} has ended"))
        for rotation in self._rotations:
            rotation.answer.cancel()
        self._wanted, self._rotations = [], []

    async def insist(self, write: Callable[[], Awaitable[T]]) -> T:
        """Write, again and again while the store is full, taken or away, as long as the lease allows.

        A holder that hears nothing stops while its lease still holds: when it lapses, somebody else may speak.
        """
        while True:
            self._began = asyncio.get_running_loop().time()
            try:
                async with asyncio.timeout(max(self._left(), self._timing.retry)):
                    return await write()
            except TimeoutError:
                raise StoreUnavailable(f"{self.proof.session} could not be written before its lease ends") from None
            except (StoreFull, StoreUnavailable):
                if self._left() <= 0:
                    raise
                await asyncio.sleep(self._timing.retry)

    def _left(self) -> float:
        """For how long we may go on without an answer; counted from when the last write that was answered began."""
        return self._lease_seconds * 2 / 3 - self._age(self._last_write)

    def rest(self) -> Sequence[Body]:
        """What was said and not written yet."""
        return self._buffer.take()

    async def keep_what_is_sound(self, bodies: Sequence[Body]) -> None:
        """Something the agent said cannot be stored; what it said before that still is."""
        for body in bodies:
            try:
                self._accept(await self._insist([body], steering=False))
            except Rejected:
                return

    # --- within -----------------------------------------------------------------------------------------------------

    async def _until_due(self) -> None:
        """Wait until there is something to write: enough words, words that are old enough, a wish, an old lease."""
        while not self.over.is_set() and not self._due():
            self._wake.clear()
            try:
                await asyncio.wait_for(self._wake.wait(), self._patience())
            except TimeoutError:
                continue

    def _due(self) -> bool:
        if self._wanted or self._rotations or self._in_doubt or self._lease_is_old():
            return True
        if not self._buffer.bytes:
            return False
        full = self._buffer.bytes >= self._timing.flush_bytes
        return self._silent_so_far or full or self._age(self._oldest) >= self._timing.flush

    def _patience(self) -> float:
        renewal = self._lease_seconds / 3 - self._age(self._last_write)
        flush = self._timing.flush - self._age(self._oldest) if self._buffer.bytes else renewal
        return max(0.001, min(renewal, flush))

    def _age(self, moment: float) -> float:
        return asyncio.get_running_loop().time() - moment

    def _lease_is_old(self) -> bool:
        return self._age(self._last_write) >= self._lease_seconds / 3

    async def _checkpoint(self) -> None:
        bodies, wanted = self.rest(), self._wanted
        self._wanted = []
        self._room.set()
        try:
            answer = await self._insist(bodies, steering=any(one.steering for one in wanted))
        except BackstayError as error:
            if isinstance(error, Rejected):
                await self.keep_what_is_sound(bodies)
            for one in wanted:
                one.settle(error)
            raise
        self._accept(answer)
        self._silent_so_far = self._silent_so_far and not bodies
        for one in wanted:
            one.settle(answer)

    async def _insist(self, bodies: Sequence[Body], *, steering: bool) -> Checkpointed:
        return await self.insist(
            lambda: self._crossing.write(
                Store.checkpoint, self.proof, bodies, take_steering=steering, repeats=self._repeats
            )
        )

    async def _rotate(self, wanted: _Rotation) -> None:
        try:
            rotated = await self.insist(
                lambda: self._crossing.write(
                    Store.rotate,
                    self.proof.session,
                    wanted.summary,
                    owner=self.proof.owner,
                    parent=wanted.parent,
                    keep_from=wanted.keep_from,
                    turn=self.proof,
                )
            )
        except Rejected as error:
            # The summary is no good; the turn itself can go on.
            if not wanted.answer.done():
                wanted.answer.set_exception(error)
        else:
            self.proof = rotated.open or self.proof
            if not wanted.answer.done():
                wanted.answer.set_result(rotated)
        finally:
            wanted.answer.cancel()

    async def _renew(self) -> None:
        answer = await self.insist(lambda: self._crossing.write(Store.renew, self.proof))
        self._written(answer.open, answer.mail)

    def _accept(self, answer: Checkpointed) -> None:
        self._keys.update(answer.keys)
        self._steering += answer.steering
        self._written(answer.open, answer.mail)

    def _written(self, proof: OpenTurn, mail: Mail) -> None:
        self._last_write = self._began
        self._in_doubt = False
        self.proof = proof
        self._pulse.tell(proof.session, proof.event, words=True)
        self._deliver(mail)

    def _deliver(self, mail: Mail) -> None:
        if mail.cancel:
            self.cancel_asked.set()
