"""Marks: a person's unfinished message in a session, and how far they have read."""

from typing import Annotated

import msgspec
from msgspec import Meta

from backstay.model.marks import Marks
from backstay.server.call import Answer, Call, Nothing
from backstay.server.operation import AnyOperation, Operation
from backstay.store.port import Store


class Draft(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An unfinished message; empty text drops it."""

    text: str


class Read(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The number of the last event that was read."""

    number: Annotated[int, Meta(ge=0, le=1 << 53)]


async def read_marks(call: Call[Nothing, Nothing]) -> Answer:
    """What the caller left here."""
    return Answer(value=await call.owned.read(Store.marks, call.session))


async def save_draft(call: Call[Draft, Nothing]) -> Answer:
    """Keep an unfinished message."""
    return Answer(value=await call.owned.write(Store.save_draft, call.session, call.body.text))


async def mark_read(call: Call[Read, Nothing]) -> Answer:
    """Everything up to here was read."""
    return Answer(value=await call.owned.write(Store.mark_read, call.session, call.body.number))


OPERATIONS: tuple[AnyOperation, ...] = (
    Operation(
        method="GET",
        path="/api/sessions/{session}/marks",
        name="read_marks",
        summary="The caller's draft and read mark in a session.",
        run=read_marks,
        body=Nothing,
        query=Nothing,
        answer=Marks,
    ),
    Operation(
        method="PUT",
        path="/api/sessions/{session}/draft",
        name="save_draft",
        summary="Keep an unfinished message. The answer means it is durable.",
        run=save_draft,
        body=Draft,
        query=Nothing,
        answer=Marks,
    ),
    Operation(
        method="PUT",
        path="/api/sessions/{session}/read",
        name="mark_read",
        summary="Everything up to this event was read; the mark only moves forward.",
        run=mark_read,
        body=Read,
        query=Nothing,
        answer=Marks,
    ),
)
