"""Chapters: what a page shows of a session, and of the sessions in a list."""

import re
from typing import Annotated

import msgspec
from msgspec import Meta

from backstay.model.chapter import Chapter, ChapterQuery, Glance
from backstay.model.ids import MessageId, SessionId, WindowId, check_session_id
from backstay.server.call import Answer, Call, Nothing
from backstay.server.operation import AnyOperation, Operation
from backstay.server.problems import invalid
from backstay.server.routes.sessions import Limit, Position
from backstay.store.port import Store

_SESSIONS = re.compile(r"ses_[0-9a-z]{26}(?:,ses_[0-9a-z]{26}){0,199}", re.ASCII)


class ReadQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which messages: the last ones before a position of a window, or those around a message, wherever it stands."""

    window: WindowId | None = None
    before: Position | None = None
    around: MessageId | None = None
    last: Limit = 100


class GlancesQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which sessions, with commas between them."""

    sessions: Annotated[str, Meta(max_length=8_192)]


class Glances(msgspec.Struct, frozen=True, kw_only=True):
    """What a list tells of some sessions besides their lines."""

    glances: tuple[Glance, ...]


async def read_chapter(call: Call[Nothing, ReadQuery]) -> Answer:
    """A stretch of the session, at one moment."""
    asked = call.query
    query = ChapterQuery(window=asked.window, before=asked.before, around=asked.around, last=asked.last)
    return Answer(value=await call.owned.read(Store.chapter, call.session, query))


async def read_glances(call: Call[Nothing, GlancesQuery]) -> Answer:
    """How far they were read, what asks for a person, how their last turns ended."""
    if not _SESSIONS.fullmatch(call.query.sessions):
        raise invalid("sessions is no list of up to 200 sessions", hint="Write ses_…,ses_… with commas.")
    sessions = [check_session_id(session) for session in call.query.sessions.split(",")]
    return Answer(value=Glances(glances=await call.owned.read(Store.glances, _distinct(sessions))))


def _distinct(sessions: list[SessionId]) -> tuple[SessionId, ...]:
    return tuple(dict.fromkeys(sessions))


OPERATIONS: tuple[AnyOperation, ...] = (
    Operation(
        method="GET",
        path="/api/sessions/{session}/chapter",
        name="read_chapter",
        summary="Messages with all that is known of their turns, as they stand after the session's `last_event`.",
        run=read_chapter,
        body=Nothing,
        query=ReadQuery,
        answer=Chapter,
    ),
    Operation(
        method="GET",
        path="/api/glances",
        name="read_glances",
        summary="What a list tells of sessions besides their lines: read marks, drafts, what asks, how it ended.",
        run=read_glances,
        body=Nothing,
        query=GlancesQuery,
        answer=Glances,
    ),
)
