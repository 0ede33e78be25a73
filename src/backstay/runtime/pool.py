"""The pool: live agents, kept between turns, and used again only if they know exactly what the session holds."""

import asyncio
import logging
from collections import Counter, OrderedDict
from collections.abc import Callable
from typing import Literal, NamedTuple

import msgspec

from backstay.agents.adapters import Maker
from backstay.agents.port import Agent, CatchesUp, Loads
from backstay.errors import AgentTimedOut, ConfigError
from backstay.model.ids import SessionId, TurnId, WindowId
from backstay.model.message import Message
from backstay.model.projection import readable
from backstay.model.turn import Finished, OpenTurn
from backstay.model.window import Window
from backstay.runtime.crossing import Crossing
from backstay.runtime.patience import within

log = logging.getLogger("backstay.runtime")

Reason = Literal["first", "foreign", "undo", "window", "configuration", "evicted"]
_REMEMBERED = 10_000


class Pooling(msgspec.Struct, frozen=True, kw_only=True):
    """How many live agents are kept, and for how many seconds after their last turn. None means for ever."""

    capacity: int = 128
    idle: float | None = 1800.0

    def __post_init__(self) -> None:
        if self.capacity < 0 or (self.idle is not None and self.idle < 0):
            raise ConfigError(f"{self} cannot be kept to", hint="Give numbers that are not negative.")


class PoolStatistics(msgspec.Struct, frozen=True, kw_only=True):
    """What became of live agents since the app was opened. `built` says why each was built."""

    kept: int
    in_use: int
    hits: int
    caught_up: int
    failed: int
    evicted: int
    built: dict[Reason, int]


class Stamp(NamedTuple):
    """What a live agent knows: the first `length` messages of a window, when the session had this context number."""

    window: WindowId
    context: int
    length: int
    configuration: bytes


class _Place(NamedTuple):
    session: SessionId
    agent: str


class _Slot:
    """Where the agent of one session and name lives. Whoever has the lock uses it, builds it, or replaces it."""

    def __init__(self, place: _Place) -> None:
        self.place = place
        self.lock = asyncio.Lock()
        self.wanted = 0
        self.agent: Agent | None = None
        self.stamp: Stamp | None = None
        self.window: WindowId | None = None
        self.configuration = b""
        self.used_at = 0.0


class Pool:
    """Live agents by session. None is used by two turns at once, and none is closed while it is used or built."""

    def __init__(self, crossing: Crossing, pooling: Pooling, grace: float, now: Callable[[], float]) -> None:
        self._crossing, self._pooling, self._grace, self._now = crossing, pooling, grace, now
        self._slots: OrderedDict[_Place, _Slot] = OrderedDict()
        self._lent: dict[TurnId, _Slot] = {}
        self._evicted: OrderedDict[_Place, None] = OrderedDict()
        self._closing: set[asyncio.Task[None]] = set()
        self._counts: Counter[str] = Counter()
        self._built: Counter[Reason] = Counter()

    @property
    def statistics(self) -> PoolStatistics:
        """The counts up to now."""
        return PoolStatistics(
            kept=sum(slot.agent is not None for slot in self._slots.values()),
            in_use=len(self._lent),
            hits=self._counts["hits"],
            caught_up=self._counts["caught_up"],
            failed=self._counts["failed"],
            evicted=self._counts["evicted"],
            built=dict(self._built),
        )

    async def take(self, opened: OpenTurn, maker: Maker) -> Agent:
        """The agent for a turn: the one that is there, if it knows what the turn found; otherwise a new one."""
        place = _Place(opened.session, opened.agent or "")
        slot = self._slots.setdefault(place, _Slot(place))
        slot.wanted += 1
        try:
            await slot.lock.acquire()
        except BaseException:
            self._unwanted(slot)
            raise
        self._lent[opened.id] = slot
        try:
            return await self._ready(slot, opened, maker)
        except BaseException:
            self._counts["failed"] += 1
            self.discard(opened.id)
            raise

    def give_back(self, turn: TurnId, finished: Finished) -> None:
        """The turn completed. What its agent knows now is stamped if every change since it was taken was its own."""
        slot = self._lent.get(turn)
        if slot is None:
            return
        if not finished.unbroken or finished.window != slot.window:
            self.discard(turn)
            return
        slot.stamp = Stamp(finished.window, finished.context, finished.length, slot.configuration)
        slot.used_at = self._now()
        del self._lent[turn]
        self._slots.move_to_end(slot.place)
        self._release(slot)
        self.trim(self._pooling.capacity)

    def discard(self, turn: TurnId, *, close: bool = True) -> None:
        """Whatever the turn's agent knows is not what was stored: it is not used again."""
        slot = self._lent.pop(turn, None)
        if slot is None:
            return
        agent, slot.agent, slot.stamp = slot.agent, None, None
        self._release(slot)
        if agent is not None and close:
            self._close_soon(agent, slot.place)

    def trim(self, keep: int = 0) -> int:
        """Close agents that are not in use, the longest unused first, until so many are kept; how many went."""
        gone = 0
        for slot in list(self._slots.values()):
            if len(self._slots) <= keep:
                break
            gone += self._evict(slot)
        return gone

    def expire(self) -> int:
        """Close agents that were not used for too long; how many went."""
        idle = self._pooling.idle
        if idle is None:
            return 0
        late = [slot for slot in self._slots.values() if self._now() - slot.used_at >= idle]
        return sum(self._evict(slot) for slot in late)

    async def aclose(self) -> None:
        """Close every agent that is here."""
        self.trim()
        if self._closing:
            await asyncio.wait(self._closing)

    # --- within -----------------------------------------------------------------------------------------------------

    async def _ready(self, slot: _Slot, opened: OpenTurn, maker: Maker) -> Agent:
        slot.configuration, slot.window = maker.fingerprint(), opened.window
        stamp, agent = slot.stamp, slot.agent
        if agent is not None and stamp is not None:
            if stamp[:2] == (opened.window, opened.found) and stamp.configuration == slot.configuration:
                self._counts["hits"] += 1
                return agent
            if isinstance(agent, CatchesUp) and self._was_added_to(stamp, opened, slot.configuration):
                added = await self._messages(opened, after=stamp.length)
                if added[0].role != "tool":
                    await agent.catch_up(readable(added))
                    self._counts["caught_up"] += 1
                    return agent
                # A result for a call it knows as unanswered: that cannot be told, only read anew.
        reason = await self._why(slot, opened)
        if agent is not None:
            slot.agent = slot.stamp = None
            self._close_soon(agent, slot.place)
        built = await self._build(opened, maker)
        if self._lent.get(opened.id) is not slot:
            # Its turn could not wait any longer; the slot may be somebody else's by now.
            self._close_soon(built, slot.place)
            raise AgentTimedOut("the agent was ready after its turn had ended")
        slot.agent = built
        self._built[reason] += 1
        return built

    def _was_added_to(self, stamp: Stamp, opened: OpenTurn, configuration: bytes) -> bool:
        """Whether all that happened is that messages came: a window's messages never change, so what is known holds."""
        same = (stamp.window, stamp.configuration) == (opened.window, configuration)
        return same and opened.input.position > stamp.length

    async def _build(self, opened: OpenTurn, maker: Maker) -> Agent:
        agent = await maker.make()
        if isinstance(agent, Loads):
            try:
                await agent.load(readable(await self._messages(opened)))
            except BaseException:
                self._close_soon(agent, _Place(opened.session, opened.agent or ""))
                raise
        return agent

    async def _messages(self, opened: OpenTurn, after: int = 0) -> tuple[Message, ...]:
        """What stands before the turn's input, from a position on."""
        page = await self._crossing.read(
            self._crossing.store.messages,
            opened.session,
            owner=opened.owner,
            window=opened.window,
            after=after - 1,
            before=opened.input.position,
        )
        return page.messages

    async def _why(self, slot: _Slot, opened: OpenTurn) -> Reason:
        stamp = slot.stamp
        if stamp is None:
            return "first" if self._evicted.pop(slot.place, self) is self else "evicted"
        if stamp.configuration != slot.configuration:
            return "configuration"
        if stamp.window == opened.window:
            # The input of a turn that goes on for another was itself added by others.
            added = opened.input.position > stamp.length or opened.root != opened.id
            return "foreign" if added else "undo"
        store = self._crossing.store
        lineage = await self._crossing.read(store.lineage, opened.session, owner=opened.owner)
        return "window" if _only_compacted({window.id: window for window in lineage}, stamp, opened) else "undo"

    def _evict(self, slot: _Slot) -> bool:
        """Drop a slot that nobody uses or waits for."""
        if slot.wanted:
            return False
        del self._slots[slot.place]
        agent, slot.agent = slot.agent, None
        if agent is None:
            return False
        self._counts["evicted"] += 1
        self._evicted[slot.place] = None
        while len(self._evicted) > _REMEMBERED:
            self._evicted.popitem(last=False)
        self._close_soon(agent, slot.place)
        return True

    def _release(self, slot: _Slot) -> None:
        slot.lock.release()
        self._unwanted(slot)

    def _unwanted(self, slot: _Slot) -> None:
        slot.wanted -= 1
        if not slot.wanted and slot.agent is None:
            self._slots.pop(slot.place, None)

    def _close_soon(self, agent: Agent, place: _Place) -> None:
        """Close an agent without anybody waiting for it."""
        task = asyncio.create_task(close_agent(agent, place.agent, self._grace), name=f"close {place.agent}")
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)


async def close_agent(agent: Agent, name: str, grace: float) -> None:
    """Close an agent, whatever it does then, for so long and no longer."""
    try:
        await within(grace, _closed(agent))
    except Exception:
        log.warning("agent could not be closed", extra={"agent": name}, exc_info=True)


async def _closed(agent: Agent) -> None:
    try:
        await agent.aclose()
    except (SystemExit, KeyboardInterrupt) as error:
        # It would end the whole program, and every turn with it.
        raise RuntimeError(f"{type(error).__name__}: {error}") from error


def _only_compacted(lineage: dict[WindowId, Window], stamp: Stamp, opened: OpenTurn) -> bool:
    """Whether nothing but compactions lead from the window that is known to the one that is read now."""
    here = lineage.get(opened.window)
    while here is not None and here.id != stamp.window and here.reason == "compaction" and here.parent is not None:
        here = lineage.get(here.parent)
    return here is not None and here.id == stamp.window
