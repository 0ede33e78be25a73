"""The handle of one session of an owner."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import suppress
from functools import partial
from typing import BinaryIO, Unpack

from backstay.errors import AgentFailed, HistoryChanged, NotFound, SummaryTooLong
from backstay.model.addresses.address import Address
from backstay.model.content import Attachment, Content
from backstay.model.documents.document import Export
from backstay.model.event import UNSEEN, Cursor, Event
from backstay.model.failure_reasons import code_of
from backstay.model.files.file_source import FileSource
from backstay.model.history.chat_messages import MessageLike
from backstay.model.ids import MessageId, SessionId, TurnId, WindowId
from backstay.model.limits import READ_LIMIT
from backstay.model.marks import Marks
from backstay.model.message import Message
from backstay.model.session import Deleted, SessionInfo, SessionPatch
from backstay.model.turn import (
    SESSION_SEND_DEFAULTS,
    Completed,
    Failed,
    IfBusy,
    Interrupted,
    Recorded,
    SendOptions,
    TurnInfo,
)
from backstay.model.window import Moved, Window
from backstay.runtime.attachments.attachment_reader import AttachmentReader
from backstay.runtime.attachments.file_upload import upload_file
from backstay.runtime.compaction.policy import CompactionRequest
from backstay.runtime.events.follow import follow
from backstay.runtime.owner_scope import OwnerScope
from backstay.runtime.task_supervisor import Submission
from backstay.runtime.turn_handle import Turn, resume_turn, turn_of
from backstay.signatures import with_options
from backstay.store import Store, commands


class Session:
    """One session: send to it, read it, go back in it."""

    def __init__(self, scope: OwnerScope, session: SessionId, agent: str) -> None:
        self._scope, self._id, self._agent = scope, session, agent

    @property
    def id(self) -> SessionId:
        """The session's id."""
        return self._id

    @property
    def owner(self) -> str:
        """The session's owner."""
        return self._scope.owner

    # --- turns ------------------------------------------------------------------------------------------------------

    @with_options(SESSION_SEND_DEFAULTS)
    async def send(self, content: Content, **options: Unpack[SendOptions]) -> Turn:
        """Send a message. It is durable when this returns; the agent answers in the background.

        Args:
            content: The message: text, or a list of texts, attachments and dictionaries of OpenAI's API.
            agent: The agent that answers; None: the agent of this handle.
            request_id: Identifies the request among all requests of the owner. Repeating it returns the first turn.
            if_busy: The policy if a turn runs or waits in the session.
            expect_revision: The revision that the session must have; None: any.
            ttl: When the session expires. Without it the session keeps the one it has.
            allow_unserved: Let the message wait for an agent that no process serves or has served.

        Returns:
            The turn that answers.

        Raises:
            NotFound: The owner has no such session.
            RequestMismatch: The request id was used with other content, or for another conversation.
            RevisionMismatch: The session is at another revision.
            SessionBusy: A turn runs or waits, and `if_busy` is `reject`.
            SessionEnded: The session was ended.
            SessionExpired: The session has expired.
            UnknownAgent: No process serves or has served the agent.
            QuotaExceeded: The owner has reached its limit of stored bytes.
            InvalidPayload: An argument is not valid.
            TooLarge: The message is too long.
        """
        scope = self._scope
        chosen: SendOptions = {**SESSION_SEND_DEFAULTS, **options}
        if chosen["agent"] is None:
            chosen["agent"] = self._agent
        submission = partial(commands.submit, self._id, content, owner=scope.owner, **chosen)
        return turn_of(scope, await scope.supervisor.accept(scope.owner, submission))

    async def steer(self, content: Content, *, request_id: str | None = None) -> Turn:
        """Send a message to the running turn. If the turn never takes it, it is the next turn of the same agent.

        Args:
            content: The message: text, or a list of texts, attachments and dictionaries of OpenAI's API.
            request_id: Identifies the request among all requests of the owner. Repeating it returns the first turn.

        Returns:
            The turn of the message.

        Raises:
            NotFound: The owner has no such session.
            RequestMismatch: The request id was used with other content, or for another conversation.
            SessionEnded: The session was ended.
            SessionExpired: The session has expired.
            QuotaExceeded: The owner has reached its limit of stored bytes.
            InvalidPayload: An argument is not valid.
            TooLarge: The message is too long.
        """
        return await self._accepted(
            partial(
                commands.submit,
                self.id,
                content,
                owner=self.owner,
                agent=None,
                request_id=request_id,
                if_busy="steer",
                allow_unserved=False,
            )
        )

    async def record(
        self,
        messages: Sequence[MessageLike],
        *,
        request_id: str | None = None,
        if_busy: IfBusy = "enqueue",
        expect_revision: int | None = None,
    ) -> Recorded:
        """Add finished messages of an agent that runs elsewhere, as one turn.

        Args:
            messages: The messages, as `NewMessage`s or as dictionaries of the Chat Completions API, such as
                `{"role": "user", "content": "hello"}`. A tool result must answer an open call.
            request_id: Identifies the request among all requests of the owner. Repeating it returns the first turn.
            if_busy: `enqueue` or `reject`: whether the messages wait behind a running turn.
            expect_revision: The revision that the session must have; None: any.

        Returns:
            The turn, its session, and the ids of the messages.

        Raises:
            NotFound: The owner has no such session.
            RequestMismatch: The request id was used with other content, or for another conversation.
            RevisionMismatch: The session is at another revision.
            SessionBusy: A turn runs, and `if_busy` is `reject`.
            SessionEnded: The session was ended.
            SessionExpired: The session has expired.
            QuotaExceeded: The owner has reached its limit of stored bytes.
            InvalidPayload: An argument is not valid, or a tool result answers no open call.
            TooLarge: A message is too long.
        """
        return await self._scope.run(
            commands.record(
                self.id,
                messages,
                owner=self.owner,
                request_id=request_id,
                if_busy=if_busy,
                expect_revision=expect_revision,
            )
        )

    async def upload(self, file: FileSource, *, name: str | None = None, media_type: str | None = None) -> Attachment:
        """Upload a file, for messages of any session of the owner. Equal bytes are stored once.

        The file is read chunk by chunk. If no message uses it within a day, it is dropped.

        Args:
            file: A path, bytes, or a file opened in binary mode, which is read from its current position.
            name: The name that readers see; None: the file's own name.
            media_type: The type of the content, such as `image/png`; None: guessed from the name.

        Returns:
            The attachment: put it into a message, `send([Text("…"), attachment])`.

        Raises:
            OSError: The file cannot be read.
            TooLarge: The file is larger than `Limits.blob_bytes`.
            QuotaExceeded: The owner has reached its limit of stored bytes.
            InvalidPayload: `file` is not a file.
        """
        return await upload_file(self._scope.supervisor.store, self.owner, file, name, media_type)

    async def download(self, attachment: Attachment, *, limit: int = READ_LIMIT) -> bytes:
        """Read the bytes of an attachment.

        Args:
            attachment: The attachment, as it is in the parts of a message.
            limit: The most bytes that are read into memory.

        Returns:
            All bytes of the attachment.

        Raises:
            TooLarge: The attachment has more than `limit` bytes.
            NotFound: The owner has no such attachment.
            InvalidPayload: The value is not an attachment.
        """
        return await AttachmentReader(self._scope.supervisor.store, self.owner).read(attachment, limit)

    async def retry(
        self,
        *,
        agent: str | None = None,
        request_id: str | None = None,
        expect_revision: int | None = None,
        allow_unserved: bool = False,
    ) -> Turn:
        """Send the last input again, in a window from before it. The first answer stays in the lineage.

        Args:
            agent: The agent that answers; None: the one that answered before.
            request_id: Identifies the request among all requests of the owner. Repeating it returns the first turn.
            expect_revision: The revision that the session must have; None: any.
            allow_unserved: Let the input wait for an agent that no process serves or has served.

        Returns:
            The turn that answers.

        Raises:
            NotFound: The owner has no such session.
            NothingToDo: The session has no turn that could be retried.
            RequestMismatch: The request id was used for something else.
            RevisionMismatch: The session is at another revision.
            SessionBusy: A turn runs or waits.
            SessionEnded: The session was ended.
            SessionExpired: The session has expired.
            UnknownAgent: No process serves or has served the agent.
            InvalidPayload: An argument is not valid.
        """
        return await self._accepted(
            partial(
                commands.retry,
                self.id,
                owner=self.owner,
                agent=agent,
                request_id=request_id,
                expect_revision=expect_revision,
                allow_unserved=allow_unserved,
            )
        )

    async def edit(
        self,
        message: MessageId,
        content: Content,
        *,
        agent: str | None = None,
        request_id: str | None = None,
        expect_revision: int | None = None,
        allow_unserved: bool = False,
    ) -> Turn:
        """Send other content in place of an earlier message of a person, in a window from before its turn.

        Args:
            message: The message to replace.
            content: The new message.
            agent: The agent that answers; None: the one that answered before.
            request_id: Identifies the request among all requests of the owner. Repeating it returns the first turn.
            expect_revision: The revision that the session must have; None: any.
            allow_unserved: Let the message wait for an agent that no process serves or has served.

        Returns:
            The turn that answers.

        Raises:
            NotFound: The owner has no such session, or its history does not contain the message.
            RequestMismatch: The request id was used for something else.
            RevisionMismatch: The session is at another revision.
            SessionBusy: A turn runs or waits.
            SessionEnded: The session was ended.
            SessionExpired: The session has expired.
            UnknownAgent: No process serves or has served the agent.
            InvalidPayload: An argument is not valid, or the message is not a person's.
            TooLarge: The message is too long.
        """
        return await self._accepted(
            partial(
                commands.edit,
                self.id,
                message,
                content,
                owner=self.owner,
                agent=agent,
                request_id=request_id,
                expect_revision=expect_revision,
                allow_unserved=allow_unserved,
            )
        )

    async def resume(self) -> Turn:
        """Continue the last turn in this process, after it was interrupted.

        Returns:
            The turn that continues it: a new one, or the one that does so already.

        Raises:
            NotFound: The session does not exist.
            NothingToDo: The last turn was not interrupted.
            Conflict: Its input was compacted, or its agent does not answer here.
            SessionBusy: A turn runs or waits in the session.
            QuotaExceeded: The owner already runs its maximum number of turns in this process.
        """
        last = await self._scope.run(commands.last_turn(self.id, owner=self.owner))
        if last.root != last.id and not isinstance(last.outcome, Interrupted):
            return Turn(self._scope, last)  # Another process was first: a decision on a call continues its turn.
        return await resume_turn(self._scope, last.id)

    async def turn(self, turn: TurnId) -> Turn:
        """Open a turn of this session that was accepted before, by any process.

        Args:
            turn: The id of the turn.

        Returns:
            The handle of the turn.

        Raises:
            NotFound: The session has no such turn.
        """
        found = await self._scope.run(commands.turn(turn, owner=self.owner))
        if found.session != self.id:
            raise NotFound(f"no turn {turn} in {self.id}")
        return Turn(self._scope, found)

    async def waiting(self) -> tuple[TurnInfo, ...]:
        """Read the waiting turns, in the order in which they will run.

        Returns:
            The turns.

        Raises:
            NotFound: The owner has no such session.
        """
        return await self._scope.run(commands.waiting(self.id, owner=self.owner))

    async def reorder(self, turns: Sequence[TurnId], *, expect_revision: int | None = None) -> tuple[TurnInfo, ...]:
        """Change the order of the waiting turns. `Turn.edit` and `Turn.withdraw` change one of them.

        Args:
            turns: The ids of all waiting turns, in the order in which they are to run.
            expect_revision: The revision that the caller has seen; None: any.

        Returns:
            The waiting turns in their new order.

        Raises:
            NotFound: The owner has no such session.
            Conflict: These are not the turns that wait now.
            RevisionMismatch: The session is at another revision.
            SessionEnded: The session was ended.
            SessionExpired: The session has expired.
        """
        return await self._scope.run(
            commands.reorder(self.id, turns, owner=self.owner, expect_revision=expect_revision)
        )

    # --- reading ----------------------------------------------------------------------------------------------------

    async def read(self) -> SessionInfo:
        """Read the session as it is now.

        Returns:
            The session.

        Raises:
            NotFound: The owner has no such session.
        """
        return await self._scope.run(commands.session(self.id, owner=self.owner))

    async def messages(self, *, window: WindowId | None = None, last: int | None = None) -> tuple[Message, ...]:
        """Read the messages of the session's window, or of another of its windows.

        Args:
            window: The window; None: the current one.
            last: How many messages are read at most, from the end; None: all.

        Returns:
            The messages.

        Raises:
            NotFound: The owner has no such session, or the session has no such window.
            InvalidPayload: `last` is not a whole number.
        """
        page = await self._scope.run(commands.messages(self.id, owner=self.owner, window=window, last=last))
        return page.messages

    async def lineage(self) -> tuple[Window, ...]:
        """Read all windows, oldest first.

        Returns:
            The windows.

        Raises:
            NotFound: The owner has no such session.
        """
        return await self._scope.run(commands.lineage(self.id, owner=self.owner))

    async def export(self) -> Export:
        """Export the session, in memory, as a document that any app can import.

        Returns:
            The document.

        Raises:
            NotFound: The owner has no such session, or it was deleted meanwhile.
            Conflict: Old turns of the session were folded each time it was read. Export it again.
        """
        return await self._scope.supervisor.store.call(Store.export, self.id, owner=self.owner)

    async def export_to(self, file: BinaryIO) -> int:
        """Export the session to a file. Takes little memory.

        Args:
            file: A binary file that can be written, sought and truncated. It is written from its current position.

        Returns:
            How many bytes were written.

        Raises:
            NotFound: The owner has no such session, or it was deleted meanwhile.
            Conflict: Old turns of the session were folded each time it was read. Export it again.
        """
        return await self._scope.supervisor.store.call(Store.export_to, self.id, file, owner=self.owner)

    async def follow(self, after: Cursor | int = 0) -> AsyncGenerator[Event, None]:
        """Follow the events of the session: replayed first, then live. Ends only with the session's deletion.

        Args:
            after: The cursor after the last event that was read, or its number; 0: from the beginning.

        Yields:
            The events, in order.

        Raises:
            NotFound: The owner has no such session.
            HistoryChanged: A crash of the database lost the event `after`.
            StoreUnavailable: The app was closed.
        """
        cursor = after if isinstance(after, Cursor) else Cursor(fence=UNSEEN, number=after)
        supervisor = self._scope.supervisor
        async for event in follow(supervisor.store, supervisor.notifier, self.id, self.owner, cursor):
            yield event

    async def addresses(self) -> tuple[str, ...]:
        """Read the addresses that lead to the session.

        Returns:
            Their spellings.

        Raises:
            NotFound: The owner has no such session.
        """
        return await self._scope.run(commands.addresses(self.id, owner=self.owner))

    async def marks(self) -> Marks:
        """Read the draft of the owner, and the last event that was marked as read.

        Returns:
            The marks.

        Raises:
            NotFound: The owner has no such session.
        """
        return await self._scope.run(commands.marks(self.id, owner=self.owner))

    async def save_draft(self, text: str) -> Marks:
        """Store a draft of the next message. It is durable when this returns.

        Args:
            text: The draft; an empty text deletes it.

        Returns:
            The marks.

        Raises:
            NotFound: The owner has no such session.
            QuotaExceeded: The owner has reached its limit of stored bytes.
            InvalidPayload: The text is not valid.
            TooLarge: The text is too long.
        """
        return await self._scope.run(commands.save_draft(self.id, text, owner=self.owner))

    async def mark_read(self, number: int) -> Marks:
        """Mark all events up to one as read. The mark only moves forward.

        Args:
            number: The number of the last event that was read.

        Returns:
            The marks.

        Raises:
            NotFound: The owner has no such session.
            InvalidPayload: `number` is not the number of an event.
        """
        return await self._scope.run(commands.mark_read(self.id, number, owner=self.owner))

    # --- history ------------------------------------------------------------------------------------------------------

    async def undo(self, *, expect_revision: int | None = None) -> Moved:
        """Undo the last turn.

        Args:
            expect_revision: The revision that the session must have; None: any.

        Returns:
            The current window of the session.

        Raises:
            NotFound: The owner has no such session.
            NothingToDo: There is no turn to undo.
            RevisionMismatch: The session is at another revision.
            SessionBusy: A turn runs or waits.
            SessionEnded: The session was ended.
            SessionExpired: The session has expired.
        """
        return await self._scope.run(commands.undo(self.id, owner=self.owner, expect_revision=expect_revision))

    async def redo(self, *, expect_revision: int | None = None) -> Moved:
        """Redo the turn that the last undo took back; possible until the next message.

        Args:
            expect_revision: The revision that the session must have; None: any.

        Returns:
            The current window of the session.

        Raises:
            NotFound: The owner has no such session.
            NothingToDo: There is nothing to redo.
            RevisionMismatch: The session is at another revision.
            SessionBusy: A turn runs or waits.
            SessionEnded: The session was ended.
            SessionExpired: The session has expired.
        """
        return await self._scope.run(commands.redo(self.id, owner=self.owner, expect_revision=expect_revision))

    async def compact(self, *, keep: int | None = None, focus: str = "") -> Window:
        """Summarise all messages but the last ones. Writes nothing if there is nothing to summarise.

        If another process compacts the session already, its window is used.

        Args:
            keep: About how many tokens of the last messages are kept; None: as many as the app's compaction keeps.
            focus: The topic that the summary should preserve above all.

        Returns:
            The current window of the session.

        Raises:
            NotFound: The owner has no such session.
            AgentFailed: The summariser failed. The session is unchanged.
            SummaryTooLong: The summary is longer than the messages that it replaces. The session is unchanged.
            QuotaExceeded: The owner already runs its maximum number of turns in this process.
            SessionBusy: A turn runs.
            SessionEnded: The session was ended.
            SessionExpired: The session has expired.
        """
        supervisor, request = self._scope.supervisor, CompactionRequest(keep, focus)
        compacting = None
        while compacting is None and (
            seen := await supervisor.runner.compactor.compactable(self.id, self.owner, request)
        ):
            # The session changed after it was read, and may have nothing left to compact: read it again.
            with suppress(HistoryChanged):
                compacting = await supervisor.compact(self.id, self.owner, request, seen)
        if compacting is not None:
            outcome = await Turn(self._scope, compacting.turn).outcome()
            if not isinstance(outcome, Completed):
                too_long = isinstance(outcome, Failed) and outcome.code == code_of(SummaryTooLong)
                kind = SummaryTooLong if too_long else AgentFailed
                raise kind(f"{self.id} was not compacted: {outcome.reason}", hint="The session was not changed.")
        here = (await self.read()).window
        return next(window for window in await self.lineage() if window.id == here)

    async def fork(self, at: MessageId | TurnId | None = None) -> "Session":
        """Create a session from the ended turns of this one.

        Args:
            at: The last message or turn of the fork; None: all ended turns.

        Returns:
            The handle of the new session.

        Raises:
            NotFound: The owner has no such session, or its history does not contain `at`.
            Conflict: `at` belongs to a turn that still runs.
            QuotaExceeded: The owner has reached its limit of sessions.
        """
        forked = await self._scope.run(commands.fork(self.id, owner=self.owner, at=at))
        return Session(self._scope, forked.id, self._agent)

    # --- organising ---------------------------------------------------------------------------------------------------

    async def rename(self, title: str | None) -> SessionInfo:
        """Set the title. A person's title is never replaced by a generated one.

        Args:
            title: The title; None removes it.

        Returns:
            The session.

        Raises:
            NotFound: The owner has no such session.
            SessionEnded: The session was ended.
            SessionExpired: The session has expired.
            QuotaExceeded: The owner has reached its limit of stored bytes.
            InvalidPayload: The title is not valid.
            TooLarge: The title is too long.
        """
        return await self._scope.run(commands.rename(self.id, title, owner=self.owner))

    async def pin(self, pinned: bool = True) -> SessionInfo:
        """Pin or unpin the session.

        Args:
            pinned: Whether it is pinned from now on.

        Returns:
            The session.

        Raises:
            NotFound: The owner has no such session.
            SessionEnded: The session was ended.
            SessionExpired: The session has expired.
        """
        return await self._scope.run(commands.pin(self.id, pinned, owner=self.owner))

    async def archive(self, archived: bool = True) -> SessionInfo:
        """Archive or unarchive the session.

        Args:
            archived: Whether it is archived from now on.

        Returns:
            The session.

        Raises:
            NotFound: The owner has no such session.
            SessionEnded: The session was ended.
            SessionExpired: The session has expired.
        """
        return await self._scope.run(commands.archive(self.id, archived, owner=self.owner))

    async def tag(self, *, add: Sequence[str] = (), remove: Sequence[str] = ()) -> SessionInfo:
        """Add and remove tags.

        Args:
            add: The tags to add.
            remove: The tags to remove.

        Returns:
            The session.

        Raises:
            NotFound: The owner has no such session.
            SessionEnded: The session was ended.
            SessionExpired: The session has expired.
            QuotaExceeded: The owner has reached its limit of stored bytes.
            InvalidPayload: A tag is not valid, or there are too many.
        """
        return await self._scope.run(commands.tag(self.id, owner=self.owner, add=add, remove=remove))

    async def update(self, patch: SessionPatch, *, expect_revision: int | None = None) -> SessionInfo:
        """Change title, pin, archive, tags and metadata in one write.

        Args:
            patch: The changes; unset fields stay as they are.
            expect_revision: The revision that the caller has seen; None: any.

        Returns:
            The session.

        Raises:
            NotFound: The owner has no such session.
            RevisionMismatch: The session is at another revision.
            SessionEnded: The session was ended.
            SessionExpired: The session has expired.
            QuotaExceeded: The owner has reached its limit of stored bytes.
            InvalidPayload: A change is not valid.
            TooLarge: A text is too long.
        """
        return await self._scope.run(commands.update(self.id, patch, owner=self.owner, expect_revision=expect_revision))

    async def point(self, address: Address) -> SessionInfo:
        """Point an address to this session. Requests that were sent through it before keep their session.

        Args:
            address: The address.

        Returns:
            The session.

        Raises:
            NotFound: The owner has no such session.
            SessionEnded: The session was ended.
            SessionExpired: The session has expired.
            QuotaExceeded: The owner has reached its limit of stored bytes.
        """
        return await self._scope.run(commands.point(address, self.id, owner=self.owner))

    async def end(self) -> SessionInfo:
        """End the session permanently, and cancel its running and waiting turns.

        Returns:
            The session.

        Raises:
            NotFound: The owner has no such session.
        """
        return await self._scope.run(commands.end(self.id, owner=self.owner))

    async def delete(self) -> Deleted:
        """Remove the session and its messages; keep the messages that a fork reads.

        Returns:
            How much was removed and kept.

        Raises:
            NotFound: The owner has no such session.
        """
        return await self._scope.run(commands.delete(self.id, owner=self.owner))

    # --- internal ---------------------------------------------------------------------------------------------------

    async def _accepted(self, submission: Submission) -> Turn:
        return turn_of(self._scope, await self._scope.supervisor.accept(self.owner, submission))
