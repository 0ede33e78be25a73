"""Marks of a person in a session: the draft of a message, and the last event read."""

from typing import Annotated

import msgspec
from msgspec import Meta

from backstay.model.marks import Marks
from backstay.server.http.api_request import ApiRequest, ApiResponse, NoInput
from backstay.server.http.operation import AnyOperation, Operation
from backstay.store import commands


class DraftBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The draft of a message; an empty text deletes it."""

    text: str


class ReadMark(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The number of the last event that was read."""

    number: Annotated[int, Meta(ge=0, le=1 << 53)]


async def read_marks(call: ApiRequest[NoInput, NoInput]) -> ApiResponse:
    """Return the caller's marks."""
    return ApiResponse(value=await call.run(commands.marks(call.session, owner=call.owner)))


async def save_draft(call: ApiRequest[DraftBody, NoInput]) -> ApiResponse:
    """Store a draft."""
    return ApiResponse(value=await call.run(commands.save_draft(call.session, call.body.text, owner=call.owner)))


async def mark_read(call: ApiRequest[ReadMark, NoInput]) -> ApiResponse:
    """Move the read mark forward."""
    return ApiResponse(value=await call.run(commands.mark_read(call.session, call.body.number, owner=call.owner)))


OPERATIONS: tuple[AnyOperation, ...] = (
    Operation(
        method="GET",
        path="/api/sessions/{session}/marks",
        name="read_marks",
        summary="Get the caller's draft and read mark in a session.",
        run=read_marks,
        body=NoInput,
        query=NoInput,
        answer=Marks,
    ),
    Operation(
        method="PUT",
        path="/api/sessions/{session}/draft",
        name="save_draft",
        summary="Store a draft. The response means that it is durable.",
        run=save_draft,
        body=DraftBody,
        query=NoInput,
        answer=Marks,
    ),
    Operation(
        method="PUT",
        path="/api/sessions/{session}/read",
        name="mark_read",
        summary="Mark all events up to this one as read. The mark only moves forward.",
        run=mark_read,
        body=ReadMark,
        query=NoInput,
        answer=Marks,
    ),
)
