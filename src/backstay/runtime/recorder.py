"""The recorder: gathers what a running turn's agent says and writes it down, and keeps the turn's lease and mail."""

import asyncio
from collections.abc import Sequence

import msgspec

from backstay.errors import BackstayError, InvalidPayload, LeaseLost, Rejected, StoreFull, StoreUnavailable
from backstay.model.content import BODIES, Body, Text, Thought
from backstay.model.turn import Checkpointed, Mail, OpenTurn
from backstay.runtime.crossing import Crossing
from backstay.runtime.pulse import Pulse
from backstay.runtime.timing import Timing
from backstay.store.port import Store


class TurnOver(BackstayError):
    """The turn has ended; nothing more can be said in it."""


class _Wanted:
    """Somebody waits until everything said so far is stored."""

    def __init__(self, *, steering: bool) -> None:
        self.steering = steering
        self.answer: asyncio.Future[Checkpointed] = asyncio.get_running_loop().create_future()


class Recorder:
    """Writes for one running turn, one write after another, each with the proof the one before returned.

    An agent's task only ever touches the buffer, so cancelling it can never lose a proof.
    """

    def __init__(self, crossing: Crossing, pulse: Pulse, turn: OpenTurn, timing: Timing, lease_seconds: float) -> None:
        self.proof = turn
        self.spoken = False
        self.cancel_asked = asyncio.Event()
        self.last_word = asyncio.get_running_loop().time()
        self._crossing, self._pulse, self._timing = crossing, pulse, timing
        self._lease_seconds = lease_seconds
        self._last_write = self.last_word
        self._buffer: list[Body] = []
        self._bytes = 0
        self._oldest = 0.0
        self._wanted: list[_Wanted] = []
        self._repeats: dict[str, int] = {}
        self._wake = asyncio.Event()
        self._room = asyncio.Event()
        self._stopping = False
        # The first words are stored, and so shown, at once.
        self._silent_so_far = True

    # --- the agent's side -------------------------------------------------------------------------------------------

    async def put(self, body: Body) -> None:
        """Take something the agent said; waits while more is said than the disk can take."""
        if not isinstance(body, BODIES):
            raise InvalidPayload(
                f"the agent yielded {type(body).__name__}",
                hint="Yield Text, Thought, ToolCall, ToolResult, Usage or Custom.",
            )
        self._refuse_late()
        self._keep(body)
        while self._bytes >= self._timing.buffer_bytes and not self._stopping:
            self._room.clear()
            await self._room.wait()

    def repeat(self, call: str, ordinal: int) -> None:
        """The call with this id, said next, is an earlier one made again: it keeps its ordinal and so its key."""
        self._repeats[call] = ordinal

    async def sync(self, *, steering: bool = False) -> Checkpointed:
        """Wait until everything said so far is stored, durably if it holds more than words."""
        self._refuse_late()
        wanted = _Wanted(steering=steering)
        self._wanted.append(wanted)
        self._wake.set()
        return await wanted.answer

    # --- the writing side -------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Write until stopped. Raises `LeaseLost` when the turn is no longer ours."""
        try:
            while not self._stopping:
                await self._until_due()
                if self._buffer or self._wanted:
                    await self._checkpoint()
                elif self._lease_is_old():
                    await self._renew()
        finally:
            self._dismiss()

    async def read_mail(self) -> None:
        """Look for mail whenever somebody else wrote to the session; ends by cancellation."""
        with self._pulse.watch(self.proof.session, self.proof.owner) as watch:
            seen = 0
            while True:
                seen = max(seen, self.proof.event)
                await watch.beyond(seen)
                seen = watch.head
                try:
                    self._deliver(await self._crossing.read(self._crossing.store.mail, self.proof))
                except (LeaseLost, StoreUnavailable):
                    self._wake.set()  # The next write finds out for certain.

    def stop(self) -> None:
        """No more writes; what is still in the buffer is the caller's to write."""
        self._stopping = True
        self._wake.set()
        self._room.set()

    def rest(self) -> Sequence[Body]:
        """What was said and not written yet."""
        rest, self._buffer, self._bytes = self._buffer, [], 0
        return rest

    # --- within -----------------------------------------------------------------------------------------------------

    def _keep(self, body: Body) -> None:
        now = asyncio.get_running_loop().time()
        if not self._buffer:
            self._oldest = now
        self.last_word = now
        last = self._buffer[-1] if self._buffer else None
        if isinstance(body, Text) and isinstance(last, Text):
            self._buffer[-1] = Text(last.text + body.text)
        elif isinstance(body, Thought) and isinstance(last, Thought):
            self._buffer[-1] = Thought(last.text + body.text)
        else:
            self._buffer.append(body)
        self._bytes += len(body.text) if isinstance(body, Text | Thought) else len(msgspec.json.encode(body))
        self.spoken = True
        # A buffer that was empty has no time set for it yet; a full one is due.
        if len(self._buffer) == 1 or self._bytes >= self._timing.flush_bytes:
            self._wake.set()

    async def _until_due(self) -> None:
        """Wait until there is something to write: enough words, words that are old enough, a wish, an old lease."""
        while not self._stopping and not self._due():
            self._wake.clear()
            try:
                await asyncio.wait_for(self._wake.wait(), self._patience())
            except TimeoutError:
                continue

    def _due(self) -> bool:
        if self._wanted or self._lease_is_old():
            return True
        if not self._buffer:
            return False
        return (
            self._silent_so_far
            or self._bytes >= self._timing.flush_bytes
            or self._age(self._oldest) >= self._timing.flush
        )

    def _patience(self) -> float:
        renewal = self._lease_seconds / 3 - self._age(self._last_write)
        flush = self._timing.flush - self._age(self._oldest) if self._buffer else renewal
        return max(0.001, min(renewal, flush))

    def _age(self, moment: float) -> float:
        return asyncio.get_running_loop().time() - moment

    def _lease_is_old(self) -> bool:
        return self._age(self._last_write) >= self._lease_seconds / 3

    async def _checkpoint(self) -> None:
        bodies, wanted = self.rest(), self._wanted
        self._wanted = []
        self._room.set()
        steering = any(one.steering for one in wanted)
        try:
            answer = await self._insist(bodies, steering=steering)
        except BackstayError as error:
            if isinstance(error, Rejected):
                await self._keep_what_is_sound(bodies)
            for one in wanted:
                one.answer.set_exception(error)
            raise
        self._silent_so_far = self._silent_so_far and not bodies
        self._accept(answer.open, answer.mail)
        for one in wanted:
            if not one.answer.done():
                one.answer.set_result(answer)

    async def _keep_what_is_sound(self, bodies: Sequence[Body]) -> None:
        """Something the agent said cannot be stored; what it said before that still is."""
        for body in bodies:
            try:
                answer = await self._insist([body], steering=False)
            except Rejected:
                return
            self._accept(answer.open, answer.mail)

    async def _insist(self, bodies: Sequence[Body], *, steering: bool) -> Checkpointed:
        """Checkpoint, again and again while the disk is full or taken, as long as the lease allows."""
        while True:
            try:
                return await self._crossing.write(
                    Store.checkpoint, self.proof, bodies, take_steering=steering, repeats=self._repeats
                )
            except (StoreFull, StoreUnavailable):
                if self._age(self._last_write) >= self._lease_seconds:
                    raise
                await asyncio.sleep(self._timing.retry)

    async def _renew(self) -> None:
        answer = await self._crossing.write(Store.renew, self.proof)
        self._accept(answer.open, answer.mail)

    def _accept(self, proof: OpenTurn, mail: Mail) -> None:
        self._last_write = asyncio.get_running_loop().time()
        self.proof = proof
        self._pulse.tell(proof.session, proof.event)
        self._deliver(mail)

    def _deliver(self, mail: Mail) -> None:
        if mail.cancel:
            self.cancel_asked.set()

    def _refuse_late(self) -> None:
        if self._stopping:
            raise TurnOver(f"{self.proof.id} has ended")

    def _dismiss(self) -> None:
        """Whoever still waits is told that nothing more will be written."""
        self._stopping = True
        self._room.set()
        for one in self._wanted:
            if not one.answer.done():
                one.answer.set_exception(TurnOver(f"{self.proof.id} has ended"))
        self._wanted = []
