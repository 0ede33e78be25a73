"""Exports: a whole session as one document, and such a document as a session again, with nothing lost on the way."""

import asyncio

import msgspec

from backstay.model.export import Export, Imported
from backstay.server.call import Answer, Call, Nothing, etag
from backstay.server.operation import AnyOperation, Operation
from backstay.store.port import Store


async def export_session(call: Call[Nothing, Nothing]) -> Answer:
    """All that is known of the session."""
    document = await call.owned.read(Store.export, call.session)
    headers = {"content-disposition": f'attachment; filename="{call.session}.json"'}
    # A large document takes long enough to write that others would wait for it.
    return Answer(content=await asyncio.to_thread(msgspec.json.encode, document), headers=headers)


async def import_session(call: Call[Export, Nothing]) -> Answer:
    """Take in a session; what became of its ids and addresses is told."""
    # On a thread, because a large document is inspected before it is written.
    imported = await call.owned.read(Store.import_session, call.body)
    session = imported.session
    return Answer(value=imported, headers={"etag": etag(session.revision), "location": f"/api/sessions/{session.id}"})


OPERATIONS: tuple[AnyOperation, ...] = (
    Operation(
        method="GET",
        path="/api/sessions/{session}/export",
        name="export_session",
        summary="A whole session as one document: windows, messages, turns, events, attachments.",
        run=export_session,
        body=Nothing,
        query=Nothing,
        answer=Export,
        large=True,
    ),
    Operation(
        method="POST",
        path="/api/imports",
        name="import_session",
        summary="Make an exported session one of the caller's, whole or not at all.",
        run=import_session,
        body=Export,
        query=Nothing,
        answer=Imported,
        status=201,
        large=True,
    ),
)
