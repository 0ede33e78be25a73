"""An open app: a store, the agents that answer in it, and everything that keeps turns going."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Literal, Self

from backstay.agents.adapters import AgentLike, maker_of
from backstay.clock import Clock, SystemClock
from backstay.errors import ConfigError, Conflict, NotFound, StoreError, StoreUnavailable
from backstay.model.address import Address
from backstay.model.codec import check_name
from backstay.model.content import Content
from backstay.model.event import FeedEvent
from backstay.model.export import Export, Imported
from backstay.model.ids import SessionId, TurnId
from backstay.model.limits import Limits
from backstay.model.search import SearchPage
from backstay.model.session import SessionCursor, SessionFilter, SessionPage, Ttl
from backstay.model.turn import COMPACTOR, IfBusy, OpenTurn
from backstay.runtime.compaction import Compaction
from backstay.runtime.compactor import Compactor
from backstay.runtime.crossing import Crossing
from backstay.runtime.desk import Desk
from backstay.runtime.follow import follow_all
from backstay.runtime.interval import Interval
from backstay.runtime.owned import Owned
from backstay.runtime.pool import Pool, Pooling
from backstay.runtime.pulse import Pulse
from backstay.runtime.runner import Runner
from backstay.runtime.session import SessionHandle
from backstay.runtime.timing import Timing
from backstay.runtime.titles import Titler, give_title
from backstay.runtime.turn import TurnHandle
from backstay.runtime.unscoped import Unscoped
from backstay.runtime.witness import Witness
from backstay.store import open_store
from backstay.store.port import ANY, Store
from backstay.store.sqlstore import SqlStore

log = logging.getLogger("backstay.runtime")

OnInterrupt = Literal["leave", "resume"]
Claim = Literal["any", "own"]


def open_app(
    where: str | Path,
    *,
    agent: AgentLike | None = None,
    agents: Mapping[str, AgentLike] | None = None,
    owner: str = "local",
    clock: Clock | None = None,
    limits: Limits | None = None,
    timing: Timing | None = None,
    lease_seconds: float = 30.0,
    on_interrupt: OnInterrupt = "leave",
    titler: Titler | None = None,
    compaction: Compaction | None = None,
    pooling: Pooling | None = None,
    prompt: bool = True,
    claim: Claim = "any",
) -> "App":
    """An app on the store at a path or URL, to be used with `async with`.

    `agent` answers under the name `default`; `agents` are others, by name. Without any, the app accepts and follows
    turns and leaves answering to other processes. With `on_interrupt="resume"`, a turn that this app finds interrupted
    is gone on with, by the same agent, on what was said before; otherwise it is left to a person to retry. A `titler`
    is asked for a title after the first completed turn of a session that has none. With a `compaction`, windows that
    get too long are compacted; `pooling` says how many live agents are kept between turns. An app that is soon closed
    again says `claim="own"`: of what waits it then starts only its own turns, and what stands before them.
    """
    if not lease_seconds > 0:
        raise ConfigError(f"a lease of {lease_seconds!r} seconds would never hold", hint="Give a positive number.")
    if on_interrupt not in ("leave", "resume"):
        raise ConfigError(f"on_interrupt is {on_interrupt!r}", hint="Use 'leave' or 'resume'.")
    if claim not in ("any", "own"):
        raise ConfigError(f"claim is {claim!r}", hint="Use 'any' or 'own'.")
    return App(
        where,
        agents=_named(agent, agents or {}),
        owner=owner,
        clock=clock,
        limits=limits,
        timing=timing or Timing(),
        lease_seconds=lease_seconds,
        on_interrupt=on_interrupt,
        titler=titler,
        compaction=compaction,
        pooling=pooling or Pooling(),
        prompt=prompt,
        claim=claim,
    )


def _named(agent: AgentLike | None, agents: Mapping[str, AgentLike]) -> dict[str, AgentLike]:
    """All agents by name; one that was given without a name is the default."""
    if agent is not None and "default" in agents:
        raise ConfigError("two agents are called default", hint="Pass agent=, or agents={'default': …}, not both.")
    for name in agents:
        if check_name("an agent's name", name, Limits().name_bytes) == COMPACTOR:
            raise ConfigError(f"an agent cannot be called {name!r}", hint="Give it another name.")
    return {**({} if agent is None else {"default": agent}), **agents}


class App:
    """Sessions and the agents that answer in them. Closing it lets running turns finish, or interrupts them visibly."""

    def __init__(
        self,
        where: str | Path,
        *,
        agents: Mapping[str, AgentLike],
        owner: str,
        clock: Clock | None,
        limits: Limits | None,
        timing: Timing,
        lease_seconds: float,
        on_interrupt: OnInterrupt,
        titler: Titler | None,
        compaction: Compaction | None,
        pooling: Pooling,
        prompt: bool,
        claim: Claim,
    ) -> None:
        self._claim: Claim = claim
        self._on_interrupt, self._titler = on_interrupt, titler
        self._compaction, self._pooling = compaction, pooling
        # Without a clock the store asks its own, which on a server is the server's.
        self._where, self._clock, self._limits = where, clock, limits
        self._makers = {name: maker_of(agent) for name, agent in agents.items()}
        self._owner, self._timing, self._lease_seconds, self._prompt = owner, timing, lease_seconds, prompt
        self._entering = False
        self._entered: Desk | None = None
        self._last: Desk | None = None
        self._left_alone: set[TurnId] = set()
        self._polling: asyncio.Task[None] | None = None
        self._attending: asyncio.Task[None] | None = None
        self._interval: Interval | None = None
        self._closing: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        if self._entering or self._entered is not None:
            raise ConfigError("the app is open already", hint="Open another one, or close this one first.")
        self._entering = True
        try:
            return await self._enter()
        finally:
            self._entering = False

    async def _enter(self) -> Self:
        store = await self._opened()
        crossing = Crossing(store)
        looking = Interval(self._timing.poll)
        attending = self._interval = Interval(self._timing.poll)
        pulse = Pulse(crossing, looking, prompt=self._prompt)
        desk = self._entered = self._last = Desk(crossing, pulse, self._runner(crossing, pulse), self._timing)
        desk.own = {} if self._claim == "own" else None
        runner = desk.runner
        titler = self._titler
        if titler is not None:
            runner.on_completed = lambda turn: desk.send_off(give_title(desk, turn, titler), f"title {turn.session}")
        try:
            # Whoever died before is missed now, before anybody can look.
            await self._look_after_the_dead(desk)
        except StoreError:
            log.warning("turns of dead processes could not be ended yet", exc_info=True)
        except BaseException:
            self._entered = None
            await crossing.close()
            raise
        if self._prompt:
            crossing.heed(looking.hint, attending.hint)
        self._polling = asyncio.create_task(pulse.run(), name="backstay pulse")
        self._attending = asyncio.create_task(self._attend(desk, attending), name="backstay attendance")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Take no new turns; give running ones their grace time, then interrupt them; let go of everything.

        However many close it, it is closed once, and all of them wait until it is.
        """
        if self._entered is not None:
            if self._entered.crossing.forked:
                return  # It is the parent's to close.
            self._entered.crossing.refuse_strangers()
            desk, self._entered = self._entered, None
            desk.runner.closing.set()
            if self._interval is not None:
                self._interval.end()
            self._closing = asyncio.create_task(self._close(desk), name="backstay closing")
        if self._closing is not None:
            await asyncio.shield(self._closing)

    async def _close(self, desk: Desk) -> None:
        if self._attending is not None:
            await asyncio.gather(self._attending, return_exceptions=True)
        await desk.drain()
        desk.pulse.close()
        if self._polling is not None:
            self._polling.cancel()
            await asyncio.gather(self._polling, return_exceptions=True)
        await desk.runner.aclose()
        await desk.crossing.close()

    async def session(
        self, which: Address | SessionId | None = None, *, ttl: Ttl | None = None, agent: str = "default"
    ) -> SessionHandle:
        """The session behind an address, made if need be; or the one with this id; or a new one."""
        desk = self._desk
        check_name("the agent's name", agent, desk.crossing.store.limits.name_bytes)
        if isinstance(which, Address):
            resolved = await desk.crossing.write(Store.resolve, which, owner=self._owner, ttl=ttl)
            return SessionHandle(desk, resolved.session.id, self._owner, agent)
        if which is None:
            created = await desk.crossing.write(Store.create, owner=self._owner, ttl=ttl)
            return SessionHandle(desk, created.id, self._owner, agent)
        found = await desk.crossing.read(desk.crossing.store.session, which, owner=self._owner)
        return SessionHandle(desk, found.id, self._owner, agent)

    async def send(
        self,
        to: Address | SessionId,
        content: Content,
        *,
        agent: str = "default",
        request_id: str | None = None,
        if_busy: IfBusy = "enqueue",
        ttl: Ttl | None = None,
    ) -> TurnHandle:
        """Say something at an address, whose session is made with it if need be, or in a session.

        A request id that came with the same address before is known, wherever the address leads by now.
        """
        desk = self._desk
        submitting = partial(
            desk.crossing.write,
            Store.submit,
            to,
            content,
            owner=self._owner,
            agent=agent,
            request_id=request_id,
            if_busy=if_busy,
            ttl=ttl,
            start=agent in desk.runner.names,
        )
        accepted = await desk.accept(submitting)
        return TurnHandle(
            desk, accepted.turn, self._owner, repeated=accepted.repeated, forked_from=accepted.forked_from
        )

    async def import_session(self, export: Export) -> Imported:
        """Take in a session that was exported, by this app or another; the answer says what became of it."""
        desk = self._desk
        # On a thread, because a large document is inspected before it is written.
        imported = await desk.crossing.read(desk.crossing.store.import_session, export, owner=self._owner)
        desk.pulse.tell(imported.session.id, imported.session.last_event)
        return imported

    async def turn(self, turn: TurnId) -> TurnHandle:
        """A turn that was accepted before, by whatever process."""
        crossing = self._desk.crossing
        found = await crossing.read(crossing.store.turn, turn, owner=self._owner)
        return TurnHandle(self._desk, found, self._owner)

    async def sessions(
        self, filter: SessionFilter = ANY, *, after: SessionCursor | None = None, limit: int = 50
    ) -> SessionPage:
        """Sessions, newest first."""
        crossing = self._desk.crossing
        return await crossing.read(crossing.store.list, owner=self._owner, filter=filter, after=after, limit=limit)

    async def search(self, text: str, *, filter: SessionFilter = ANY, limit: int = 20) -> SearchPage:
        """Messages that match, best first."""
        crossing = self._desk.crossing
        return await crossing.read(crossing.store.search, text, owner=self._owner, filter=filter, limit=limit)

    async def follow(self, after: int | None = None) -> AsyncGenerator[FeedEvent, None]:
        """What happens in all of the owner's sessions: after a position of the feed, or from now on; never ends."""
        async for event in follow_all(self._desk.crossing, self._desk.pulse, self._owner, after):
            yield event

    def owned_by(self, owner: str) -> Owned:
        """What belongs to somebody else than the app's own owner: for servers, which speak for many."""
        return Owned(self._desk, owner)

    @property
    def unscoped(self) -> Unscoped:
        """What servers ask before they know for whom."""
        return Unscoped(self._desk)

    def report_to(self, witness: Witness) -> None:
        """Tell this witness from now on what happens here."""
        self._desk.crossing.witness = witness

    @property
    def abandoned(self) -> int:
        """How many agents, tools and titlers did not stop when they were told to, and were left behind."""
        return 0 if self._last is None else self._last.abandoned

    @property
    def _desk(self) -> Desk:
        if self._entered is None:
            raise StoreUnavailable("the app is not open", hint="Use it inside `async with backstay.open(…) as app:`.")
        return self._entered

    @property
    def pool(self) -> Pool:
        """The live agents that are kept between turns: what became of them, and a way to let go of some."""
        return self._desk.runner.pool

    def _runner(self, crossing: Crossing, pulse: Pulse) -> Runner:
        clock = self._clock or SystemClock()

        def now() -> float:
            return clock.boot() / 1000

        grace = self._timing.grace
        return Runner(
            crossing,
            pulse,
            self._makers,
            Pool(crossing, self._pooling, grace, now),
            Compactor(crossing, self._compaction, grace=grace, now=now),
            timing=self._timing,
            lease_seconds=self._lease_seconds,
            follows_on=self._claim == "any",
        )

    async def _opened(self) -> SqlStore:
        """The store. If the caller is gone by the time it is open, it is closed again."""
        threads = ThreadPoolExecutor(1, thread_name_prefix="backstay-opening")
        opening = threads.submit(self._open)
        threads.shutdown(wait=False)
        try:
            return await asyncio.wrap_future(opening)
        except asyncio.CancelledError:
            opening.add_done_callback(_close_again)
            raise

    def _open(self) -> SqlStore:
        store = open_store(self._where, clock=self._clock, limits=self._limits, lease_seconds=self._lease_seconds)
        if not isinstance(store, SqlStore):
            raise ConfigError(f"{self._where} is no store the runtime can use")
        store.enter()
        return store

    async def _attend(self, desk: Desk, interval: Interval) -> None:
        """Until the app closes: end turns whose holders are gone, and start what waits for our agents."""
        version, looked, closing = -1, 0.0, desk.runner.closing
        while not closing.is_set():
            try:
                if self._age(looked) >= self._timing.reap:
                    looked = asyncio.get_running_loop().time()
                    await self._look_after_the_dead(desk)
                    desk.runner.pool.expire()
                now = await desk.crossing.version()
                if now != version:
                    await self._claim_all(desk)
                    version = now
            except Exception:
                # Whatever it was: nobody else here would look after what waits.
                log.warning("waiting turns could not be claimed", exc_info=True)
            await interval.elapse()

    async def _look_after_the_dead(self, desk: Desk) -> None:
        """End the turns of those who are gone, and go on with what was interrupted, if that is the policy."""
        store = desk.crossing.store
        # On a thread: otherwise it might be the loop that finds, once a day, that it must be said again who works here.
        await desk.crossing.read(store.enter)
        await desk.crossing.read(store.reap)
        if self._on_interrupt != "resume":
            return
        for turn, owner in await desk.crossing.read(store.interrupted, desk.runner.names):
            if turn not in self._left_alone:
                await self._resume(desk, turn, owner)

    async def _resume(self, desk: Desk, turn: TurnId, owner: str) -> None:
        try:
            desk.start(await desk.crossing.write(Store.resume, turn, owner=owner))
        except (NotFound, Conflict) as error:
            self._left_alone.add(turn)
            log.info("interrupted turn is left as it is", extra={"turn": turn, "error": str(error)})

    async def _claim_all(self, desk: Desk) -> None:
        """Take what waits. A claim under way is always waited for, so that no turn is opened and then forgotten."""
        store = desk.crossing.store
        while names := desk.runner.names:
            if not await desk.crossing.read(store.has_work, names):
                return
            opened = await self._claim_one(desk, names)
            if opened is None:
                return
            desk.start(opened)

    async def _claim_one(self, desk: Desk, names: tuple[str, ...]) -> OpenTurn | None:
        store = desk.crossing.store
        if desk.own is None:
            return await desk.crossing.read(store.claim, names)
        for turn, owner in tuple(desk.own.items()):
            try:
                sent = await desk.crossing.read(store.turn, turn, owner=owner)
                opened = None
                if sent.state == "waiting":
                    opened = await desk.crossing.read(partial(store.claim, session=sent.session, owner=owner), names)
            except NotFound:
                del desk.own[turn]  # It went with its session.
                continue
            if sent.state == "ended":
                del desk.own[turn]
            if opened is not None:
                return opened
        return None

    def _age(self, moment: float) -> float:
        return asyncio.get_running_loop().time() - moment


def _close_again(opening: "Future[SqlStore]") -> None:
    if not opening.cancelled() and opening.exception() is None:
        opening.result().close()
