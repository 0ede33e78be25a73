"""A session as its owner sees it."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import suppress
from functools import partial

from backstay.errors import AgentFailed, NotFound, StoryChanged
from backstay.model.content import Content
from backstay.model.event import UNSEEN, Cursor, Event
from backstay.model.export import Export
from backstay.model.ids import MessageId, SessionId, TurnId, WindowId
from backstay.model.message import Message, NewMessage
from backstay.model.session import Deleted, Session
from backstay.model.turn import Accepted, Completed, IfBusy, Recorded, Turn
from backstay.model.window import Moved, Window
from backstay.runtime.compaction import Wish
from backstay.runtime.desk import Desk
from backstay.runtime.follow import follow
from backstay.runtime.turn import TurnHandle
from backstay.store.port import Store


class SessionHandle:
    """One session: send to it, read it, change one's mind about it."""

    def __init__(self, desk: Desk, session: SessionId, owner: str, agent: str) -> None:
        self._desk, self.id, self.owner, self._agent = desk, session, owner, agent

    # --- turns ------------------------------------------------------------------------------------------------------

    async def send(
        self,
        content: Content,
        *,
        request_id: str | None = None,
        if_busy: IfBusy = "enqueue",
        expect_revision: int | None = None,
        agent: str | None = None,
    ) -> TurnHandle:
        """Say something. Durable when this returns; the agent answers in the background."""
        name = self._agent if agent is None else agent
        crossing, served = self._desk.crossing, self._desk.runner.names
        submitting = partial(
            crossing.write,
            Store.submit,
            self.id,
            content,
            owner=self.owner,
            agent=name,
            request_id=request_id,
            if_busy=if_busy,
            expect_revision=expect_revision,
            start=name in served,
        )
        return self._accepted(await self._desk.accept(submitting))

    async def steer(self, content: Content, *, request_id: str | None = None) -> TurnHandle:
        """Say something to the running turn; if it never takes it, it is the next turn."""
        return await self.send(content, request_id=request_id, if_busy="steer")

    async def record(
        self,
        messages: Sequence[NewMessage],
        *,
        request_id: str | None = None,
        if_busy: IfBusy = "enqueue",
        expect_revision: int | None = None,
    ) -> Recorded:
        """Add finished messages of an agent that is run elsewhere."""
        recorded = await self._desk.crossing.write(
            Store.record,
            self.id,
            messages,
            owner=self.owner,
            request_id=request_id,
            if_busy=if_busy,
            expect_revision=expect_revision,
        )
        self._tell(recorded.session)
        return recorded

    async def retry(
        self, *, agent: str | None = None, request_id: str | None = None, expect_revision: int | None = None
    ) -> TurnHandle:
        """Have the last input answered again; the first answer stays in the lineage."""
        crossing, served = self._desk.crossing, self._desk.runner.names
        submitting = partial(
            crossing.write,
            Store.retry,
            self.id,
            owner=self.owner,
            agent=agent,
            request_id=request_id,
            expect_revision=expect_revision,
            start=served,
        )
        return self._accepted(await self._desk.accept(submitting))

    async def edit(
        self,
        message: MessageId,
        content: Content,
        *,
        agent: str | None = None,
        request_id: str | None = None,
        expect_revision: int | None = None,
    ) -> TurnHandle:
        """Say something else in place of an earlier message, and have it answered."""
        crossing, served = self._desk.crossing, self._desk.runner.names
        submitting = partial(
            crossing.write,
            Store.edit,
            self.id,
            message,
            content,
            owner=self.owner,
            agent=agent,
            request_id=request_id,
            expect_revision=expect_revision,
            start=served,
        )
        return self._accepted(await self._desk.accept(submitting))

    async def turn(self, turn: TurnId) -> TurnHandle:
        """A turn of this session that was accepted before."""
        crossing = self._desk.crossing
        found = await crossing.read(crossing.store.turn, turn, owner=self.owner)
        if found.session != self.id:
            raise NotFound(f"no turn {turn} in {self.id}")
        return TurnHandle(self._desk, found, self.owner)

    async def waiting(self) -> tuple[Turn, ...]:
        """The turns that wait, in the order they will run."""
        crossing = self._desk.crossing
        return await crossing.read(crossing.store.waiting, self.id, owner=self.owner)

    # --- reading ----------------------------------------------------------------------------------------------------

    async def read(self) -> Session:
        """The session as it is now."""
        crossing = self._desk.crossing
        return await crossing.read(crossing.store.session, self.id, owner=self.owner)

    async def messages(self, *, window: WindowId | None = None, last: int | None = None) -> tuple[Message, ...]:
        """What stands in the session's window, or in another of its windows."""
        crossing = self._desk.crossing
        page = await crossing.read(crossing.store.messages, self.id, owner=self.owner, window=window, last=last)
        return page.messages

    async def lineage(self) -> tuple[Window, ...]:
        """All windows, oldest first."""
        crossing = self._desk.crossing
        return await crossing.read(crossing.store.lineage, self.id, owner=self.owner)

    async def export(self) -> Export:
        """All that is known of it, as a document that any app can import: `export.to_json()` writes it down."""
        crossing = self._desk.crossing
        return await crossing.read(crossing.store.export, self.id, owner=self.owner)

    async def follow(self, after: Cursor | int = 0) -> AsyncGenerator[Event, None]:
        """The session's story from its beginning, or after a cursor or number, then live."""
        cursor = after if isinstance(after, Cursor) else Cursor(fence=UNSEEN, number=after)
        async for event in follow(self._desk.crossing, self._desk.pulse, self.id, self.owner, cursor):
            yield event

    # --- filing -----------------------------------------------------------------------------------------------------

    async def undo(self, *, expect_revision: int | None = None) -> Moved:
        """Take the last turn back."""
        return await self._desk.crossing.write(Store.undo, self.id, owner=self.owner, expect_revision=expect_revision)

    async def redo(self, *, expect_revision: int | None = None) -> Moved:
        """Bring back what the last undo took."""
        return await self._desk.crossing.write(Store.redo, self.id, owner=self.owner, expect_revision=expect_revision)

    async def compact(self, *, keep: int | None = None, focus: str = "") -> Window:
        """Have everything but the last `keep` tokens summarised, above all what concerns `focus`; the window to read.

        If nothing can be left behind, nothing is written. If another process compacts already, its window is used.
        """
        compactor, wish = self._desk.runner.compactor, Wish(keep, focus)
        compacting = None
        while compacting is None and (seen := await compactor.worth(self.id, self.owner, wish)):
            # Whoever changed the session since it was seen may have left nothing to do: look again.
            with suppress(StoryChanged):
                compacting = await self._desk.compact(self.id, self.owner, wish, seen)
        if compacting is not None:
            outcome = await TurnHandle(self._desk, compacting.turn, self.owner).outcome()
            if not isinstance(outcome, Completed):
                raise AgentFailed(f"{self.id} was not compacted: {outcome.reason}", hint="The window is as it was.")
        here = (await self.read()).window
        return next(window for window in await self.lineage() if window.id == here)

    async def fork(self, at: MessageId | TurnId | None = None) -> "SessionHandle":
        """A new session from the ended turns of this one, up to and including a message or a turn."""
        forked = await self._desk.crossing.write(Store.fork, self.id, owner=self.owner, at=at)
        return SessionHandle(self._desk, forked.id, self.owner, self._agent)

    async def rename(self, title: str | None) -> Session:
        """Give it a title; a person's title is never replaced by a generated one."""
        return self._tell(await self._desk.crossing.write(Store.rename, self.id, title, owner=self.owner))

    async def pin(self, pinned: bool = True) -> Session:
        """Pin or unpin."""
        return self._tell(await self._desk.crossing.write(Store.pin, self.id, pinned, owner=self.owner))

    async def archive(self, archived: bool = True) -> Session:
        """Put away or bring back."""
        return self._tell(await self._desk.crossing.write(Store.archive, self.id, archived, owner=self.owner))

    async def tag(self, *, add: Sequence[str] = (), remove: Sequence[str] = ()) -> Session:
        """Add and remove tags."""
        return self._tell(await self._desk.crossing.write(Store.tag, self.id, owner=self.owner, add=add, remove=remove))

    async def end(self) -> Session:
        """End it for good; what runs and waits is cancelled."""
        return self._tell(await self._desk.crossing.write(Store.end, self.id, owner=self.owner))

    async def delete(self) -> Deleted:
        """Remove it and what it said."""
        return await self._desk.crossing.write(Store.delete, self.id, owner=self.owner)

    # --- within -----------------------------------------------------------------------------------------------------

    def _accepted(self, accepted: Accepted) -> TurnHandle:
        return TurnHandle(
            self._desk,
            accepted.turn,
            self.owner,
            repeated=accepted.repeated,
            forked_from=accepted.forked_from,
        )

    def _tell(self, session: Session) -> Session:
        self._desk.pulse.tell(session.id, session.last_event)
        return session
