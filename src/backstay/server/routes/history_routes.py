"""Undo, redo, retry, edit, fork and compaction. None of them deletes a message."""

from typing import Annotated

import msgspec
from msgspec import Meta

from backstay.errors import AgentFailed
from backstay.model.failure_reasons import code_of
from backstay.model.ids import MessageId, TurnId
from backstay.model.session import SessionInfo
from backstay.model.window import Moved, Window
from backstay.server.http.api_request import ApiRequest, ApiResponse, NoInput, etag
from backstay.server.http.operation import AnyOperation, Operation
from backstay.server.http.problems import Refused
from backstay.server.routes.message_content import MessageBody, content_of
from backstay.server.routes.turn_routes import Name, Submitted, submitted
from backstay.store import commands


class Retry(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The agent that answers again; by default the same agent."""

    agent: Name | None = None
    allow_unserved: bool = False


class Edit(MessageBody, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The new input, and the agent that answers it; by default the same agent."""

    agent: Name | None = None
    allow_unserved: bool = False


class ForkAt(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The last message or turn of the fork; by default, the fork has everything."""

    at: MessageId | TurnId | None = None


class Compact(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How many tokens of the newest messages to keep unchanged, and the focus of the summary of the others."""

    keep: Annotated[int, Meta(ge=0, le=1 << 53)] | None = None
    focus: Annotated[str, Meta(max_length=4_096)] = ""


async def undo(call: ApiRequest[NoInput, NoInput]) -> ApiResponse:
    """Undo the last turn."""
    return _moved(await call.run(commands.undo(call.session, expect_revision=call.expected_revision, owner=call.owner)))


async def redo(call: ApiRequest[NoInput, NoInput]) -> ApiResponse:
    """Redo the last undo."""
    return _moved(await call.run(commands.redo(call.session, expect_revision=call.expected_revision, owner=call.owner)))


async def retry(call: ApiRequest[Retry, NoInput]) -> ApiResponse:
    """Answer the last input again."""
    turn = await call.owned.handle(call.session).retry(
        agent=call.body.agent,
        request_id=call.request_id,
        expect_revision=call.expected_revision,
        allow_unserved=call.body.allow_unserved,
    )
    return submitted(turn)


async def edit(call: ApiRequest[Edit, NoInput]) -> ApiResponse:
    """Replace an earlier message and answer it."""
    turn = await call.owned.handle(call.session).edit(
        call.message,
        content_of(call.body),
        agent=call.body.agent,
        request_id=call.request_id,
        expect_revision=call.expected_revision,
        allow_unserved=call.body.allow_unserved,
    )
    return submitted(turn)


async def fork(call: ApiRequest[ForkAt, NoInput]) -> ApiResponse:
    """Create a session with the same messages."""
    session = await call.run(commands.fork(call.session, at=call.body.at, owner=call.owner))
    headers = {"etag": etag(session.revision), "location": f"/api/sessions/{session.id}"}
    return ApiResponse(value=session, headers=headers)


async def compact(call: ApiRequest[Compact, NoInput]) -> ApiResponse:
    """Compact the session; return the new window."""
    try:
        window = await call.owned.handle(call.session).compact(keep=call.body.keep, focus=call.body.focus)
    except AgentFailed as error:
        # Not an error of the server: this session, in its current state, cannot be compacted.
        raise Refused(409, code_of(type(error)), str(error.args[0]), hint=error.hint) from error
    return ApiResponse(value=window)


def _moved(moved: Moved) -> ApiResponse:
    return ApiResponse(value=moved, headers={"etag": etag(moved.revision)})


OPERATIONS: tuple[AnyOperation, ...] = (
    Operation(
        method="POST",
        path="/api/sessions/{session}/undo",
        name="undo",
        summary="Undo the last turn as a unit. Rejected while a turn runs or waits.",
        run=undo,
        body=NoInput,
        query=NoInput,
        answer=Moved,
        revision=True,
    ),
    Operation(
        method="POST",
        path="/api/sessions/{session}/redo",
        name="redo",
        summary="Redo the last undo. Possible until the next message.",
        run=redo,
        body=NoInput,
        query=NoInput,
        answer=Moved,
        revision=True,
    ),
    Operation(
        method="POST",
        path="/api/sessions/{session}/retry",
        name="retry",
        summary="Answer the last input again. The first answer stays in the lineage.",
        run=retry,
        body=Retry,
        query=NoInput,
        answer=Submitted,
        status=202,
        revision=True,
        request_id=True,
    ),
    Operation(
        method="POST",
        path="/api/sessions/{session}/messages/{message}/edit",
        name="edit_message",
        summary="Replace an earlier message and answer it.",
        run=edit,
        body=Edit,
        query=NoInput,
        answer=Submitted,
        status=202,
        revision=True,
        request_id=True,
    ),
    Operation(
        method="POST",
        path="/api/sessions/{session}/compact",
        name="compact",
        summary="Summarise all but the newest messages. Returns the new window.",
        run=compact,
        body=Compact,
        query=NoInput,
        answer=Window,
    ),
    Operation(
        method="POST",
        path="/api/sessions/{session}/fork",
        name="fork",
        summary="Create a session from the ended turns of this one. Always possible.",
        run=fork,
        body=ForkAt,
        query=NoInput,
        answer=SessionInfo,
        status=201,
    ),
)
