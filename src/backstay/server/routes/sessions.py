"""Sessions: listed, found, made, read, filed, ended and deleted."""

from typing import Annotated

import msgspec
from msgspec import Meta

from backstay.model.address import Address
from backstay.model.event import UNSEEN, Cursor, EventPage
from backstay.model.ids import SessionId, WindowId
from backstay.model.message import MessagePage
from backstay.model.search import SearchPage
from backstay.model.session import Deleted, Filing, Session, SessionFilter, SessionState, Ttl
from backstay.model.window import Window
from backstay.server.call import Answer, Call, Nothing, etag
from backstay.server.operation import AnyOperation, Operation
from backstay.server.problems import invalid
from backstay.server.sessionlist import SessionList, read_list
from backstay.store.port import Store

Limit = Annotated[int, Meta(ge=1, le=1_000)]
Position = Annotated[int, Meta(ge=0, le=1 << 53)]


class ListQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which sessions, and from where on."""

    after: str | None = None
    limit: Limit = 50
    state: SessionState | None = None
    tag: str | None = None
    family: str | None = None
    place: str | None = None
    agent: str | None = None
    pinned: bool | None = None
    archived: bool | None = None


class SearchQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What to look for, and where."""

    q: Annotated[str, Meta(max_length=4_096)]
    limit: Limit = 20
    session: SessionId | None = None


class NewSession(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A session to make. With an address, the one it leads to: made only if there is none that lives."""

    address: Annotated[str, Meta(max_length=8_192)] | None = None
    ttl: Ttl | None = None


class Pointing(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An address that shall lead to the session."""

    address: Annotated[str, Meta(max_length=8_192)]


class Patch(Filing, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What to change about a session; what is left out stays as it is."""


class MessagesQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which messages: the last ones before or after a position of a window."""

    window: WindowId | None = None
    before: Position | None = None
    after: Position | None = None
    last: Limit = 100


class EventsQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which events: those after a number; with the fence it was written under, so that a lost tail is noticed."""

    after: Position = 0
    fence: Position | None = None
    limit: Limit = 500


class Windows(msgspec.Struct, frozen=True, kw_only=True):
    """All windows of a session, oldest first."""

    windows: tuple[Window, ...]


async def list_sessions(call: Call[Nothing, ListQuery]) -> Answer:
    """A page of the list."""
    query = call.query
    wanted = SessionFilter(
        state=query.state,
        tag=query.tag,
        family=query.family,
        place=query.place,
        agent=query.agent,
        pinned=query.pinned,
        archived=query.archived,
    )
    return Answer(value=await read_list(call.owned, wanted, query.after, query.limit))


async def search(call: Call[Nothing, SearchQuery]) -> Answer:
    """Messages that match, best first."""
    query = call.query
    return Answer(value=await call.owned.read(Store.search, query.q, session=query.session, limit=query.limit))


async def create_session(call: Call[NewSession, Nothing]) -> Answer:
    """A new session, or the one behind an address."""
    wanted, owned = call.body, call.owned
    if wanted.address is None:
        session, made = await owned.write(Store.create, ttl=wanted.ttl), True
    else:
        resolved = await owned.write(Store.resolve, Address.parse(wanted.address), ttl=wanted.ttl)
        session, made = resolved.session, resolved.how != "resumed"
    return _shown(session, status=201 if made else 200)


async def read_session(call: Call[Nothing, Nothing]) -> Answer:
    """The session as it is now; 304 if the caller knows this revision."""
    session = await call.owned.read(Store.session, call.session)
    if call.request.headers.get("if-none-match") == etag(session.revision):
        return Answer(status=304, headers={"etag": etag(session.revision)})
    return _shown(session)


async def file_session(call: Call[Patch, Nothing]) -> Answer:
    """Rename, pin, archive and tag at once."""
    return _shown(await call.owned.write(Store.file, call.session, call.body, expect_revision=call.expected_revision))


async def point_address(call: Call[Pointing, Nothing]) -> Answer:
    """Lead an address here from now on; what was sent through it before is still found."""
    return _shown(await call.owned.write(Store.point, Address.parse(call.body.address), call.session))


async def end_session(call: Call[Nothing, Nothing]) -> Answer:
    """End it for good."""
    return _shown(await call.owned.write(Store.end, call.session, expect_revision=call.expected_revision))


async def delete_session(call: Call[Nothing, Nothing]) -> Answer:
    """Remove it and what it said."""
    return Answer(value=await call.owned.write(Store.delete, call.session, expect_revision=call.expected_revision))


async def read_messages(call: Call[Nothing, MessagesQuery]) -> Answer:
    """Messages of one window, the last ones first to be asked for."""
    query = call.query
    if query.before is not None and query.after is not None and query.before < query.after:
        raise invalid("before is smaller than after")
    page = await call.owned.read(
        Store.messages, call.session, window=query.window, before=query.before, after=query.after, last=query.last
    )
    return Answer(value=page)


async def read_events(call: Call[Nothing, EventsQuery]) -> Answer:
    """A page of the story."""
    fence = UNSEEN if call.query.fence is None else call.query.fence
    cursor = Cursor(fence=fence, number=call.query.after)
    return Answer(value=await call.owned.read(Store.events_after, call.session, cursor, limit=call.query.limit))


async def read_lineage(call: Call[Nothing, Nothing]) -> Answer:
    """Every window it ever read."""
    return Answer(value=Windows(windows=await call.owned.read(Store.lineage, call.session)))


def _shown(session: Session, status: int | None = None) -> Answer:
    headers = {"etag": etag(session.revision)}
    if status == 201:
        headers["location"] = f"/api/sessions/{session.id}"
    return Answer(value=session, status=status, headers=headers)


OPERATIONS: tuple[AnyOperation, ...] = (
    Operation(
        method="GET",
        path="/api/sessions",
        name="list_sessions",
        summary="The caller's sessions, newest first.",
        run=list_sessions,
        body=Nothing,
        query=ListQuery,
        answer=SessionList,
    ),
    Operation(
        method="POST",
        path="/api/sessions",
        name="create_session",
        summary="Make a session, or find the one behind an address: 201 if it was made, 200 if it was there.",
        run=create_session,
        body=NewSession,
        query=Nothing,
        answer=Session,
        status=201,
        also=(200,),
    ),
    Operation(
        method="GET",
        path="/api/search",
        name="search",
        summary="Messages of people and agents that match, best first.",
        run=search,
        body=Nothing,
        query=SearchQuery,
        answer=SearchPage,
        problems=(404,),
    ),
    Operation(
        method="GET",
        path="/api/sessions/{session}",
        name="read_session",
        summary="A session as it is now, with its revision as ETag.",
        run=read_session,
        body=Nothing,
        query=Nothing,
        answer=Session,
        also=(304,),
    ),
    Operation(
        method="PATCH",
        path="/api/sessions/{session}",
        name="file_session",
        summary="Rename, pin, archive and tag, all at once.",
        run=file_session,
        body=Patch,
        query=Nothing,
        answer=Session,
        revision=True,
    ),
    Operation(
        method="PUT",
        path="/api/sessions/{session}/address",
        name="point_address",
        summary="Lead an address to this session from now on.",
        run=point_address,
        body=Pointing,
        query=Nothing,
        answer=Session,
    ),
    Operation(
        method="DELETE",
        path="/api/sessions/{session}",
        name="delete_session",
        summary="Remove a session and what it said; what a fork still reads is kept, and counted.",
        run=delete_session,
        body=Nothing,
        query=Nothing,
        answer=Deleted,
        revision=True,
    ),
    Operation(
        method="POST",
        path="/api/sessions/{session}/end",
        name="end_session",
        summary="End a session for good. It stays readable.",
        run=end_session,
        body=Nothing,
        query=Nothing,
        answer=Session,
        revision=True,
    ),
    Operation(
        method="GET",
        path="/api/sessions/{session}/messages",
        name="read_messages",
        summary="Messages of the session's window, or of another of its windows.",
        run=read_messages,
        body=Nothing,
        query=MessagesQuery,
        answer=MessagePage,
    ),
    Operation(
        method="GET",
        path="/api/sessions/{session}/events",
        name="read_events",
        summary="A page of the session's story, without following it.",
        run=read_events,
        body=Nothing,
        query=EventsQuery,
        answer=EventPage,
    ),
    Operation(
        method="GET",
        path="/api/sessions/{session}/lineage",
        name="read_lineage",
        summary="All windows of a session, oldest first.",
        run=read_lineage,
        body=Nothing,
        query=Nothing,
        answer=Windows,
    ),
)
