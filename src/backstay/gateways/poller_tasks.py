"""The tasks of a poller: all of them end together, and none is forgotten."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

from backstay.errors import LeaseLost, NotFound, StoreError
from backstay.gateways.gateway_options import GatewayOptions
from backstay.gateways.gateway_status import GatewayStatus
from backstay.gateways.platform import SendDeferred, SendRefused, SendUncertain
from backstay.model.gateways.gateway import OpenGateway
from backstay.runtime.owner_sessions import OwnerSessions

log = logging.getLogger("backstay.gateways")

T = TypeVar("T")
Work = Callable[[], Coroutine[object, object, None]]

# How long a request under way may take when the gateway stops, in seconds.
_STOPPING_SECONDS = 5.0
# The longest pause between two attempts, in seconds.
_LONGEST_PAUSE = 60.0
# Errors after which a later attempt may succeed. Another poller's lease is not among them.
_PASSING = (StoreError, SendDeferred, SendRefused, SendUncertain, OSError)


class PollerTasks:
    """The shared objects of one poller's tasks: the app, the proof, the options, the status, and their group."""

    def __init__(
        self,
        app: OwnerSessions,
        proof: OpenGateway,
        options: GatewayOptions,
        group: asyncio.TaskGroup,
        status: GatewayStatus | None = None,
    ) -> None:
        self.app, self.proof, self.options, self._group = app, proof, options, group
        self.status = status or GatewayStatus(name=proof.name)
        self._named: dict[str, asyncio.Task[None]] = {}
        self._again: dict[str, Work] = {}
        self._unfinished: set[asyncio.Future[Any]] = set()  # Any: results that their callers await

    def start(self, name: str, work: Work, *, again: bool = False) -> None:
        """Run this in the background. If a task of this name runs, do nothing; with `again`, run it afterwards."""
        if name in self._named:
            if again:
                self._again[name] = work
            return
        coroutine = work()
        try:
            task = self._group.create_task(coroutine, name=f"{self.proof.name} {name}")
        except RuntimeError:  # The group is ending: the next poller finds the work in the store.
            coroutine.close()
            return
        self._named[name] = task
        task.add_done_callback(lambda task: self._ended(name, task))

    def _ended(self, name: str, task: "asyncio.Task[None]") -> None:
        del self._named[name]
        following = self._again.pop(name, None)
        if following is not None and not task.cancelled() and task.exception() is None:
            self.start(name, following)

    async def complete(self, work: "Coroutine[object, object, T] | asyncio.Task[T]") -> T:
        """Run this to its end, even if the caller is cancelled: a sent part gets its receipt."""
        task = asyncio.ensure_future(work)
        self._unfinished.add(task)
        task.add_done_callback(self._unfinished.discard)
        return await asyncio.shield(task)

    async def settle(self) -> None:
        """Wait for the tasks that must be completed, for a while. The rest is in doubt for the next poller."""
        if self._unfinished:
            _, late = await asyncio.wait(self._unfinished, timeout=_STOPPING_SECONDS)
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)

    async def persist(self, what: str, attempt: Callable[[], Awaitable[bool]]) -> None:
        """Attempt this until it returns True. A passing failure is logged once, and retried after growing pauses.

        Raises:
            LeaseLost: Another worker polls now.
        """
        failures = 0
        while True:
            pause = self.options.retry * 2 ** min(failures, 6)
            try:
                if await attempt():
                    return
                failures = 0
            except (LeaseLost, NotFound):
                raise
            except _PASSING as error:
                failures += 1
                if failures == 1:
                    log.warning("%s: %s failed and is tried again: %s", self.proof.name, what, error)
                if isinstance(error, SendDeferred) and error.seconds is not None:
                    pause = max(pause, error.seconds)
                await asyncio.sleep(min(pause, max(_LONGEST_PAUSE, self.options.retry)))
