"""Snapshots of sessions for the web UI, and the badges of its session list."""

import re
from typing import Annotated

import msgspec
from msgspec import Meta

from backstay.model.history.snapshot import SessionBadge, SessionSnapshot, SnapshotQuery
from backstay.model.ids import MessageId, SessionId, WindowId, check_session_id
from backstay.server.http.api_request import ApiRequest, ApiResponse, NoInput
from backstay.server.http.operation import AnyOperation, Operation
from backstay.server.http.problems import invalid
from backstay.server.routes.session_routes import Limit, Position
from backstay.store import commands

_SESSIONS = re.compile(r"ses_[0-9a-z]{26}(?:,ses_[0-9a-z]{26}){0,199}", re.ASCII)


class ReadQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The messages to read: the last ones before a position of a window, or those around a message of any window."""

    window: WindowId | None = None
    before: Position | None = None
    around: MessageId | None = None
    last: Limit = 100


class BadgesQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Session ids, separated by commas."""

    sessions: Annotated[str, Meta(max_length=8_192)]


class SessionBadges(msgspec.Struct, frozen=True, kw_only=True):
    """The badges of some sessions: the values that a session list shows beside their titles."""

    badges: tuple[SessionBadge, ...]


async def read_snapshot(call: ApiRequest[NoInput, ReadQuery]) -> ApiResponse:
    """Return a snapshot of a part of the session."""
    params = call.query
    query = SnapshotQuery(window=params.window, before=params.before, around=params.around, last=params.last)
    return ApiResponse(value=await call.run(commands.snapshot(call.session, query, owner=call.owner)))


async def read_badges(call: ApiRequest[NoInput, BadgesQuery]) -> ApiResponse:
    """Return read marks, drafts, open approvals and last outcomes."""
    if not _SESSIONS.fullmatch(call.query.sessions):
        raise invalid(
            "`sessions` must be a list of at most 200 session ids", hint="Separate session ids with commas: ses_…,ses_…"
        )
    sessions = [check_session_id(session) for session in call.query.sessions.split(",")]
    return ApiResponse(
        value=SessionBadges(badges=await call.run(commands.badges(_distinct(sessions), owner=call.owner)))
    )


def _distinct(sessions: list[SessionId]) -> tuple[SessionId, ...]:
    return tuple(dict.fromkeys(sessions))


OPERATIONS: tuple[AnyOperation, ...] = (
    Operation(
        method="GET",
        path="/api/sessions/{session}/snapshot",
        name="read_snapshot",
        summary="Get a snapshot of messages and their turns, as of the session's `last_event`.",
        run=read_snapshot,
        body=NoInput,
        query=ReadQuery,
        answer=SessionSnapshot,
    ),
    Operation(
        method="GET",
        path="/api/badges",
        name="read_badges",
        summary="Get the details for a session list: read marks, drafts, open approvals and last outcomes.",
        run=read_badges,
        body=NoInput,
        query=BadgesQuery,
        answer=SessionBadges,
    ),
)
