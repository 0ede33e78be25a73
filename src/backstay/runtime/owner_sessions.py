"""The part of an open app that belongs to one owner."""

import asyncio
from collections.abc import AsyncGenerator, Collection, Coroutine, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import BinaryIO, Literal, TypeVar, Unpack

from backstay.errors import StoreUnavailable
from backstay.model.addresses.address import Address
from backstay.model.codec import check_name
from backstay.model.content import Attachment, Content
from backstay.model.documents.document import Export, Imported
from backstay.model.event import Cursor, FeedEvent
from backstay.model.files.file_source import FileSource
from backstay.model.ids import SessionId, TurnId
from backstay.model.limits import READ_LIMIT, Limits
from backstay.model.search.results import SearchPage
from backstay.model.session import Resolved, SessionCursor, SessionFilter, SessionInfo, SessionPage, Ttl
from backstay.model.turn import SEND_DEFAULTS, SendOptions
from backstay.runtime.attachments.attachment_reader import AttachmentReader
from backstay.runtime.attachments.file_upload import upload_file
from backstay.runtime.events.follow import follow_all
from backstay.runtime.events.notifier import Notifier, Subscription
from backstay.runtime.owner_scope import OwnerScope
from backstay.runtime.schedules.owner_schedules import OwnerSchedules
from backstay.runtime.session_handle import Session
from backstay.runtime.turn_handle import Turn, resume_turn, turn_of
from backstay.signatures import with_options
from backstay.store import Store, commands
from backstay.store.commands import ANY, Read, Write

T = TypeVar("T")


class MultiSubscription:
    """A subscription to several sessions at once: `changed` is set when any of them has new events."""

    def __init__(
        self, changed: asyncio.Event, subscriptions: dict[SessionId, Subscription], notifier: Notifier
    ) -> None:
        self.changed, self._subscriptions, self._notifier = changed, subscriptions, notifier

    @property
    def changes(self) -> int:
        """The change number of the notifier: grows with every write to any session."""
        return self._notifier.changes

    def must_read(self, session: SessionId, seen: Cursor) -> bool:
        """Whether a reader at this cursor of the session must read; see `Subscription.must_read`."""
        return self._subscriptions[session].must_read(seen)

    def change_of(self, session: SessionId) -> int:
        """The change number at which the end of the session's event log was last read or published."""
        return self._subscriptions[session].change


class OwnerSessions(OwnerSchedules):
    """The sessions of one owner. Commands for another owner are rejected."""

    def __init__(self, owner: str, scope: OwnerScope | None = None) -> None:
        self._owner, self._current = owner, scope

    @property
    def owner(self) -> str:
        """The owner of the sessions."""
        return self._owner

    @property
    def _scope(self) -> OwnerScope:
        if self._current is None:
            raise StoreUnavailable("the app is not open", hint="Use it inside `async with backstay.open(…) as app:`.")
        return self._current

    @property
    def limits(self) -> Limits:
        """The limits for names, messages and attachments."""
        return self._scope.supervisor.store.limits

    @property
    def host(self) -> str:
        """The host of workspace addresses that name none."""
        return self._scope.supervisor.store.host

    async def run(self, command: Write[T] | Read[T]) -> T:
        """Run a command of the store for this owner.

        Args:
            command: A value that a function of `backstay.commands` returned.

        Returns:
            The command's result. A write is committed by then, and followers of its session are woken.

        Raises:
            ConfigError: The command is for another owner.
            StoreUnavailable: The app is closed, or a write could not begin in time.
        """
        return await self._scope.run(command)

    def handle(self, session: SessionId, *, agent: str = "default") -> Session:
        """The handle of a session, without reading it.

        Args:
            session: The id of the session. Methods of the handle raise `NotFound` if the owner has no such session.
            agent: The agent that answers by default.

        Returns:
            The handle.
        """
        return Session(self._scope, session, agent)

    async def session(
        self, which: Address | SessionId | None = None, *, ttl: Ttl | None = None, agent: str = "default"
    ) -> Session:
        """Open a session: by its address (it is created if needed), by its id, or a new one.

        Args:
            which: An address, a session id, or "new" for a new session.
            ttl: When the session expires. Without it an existing session keeps the one it has.
            agent: The agent that answers by default.

        Returns:
            The handle of the session.

        Raises:
            NotFound: The owner has no session with this id.
            InvalidPayload: An argument is not valid.
            QuotaExceeded: The owner has reached its limit of sessions.
        """
        scope = self._scope
        check_name("the agent's name", agent, scope.supervisor.store.limits.name_bytes)
        if isinstance(which, Address):
            found = (await scope.run(commands.resolve(which, owner=self.owner, ttl=ttl))).session
        elif which is None:
            found = await scope.run(commands.create(owner=self.owner, ttl=ttl))
        else:
            found = await scope.run(commands.session(which, owner=self.owner))
        return Session(scope, found.id, agent)

    async def resolve(self, address: Address, *, ttl: Ttl | None = None) -> Resolved:
        """Find the session of an address, or create it, and report which of the two happened.

        Args:
            address: The address.
            ttl: When the session expires. Without it an existing session keeps the one it has.

        Returns:
            The session, and whether it was created, resumed, or replaces an ended or expired one.

        Raises:
            InvalidPayload: The time to live is not valid.
            QuotaExceeded: The owner has reached its limit of sessions.
        """
        return await self._scope.run(commands.resolve(address, owner=self.owner, ttl=ttl))

    async def at(self, address: Address) -> SessionInfo:
        """Find the session that an address leads to. None is created.

        Args:
            address: The address.

        Returns:
            The session.

        Raises:
            NotFound: The address leads to no session of the owner.
        """
        return await self._scope.run(commands.at(address, owner=self.owner))

    async def beginning_with(self, prefix: str, *, limit: int = 20) -> tuple[SessionInfo, ...]:
        """Find sessions by the first letters of their ids.

        Args:
            prefix: The first letters, with `ses_`.
            limit: How many sessions are read at most.

        Returns:
            The sessions.

        Raises:
            InvalidPayload: An argument is not valid.
        """
        return await self._scope.run(commands.beginning_with(prefix, owner=self.owner, limit=limit))

    @with_options(SEND_DEFAULTS)
    async def send(
        self, to: Address | SessionId | Literal["new"], content: Content, **options: Unpack[SendOptions]
    ) -> Turn:
        """Send a message to a session, to an address, or to a new session, which begins with the message.

        The message is durable when this returns, together with the session. The agent answers in the background.

        Args:
            to: A session id, an address, whose session is created if needed, or "new" for a new session.
            content: The message: text, or a list of texts, attachments and dictionaries of OpenAI's API.
            agent: The agent that answers. None: the agent of the last turn of the session, or else `default`.
            request_id: Names one request of its owner. Repeating it returns the same turn, even if the address points
                to another session by now. Begin it with platform and chat (`telegram/42/1001`).
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
            QuotaExceeded: The owner has reached its limit of stored bytes or of sessions.
            InvalidPayload: An argument is not valid.
            TooLarge: The message is too long.
        """
        scope = self._scope  # Read once: the app may close before the message is stored.
        chosen: SendOptions = {**SEND_DEFAULTS, **options}
        submission = partial(commands.submit, to, content, owner=scope.owner, **chosen)
        return turn_of(scope, await scope.supervisor.accept(scope.owner, submission))

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

    async def turn(self, turn: TurnId) -> Turn:
        """Open a turn that was accepted before, by any process.

        Args:
            turn: The id of the turn.

        Returns:
            The handle of the turn.

        Raises:
            NotFound: The owner has no such turn.
        """
        scope = self._scope
        return Turn(scope, await scope.run(commands.turn(turn, owner=self.owner)))

    async def resume(self, turn: TurnId) -> Turn:
        """Continue an interrupted turn in this process.

        Args:
            turn: The interrupted turn.

        Returns:
            The turn that continues it: a new one, or the one that does so already.

        Raises:
            NotFound: The owner has no such turn.
            NothingToDo: The turn was not interrupted.
            Conflict: The turn is not the last one of its session, or its agent does not answer here.
            SessionBusy: Another turn runs or waits in the session.
            QuotaExceeded: The owner already runs its maximum number of turns in this process.
        """
        return await resume_turn(self._scope, turn)

    async def sessions(
        self, filter: SessionFilter = ANY, *, after: SessionCursor | None = None, limit: int = 50
    ) -> SessionPage:
        """Read a page of sessions, newest activity first.

        Args:
            filter: Which sessions are listed.
            after: The cursor of the page before.
            limit: How many sessions the page has at most.

        Returns:
            The page.

        Raises:
            InvalidPayload: An argument is not valid.
        """
        return await self.run(commands.list_sessions(owner=self.owner, filter=filter, after=after, limit=limit))

    async def search(
        self, text: str, *, filter: SessionFilter = ANY, session: SessionId | None = None, limit: int = 20
    ) -> SearchPage:
        """Find messages of people and agents, best first.

        Args:
            text: The words and quoted phrases to find.
            filter: In which sessions.
            session: Only in this session.
            limit: How many messages the page has at most.

        Returns:
            The page, with the lag of the search index.

        Raises:
            InvalidPayload: An argument is not valid.
            NotFound: `session` is not a session id.
        """
        return await self._scope.supervisor.store.call(
            Store.search, text, owner=self.owner, filter=filter, session=session, limit=limit
        )

    async def follow(self, after: int | None = None) -> AsyncGenerator[FeedEvent, None]:
        """Follow the events of all sessions of the owner. Never ends by itself.

        Args:
            after: A position of the feed; None: from now on.

        Yields:
            The events, in the order in which they were written.

        Raises:
            StoreUnavailable: The app was closed.
            InvalidPayload: The position is not valid.
        """
        supervisor = self._scope.supervisor
        async for event in follow_all(supervisor.store, supervisor.notifier, self.owner, after):
            yield event

    async def import_session(
        self, export: Export | bytes | BinaryIO, *, new_ids: bool = False, addresses: bool = False
    ) -> Imported:
        """Import a session that was exported, by this app or another.

        Its waiting turns are held until `Turn.release`.

        Args:
            export: The document, its bytes, or a binary file; a file is read line by line and takes little memory.
            new_ids: Always make a copy with new ids. Otherwise ids are kept if all of them are free.
            addresses: Point the document's addresses to the session, except those that point to another session.

        Returns:
            The session, and how its ids and addresses were imported.

        Raises:
            InvalidPayload: The document is invalid; the error names the location.
            TooLarge: The document or a part of it is too large.
            QuotaExceeded: The owner has reached its limit of stored bytes.
        """
        supervisor = self._scope.supervisor
        imported = await supervisor.store.call(
            Store.import_session, export, owner=self.owner, new_ids=new_ids, addresses=addresses
        )
        supervisor.notifier.publish_result(imported.session)
        return imported

    def start_background(self, work: Coroutine[object, object, None], name: str) -> None:
        """Run a background task until it ends or the app closes.

        Args:
            work: The coroutine to run.
            name: The name of its task in logs.

        Raises:
            StoreUnavailable: The app is closed.
        """
        self._scope.supervisor.start_background(work, name)

    @contextmanager
    def subscribe(self, sessions: Collection[SessionId], *, everything: bool = False) -> Iterator[MultiSubscription]:
        """Subscribe to sessions inside the block.

        Args:
            sessions: The sessions.
            everything: Wake the subscriber also after every write to the store.

        Yields:
            The subscription.
        """
        changed, notifier = asyncio.Event(), self._scope.supervisor.notifier
        with ExitStack() as stack:
            subscriptions = {
                session: stack.enter_context(notifier.subscribe(session, self.owner, changed=changed))
                for session in sessions
            }
            if everything:
                stack.enter_context(notifier.subscribe_all(changed))
            yield MultiSubscription(changed, subscriptions, notifier)
