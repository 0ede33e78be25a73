"""The operations of the HTTP API, each as a function that returns a typed call."""

import secrets
from collections.abc import Mapping, Sequence
from typing import Literal, NoReturn, Unpack
from urllib.parse import quote

import msgspec

from backstay.client.api_call import ApiCall
from backstay.errors import NotFound
from backstay.model.addresses.address import Address
from backstay.model.blob import Blob
from backstay.model.content import Content
from backstay.model.event import UNSEEN, Cursor, EventPage, FeedPage
from backstay.model.history.chat_messages import MessageLike, input_parts, new_messages
from backstay.model.history.snapshot import SessionBadge
from backstay.model.ids import MessageId, SessionId, TokenId, TurnId, UploadId, WindowId
from backstay.model.marks import Marks
from backstay.model.message import MessagePage
from backstay.model.search.results import SearchPage
from backstay.model.session import Deleted, Resolved, SessionCursor, SessionFilter, SessionInfo, SessionPatch, Ttl
from backstay.model.token import Token, TokenAccess
from backstay.model.turn import SEND_DEFAULTS, IfBusy, Recorded, SendOptions, ToolCallRecord, TurnInfo, TurnState
from backstay.model.window import Moved, Window

# A summariser may take long, and a cancelled agent has its grace time.
_SUMMARY, _ENDING = 3_600.0, 300.0
MOST = 1_000


class SubmittedTurn(msgspec.Struct, frozen=True, kw_only=True):
    """A turn that the server accepted."""

    id: TurnId
    session: SessionId
    repeated: bool
    state: TurnState
    event: int
    forked_from: SessionId | None = None


class UploadState(msgspec.Struct, frozen=True, kw_only=True):
    """An unfinished upload; `size` is the number of bytes received."""

    id: UploadId
    size: int


class TokenOwner(msgspec.Struct, frozen=True, kw_only=True):
    """The owner for whom a token acts."""

    owner: str


class SessionRows(msgspec.Struct, frozen=True, kw_only=True):
    """Sessions, and the cursor of the next page."""

    sessions: tuple[SessionInfo, ...]
    next: str | None = None


class TokenRows(msgspec.Struct, frozen=True, kw_only=True):
    """Tokens."""

    tokens: tuple[Token, ...]


class NewSecret(msgspec.Struct, frozen=True, kw_only=True):
    """A new token, and its secret."""

    secret: str
    token: Token


class LinkPath(msgspec.Struct, frozen=True, kw_only=True):
    """The path of a sign-in link."""

    path: str


class SessionBadgeRows(msgspec.Struct, frozen=True, kw_only=True):
    """Badges of sessions."""

    badges: tuple[SessionBadge, ...]


class TurnRows(msgspec.Struct, frozen=True, kw_only=True):
    """Turns."""

    turns: tuple[TurnInfo, ...]


class CallRows(msgspec.Struct, frozen=True, kw_only=True):
    """Tool calls."""

    calls: tuple[ToolCallRecord, ...]


class WindowRows(msgspec.Struct, frozen=True, kw_only=True):
    """Windows."""

    windows: tuple[Window, ...]


class AddressRows(msgspec.Struct, frozen=True, kw_only=True):
    """Spellings of addresses."""

    addresses: tuple[str, ...]


def me() -> ApiCall[TokenOwner]:
    """The owner of the token."""
    return ApiCall(method="GET", path="api/me", answer=TokenOwner)


# --- sessions ---------------------------------------------------------------------------------------------------------


def session(session: SessionId) -> ApiCall[SessionInfo]:
    """A session."""
    return ApiCall(method="GET", path=_session(session), answer=SessionInfo)


def create(ttl: Ttl | None) -> ApiCall[SessionInfo]:
    """A new session."""
    return ApiCall(method="POST", path="api/sessions", answer=SessionInfo, body={"ttl": ttl})


def resolve(address: Address, ttl: Ttl | None) -> ApiCall[Resolved]:
    """The session of an address, created if need be."""
    body = {"address": address.spelling, "ttl": ttl}
    return ApiCall(method="POST", path="api/resolve", answer=Resolved, body=body)


def at(address: Address) -> ApiCall[SessionRows]:
    """The session that an address leads to."""
    return ApiCall(method="GET", path="api/lookup", answer=SessionRows, query={"address": address.spelling})


def beginning_with(prefix: str, limit: int) -> ApiCall[SessionRows]:
    """Sessions by the beginning of their ids."""
    return ApiCall(method="GET", path="api/lookup", answer=SessionRows, query={"prefix": prefix, "limit": limit})


def ending_with(letters: str, limit: int) -> ApiCall[SessionRows]:
    """Sessions by the end of their ids."""
    return ApiCall(method="GET", path="api/lookup", answer=SessionRows, query={"suffix": letters, "limit": limit})


def badges(sessions: Sequence[SessionId]) -> ApiCall[SessionBadgeRows]:
    """What a list shows of these sessions, at most 200, besides their rows."""
    return ApiCall(method="GET", path="api/badges", answer=SessionBadgeRows, query={"sessions": ",".join(sessions)})


def sessions(filter: SessionFilter, after: SessionCursor | None, limit: int) -> ApiCall[SessionRows]:
    """A page of the session list."""
    query = _filtered(filter) | {"limit": limit}
    if after is not None:
        query["after"] = f"{after.active_at}.{after.id}"
    return ApiCall(method="GET", path="api/sessions", answer=SessionRows, query=query)


def search(text: str, filter: SessionFilter, session: SessionId | None, limit: int) -> ApiCall[SearchPage]:
    """Messages that match."""
    query = _filtered(filter) | {"q": text, "limit": limit} | ({} if session is None else {"session": session})
    return ApiCall(method="GET", path="api/search", answer=SearchPage, query=query)


def feed(after: int | None) -> ApiCall[FeedPage]:
    """A page of the feed; without a position, its end."""
    return ApiCall(method="GET", path="api/feed", answer=FeedPage, query={} if after is None else {"after": after})


def point(address: Address, session: SessionId) -> ApiCall[SessionInfo]:
    """Point an address to a session."""
    body, path = {"address": address.spelling}, f"{_session(session)}/address"
    return ApiCall(method="PUT", path=path, answer=SessionInfo, body=body, repeatable=True)


def update(session: SessionId, patch: SessionPatch, expect_revision: int | None) -> ApiCall[SessionInfo]:
    """Title, pin, archive, tags and metadata in one change."""
    return ApiCall(
        method="PATCH",
        path=_session(session),
        answer=SessionInfo,
        body=patch,
        expect_revision=expect_revision,
        repeatable=expect_revision is None,
    )


def end(session: SessionId) -> ApiCall[SessionInfo]:
    """End a session."""
    return ApiCall(method="POST", path=f"{_session(session)}/end", answer=SessionInfo)


def delete(session: SessionId) -> ApiCall[Deleted]:
    """Delete a session."""
    return ApiCall(method="DELETE", path=_session(session), answer=Deleted)


def addresses(session: SessionId) -> ApiCall[AddressRows]:
    """The addresses of a session."""
    return ApiCall(method="GET", path=f"{_session(session)}/addresses", answer=AddressRows)


def marks(session: SessionId) -> ApiCall[Marks]:
    """The draft and the read mark."""
    return ApiCall(method="GET", path=f"{_session(session)}/marks", answer=Marks)


def save_draft(session: SessionId, text: str) -> ApiCall[Marks]:
    """Store a draft."""
    path = f"{_session(session)}/draft"
    return ApiCall(method="PUT", path=path, answer=Marks, body={"text": text}, repeatable=True)


def mark_read(session: SessionId, number: int) -> ApiCall[Marks]:
    """Move the read mark."""
    path = f"{_session(session)}/read"
    return ApiCall(method="PUT", path=path, answer=Marks, body={"number": number}, repeatable=True)


# --- reading ----------------------------------------------------------------------------------------------------------


def messages(session: SessionId, window: WindowId | None, before: int | None, last: int) -> ApiCall[MessagePage]:
    """The last messages before a position."""
    query: dict[str, str | int] = {"last": last}
    if window is not None:
        query["window"] = window
    if before is not None:
        query["before"] = before
    return ApiCall(method="GET", path=f"{_session(session)}/messages", answer=MessagePage, query=query)


def events_after(session: SessionId, cursor: Cursor) -> ApiCall[EventPage]:
    """A page of the event log."""
    query: dict[str, str | int] = {"after": cursor.number}
    if cursor.fence != UNSEEN:
        query["fence"] = cursor.fence
    return ApiCall(method="GET", path=f"{_session(session)}/events", answer=EventPage, query=query)


def lineage(session: SessionId) -> ApiCall[WindowRows]:
    """The windows of a session."""
    return ApiCall(method="GET", path=f"{_session(session)}/lineage", answer=WindowRows)


# --- turns ------------------------------------------------------------------------------------------------------------


def send(
    to: Address | SessionId | Literal["new"], content: Content, **options: Unpack[SendOptions]
) -> ApiCall[SubmittedTurn]:
    """Send a message to a session, an address or a new session."""
    if unknown := options.keys() - SEND_DEFAULTS.keys():
        raise TypeError(f"send() got an unexpected keyword argument {min(unknown)!r}")
    chosen: SendOptions = {**SEND_DEFAULTS, **options}
    request_id, expect_revision = chosen.pop("request_id") or new_request_id(), chosen.pop("expect_revision")
    place = {"address": to.spelling} if isinstance(to, Address) else {} if to == "new" else {"session": to}
    return _submission("api/turns", {**_content(content), **place, **chosen}, request_id, expect_revision)


def steer(session: SessionId, content: Content, request_id: str) -> ApiCall[SubmittedTurn]:
    """Send a message to the running turn."""
    return _submission(f"{_session(session)}/steer", _content(content), request_id, None)


def retry(
    session: SessionId, agent: str | None, request_id: str, expect_revision: int | None, *, allow_unserved: bool
) -> ApiCall[SubmittedTurn]:
    """Send the last input again."""
    body = {"agent": agent, "allow_unserved": allow_unserved}
    return _submission(f"{_session(session)}/retry", body, request_id, expect_revision)


def edit(
    session: SessionId,
    message: MessageId,
    content: Content,
    *,
    agent: str | None,
    request_id: str,
    expect_revision: int | None,
    allow_unserved: bool,
) -> ApiCall[SubmittedTurn]:
    """Replace an earlier message."""
    body = {**_content(content), "agent": agent, "allow_unserved": allow_unserved}
    path = f"{_session(session)}/messages/{_part(message)}/edit"
    return _submission(path, body, request_id, expect_revision)


def record(
    session: SessionId,
    messages: Sequence[MessageLike],
    request_id: str,
    if_busy: IfBusy,
    expect_revision: int | None,
) -> ApiCall[Recorded]:
    """Add finished messages."""
    return ApiCall(
        method="POST",
        path=f"{_session(session)}/record",
        answer=Recorded,
        body={"messages": new_messages(messages), "if_busy": if_busy},
        request_id=request_id,
        expect_revision=expect_revision,
    )


def turn(turn: TurnId) -> ApiCall[TurnInfo]:
    """A turn."""
    return ApiCall(method="GET", path=_turn(turn), answer=TurnInfo)


def waiting(session: SessionId) -> ApiCall[TurnRows]:
    """The waiting turns."""
    return ApiCall(method="GET", path=f"{_session(session)}/waiting", answer=TurnRows)


def reorder(session: SessionId, turns: Sequence[TurnId], expect_revision: int | None) -> ApiCall[TurnRows]:
    """Change the order of the waiting turns."""
    return ApiCall(
        method="PUT",
        path=f"{_session(session)}/waiting",
        answer=TurnRows,
        body={"turns": list(turns)},
        expect_revision=expect_revision,
    )


def edit_waiting(turn: TurnId, content: Content) -> ApiCall[TurnInfo]:
    """Replace the input of a waiting turn."""
    return ApiCall(method="PATCH", path=_turn(turn), answer=TurnInfo, body=_content(content))


def withdraw(turn: TurnId) -> ApiCall[TurnInfo]:
    """Withdraw a waiting turn."""
    return ApiCall(method="DELETE", path=_turn(turn), answer=TurnInfo)


def release(turn: TurnId) -> ApiCall[TurnInfo]:
    """Release a held turn."""
    return ApiCall(method="POST", path=f"{_turn(turn)}/release", answer=TurnInfo)


def cancel(turn: TurnId) -> ApiCall[TurnInfo]:
    """Cancel a turn; the answer comes when it has ended."""
    # A turn that has ended is not cancelled again.
    path = f"{_turn(turn)}/cancel"
    return ApiCall(method="POST", path=path, answer=TurnInfo, repeatable=True, seconds=_ENDING)


def resume(turn: TurnId) -> ApiCall[SubmittedTurn]:
    """Continue an interrupted turn."""
    return ApiCall(method="POST", path=f"{_turn(turn)}/resume", answer=SubmittedTurn)


def resume_session(session: SessionId) -> ApiCall[SubmittedTurn]:
    """Continue the last turn of a session."""
    return ApiCall(method="POST", path=f"{_session(session)}/resume", answer=SubmittedTurn)


def calls(turn: TurnId) -> ApiCall[CallRows]:
    """The tool calls of a turn."""
    return ApiCall(method="GET", path=f"{_turn(turn)}/calls", answer=CallRows)


def decide(
    turn: TurnId, call: str, *, approved: bool, arguments_hash: str | None, run_again: bool = False
) -> ApiCall[ToolCallRecord]:
    """Approve or deny a tool call."""
    return ApiCall(
        method="PUT",
        path=f"{_turn(turn)}/calls/{_part(call)}/decision",
        answer=ToolCallRecord,
        body={"approved": approved, "arguments_hash": arguments_hash, "run_again": run_again},
    )


# --- access -----------------------------------------------------------------------------------------------------------


def tokens() -> ApiCall[TokenRows]:
    """The valid tokens of the owner."""
    return ApiCall(method="GET", path="api/tokens", answer=TokenRows)


def create_token(name: str, access: TokenAccess, seconds: float | None) -> ApiCall[NewSecret]:
    """Create a token of the same owner."""
    body = {"name": name, "access": access, "expires_in": seconds}
    return ApiCall(method="POST", path="api/tokens", answer=NewSecret, body=body)


def revoke_token(token: TokenId) -> ApiCall[Token]:
    """Revoke a token of the same owner."""
    return ApiCall(method="DELETE", path=f"api/tokens/{_part(token)}", answer=Token)


def make_link() -> ApiCall[LinkPath]:
    """Create a link that signs in a browser of the same owner."""
    return ApiCall(method="POST", path="api/links", answer=LinkPath)


# --- history ----------------------------------------------------------------------------------------------------------


def undo(session: SessionId, expect_revision: int | None) -> ApiCall[Moved]:
    """Undo the last turn."""
    return ApiCall(method="POST", path=f"{_session(session)}/undo", answer=Moved, expect_revision=expect_revision)


def redo(session: SessionId, expect_revision: int | None) -> ApiCall[Moved]:
    """Redo the last undo."""
    return ApiCall(method="POST", path=f"{_session(session)}/redo", answer=Moved, expect_revision=expect_revision)


def compact(session: SessionId, keep: int | None, focus: str) -> ApiCall[Window]:
    """Summarise all messages but the last ones."""
    body = {"keep": keep, "focus": focus}
    return ApiCall(method="POST", path=f"{_session(session)}/compact", answer=Window, body=body, seconds=_SUMMARY)


def fork(session: SessionId, at: MessageId | TurnId | None) -> ApiCall[SessionInfo]:
    """Create a session from the ended turns of another."""
    return ApiCall(method="POST", path=f"{_session(session)}/fork", answer=SessionInfo, body={"at": at})


# --- files ------------------------------------------------------------------------------------------------------------


def begin_upload() -> ApiCall[UploadState]:
    """Open an upload."""
    # If it is sent twice, the first upload stays empty and is dropped after a day.
    return ApiCall(method="POST", path="api/uploads", answer=UploadState, repeatable=True)


def upload_chunk(upload: UploadState, chunk: bytes) -> ApiCall[UploadState]:
    """Send the next bytes of an upload."""
    return ApiCall(
        method="PUT",
        path=f"api/uploads/{_part(upload.id)}",
        answer=UploadState,
        query={"start": upload.size},
        content=chunk,
        repeatable=True,
    )


def finish_upload(upload: UploadState) -> ApiCall[Blob]:
    """Complete an upload."""
    return ApiCall(method="POST", path=f"api/uploads/{_part(upload.id)}/finish", answer=Blob, body={})


# --- parts ------------------------------------------------------------------------------------------------------------


def export_path(session: SessionId) -> str:
    """The path of the export of a session."""
    return f"{_session(session)}/export"


def blob_path(blob: str) -> str:
    """The path of the bytes of an attachment."""
    return f"api/blobs/{_part(blob)}"


def new_request_id() -> str:
    """A request id for a call that was given none: its repetitions are one request."""
    return f"client/{secrets.token_urlsafe(18)}"


def _submission(
    path: str, body: Mapping[str, object], request_id: str, expect_revision: int | None
) -> ApiCall[SubmittedTurn]:
    return ApiCall(
        method="POST",
        path=path,
        answer=SubmittedTurn,
        body=body,
        request_id=request_id,
        expect_revision=expect_revision,
    )


def _content(content: Content) -> dict[str, object]:
    return {"text": content} if isinstance(content, str) else {"parts": input_parts(content)}


def _filtered(filter: SessionFilter) -> dict[str, str | int]:
    chosen = {name: getattr(filter, name) for name in filter.__struct_fields__}
    spelled = {True: "true", False: "false"}
    return {name: spelled.get(value, value) for name, value in chosen.items() if value is not None}


def _session(session: SessionId) -> str:
    return f"api/sessions/{_part(session)}"


def _turn(turn: TurnId) -> str:
    return f"api/turns/{_part(turn)}"


def _part(text: str) -> str:
    """A part of a path. Nothing in an id may lead to another operation."""
    if text in ("", ".", ".."):
        _raise_not_found(text)
    return quote(text, safe="")


def _raise_not_found(text: str) -> NoReturn:
    raise NotFound(f"there is nothing with the id {text!r}")
