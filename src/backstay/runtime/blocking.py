"""The same app for scripts and notebooks: every verb waits. Nothing is decided here, only forwarded."""

import asyncio
import threading
from collections.abc import AsyncIterator, Coroutine, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError
from pathlib import Path
from types import TracebackType
from typing import Generic, Self, TypeVar

from backstay.agents.adapters import AgentLike
from backstay.agents.bridge import Bridge
from backstay.clock import Clock
from backstay.errors import StoreUnavailable
from backstay.model.address import Address
from backstay.model.content import Content
from backstay.model.event import Cursor, Event, FeedEvent
from backstay.model.export import Export, Imported
from backstay.model.ids import MessageId, SessionId, TurnId, WindowId
from backstay.model.limits import Limits
from backstay.model.message import Message, NewMessage
from backstay.model.search import SearchPage
from backstay.model.session import Deleted, Session, SessionCursor, SessionFilter, SessionPage, Ttl
from backstay.model.turn import Call, IfBusy, Outcome, Recorded, Turn
from backstay.model.window import Moved, Window
from backstay.runtime.app import App, Claim, OnInterrupt, open_app
from backstay.runtime.compaction import Compaction
from backstay.runtime.pool import Pool, Pooling
from backstay.runtime.session import SessionHandle
from backstay.runtime.timing import Timing
from backstay.runtime.titles import Titler
from backstay.runtime.turn import TurnHandle
from backstay.store.port import ANY
from backstay.store.signals import with_ctrl_c_held

T = TypeVar("T")
STUBBORN_SECONDS = 2.0


class Portal:
    """An event loop on a thread of its own, and the way to it."""

    def __init__(self) -> None:
        # A loop that a Ctrl-C left half made would complain of itself when it goes.
        self._loop = with_ctrl_c_held(asyncio.new_event_loop)
        self._bridge = Bridge(self._loop)
        self._closed = False
        self._inside = 0
        self._door = threading.Condition()
        self._thread = threading.Thread(target=self._loop.run_forever, name="backstay-loop", daemon=True)
        self._thread.start()

    def wait(self, work: Coroutine[object, object, T]) -> T:
        """Run something on the loop and wait for it; Ctrl-C cancels it. `StoreUnavailable` once the app is closed."""
        if self.forked:
            return self._bridge.wait(work)  # Which refuses. The door may be locked for ever here.
        try:
            self._come_in()
        except StoreUnavailable:
            work.close()
            raise
        try:
            return self._bridge.wait(work)
        except CancelledError:
            self._refuse_closed()
            raise
        finally:
            self._go_out()

    @property
    def forked(self) -> bool:
        """Whether this is a child of the process that opened it: there is nothing here to wait for, nor to close."""
        return self._bridge.forked

    def each(self, items: AsyncIterator[T]) -> Iterator[T]:
        """What an async iterator gives, one by one."""
        steps = _Steps(items)
        try:
            while True:
                try:
                    yield self.wait(steps.next())
                except StopAsyncIteration:
                    return
        finally:
            # A closed portal has ended everything that was under way in it; a forked one never began anything.
            if not (self._closed or self.forked):
                self.wait(steps.close())

    def close(self) -> None:
        """End what is under way, then stop the loop and its thread."""
        if self._closed or self.forked:
            return
        with self._door:
            self._closed = True
        stubborn = self._bridge.wait(self._end_all()) or not self._all_are_out()
        if not stubborn:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()

    def _come_in(self) -> None:
        """Be somebody for whom the loop must not stop."""
        with self._door:
            self._refuse_closed()
            self._inside += 1

    def _go_out(self) -> None:
        with self._door:
            self._inside -= 1
            self._door.notify_all()

    def _all_are_out(self) -> bool:
        """Wait for those who came in before the app was closed: each is told so at its next step."""
        with self._door:
            return self._door.wait_for(lambda: not self._inside, STUBBORN_SECONDS)

    def _refuse_closed(self) -> None:
        if self._closed:
            raise StoreUnavailable("the app is closed", hint="Open it again.")

    async def _end_all(self) -> bool:
        """End every task; whether one ignores it. Then the loop is left to it: its thread is a daemon."""
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        if others:
            _, stubborn = await asyncio.wait(others, timeout=STUBBORN_SECONDS)
            if stubborn:
                return True
        await self._loop.shutdown_asyncgens()
        return False


class _Steps(Generic[T]):
    """An async iterator that is asked step by step, and closed when the last step is over."""

    def __init__(self, items: AsyncIterator[T]) -> None:
        self._items = items
        self._under_way: asyncio.Task[object] | None = None

    async def next(self) -> T:
        """The next item."""
        self._under_way = asyncio.current_task()
        return await anext(self._items)

    async def close(self) -> None:
        """Close the iterator. A step that Ctrl-C cut off was cancelled and ends first; one that will not is left."""
        if self._under_way is not None:
            _, stubborn = await asyncio.wait({self._under_way}, timeout=STUBBORN_SECONDS)
            if stubborn:
                return
        close = getattr(self._items, "aclose", None)
        if close is not None:
            await close()


def open_blocking(
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
) -> "BlockingApp":
    """The app of `backstay.open`, to be used with a plain `with`."""
    app = open_app(
        where,
        agent=agent,
        agents=agents,
        owner=owner,
        clock=clock,
        limits=limits,
        timing=timing,
        lease_seconds=lease_seconds,
        on_interrupt=on_interrupt,
        titler=titler,
        compaction=compaction,
        pooling=pooling,
        prompt=prompt,
        claim=claim,
    )
    return BlockingApp(app)


class BlockingApp:
    """Sessions and the agents that answer in them."""

    def __init__(self, app: App) -> None:
        self._app = app
        self._opened: Portal | None = None

    def __enter__(self) -> Self:
        portal = Portal()
        try:
            portal.wait(self._app.__aenter__())
        except BaseException:
            portal.close()
            raise
        self._opened = portal
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        portal, self._opened = self._opened, None
        if portal is not None and not portal.forked:
            portal.wait(self._app.close())
            portal.close()

    @property
    def _portal(self) -> Portal:
        if self._opened is None:
            raise StoreUnavailable(
                "the app is not open", hint="Use it inside `with backstay.open_blocking(…) as app:`."
            )
        return self._opened

    @property
    def pool(self) -> Pool:
        """The live agents that are kept between turns."""
        return self._app.pool

    @property
    def abandoned(self) -> int:
        """How many agents and tools did not stop when they were told to, and were left behind."""
        return self._app.abandoned

    def turn(self, turn: TurnId) -> "BlockingTurn":
        """A turn that was accepted before, by whatever process."""
        return BlockingTurn(self._portal, self._portal.wait(self._app.turn(turn)))

    def session(
        self, which: Address | SessionId | None = None, *, ttl: Ttl | None = None, agent: str = "default"
    ) -> "BlockingSession":
        """The session behind an address, made if need be; or the one with this id; or a new one."""
        return BlockingSession(self._portal, self._portal.wait(self._app.session(which, ttl=ttl, agent=agent)))

    def send(
        self,
        to: Address | SessionId,
        content: Content,
        *,
        agent: str = "default",
        request_id: str | None = None,
        if_busy: IfBusy = "enqueue",
        ttl: Ttl | None = None,
    ) -> "BlockingTurn":
        """Say something at an address, whose session is made with it if need be, or in a session."""
        sent = self._app.send(to, content, agent=agent, request_id=request_id, if_busy=if_busy, ttl=ttl)
        return BlockingTurn(self._portal, self._portal.wait(sent))

    def import_session(self, export: Export) -> Imported:
        """Take in a session that was exported."""
        return self._portal.wait(self._app.import_session(export))

    def sessions(
        self, filter: SessionFilter = ANY, *, after: SessionCursor | None = None, limit: int = 50
    ) -> SessionPage:
        """Sessions, newest first."""
        return self._portal.wait(self._app.sessions(filter, after=after, limit=limit))

    def search(self, text: str, *, filter: SessionFilter = ANY, limit: int = 20) -> SearchPage:
        """Messages that match, best first."""
        return self._portal.wait(self._app.search(text, filter=filter, limit=limit))

    def follow(self, after: int | None = None) -> Iterator[FeedEvent]:
        """What happens in all of the owner's sessions; never ends by itself."""
        return self._portal.each(self._app.follow(after))


class BlockingTurn:
    """A turn that was accepted."""

    def __init__(self, portal: Portal, turn: TurnHandle) -> None:
        self._portal, self._turn = portal, turn

    @property
    def id(self) -> TurnId:
        """The turn's id."""
        return self._turn.id

    @property
    def session(self) -> SessionId:
        """The session it belongs to."""
        return self._turn.session

    @property
    def repeated(self) -> bool:
        """Whether this request had been accepted before."""
        return self._turn.repeated

    @property
    def forked_from(self) -> SessionId | None:
        """The busy session it was kept out of."""
        return self._turn.forked_from

    def read(self) -> Turn:
        """The turn as it is now."""
        return self._portal.wait(self._turn.read())

    def events(self, after: int | None = None) -> Iterator[Event]:
        """The turn's story, replayed, then live until it ends."""
        return self._portal.each(self._turn.events(after))

    def outcome(self) -> Outcome:
        """How the turn ended; waits until it has."""
        return self._portal.wait(self._turn.outcome())

    def cancel(self) -> Outcome:
        """Stop the turn, wherever it runs."""
        return self._portal.wait(self._turn.cancel())

    def calls(self) -> tuple[Call, ...]:
        """Its tool calls and what is known of their effects."""
        return self._portal.wait(self._turn.calls())

    def approve(self, call: str, *, arguments_hash: str | None = None) -> Call:
        """Allow a tool call that asked."""
        return self._portal.wait(self._turn.approve(call, arguments_hash=arguments_hash))

    def deny(self, call: str, *, arguments_hash: str | None = None) -> Call:
        """Forbid a tool call that asked."""
        return self._portal.wait(self._turn.deny(call, arguments_hash=arguments_hash))


class BlockingSession:
    """One session."""

    def __init__(self, portal: Portal, session: SessionHandle) -> None:
        self._portal, self._session = portal, session

    @property
    def id(self) -> SessionId:
        """The session's id."""
        return self._session.id

    def send(
        self,
        content: Content,
        *,
        request_id: str | None = None,
        if_busy: IfBusy = "enqueue",
        expect_revision: int | None = None,
        agent: str | None = None,
    ) -> BlockingTurn:
        """Say something. Durable when this returns."""
        sent = self._session.send(
            content, request_id=request_id, if_busy=if_busy, expect_revision=expect_revision, agent=agent
        )
        return BlockingTurn(self._portal, self._portal.wait(sent))

    def steer(self, content: Content, *, request_id: str | None = None) -> BlockingTurn:
        """Say something to the running turn."""
        return BlockingTurn(self._portal, self._portal.wait(self._session.steer(content, request_id=request_id)))

    def record(
        self,
        messages: Sequence[NewMessage],
        *,
        request_id: str | None = None,
        if_busy: IfBusy = "enqueue",
        expect_revision: int | None = None,
    ) -> Recorded:
        """Add finished messages of an agent that is run elsewhere."""
        return self._portal.wait(
            self._session.record(messages, request_id=request_id, if_busy=if_busy, expect_revision=expect_revision)
        )

    def retry(
        self, *, agent: str | None = None, request_id: str | None = None, expect_revision: int | None = None
    ) -> BlockingTurn:
        """Have the last input answered again."""
        retried = self._session.retry(agent=agent, request_id=request_id, expect_revision=expect_revision)
        return BlockingTurn(self._portal, self._portal.wait(retried))

    def edit(
        self,
        message: MessageId,
        content: Content,
        *,
        agent: str | None = None,
        request_id: str | None = None,
        expect_revision: int | None = None,
    ) -> BlockingTurn:
        """Say something else in place of an earlier message."""
        edited = self._session.edit(
            message, content, agent=agent, request_id=request_id, expect_revision=expect_revision
        )
        return BlockingTurn(self._portal, self._portal.wait(edited))

    def turn(self, turn: TurnId) -> BlockingTurn:
        """A turn of this session that was accepted before."""
        return BlockingTurn(self._portal, self._portal.wait(self._session.turn(turn)))

    def waiting(self) -> tuple[Turn, ...]:
        """The turns that wait, in the order they will run."""
        return self._portal.wait(self._session.waiting())

    def read(self) -> Session:
        """The session as it is now."""
        return self._portal.wait(self._session.read())

    def messages(self, *, window: WindowId | None = None, last: int | None = None) -> tuple[Message, ...]:
        """What stands in the session's window, or in another of its windows."""
        return self._portal.wait(self._session.messages(window=window, last=last))

    def lineage(self) -> tuple[Window, ...]:
        """All windows, oldest first."""
        return self._portal.wait(self._session.lineage())

    def export(self) -> Export:
        """All that is known of it, as a document that any app can import."""
        return self._portal.wait(self._session.export())

    def follow(self, after: Cursor | int = 0) -> Iterator[Event]:
        """The session's story, then live."""
        return self._portal.each(self._session.follow(after))

    def undo(self, *, expect_revision: int | None = None) -> Moved:
        """Take the last turn back."""
        return self._portal.wait(self._session.undo(expect_revision=expect_revision))

    def redo(self, *, expect_revision: int | None = None) -> Moved:
        """Bring back what the last undo took."""
        return self._portal.wait(self._session.redo(expect_revision=expect_revision))

    def compact(self, *, keep: int | None = None, focus: str = "") -> Window:
        """Have everything but the last `keep` tokens summarised; the window to read."""
        return self._portal.wait(self._session.compact(keep=keep, focus=focus))

    def fork(self, at: MessageId | TurnId | None = None) -> "BlockingSession":
        """A new session from the ended turns of this one, up to and including a message or a turn."""
        return BlockingSession(self._portal, self._portal.wait(self._session.fork(at)))

    def rename(self, title: str | None) -> Session:
        """Give it a title."""
        return self._portal.wait(self._session.rename(title))

    def pin(self, pinned: bool = True) -> Session:
        """Pin or unpin."""
        return self._portal.wait(self._session.pin(pinned))

    def archive(self, archived: bool = True) -> Session:
        """Put away or bring back."""
        return self._portal.wait(self._session.archive(archived))

    def tag(self, *, add: Sequence[str] = (), remove: Sequence[str] = ()) -> Session:
        """Add and remove tags."""
        return self._portal.wait(self._session.tag(add=add, remove=remove))

    def end(self) -> Session:
        """End it for good."""
        return self._portal.wait(self._session.end())

    def delete(self) -> Deleted:
        """Remove it and what it said."""
        return self._portal.wait(self._session.delete())
