"""The pool keeps live agents between turns. It reuses one only if its memory matches the session exactly."""

import asyncio
import logging
from collections import Counter, OrderedDict
from collections.abc import Callable
from typing import Literal, NamedTuple

import msgspec

from backstay.agents.adapters import AgentFactory
from backstay.agents.port import Agent, CatchesUp, Loads
from backstay.concurrency.ctrl_c import is_ctrl_c
from backstay.errors import AgentTimedOut, ConfigError
from backstay.model.history.projection import readable
from backstay.model.ids import SessionId, TurnId, WindowId
from backstay.model.message import Message
from backstay.model.turn import Finished, OpenTurn
from backstay.model.window import Window
from backstay.runtime.async_store import AsyncStore
from backstay.runtime.owner_limits import OwnerLimits
from backstay.runtime.turns.deadline import run_with_deadline
from backstay.store import commands

log = logging.getLogger("backstay.runtime")

Reason = Literal["first", "foreign", "undo", "window", "configuration", "evicted"]
_REMEMBERED = 10_000


class Pooling(msgspec.Struct, frozen=True, kw_only=True):
    """How many live agents are kept between turns, and for how long.

    Args:
        capacity: The number of live agents in this process; the least recently used one is closed first. 0 keeps none.
        idle: Seconds after its last turn after which a live agent is closed; None keeps it until the capacity is
            reached.

    Raises:
        ConfigError: A value is negative.
    """

    capacity: int = 128
    idle: float | None = 1800.0

    def __post_init__(self) -> None:
        if self.capacity < 0 or (self.idle is not None and self.idle < 0):
            raise ConfigError(f"invalid {self}", hint="Give numbers that are not negative.")


class PoolStatistics(msgspec.Struct, frozen=True, kw_only=True):
    """Counts of live agents since the app was opened.

    Attributes:
        kept: Agents that exist now, in use or not.
        in_use: Agents that a turn uses now.
        hits: Turns that reused an agent as it was.
        caught_up: Turns that reused an agent after `catch_up`.
        failed: Turns whose agent could not be built or caught up.
        evicted: Unused agents that were closed for lack of room or because they were idle.
        built: How many agents were built, by reason: "first" (none existed), "evicted" (the last one was evicted),
            "foreign" (others added messages), "undo" (messages it knows are no longer read), "window" (a compaction
            opened another window), "configuration" (the configuration changed).
    """

    kept: int
    in_use: int
    hits: int
    caught_up: int
    failed: int
    evicted: int
    built: dict[Reason, int]


class Stamp(NamedTuple):
    """The state that a live agent knows: the first `length` messages of a window, at this context number."""

    window: WindowId
    context: int
    length: int
    configuration: bytes


class _SlotKey(NamedTuple):
    session: SessionId
    agent: str


class _Slot:
    """The place of the live agent for one session and agent name.

    The task with the lock uses, builds or replaces it.
    """

    def __init__(self, key: _SlotKey, owner: str) -> None:
        self.key, self.owner = key, owner
        self.has_process = False
        self.lock = asyncio.Lock()
        self.wanted = 0
        self.agent: Agent | None = None
        self.stamp: Stamp | None = None
        # The first messages of the window, as far as they were read for this agent. Messages never change, so the next
        # turn reads only the newer ones.
        self.known: tuple[Message, ...] = ()
        self.window: WindowId | None = None
        self.configuration = b""
        self.used_at = 0.0
        self.input: Message | None = None

    def add(self, finished: Finished) -> None:
        """Add the messages of the turn that the agent has completed, if those before them are known."""
        if self.input is not None and len(self.known) + 1 + len(finished.messages) == finished.length:
            self.known = (*self.known, self.input, *finished.messages)


class Pool:
    """Live agents by session. Two turns never share one, and none is closed while it is used or built."""

    def __init__(
        self, store: AsyncStore, pooling: Pooling, per_owner: OwnerLimits, grace: float, now: Callable[[], float]
    ) -> None:
        self._store, self._pooling, self._per_owner, self._grace, self._now = (
            store,
            pooling,
            per_owner,
            grace,
            now,
        )
        self._processes: Counter[str] = Counter()
        self._process_ended = asyncio.Event()
        self._slots: OrderedDict[_SlotKey, _Slot] = OrderedDict()
        self._in_use: dict[TurnId, _Slot] = {}
        self._evicted: OrderedDict[_SlotKey, None] = OrderedDict()
        self._closing: set[asyncio.Task[None]] = set()
        self._counts: Counter[str] = Counter()
        self._built: Counter[Reason] = Counter()

    @property
    def statistics(self) -> PoolStatistics:
        """The current counts."""
        return PoolStatistics(
            kept=sum(slot.agent is not None for slot in self._slots.values()),
            in_use=len(self._in_use),
            hits=self._counts["hits"],
            caught_up=self._counts["caught_up"],
            failed=self._counts["failed"],
            evicted=self._counts["evicted"],
            built=dict(self._built),
        )

    async def take(self, opened: OpenTurn, factory: AgentFactory) -> Agent:
        """The agent for a turn: the kept one if its stamp matches the turn, otherwise a new one.

        The turn must end with `give_back` or `discard`, also if its agent failed.
        """
        key = _SlotKey(opened.session, opened.agent or "")
        slot = self._slots.setdefault(key, _Slot(key, opened.owner))
        # Count the waiting turn before the wait: `_evict` skips a slot that a turn waits for.
        slot.wanted += 1
        try:
            await slot.lock.acquire()
        except BaseException:
            self._unwanted(slot)
            raise
        # From here on the slot belongs to the turn, so that `discard` finds it even while the agent is being built.
        self._in_use[opened.id] = slot
        slot.input = opened.input
        try:
            return await self._ready(slot, opened, factory)
        except BaseException:
            self._counts["failed"] += 1
            self.discard(opened.id)
            raise

    async def history(self, opened: OpenTurn) -> tuple[Message, ...]:
        """The messages of the window up to and including the turn's input.

        Reads only those since the agent's last turn.
        """
        slot = self._in_use[opened.id]
        # Positions count from 0: with as many known messages as precede the input there is nothing to read.
        if len(slot.known) != opened.input.position:
            slot.known += await self._messages(opened, after=len(slot.known))
        return (*slot.known, opened.input)

    def give_back(self, turn: TurnId, finished: Finished) -> None:
        """Return the agent of a completed turn.

        It gets a new stamp only if the turn itself made every change since the agent was taken; otherwise it is
        discarded.
        """
        slot = self._in_use.get(turn)
        if slot is None:
            return
        if not finished.unbroken or finished.window != slot.window:
            self.discard(turn)
            return
        # Stamp before the release: the next turn may get the lock at once and compares the stamp.
        slot.stamp = Stamp(finished.window, finished.context, finished.length, slot.configuration)
        slot.add(finished)
        slot.used_at = self._now()
        del self._in_use[turn]
        self._slots.move_to_end(slot.key)
        self._release(slot)
        self.trim(self._pooling.capacity)
        self._trim_owner(slot.owner)
        self._wake_waiting()

    def discard(self, turn: TurnId, *, close: bool = True) -> None:
        """Drop the agent of a turn that did not complete: its memory may differ from the stored messages.

        Args:
            turn: The turn; nothing happens if it has no agent here.
            close: Whether to close the agent; False for one that is still running and was abandoned.
        """
        slot = self._in_use.pop(turn, None)
        if slot is None:
            return
        # Empty the slot before the release: a waiting turn gets the lock next and must not find this agent.
        agent, slot.agent, slot.stamp, slot.known = slot.agent, None, None, ()
        self._release(slot)
        if agent is None:
            return
        if close:
            self._close_soon(agent, slot)
        else:
            self._process_is_gone(slot)

    def trim(self, keep: int = 0) -> int:
        """Close unused agents, least recently used first, until at most `keep` are left. Returns the number closed."""
        closed = 0
        for slot in list(self._slots.values()):
            if len(self._slots) <= keep:
                break
            closed += self._evict(slot)
        return closed

    def _trim_owner(self, owner: str) -> None:
        """Close unused agents of an owner, the least recently used first, until it is within its limit."""
        limit = self._per_owner.live_agents
        if limit is None:
            return
        slots = [slot for slot in self._slots.values() if slot.owner == owner]
        kept = len(slots)
        for slot in slots:
            if kept > limit:
                kept -= self._evict(slot)

    def expire(self) -> int:
        """Close agents that were idle for too long; returns how many."""
        idle = self._pooling.idle
        if idle is None:
            return 0
        late = [slot for slot in self._slots.values() if self._now() - slot.used_at >= idle]
        return sum(self._evict(slot) for slot in late)

    async def aclose(self) -> None:
        """Close all agents and wait until they are closed."""
        self.trim()
        while self._closing:
            await asyncio.wait(self._closing)

    # --- internal ---------------------------------------------------------------------------------------------------

    async def _ready(self, slot: _Slot, opened: OpenTurn, factory: AgentFactory) -> Agent:
        slot.configuration, slot.window = factory.fingerprint(), opened.window
        stamp, agent = slot.stamp, slot.agent
        if agent is not None and stamp is not None:
            # The context number grows with every change of the messages: an equal one means that only this agent's own
            # turns changed them. This path reads nothing from the store.
            if stamp[:2] == (opened.window, opened.found) and stamp.configuration == slot.configuration:
                self._counts["hits"] += 1
                return agent
            if isinstance(agent, CatchesUp) and self._only_added(stamp, opened, slot.configuration):
                added = (await self.history(opened))[stamp.length : -1]
                if added[0].role != "tool":
                    await agent.catch_up(readable(added))
                    self._counts["caught_up"] += 1
                    return agent
                # The agent knows the call without a result, and the result comes first. `catch_up` cannot express that:
                # build a new agent.
        reason = await self._rebuild_reason(slot, opened)
        slot.known = ()
        if agent is not None:
            slot.agent = slot.stamp = None
            self._close_soon(agent, slot)
        built = await self._build(slot, opened, factory)
        if self._in_use.get(opened.id) is not slot:
            # The turn ended while the agent was being built. Another turn may have the slot by now.
            self._close_soon(built, slot)
            raise AgentTimedOut("the agent was ready after its turn had ended")
        slot.agent = built
        self._built[reason] += 1
        return built

    def _only_added(self, stamp: Stamp, opened: OpenTurn, configuration: bytes) -> bool:
        """Whether the only change is that messages were added.

        Messages never change, so the agent's memory is still right.
        """
        same = (stamp.window, stamp.configuration) == (opened.window, configuration)
        return same and opened.input.position > stamp.length

    async def _build(self, slot: _Slot, opened: OpenTurn, factory: AgentFactory) -> Agent:
        slot.has_process = factory.has_process
        if slot.has_process:
            # Count the process before it starts: while `make` runs, other turns of this owner must see it.
            await self._room_for_process(slot.owner)
            self._processes[slot.owner] += 1
        try:
            agent = await factory.make()
        except BaseException:
            # Also after a cancellation: a process that counts forever would use up the owner's limit.
            self._process_is_gone(slot)
            raise
        if isinstance(agent, Loads):
            try:
                await agent.load(readable((await self.history(opened))[:-1]))
            except BaseException:
                self._close_soon(agent, slot)
                raise
        return agent

    async def _room_for_process(self, owner: str) -> None:
        """Wait until the owner may have one more process. Closes one that is unused."""
        limit = self._per_owner.agent_processes
        while limit is not None and self._processes[owner] >= limit:
            # Clear before evicting: an agent that closes at once sets the event again.
            self._process_ended.clear()
            unused = (slot for slot in self._slots.values() if slot.owner == owner and slot.has_process)
            any(self._evict(slot) for slot in list(unused))
            await self._process_ended.wait()

    def _process_is_gone(self, slot: _Slot) -> None:
        if slot.has_process:
            self._processes[slot.owner] -= 1
            if not self._processes[slot.owner]:
                del self._processes[slot.owner]
        self._wake_waiting()

    def _wake_waiting(self) -> None:
        """Wake turns that wait for a process, so that they check the limit again."""
        self._process_ended.set()

    async def _messages(self, opened: OpenTurn, after: int = 0) -> tuple[Message, ...]:
        """The messages before the turn's input, from a position on."""
        page = await self._store.run(
            commands.messages(
                opened.session, owner=opened.owner, window=opened.window, after=after - 1, before=opened.input.position
            )
        )
        return page.messages

    async def _rebuild_reason(self, slot: _Slot, opened: OpenTurn) -> Reason:
        stamp = slot.stamp
        if stamp is None:
            return "first" if self._evicted.pop(slot.key, self) is self else "evicted"
        if stamp.configuration != slot.configuration:
            return "configuration"
        if stamp.window == opened.window:
            # The input of a resumed turn was itself added by others.
            added = opened.input.position > stamp.length or opened.root != opened.id
            return "foreign" if added else "undo"
        lineage = await self._store.run(commands.lineage(opened.session, owner=opened.owner))
        return "window" if _only_compacted({window.id: window for window in lineage}, stamp, opened) else "undo"

    def _evict(self, slot: _Slot) -> bool:
        """Drop a slot that no turn uses or waits for; returns whether an agent was closed."""
        # No `await` from here to the removal, so no turn can take the slot in between.
        if slot.wanted:
            return False
        del self._slots[slot.key]
        agent, slot.agent = slot.agent, None
        if agent is None:
            return False
        self._counts["evicted"] += 1
        self._evicted[slot.key] = None
        while len(self._evicted) > _REMEMBERED:
            self._evicted.popitem(last=False)
        self._close_soon(agent, slot)
        return True

    def _release(self, slot: _Slot) -> None:
        slot.lock.release()
        self._unwanted(slot)

    def _unwanted(self, slot: _Slot) -> None:
        slot.wanted -= 1
        if not slot.wanted and slot.agent is None:
            self._slots.pop(slot.key, None)

    def _close_soon(self, agent: Agent, slot: _Slot) -> None:
        """Close an agent in the background. Its process counts until the close has ended."""
        # A task of its own: the next turn does not wait for the close. `aclose` waits for all of them.
        name = slot.key.agent
        task = asyncio.create_task(close_agent(agent, name, self._grace), name=f"close {name}")
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)
        task.add_done_callback(lambda _: self._process_is_gone(slot))


async def close_agent(agent: Agent, name: str, grace: float) -> None:
    """Close an agent, within `grace` seconds. Failures are logged and not raised."""
    try:
        await run_with_deadline(grace, _closed(agent))
    except Exception:
        log.warning("agent could not be closed", extra={"agent": name}, exc_info=True)


async def _closed(agent: Agent) -> None:
    try:
        await agent.aclose()
    except (SystemExit, KeyboardInterrupt) as error:
        if is_ctrl_c(error):
            raise
        # Otherwise it would end the whole program, and every turn with it.
        raise RuntimeError(f"{type(error).__name__}: {error}") from error


def _only_compacted(lineage: dict[WindowId, Window], stamp: Stamp, opened: OpenTurn) -> bool:
    """Whether only compactions lead from the stamped window to the current one."""
    here = lineage.get(opened.window)
    while here is not None and here.id != stamp.window and here.reason == "compaction" and here.parent is not None:
        here = lineage.get(here.parent)
    return here is not None and here.id == stamp.window
