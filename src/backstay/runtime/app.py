"""An open app: a store, the agents that answer in it, and the tasks that claim, run and end turns."""

import asyncio
import logging
import warnings
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Literal, Self, TypeVar

from backstay.agents.adapters import AgentLike, agent_factory
from backstay.clock import Clock, SystemClock
from backstay.errors import ConfigError, Conflict, NotFound, SessionBusy, StoreError
from backstay.model.codec import check_name
from backstay.model.ids import TurnId
from backstay.model.limits import Limits
from backstay.model.operations.store_info import Load
from backstay.model.session import UpkeepReport
from backstay.model.token import Token
from backstay.model.turn import COMPACTOR, Finished, OpenTurn
from backstay.runtime.async_store import AsyncStore
from backstay.runtime.compaction.compactor import Compactor
from backstay.runtime.compaction.policy import Compaction
from backstay.runtime.events.notifier import Notifier
from backstay.runtime.events.poll_delay import PollDelay
from backstay.runtime.observer import Observer
from backstay.runtime.owner_limits import OwnerLimits, RunningTurns
from backstay.runtime.owner_scope import OwnerScope
from backstay.runtime.owner_sessions import OwnerSessions
from backstay.runtime.schedules.due_timer import DueTimer
from backstay.runtime.task_supervisor import TaskSupervisor
from backstay.runtime.timing import Timing
from backstay.runtime.titles import Titler, first_words, give_title
from backstay.runtime.turns.agent_pool import Pool, Pooling
from backstay.runtime.turns.runner import Runner
from backstay.store import Store, commands, open_store
from backstay.store.commands import Read, Write

T = TypeVar("T")

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
    per_owner: OwnerLimits | None = None,
    notify: bool = True,
    claim: Claim = "any",
    schedules: bool = True,
    debug: bool = False,
) -> "App":
    """Open an app on the store at a path or URL, to be used with `async with`.

    Args:
        where: A path, or a URL such as `postgresql://localhost/backstay`.
        agent: The agent that answers under the name `default`. Without any agent, the app accepts and follows turns
            and leaves the answers to other processes.
        agents: More agents, by name.
        owner: The owner of the sessions.
        clock: The source of time; None: the machine's, or the database server's.
        limits: The limits for names, messages and attachments.
        timing: Timeouts and intervals.
        lease_seconds: A process that has not renewed its lease for this long counts as dead.
        on_interrupt: With `resume`, interrupted turns that this app finds are continued by the same agent with the
            partial output; with `leave` they wait for a person to retry them.
        titler: Proposes a title after a completed turn of a session that has none, or only its first words.
        compaction: When and how windows that get too long are compacted; None: they are not.
        pooling: How many live agents are kept between turns.
        per_owner: Limits for each owner in this process.
        notify: Wake followers at once after a write. Without it they notice the write at the next poll.
        claim: With `own`, the app starts only the turns that it sent, and those before them: for an app that closes
            again soon.
        schedules: Send the messages of schedules at their due times. Without it, without any agent, or with the claim
            `own`, the app leaves this to other processes.
        debug: Store the traceback of an agent that raises in the reason of its failed turn, where every client sees it.
            It may contain messages of users: use it on a developer's machine only.

    Returns:
        The app.

    Raises:
        ConfigError: An argument is not valid.
    """
    if not lease_seconds > 0:
        raise ConfigError(f"lease_seconds is {lease_seconds!r}", hint="Give a positive number.")
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
        per_owner=per_owner or OwnerLimits(),
        notify=notify,
        claim=claim,
        schedules=schedules,
        debug=debug,
    )


def _named(agent: AgentLike | None, agents: Mapping[str, AgentLike]) -> dict[str, AgentLike]:
    """All agents by name; the one without a name is `default`."""
    if agent is not None and "default" in agents:
        raise ConfigError("two agents are called default", hint="Pass agent=, or agents={'default': …}, not both.")
    for name in agents:
        if check_name("an agent's name", name, Limits().name_bytes) == COMPACTOR:
            raise ConfigError(f"an agent cannot be called {name!r}", hint="Give it another name.")
    return {**({} if agent is None else {"default": agent}), **agents}


class App(OwnerSessions):
    """Sessions and the agents that answer in them. Its own methods are for the sessions of its `owner`.

    When it closes, running turns finish within the grace time or end as interrupted.
    """

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
        per_owner: OwnerLimits,
        notify: bool,
        claim: Claim,
        schedules: bool,
        debug: bool,
    ) -> None:
        super().__init__(owner)
        self._claim: Claim = claim
        self._debug = debug
        self._fires_schedules = schedules and claim == "any" and bool(agents)
        self._on_interrupt, self._titler = on_interrupt, titler
        self._compaction, self._pooling, self._per_owner = compaction, pooling, per_owner
        # Without a clock the store uses its own; on PostgreSQL that is the database server's.
        self._where, self._clock, self._limits = where, clock, limits
        self._agent_factories = {name: agent_factory(agent) for name, agent in agents.items()}
        self._timing, self._lease_seconds, self._notify = timing, lease_seconds, notify
        self._is_opening = False
        self._claim_at_next_poll = False
        self._last: TaskSupervisor | None = None
        self._not_resumable: set[TurnId] = set()
        self._polling: asyncio.Task[None] | None = None
        self._claiming: asyncio.Task[None] | None = None
        self._claim_delay: PollDelay | None = None
        self._closing: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        if self._is_opening or self._current is not None:
            raise ConfigError("the app is open already", hint="Open another one, or close this one first.")
        self._is_opening = True
        try:
            await self._begin(AsyncStore(await self._open_store()))
        finally:
            self._is_opening = False
        return self

    async def _begin(self, store: AsyncStore) -> None:
        poll_delay, claim_delay = (PollDelay(self._timing.poll, store.min_poll_delay) for _ in range(2))
        self._polling, self._claiming, self._claim_delay = None, None, claim_delay
        try:
            supervisor = self._supervise(store, Notifier(store, poll_delay, notify=self._notify))
        except BaseException:
            await store.close()
            raise
        self._last, self._current = supervisor, OwnerScope(supervisor, self.owner)
        try:
            # Before the app is used: a turn of a dead process is never seen as running.
            await self._reap_and_resume(supervisor)
        except StoreError:
            log.warning("turns of dead processes could not be ended yet", exc_info=True)
        except BaseException:
            # Resumed turns may run already. They end before the store is closed.
            self._current = None
            await asyncio.shield(self._start_closing(supervisor))
            raise
        if self._notify:
            store.on_commit(poll_delay.wake, claim_delay.wake)
        self._polling = asyncio.create_task(supervisor.notifier.run(), name="backstay notifier")
        self._claiming = asyncio.create_task(self._claim_until_closed(supervisor, claim_delay), name="backstay claims")

    def _supervise(self, store: AsyncStore, notifier: Notifier) -> TaskSupervisor:
        running = RunningTurns(self._per_owner.running_turns, self._claim_again)
        supervisor = TaskSupervisor(store, notifier, self._runner(store, notifier), self._timing, running)
        supervisor.own = {} if self._claim == "own" else None
        titler = self._titler
        if titler is not None:
            supervisor.runner.on_completed = partial(_give_title, supervisor, titler)
        return supervisor

    def __del__(self) -> None:
        current = getattr(self, "_current", None)
        if current is not None and not current.supervisor.store.forked:
            warnings.warn(
                "an app was dropped while open; use `async with backstay.open(…) as app:` or await app.close()",
                ResourceWarning,
                stacklevel=1,
                source=self,
            )

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the app: take no new turns, give running ones their grace time, then interrupt them.

        However many callers close it, it is closed once, and all of them wait until it is.

        Raises:
            ConfigError: It was opened on another event loop.
        """
        if self._current is not None:
            supervisor = self._current.supervisor
            if supervisor.store.forked:
                return  # The parent process opened it, and closes it.
            supervisor.store.require_own_loop()
            self._current = None
            self._start_closing(supervisor)
        if self._closing is not None:
            await asyncio.shield(self._closing)

    def _start_closing(self, supervisor: TaskSupervisor) -> "asyncio.Task[None]":
        """Close in a task of its own: a cancelled caller of `close` does not leave the app half closed."""
        supervisor.runner.start_closing()
        if self._claim_delay is not None:
            self._claim_delay.end()
        self._closing = asyncio.create_task(self._close(supervisor), name="backstay closing")
        return self._closing

    async def _close(self, supervisor: TaskSupervisor) -> None:
        # Claims first: a claim under way may still open a turn, which `drain` then waits for. Then turns, followers and
        # agents. The store is last, because all of them write to it or read it until they end.
        if self._claiming is not None:
            await asyncio.gather(self._claiming, return_exceptions=True)
        await supervisor.drain()
        supervisor.notifier.close()
        if self._polling is not None:
            self._polling.cancel()
            await asyncio.gather(self._polling, return_exceptions=True)
        await supervisor.runner.aclose()
        await supervisor.store.close()

    def owned_by(self, owner: str) -> OwnerSessions:
        """Return the part of this app that belongs to another owner. Servers use it, because they serve many owners.

        Args:
            owner: The owner.

        Returns:
            The part of this app that belongs to the owner.

        Raises:
            StoreUnavailable: The app is not open.
        """
        return OwnerSessions(owner, OwnerScope(self._supervisor, owner))

    async def holder(self, hash: bytes) -> Token:
        """Find a token and its owner.

        Args:
            hash: The SHA-256 of the token's text.

        Returns:
            The token.

        Raises:
            NotFound: No owner has this token, or it was revoked.
            TokenExpired: The token has expired.
        """
        return await self._supervisor.store.run(commands.token(hash))

    async def redeem(self, link: bytes, *, hash: bytes, name: str, seconds: float) -> Token:
        """Spend a link for a browser's token. A link is spent once.

        Args:
            link: The SHA-256 of the link's code.
            hash: The SHA-256 of the browser's token.
            name: A name for people.
            seconds: How long the browser's token is valid.

        Returns:
            The browser's token.

        Raises:
            NotFound: There is no such link, or it was spent.
            TokenExpired: The link has expired.
        """
        return await self._supervisor.store.run(commands.redeem(link, hash=hash, name=name, seconds=seconds))

    async def run_upkeep(self, *, keep_closed_for: float | None, fold_after: float) -> UpkeepReport:
        """Do the housekeeping for all owners: close, delete, fold and index.

        Args:
            keep_closed_for: Delete sessions that were closed more than this many seconds ago; None: delete none.
            fold_after: Fold the deltas of turns that ended at least this many seconds ago.

        Returns:
            How much was done.
        """
        store = self._supervisor.store
        collected = await store.call(Store.collect, keep_closed_for=keep_closed_for)
        folded = await store.call(Store.fold, older_than=fold_after)
        return UpkeepReport(collected=collected, folded=folded, indexed=await store.call(Store.index))

    async def run_for_all(self, command: Write[T] | Read[T]) -> T:
        """Run a command of the store that concerns all owners. Servers use it.

        Args:
            command: A value that a function of `backstay.store.commands` made, without an owner.

        Returns:
            The command's result.

        Raises:
            ConfigError: The command is for one owner.
        """
        if command.owner is not None:
            raise ConfigError(f"{command.name} is a command of {command.owner!r}", hint="Run it for its owner.")
        return await self._supervisor.store.run(command)

    async def load(self) -> Load:
        """Count the running and waiting turns of all owners, in all processes.

        Returns:
            The counts.
        """
        return await self._supervisor.store.call(Store.load)

    def observe_with(self, observer: Observer) -> None:
        """Report writes and turns to an observer from now on.

        Args:
            observer: The observer.
        """
        self._supervisor.store.observer = observer

    @property
    def abandoned(self) -> int:
        """How many agents, tools and titlers ignored their cancellation and were abandoned."""
        return 0 if self._last is None else self._last.abandoned

    @property
    def _supervisor(self) -> TaskSupervisor:
        return self._scope.supervisor

    @property
    def pool(self) -> Pool:
        """The live agents that are kept between turns: statistics, and methods to drop some."""
        return self._supervisor.runner.pool

    def _runner(self, store: AsyncStore, notifier: Notifier) -> Runner:
        clock = self._clock or SystemClock()

        def now() -> float:
            return clock.boot() / 1000

        grace = self._timing.grace
        return Runner(
            store,
            notifier,
            self._agent_factories,
            Pool(store, self._pooling, self._per_owner, grace, now),
            Compactor(store, self._compaction, grace=grace, now=now),
            timing=self._timing,
            lease_seconds=self._lease_seconds,
            follows_on=self._claim == "any",
            debug=self._debug,
        )

    async def _open_store(self) -> Store:
        """Open the store on a thread. If the caller is cancelled meanwhile, the store is closed again."""
        threads = ThreadPoolExecutor(1, thread_name_prefix="backstay-opening")
        opening = threads.submit(self._open_store_now)
        threads.shutdown(wait=False)
        try:
            return await asyncio.wrap_future(opening)
        except asyncio.CancelledError:
            opening.add_done_callback(_close_again)
            raise

    def _open_store_now(self) -> Store:
        store = open_store(self._where, clock=self._clock, limits=self._limits, lease_seconds=self._lease_seconds)
        try:
            store.register_worker()
            # Read it now: it is cached, and later readers are on the event loop.
            store.host  # noqa: B018
        except BaseException:
            store.close()
            raise
        return store

    async def _claim_until_closed(self, supervisor: TaskSupervisor, delay: PollDelay) -> None:
        """Until the app closes: end turns whose holders are dead, and start waiting turns for our agents."""
        version, reaped, closing = -1, 0.0, supervisor.runner.closing
        timer = DueTimer(supervisor.store, supervisor.runner.served, self._clock or SystemClock())
        failures = 0
        while not closing.is_set():
            claimed, began = False, asyncio.get_running_loop().time()
            try:
                if self._age(reaped) >= self._timing.reap:
                    reaped = asyncio.get_running_loop().time()
                    await self._reap_and_resume(supervisor)
                    supervisor.runner.pool.expire()
                now = await supervisor.store.version()
                if self._fires_schedules and (now != version or timer.is_due()):
                    await timer.fire()
                if now != version or self._claim_at_next_poll:
                    self._claim_at_next_poll = False
                    claimed = await self._claim_all(supervisor)
                    version = now
                if failures:
                    log.warning("waiting turns are claimed again", extra={"failures": failures})
                failures = 0
            except Exception:
                # Continue after any error: without this loop no waiting turn would start here. A lasting error is
                # logged once.
                if not failures:
                    log.warning("waiting turns could not be claimed", exc_info=True)
                failures += 1
            # A poll that found turns needs no rest: the next turn may arrive at once.
            await delay.wait(0.0 if claimed else self._age(began))

    async def _reap_and_resume(self, supervisor: TaskSupervisor) -> None:
        """End the turns of dead workers, and resume interrupted turns if that is the policy."""
        # On a thread: the registration of this worker is renewed once a day, with a write that would block the loop.
        await supervisor.store.call(Store.register_worker)
        await supervisor.store.call(Store.reap)
        await supervisor.store.call(Store.register_agents, tuple(supervisor.runner.served))
        if self._on_interrupt != "resume":
            return
        for turn, owner in await supervisor.store.run(commands.interrupted(supervisor.runner.served)):
            if turn not in self._not_resumable:
                await self._resume(supervisor, turn, owner)

    async def _continue_decided(self, supervisor: TaskSupervisor) -> None:
        """Continue the interrupted turns that waited for a person, who has decided."""
        if supervisor.own is not None:
            return  # The turns of others are not ours to run.
        for turn, owner in await supervisor.store.run(commands.decided(supervisor.runner.served)):
            if turn not in self._not_resumable:
                await self._resume(supervisor, turn, owner)

    async def _resume(self, supervisor: TaskSupervisor, turn: TurnId, owner: str) -> None:
        if supervisor.running.is_full(owner):
            return  # A later pass resumes it.
        try:
            supervisor.start(
                await supervisor.store.run(commands.resume(turn, owner=owner, agents=supervisor.runner.served))
            )
        except SessionBusy:
            return  # Another process was first, or a message arrived. If it still can continue, it is listed again.
        except (NotFound, Conflict) as error:
            self._not_resumable.add(turn)
            log.info("interrupted turn is left as it is", extra={"turn": turn, "error": str(error)})

    async def _claim_all(self, supervisor: TaskSupervisor) -> bool:
        """Claim and start waiting turns; whether there were any.

        A claim is never cancelled, so that no turn is opened and then not run.
        """
        store, served = supervisor.store, supervisor.runner.served
        claimed = False
        while len(served):
            # Most commits leave nothing to claim. That is a short read, while a claim needs a thread.
            if not await store.run(commands.awaited(served)):
                break
            except_owners = supervisor.running.full_owners()
            if not await store.call(Store.has_work, served, except_owners=except_owners):
                break
            opened = await self._claim_one(supervisor)
            if opened is None:
                # Another transaction may only hold the lock. If it changes nothing, it sends no notification.
                self._claim_at_next_poll = True
                break
            supervisor.start(opened)
            claimed = True
        await self._continue_decided(supervisor)
        return claimed

    async def _claim_one(self, supervisor: TaskSupervisor) -> OpenTurn | None:
        store, served = supervisor.store, supervisor.runner.served
        if supervisor.own is None:
            return await store.call(Store.claim, served, except_owners=supervisor.running.full_owners())
        for turn, owner in tuple(supervisor.own.items()):
            try:
                sent = await store.run(commands.turn(turn, owner=owner))
                opened = None
                if sent.state == "waiting":
                    opened = await store.call(Store.claim, served, session=sent.session, owner=owner)
            except NotFound:
                del supervisor.own[turn]  # It was deleted with its session.
                continue
            if sent.state == "ended":
                del supervisor.own[turn]
            if opened is not None:
                return opened
        return None

    def _claim_again(self) -> None:
        """Check for waiting turns again: an owner that was at its limit can start another one."""
        self._claim_at_next_poll = True
        if self._claim_delay is not None:
            self._claim_delay.wake()

    def _age(self, moment: float) -> float:
        return asyncio.get_running_loop().time() - moment


def _give_title(supervisor: TaskSupervisor, titler: Titler, opened: OpenTurn, finished: Finished) -> None:
    # The first words of a session stay the same: once it has a title, no read is needed.
    if not (finished.titled and titler is first_words):
        supervisor.start_background(give_title(supervisor, opened, titler), f"title {opened.session}")


def _close_again(opening: "Future[Store]") -> None:
    if not opening.cancelled() and opening.exception() is None:
        opening.result().close()
