"""A session on a server."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from tempfile import TemporaryFile
from typing import BinaryIO, Unpack

from backstay.client import api_calls
from backstay.client.api_call import ApiCall
from backstay.client.event_follower import follow_session
from backstay.client.file_transfer import download, export_to, upload
from backstay.client.server_connection import Connection
from backstay.client.turn_client import TurnClient
from backstay.errors import InvalidPayload, NotFound
from backstay.model.addresses.address import Address
from backstay.model.content import Attachment, Content
from backstay.model.documents.document import Export
from backstay.model.documents.records import gathered, records_in
from backstay.model.event import Cursor, Event
from backstay.model.files.file_source import FileSource
from backstay.model.history.chat_messages import MessageLike
from backstay.model.ids import MessageId, SessionId, TurnId, WindowId
from backstay.model.limits import READ_LIMIT
from backstay.model.marks import Marks
from backstay.model.message import Message
from backstay.model.session import Deleted, SessionInfo, SessionPatch
from backstay.model.turn import SESSION_SEND_DEFAULTS, IfBusy, Recorded, SendOptions, TurnInfo
from backstay.model.window import Moved, Window
from backstay.signatures import with_options

_LONGEST_LINE = 1 << 40


class SessionClient:
    """One session of a server, with the methods of `Session`: each is described there."""

    def __init__(self, connection: Connection, owner: str, session: SessionId, agent: str) -> None:
        self._connection, self._owner, self._id, self._agent = connection, owner, session, agent

    @property
    def id(self) -> SessionId:
        """The session's id."""
        return self._id

    @property
    def owner(self) -> str:
        """The session's owner."""
        return self._owner

    # --- turns ------------------------------------------------------------------------------------------------------

    @with_options(SESSION_SEND_DEFAULTS)
    async def send(self, content: Content, **options: Unpack[SendOptions]) -> TurnClient:
        """Send a message; see `Session.send`. Without a request id, one is made, so that it can be sent again."""
        if options.get("agent") is None:
            options["agent"] = self._agent
        return await self._submitted(api_calls.send(self.id, content, **options))

    async def steer(self, content: Content, *, request_id: str | None = None) -> TurnClient:
        """Send a message to the running turn; see `Session.steer`."""
        return await self._submitted(api_calls.steer(self.id, content, request_id or api_calls.new_request_id()))

    async def record(
        self,
        messages: Sequence[MessageLike],
        *,
        request_id: str | None = None,
        if_busy: IfBusy = "enqueue",
        expect_revision: int | None = None,
    ) -> Recorded:
        """Add finished messages of an agent that runs elsewhere; see `Session.record`."""
        return await self._connection.run(
            api_calls.record(self.id, messages, request_id or api_calls.new_request_id(), if_busy, expect_revision)
        )

    async def upload(self, file: FileSource, *, name: str | None = None, media_type: str | None = None) -> Attachment:
        """Upload a file; see `Session.upload`."""
        return await upload(self._connection, file, name, media_type)

    async def download(self, attachment: Attachment, *, limit: int = READ_LIMIT) -> bytes:
        """Read the bytes of an attachment; see `Session.download`."""
        return await download(self._connection, attachment, limit)

    async def retry(
        self,
        *,
        agent: str | None = None,
        request_id: str | None = None,
        expect_revision: int | None = None,
        allow_unserved: bool = False,
    ) -> TurnClient:
        """Send the last input again; see `Session.retry`."""
        request = request_id or api_calls.new_request_id()
        return await self._submitted(
            api_calls.retry(self.id, agent, request, expect_revision, allow_unserved=allow_unserved)
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
    ) -> TurnClient:
        """Send other content in place of an earlier message; see `Session.edit`."""
        request = request_id or api_calls.new_request_id()
        return await self._submitted(
            api_calls.edit(
                self.id,
                message,
                content,
                agent=agent,
                request_id=request,
                expect_revision=expect_revision,
                allow_unserved=allow_unserved,
            )
        )

    async def resume(self) -> TurnClient:
        """Continue the last turn on the server, after it was interrupted; see `Session.resume`."""
        return await self._submitted(api_calls.resume_session(self.id))

    async def turn(self, turn: TurnId) -> TurnClient:
        """Open a turn of this session; see `Session.turn`."""
        found = await self._connection.run(api_calls.turn(turn))
        if found.session != self.id:
            raise NotFound(f"no turn {turn} in {self.id}")
        return turn_client(self._connection, found)

    async def waiting(self) -> tuple[TurnInfo, ...]:
        """Read the waiting turns; see `Session.waiting`."""
        return (await self._connection.run(api_calls.waiting(self.id))).turns

    async def reorder(self, turns: Sequence[TurnId], *, expect_revision: int | None = None) -> tuple[TurnInfo, ...]:
        """Change the order of the waiting turns; see `Session.reorder`."""
        return (await self._connection.run(api_calls.reorder(self.id, turns, expect_revision))).turns

    # --- reading ----------------------------------------------------------------------------------------------------

    async def read(self) -> SessionInfo:
        """Read the session as it is now; see `Session.read`."""
        return await self._connection.run(api_calls.session(self.id))

    async def messages(self, *, window: WindowId | None = None, last: int | None = None) -> tuple[Message, ...]:
        """Read the messages of a window, page by page; see `Session.messages`."""
        if last is not None and (type(last) is not int or last < 0):
            raise InvalidPayload(f"last is {last!r}", hint="Pass a whole number.")
        found: list[Message] = []
        before, left = None, api_calls.MOST if last is None else last
        while True:
            page = await self._connection.run(
                api_calls.messages(self.id, window, before, min(max(left, 1), api_calls.MOST))
            )
            window, before = page.window, (page.length if before is None else before) - len(page.messages)
            found[:0] = page.messages[len(page.messages) - left :] if left < len(page.messages) else page.messages
            left = api_calls.MOST if last is None else last - len(found)
            if left <= 0 or not page.messages or before <= 0:
                return tuple(found)

    async def lineage(self) -> tuple[Window, ...]:
        """Read all windows; see `Session.lineage`."""
        return (await self._connection.run(api_calls.lineage(self.id))).windows

    async def export(self) -> Export:
        """Export the session, in memory; see `Session.export`."""
        file = await asyncio.to_thread(TemporaryFile)
        with file:
            await self.export_to(file)
            return await asyncio.to_thread(_gathered, file)

    async def export_to(self, file: BinaryIO) -> int:
        """Export the session to a file, in small pieces; see `Session.export_to`."""
        return await export_to(self._connection, self.id, file)

    async def follow(self, after: Cursor | int = 0) -> AsyncGenerator[Event, None]:
        """Follow the events of the session; see `Session.follow`. A cut connection is opened again, without end."""
        async with aclosing(follow_session(self._connection, self.id, after)) as events:
            async for event in events:
                yield event

    async def addresses(self) -> tuple[str, ...]:
        """Read the addresses that lead to the session; see `Session.addresses`."""
        return (await self._connection.run(api_calls.addresses(self.id))).addresses

    async def marks(self) -> Marks:
        """Read the draft and the read mark; see `Session.marks`."""
        return await self._connection.run(api_calls.marks(self.id))

    async def save_draft(self, text: str) -> Marks:
        """Store a draft of the next message; see `Session.save_draft`."""
        return await self._connection.run(api_calls.save_draft(self.id, text))

    async def mark_read(self, number: int) -> Marks:
        """Mark all events up to one as read; see `Session.mark_read`."""
        return await self._connection.run(api_calls.mark_read(self.id, number))

    # --- history ------------------------------------------------------------------------------------------------------

    async def undo(self, *, expect_revision: int | None = None) -> Moved:
        """Undo the last turn; see `Session.undo`."""
        return await self._connection.run(api_calls.undo(self.id, expect_revision))

    async def redo(self, *, expect_revision: int | None = None) -> Moved:
        """Redo the last undo; see `Session.redo`."""
        return await self._connection.run(api_calls.redo(self.id, expect_revision))

    async def compact(self, *, keep: int | None = None, focus: str = "") -> Window:
        """Summarise all messages but the last ones; see `Session.compact`."""
        return await self._connection.run(api_calls.compact(self.id, keep, focus))

    async def fork(self, at: MessageId | TurnId | None = None) -> "SessionClient":
        """Create a session from the ended turns of this one; see `Session.fork`."""
        forked = await self._connection.run(api_calls.fork(self.id, at))
        return SessionClient(self._connection, self.owner, forked.id, self._agent)

    # --- organising ---------------------------------------------------------------------------------------------------

    async def rename(self, title: str | None) -> SessionInfo:
        """Set the title; see `Session.rename`."""
        return await self.update(SessionPatch(title=title))

    async def pin(self, pinned: bool = True) -> SessionInfo:
        """Pin or unpin the session; see `Session.pin`."""
        return await self.update(SessionPatch(pinned=pinned))

    async def archive(self, archived: bool = True) -> SessionInfo:
        """Archive or unarchive the session; see `Session.archive`."""
        return await self.update(SessionPatch(archived=archived))

    async def tag(self, *, add: Sequence[str] = (), remove: Sequence[str] = ()) -> SessionInfo:
        """Add and remove tags; see `Session.tag`."""
        return await self.update(SessionPatch(add_tags=tuple(add), remove_tags=tuple(remove)))

    async def update(self, patch: SessionPatch, *, expect_revision: int | None = None) -> SessionInfo:
        """Change title, pin, archive, tags and metadata in one write; see `Session.update`."""
        return await self._connection.run(api_calls.update(self.id, patch, expect_revision))

    async def point(self, address: Address) -> SessionInfo:
        """Point an address to this session; see `Session.point`."""
        return await self._connection.run(api_calls.point(address, self.id))

    async def end(self) -> SessionInfo:
        """End the session permanently; see `Session.end`."""
        return await self._connection.run(api_calls.end(self.id))

    async def delete(self) -> Deleted:
        """Remove the session and its messages; see `Session.delete`."""
        return await self._connection.run(api_calls.delete(self.id))

    # --- internal -----------------------------------------------------------------------------------------------------

    async def _submitted(self, call: ApiCall[api_calls.SubmittedTurn]) -> TurnClient:
        return TurnClient(self._connection, await self._connection.run(call))


def turn_client(connection: Connection, turn: TurnInfo) -> TurnClient:
    """The handle of a turn that was read."""
    accepted = api_calls.SubmittedTurn(
        id=turn.id, session=turn.session, repeated=False, state=turn.state, event=turn.event
    )
    return TurnClient(connection, accepted)


def _gathered(file: BinaryIO) -> Export:
    file.seek(0)
    return gathered(one.record for one in records_in(file, _LONGEST_LINE))
