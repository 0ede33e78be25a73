"""History: undo, redo, retry, edit, fork and compaction. Nothing that was said is ever destroyed by them."""

from typing import Annotated

import msgspec
from msgspec import Meta

from backstay.errors import AgentFailed, Conflict
from backstay.model.ids import MessageId, TurnId
from backstay.model.session import Session
from backstay.model.window import Moved, Window
from backstay.server.call import Answer, Call, Nothing, etag
from backstay.server.operation import AnyOperation, Operation
from backstay.server.routes.content import Said, content_of
from backstay.server.routes.turns import Name, Submitted, submitted
from backstay.store.port import Store


class Retry(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Who shall answer again; the same agent if nobody is named."""

    agent: Name | None = None


class Edit(Said, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is said instead, and who shall answer."""

    agent: Name | None = None


class ForkAt(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The last message the fork shall have, or the last turn; everything if none is named."""

    at: MessageId | TurnId | None = None


class Compact(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How many tokens to keep as they are, and what matters above all in the summary of the rest."""

    keep: Annotated[int, Meta(ge=0, le=1 << 53)] | None = None
    focus: Annotated[str, Meta(max_length=4_096)] = ""


async def undo(call: Call[Nothing, Nothing]) -> Answer:
    """Take the last turn back."""
    return _moved(await call.owned.write(Store.undo, call.session, expect_revision=call.expected_revision))


async def redo(call: Call[Nothing, Nothing]) -> Answer:
    """Bring it back."""
    return _moved(await call.owned.write(Store.redo, call.session, expect_revision=call.expected_revision))


async def retry(call: Call[Retry, Nothing]) -> Answer:
    """Have the last input answered again."""
    turn = await call.owned.session(call.session).retry(
        agent=call.body.agent, request_id=call.request_id, expect_revision=call.expected_revision
    )
    return submitted(turn)


async def edit(call: Call[Edit, Nothing]) -> Answer:
    """Say something else in place of an earlier message."""
    turn = await call.owned.session(call.session).edit(
        call.message,
        content_of(call.body),
        agent=call.body.agent,
        request_id=call.request_id,
        expect_revision=call.expected_revision,
    )
    return submitted(turn)


async def fork(call: Call[ForkAt, Nothing]) -> Answer:
    """A new session with the same past."""
    session = await call.owned.write(Store.fork, call.session, at=call.body.at)
    headers = {"etag": etag(session.revision), "location": f"/api/sessions/{session.id}"}
    return Answer(value=session, headers=headers)


async def compact(call: Call[Compact, Nothing]) -> Answer:
    """Have the past summarised; the window that is read from now on."""
    try:
        window = await call.owned.session(call.session).compact(keep=call.body.keep, focus=call.body.focus)
    except AgentFailed as error:
        # Nothing is wrong with the server: this session, as it is, could not be made shorter.
        raise Conflict(str(error.args[0]), hint=error.advice) from error
    return Answer(value=window)


def _moved(moved: Moved) -> Answer:
    return Answer(value=moved, headers={"etag": etag(moved.revision)})


OPERATIONS: tuple[AnyOperation, ...] = (
    Operation(
        method="POST",
        path="/api/sessions/{session}/undo",
        name="undo",
        summary="Take the last turn back as a unit. Refused while a turn runs or waits.",
        run=undo,
        body=Nothing,
        query=Nothing,
        answer=Moved,
        revision=True,
    ),
    Operation(
        method="POST",
        path="/api/sessions/{session}/redo",
        name="redo",
        summary="Bring back what the last undo took; possible until the next message.",
        run=redo,
        body=Nothing,
        query=Nothing,
        answer=Moved,
        revision=True,
    ),
    Operation(
        method="POST",
        path="/api/sessions/{session}/retry",
        name="retry",
        summary="Have the last input answered again. The first answer stays in the lineage.",
        run=retry,
        body=Retry,
        query=Nothing,
        answer=Submitted,
        status=202,
        revision=True,
        request_id=True,
    ),
    Operation(
        method="POST",
        path="/api/sessions/{session}/messages/{message}/edit",
        name="edit_message",
        summary="Say something else in place of an earlier message, and have it answered.",
        run=edit,
        body=Edit,
        query=Nothing,
        answer=Submitted,
        status=202,
        revision=True,
        request_id=True,
    ),
    Operation(
        method="POST",
        path="/api/sessions/{session}/compact",
        name="compact",
        summary="Have all but the newest messages summarised. Answered with the window that is read then.",
        run=compact,
        body=Compact,
        query=Nothing,
        answer=Window,
    ),
    Operation(
        method="POST",
        path="/api/sessions/{session}/fork",
        name="fork",
        summary="A new session from the ended turns of this one. Always possible.",
        run=fork,
        body=ForkAt,
        query=Nothing,
        answer=Session,
        status=201,
    ),
)
