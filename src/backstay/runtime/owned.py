"""What belongs to one owner: the way in for those who serve many."""

import asyncio
from collections.abc import Callable, Collection, Coroutine, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any, TypeVar

from backstay.errors import Conflict
from backstay.model.address import Address
from backstay.model.content import Content
from backstay.model.ids import SessionId, TurnId
from backstay.model.limits import Limits
from backstay.model.session import Session, Ttl
from backstay.model.turn import IfBusy
from backstay.runtime.desk import Desk
from backstay.runtime.pulse import Pulse, Watch
from backstay.runtime.session import SessionHandle
from backstay.runtime.turn import TurnHandle
from backstay.store.port import Store

T = TypeVar("T")


class Lookout:
    """Somebody's interest in several sessions at once: `news` is set when any of them has gone on."""

    def __init__(self, news: asyncio.Event, watches: dict[SessionId, Watch], pulse: Pulse) -> None:
        self.news, self._watches, self._pulse = news, watches, pulse

    @property
    def beat(self) -> int:
        """Grows whenever anything was written anywhere."""
        return self._pulse.beats

    def head(self, session: SessionId) -> int:
        """The number of the session's last event that is known of."""
        return self._watches[session].head


class Owned:
    """One owner's part of an open app. The owner is named once, here, so that no verb can be asked without."""

    def __init__(self, desk: Desk, owner: str) -> None:
        self._desk, self.owner = desk, owner

    @property
    def limits(self) -> Limits:
        """How much is accepted."""
        return self._desk.crossing.store.limits

    def session(self, session: SessionId, *, agent: str = "default") -> SessionHandle:
        """A session by its id; whether it is there and the owner's, its verbs will tell."""
        return SessionHandle(self._desk, session, self.owner, agent)

    async def submit(
        self,
        to: Address | SessionId,
        content: Content,
        *,
        agent: str,
        request_id: str | None = None,
        if_busy: IfBusy = "enqueue",
        expect_revision: int | None = None,
        ttl: Ttl | None = None,
    ) -> TurnHandle:
        """Say something to a session or to the one behind an address, made if need be; durable when this returns."""
        crossing, served = self._desk.crossing, self._desk.runner.names
        submitting = partial(
            crossing.write,
            Store.submit,
            to,
            content,
            owner=self.owner,
            agent=agent,
            request_id=request_id,
            if_busy=if_busy,
            expect_revision=expect_revision,
            ttl=ttl,
            start=agent in served,
        )
        accepted = await self._desk.accept(submitting)
        return TurnHandle(
            self._desk, accepted.turn, self.owner, repeated=accepted.repeated, forked_from=accepted.forked_from
        )

    def send_off(self, work: Coroutine[object, object, None], name: str) -> None:
        """Do something on the side, until it ends or the app closes."""
        self._desk.send_off(work, name)

    async def turn(self, turn: TurnId) -> TurnHandle:
        """A turn that was accepted before, by whatever process."""
        crossing = self._desk.crossing
        return TurnHandle(self._desk, await crossing.read(crossing.store.turn, turn, owner=self.owner), self.owner)

    async def resume(self, turn: TurnId) -> TurnHandle:
        """Go on with a turn that was interrupted, if its agent answers here and nothing was said since."""
        agent = (await self.read(Store.turn, turn)).agent
        if agent is not None and agent not in self._desk.runner.names:
            raise Conflict(f"no agent called {agent} answers here", hint="Retry it with an agent that does.")
        return await self.turn((await self._desk.resume(turn, self.owner)).id)

    async def write(self, verb: Callable[..., T], /, *args: Any, **kwargs: Any) -> T:  # Any: the verb's own
        """Run a verb of the store that is a single write, such as `Store.save_draft`."""
        done = await self._desk.crossing.write(verb, *args, owner=self.owner, **kwargs)
        if isinstance(done, Session):
            self._desk.pulse.tell(done.id, done.last_event)
        return done

    async def read(self, verb: Callable[..., T], /, *args: Any, **kwargs: Any) -> T:  # Any: the verb's own
        """Run a verb of the store that reads, such as `Store.marks`."""
        crossing = self._desk.crossing
        method: Callable[..., T] = getattr(crossing.store, verb.__name__)
        return await crossing.read(method, *args, owner=self.owner, **kwargs)

    @contextmanager
    def lookout(self, sessions: Collection[SessionId], *, everything: bool = False) -> Iterator[Lookout]:
        """Inside the block, be woken when one of these sessions goes on; or when anything at all is written."""
        news = asyncio.Event()
        with ExitStack() as stack:
            watch = self._desk.pulse.watch
            watches = {session: stack.enter_context(watch(session, self.owner, news=news)) for session in sessions}
            if everything:
                stack.enter_context(self._desk.pulse.listen(news))
            yield Lookout(news, watches, self._desk.pulse)
