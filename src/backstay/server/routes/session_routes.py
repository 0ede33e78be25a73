"""Session operations: list, search, create, read, rename, pin, archive, tag, end and delete."""

from typing import Annotated

import msgspec
from msgspec import Meta

from backstay.model.addresses.address import Address
from backstay.model.event import UNSEEN, Cursor, EventPage, FeedPage
from backstay.model.ids import SessionId, WindowId
from backstay.model.message import MessagePage
from backstay.model.search.results import SearchPage
from backstay.model.session import Deleted, Resolved, SessionFilter, SessionInfo, SessionPatch, SessionState, Ttl
from backstay.model.window import Window
from backstay.server.auth.agent_roots import client_address
from backstay.server.http.api_request import ApiRequest, ApiResponse, B, NoInput, Q, etag
from backstay.server.http.operation import AnyOperation, Operation
from backstay.server.http.problems import invalid
from backstay.server.sse.session_list import SessionList, read_list
from backstay.store import commands

Limit = Annotated[int, Meta(ge=1, le=1_000)]
Position = Annotated[int, Meta(ge=0, le=1 << 53)]


class SessionListQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Filters of the session list, and the page to read."""

    after: str | None = None
    limit: Limit = 50
    state: SessionState | None = None
    tag: str | None = None
    family: str | None = None
    place: str | None = None
    agent: str | None = None
    pinned: bool | None = None
    archived: bool | None = None


class SearchParameters(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The search text, and the session to search; all sessions by default."""

    q: Annotated[str, Meta(max_length=4_096)]
    limit: Limit = 20
    session: SessionId | None = None
    state: SessionState | None = None
    tag: str | None = None
    family: str | None = None
    place: str | None = None
    agent: str | None = None
    pinned: bool | None = None
    archived: bool | None = None


class LookupQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The first or the last letters of a session id, or an address."""

    prefix: Annotated[str, Meta(max_length=64)] | None = None
    suffix: Annotated[str, Meta(max_length=64)] | None = None
    address: Annotated[str, Meta(max_length=8_192)] | None = None
    limit: Limit = 20


class FeedQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The events after a position of the feed; without one, no events and the present position."""

    after: Position | None = None
    limit: Limit = 500


class FoundSessions(msgspec.Struct, frozen=True, kw_only=True):
    """The sessions that were found; none if nothing matches."""

    sessions: tuple[SessionInfo, ...]


class SessionAddresses(msgspec.Struct, frozen=True, kw_only=True):
    """The spellings of the addresses that lead to a session."""

    addresses: tuple[str, ...]


class AddressToResolve(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The address whose session is found or created, and the time to live of the session."""

    address: Annotated[str, Meta(max_length=8_192)]
    ttl: Ttl | None = None


class NewSession(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The session to create. With an address, its open session is returned; one is created only if there is none."""

    address: Annotated[str, Meta(max_length=8_192)] | None = None
    ttl: Ttl | None = None


class AddressToPoint(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An address that is to point to the session."""

    address: Annotated[str, Meta(max_length=8_192)]


class SessionPatchBody(SessionPatch, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The changes to a session; fields that are left out keep their values."""


class MessagesQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The last messages of a window before one position and after another."""

    window: WindowId | None = None
    before: Position | None = None
    after: Position | None = None
    last: Limit = 100


class EventsQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The events after a number. With the fence under which that event was written, lost events are detected."""

    after: Position = 0
    fence: Position | None = None
    limit: Limit = 500


class WindowList(msgspec.Struct, frozen=True, kw_only=True):
    """All windows of a session, oldest first."""

    windows: tuple[Window, ...]


async def list_sessions(call: ApiRequest[NoInput, SessionListQuery]) -> ApiResponse:
    """List a page of sessions."""
    query = call.query
    return ApiResponse(value=await read_list(call.owned, _filter(query), query.after, query.limit))


def _filter(query: SessionListQuery | SearchParameters) -> SessionFilter:
    return SessionFilter(
        state=query.state,
        tag=query.tag,
        family=query.family,
        place=query.place,
        agent=query.agent,
        pinned=query.pinned,
        archived=query.archived,
    )


async def look_up(call: ApiRequest[NoInput, LookupQuery]) -> ApiResponse:
    """Find sessions by the first or last letters of an id, or the one that an address leads to. None is created."""
    match call.query:
        case LookupQuery(prefix=str(prefix), suffix=None, address=None):
            found = await call.owned.beginning_with(prefix, limit=call.query.limit)
        case LookupQuery(prefix=None, suffix=str(letters), address=None):
            found = await call.run(commands.ending_with(letters, limit=call.query.limit, owner=call.owner))
        case LookupQuery(prefix=None, suffix=None, address=str(spelling)):
            found = (await call.owned.at(await _address(call, spelling)),)
        case _:
            raise invalid("pass one of `prefix`, `suffix` and `address`", hint="/api/lookup?prefix=ses_01kb")
    return ApiResponse(value=FoundSessions(sessions=found))


async def resolve_address(call: ApiRequest[AddressToResolve, NoInput]) -> ApiResponse:
    """Return the session of an address, and whether it was created, resumed or replaced."""
    return ApiResponse(value=await call.owned.resolve(await _address(call, call.body.address), ttl=call.body.ttl))


async def read_feed(call: ApiRequest[NoInput, FeedQuery]) -> ApiResponse:
    """List a page of the events of all sessions of the caller."""
    return ApiResponse(value=await call.run(commands.feed(call.query.after, limit=call.query.limit, owner=call.owner)))


async def read_addresses(call: ApiRequest[NoInput, NoInput]) -> ApiResponse:
    """List the addresses of the session."""
    return ApiResponse(value=SessionAddresses(addresses=await call.owned.handle(call.session).addresses()))


async def search(call: ApiRequest[NoInput, SearchParameters]) -> ApiResponse:
    """List the messages that match, best first."""
    query = call.query
    return ApiResponse(
        value=await call.owned.search(query.q, filter=_filter(query), session=query.session, limit=query.limit)
    )


async def create_session(call: ApiRequest[NewSession, NoInput]) -> ApiResponse:
    """Create a session, or return the one that an address points to."""
    wanted, owned = call.body, call.owned
    if wanted.address is None:
        session, made = await owned.run(commands.create(ttl=wanted.ttl, owner=owned.owner)), True
    else:
        resolved = await owned.run(
            commands.resolve(await _address(call, wanted.address), ttl=wanted.ttl, owner=owned.owner)
        )
        session, made = resolved.session, resolved.how != "resumed"
    return _shown(session, status=201 if made else 200)


async def read_session(call: ApiRequest[NoInput, NoInput]) -> ApiResponse:
    """Return the session; 304 if `If-None-Match` has its current revision."""
    session = await call.run(commands.session(call.session, owner=call.owner))
    if call.request.headers.get("if-none-match") == etag(session.revision):
        return ApiResponse(status=304, headers={"etag": etag(session.revision)})
    return _shown(session)


async def update_session(call: ApiRequest[SessionPatchBody, NoInput]) -> ApiResponse:
    """Rename, pin, archive and tag in one change."""
    return _shown(
        await call.run(
            commands.update(call.session, call.body, expect_revision=call.expected_revision, owner=call.owner)
        )
    )


async def point_address(call: ApiRequest[AddressToPoint, NoInput]) -> ApiResponse:
    """Point an address to this session. Requests that were sent through it before keep their session."""
    address = await _address(call, call.body.address)
    return _shown(await call.run(commands.point(address, call.session, owner=call.owner)))


async def end_session(call: ApiRequest[NoInput, NoInput]) -> ApiResponse:
    """End the session permanently."""
    return _shown(await call.run(commands.end(call.session, expect_revision=call.expected_revision, owner=call.owner)))


async def delete_session(call: ApiRequest[NoInput, NoInput]) -> ApiResponse:
    """Delete the session and its messages."""
    return ApiResponse(
        value=await call.run(commands.delete(call.session, expect_revision=call.expected_revision, owner=call.owner))
    )


async def read_messages(call: ApiRequest[NoInput, MessagesQuery]) -> ApiResponse:
    """List the last messages of one window."""
    query = call.query
    if query.before is not None and query.after is not None and query.before < query.after:
        raise invalid("`before` must not be smaller than `after`")
    page = await call.run(
        commands.messages(
            call.session, window=query.window, before=query.before, after=query.after, last=query.last, owner=call.owner
        )
    )
    return ApiResponse(value=page)


async def read_events(call: ApiRequest[NoInput, EventsQuery]) -> ApiResponse:
    """List a page of the event log."""
    fence = UNSEEN if call.query.fence is None else call.query.fence
    cursor = Cursor(fence=fence, number=call.query.after)
    return ApiResponse(
        value=await call.run(commands.events_after(call.session, cursor, limit=call.query.limit, owner=call.owner))
    )


async def read_lineage(call: ApiRequest[NoInput, NoInput]) -> ApiResponse:
    """List every window of the session."""
    return ApiResponse(value=WindowList(windows=await call.run(commands.lineage(call.session, owner=call.owner))))


async def _address(call: ApiRequest[B, Q], spelling: str) -> Address:
    """Parse the address and check that this caller may use it."""
    return await client_address(
        spelling, host=call.owned.host, roots=call.service.agent_roots, operator=call.caller.operator
    )


def _shown(session: SessionInfo, status: int | None = None) -> ApiResponse:
    headers = {"etag": etag(session.revision)}
    if status == 201:
        headers["location"] = f"/api/sessions/{session.id}"
    return ApiResponse(value=session, status=status, headers=headers)


OPERATIONS: tuple[AnyOperation, ...] = (
    Operation(
        method="GET",
        path="/api/sessions",
        name="list_sessions",
        summary="List the caller's sessions, newest first.",
        run=list_sessions,
        body=NoInput,
        query=SessionListQuery,
        answer=SessionList,
    ),
    Operation(
        method="POST",
        path="/api/sessions",
        name="create_session",
        summary="Create a session, or resolve an address: 201 if a session was created, 200 if it existed.",
        run=create_session,
        body=NewSession,
        query=NoInput,
        answer=SessionInfo,
        status=201,
        also=(200,),
    ),
    Operation(
        method="GET",
        path="/api/search",
        name="search",
        summary="Search messages, best match first.",
        run=search,
        body=NoInput,
        query=SearchParameters,
        answer=SearchPage,
        problems=(404,),
    ),
    Operation(
        method="GET",
        path="/api/lookup",
        name="look_up",
        summary="Find sessions by the first or last letters of an id, or by an address. Creates nothing.",
        run=look_up,
        body=NoInput,
        query=LookupQuery,
        answer=FoundSessions,
        problems=(404,),
    ),
    Operation(
        method="POST",
        path="/api/resolve",
        name="resolve_address",
        summary="Find or create the session of an address, and report whether it was created, resumed or replaced.",
        run=resolve_address,
        body=AddressToResolve,
        query=NoInput,
        answer=Resolved,
    ),
    Operation(
        method="GET",
        path="/api/feed",
        name="read_feed",
        summary="List a page of the events of all the caller's sessions, in the order of their writing.",
        run=read_feed,
        body=NoInput,
        query=FeedQuery,
        answer=FeedPage,
    ),
    Operation(
        method="GET",
        path="/api/sessions/{session}/addresses",
        name="read_addresses",
        summary="List the addresses that lead to a session.",
        run=read_addresses,
        body=NoInput,
        query=NoInput,
        answer=SessionAddresses,
    ),
    Operation(
        method="GET",
        path="/api/sessions/{session}",
        name="read_session",
        summary="Get a session, with its revision as ETag.",
        run=read_session,
        body=NoInput,
        query=NoInput,
        answer=SessionInfo,
        also=(304,),
    ),
    Operation(
        method="PATCH",
        path="/api/sessions/{session}",
        name="update_session",
        summary="Rename, pin, archive and tag a session, in one change.",
        run=update_session,
        body=SessionPatchBody,
        query=NoInput,
        answer=SessionInfo,
        revision=True,
    ),
    Operation(
        method="PUT",
        path="/api/sessions/{session}/address",
        name="point_address",
        summary="Point an address to this session.",
        run=point_address,
        body=AddressToPoint,
        query=NoInput,
        answer=SessionInfo,
    ),
    Operation(
        method="DELETE",
        path="/api/sessions/{session}",
        name="delete_session",
        summary="Delete a session and its messages. Messages that a fork still reads are kept, and counted.",
        run=delete_session,
        body=NoInput,
        query=NoInput,
        answer=Deleted,
        revision=True,
    ),
    Operation(
        method="POST",
        path="/api/sessions/{session}/end",
        name="end_session",
        summary="End a session permanently. It stays readable.",
        run=end_session,
        body=NoInput,
        query=NoInput,
        answer=SessionInfo,
        revision=True,
    ),
    Operation(
        method="GET",
        path="/api/sessions/{session}/messages",
        name="read_messages",
        summary="List the messages of the current window, or of another window of the session.",
        run=read_messages,
        body=NoInput,
        query=MessagesQuery,
        answer=MessagePage,
    ),
    Operation(
        method="GET",
        path="/api/sessions/{session}/events",
        name="read_events",
        summary="List a page of the session's events, without following them.",
        run=read_events,
        body=NoInput,
        query=EventsQuery,
        answer=EventPage,
    ),
    Operation(
        method="GET",
        path="/api/sessions/{session}/lineage",
        name="read_lineage",
        summary="List all windows of a session, oldest first.",
        run=read_lineage,
        body=NoInput,
        query=NoInput,
        answer=WindowList,
    ),
)
