"""Export of a whole session as JSON Lines, and import of such a file, without loss."""

import asyncio
from tempfile import TemporaryFile
from typing import BinaryIO

import msgspec

from backstay.model.addresses.address import Address
from backstay.model.documents.document import Imported
from backstay.model.documents.records import ENDING, MEDIA_TYPE, RecordLine, header_in
from backstay.server.auth.agent_roots import check_addresses
from backstay.server.http.api_request import ApiRequest, ApiResponse, NoInput, etag
from backstay.server.http.operation import AnyOperation, Operation
from backstay.server.transfers import FileAnswer


class ImportQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Options of an import. The addresses of the document are dropped unless `addresses` is true."""

    addresses: bool = False


async def export_session(call: ApiRequest[NoInput, NoInput]) -> ApiResponse:
    """Export the session to a temporary file, then send it."""

    async def write() -> BinaryIO:
        file = await asyncio.to_thread(TemporaryFile)
        try:
            await call.owned.handle(call.session).export_to(file)
        except BaseException:
            file.close()
            raise
        return file

    file = await call.service.transfers.run(call.caller.owner, write)
    name = f'attachment; filename="{call.session}{ENDING}"'
    return ApiResponse(app=FileAnswer(file, {"content-type": MEDIA_TYPE, "content-disposition": name}))


async def import_session(call: ApiRequest[NoInput, ImportQuery]) -> ApiResponse:
    """Import a session. The response names its held turns, and the changes to its ids and addresses."""

    async def read() -> Imported:
        file = call.document
        if call.query.addresses:
            header = await asyncio.to_thread(header_in, file, call.owned.limits.document_bytes)
            addresses = [Address.parse(one.spelling) for one in header.addresses]
            await check_addresses(call.service.agent_roots, addresses, call.owned.host)
            await asyncio.to_thread(file.seek, 0)
        # The import assigns new ids, so it never reveals whether another owner has the old ones.
        return await call.owned.import_session(file, new_ids=True, addresses=call.query.addresses)

    imported = await call.service.transfers.run(call.caller.owner, read)
    session = imported.session
    return ApiResponse(
        value=imported, headers={"etag": etag(session.revision), "location": f"/api/sessions/{session.id}"}
    )


OPERATIONS: tuple[AnyOperation, ...] = (
    Operation(
        method="GET",
        path="/api/sessions/{session}/export",
        name="export_session",
        summary="Export a session as JSON Lines: windows, messages, turns, calls, events, attachments.",
        run=export_session,
        body=NoInput,
        query=NoInput,
        answer=RecordLine,
        media_type=MEDIA_TYPE,
        problems=(409, 503),
    ),
    Operation(
        method="POST",
        path="/api/imports",
        name="import_session",
        summary="Import an exported session for the caller, completely or not at all. Its waiting turns are held.",
        run=import_session,
        body=NoInput,
        document=RecordLine,
        document_types=(MEDIA_TYPE, "application/jsonl", "application/json"),
        query=ImportQuery,
        answer=Imported,
        status=201,
        problems=(503,),
    ),
)
