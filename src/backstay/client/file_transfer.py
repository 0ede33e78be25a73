"""Uploads, downloads, exports and imports: streamed, with one piece in memory at a time."""

import asyncio
import io
from collections.abc import AsyncGenerator
from typing import BinaryIO

from backstay.client import api_calls
from backstay.client.server_connection import Connection, decoded
from backstay.errors import InvalidPayload, TooLarge
from backstay.model.content import Attachment
from backstay.model.documents.document import Export, Imported
from backstay.model.documents.records import MEDIA_TYPE
from backstay.model.files.file_source import FileSource, media_type_of, name_of, opened
from backstay.model.ids import SessionId

# A server accepts bodies of 1 MiB by default; a setting may lower this.
_CHUNK = 256 << 10


async def upload(connection: Connection, file: FileSource, name: str | None, media_type: str | None) -> Attachment:
    """Upload a file in chunks. A chunk that was cut off is sent again."""
    title = name or name_of(file)
    source = await asyncio.to_thread(opened, file, None)
    try:
        state = await connection.run(api_calls.begin_upload())
        while chunk := await asyncio.to_thread(source.read, _CHUNK):
            state = await connection.run(api_calls.upload_chunk(state, chunk))
    finally:
        if source is not file:
            source.close()
    blob = await connection.run(api_calls.finish_upload(state))
    if media_type is None:
        media_type = await asyncio.to_thread(media_type_of, title)
    return Attachment(blob.hash, title, media_type, blob.size)


async def download(connection: Connection, attachment: Attachment, limit: int) -> bytes:
    """Read an attachment; raise `TooLarge` before more than `limit` bytes are in memory."""
    if not isinstance(attachment, Attachment):
        raise InvalidPayload(
            f"{type(attachment).__name__} is not an attachment", hint="Pass an Attachment of a message's parts."
        )

    async def read() -> bytes:
        content = bytearray()
        async with connection.stream("GET", api_calls.blob_path(attachment.blob)) as response:
            size = int(response.headers.get("content-length", "0"))
            async for piece in _within(response.aiter_bytes(), size, limit, attachment.name):
                content += piece
        return bytes(content)

    return await connection.repeated(read)


async def _within(pieces: AsyncGenerator[bytes, None], size: int, limit: int, name: str) -> AsyncGenerator[bytes, None]:
    seen = 0
    if size <= limit:
        async for piece in pieces:
            seen += len(piece)
            if seen > limit:
                break
            yield piece
    if max(size, seen) > limit:
        raise TooLarge(
            f"{name!r} has {max(size, seen):,} bytes; at most {limit:,} were requested",
            hint="Raise the limit, or read the attachment in pieces.",
        )


async def export_to(connection: Connection, session: SessionId, file: BinaryIO) -> int:
    """Write an export to a file from where it stands. After a cut it begins again at the same place."""
    start = await asyncio.to_thread(file.tell)

    async def write() -> int:
        await asyncio.to_thread(_cut, file, start)
        written = 0
        async with connection.stream("GET", api_calls.export_path(session)) as response:
            async for piece in response.aiter_bytes():
                await asyncio.to_thread(file.write, piece)
                written += len(piece)
        return written

    return await connection.repeated(write)


def _cut(file: BinaryIO, start: int) -> None:
    file.seek(start)
    file.truncate()


async def import_session(connection: Connection, export: Export | bytes | BinaryIO, *, addresses: bool) -> Imported:
    """Send a document. It is not sent again after a failure: the server may have imported it."""
    source: BinaryIO
    match export:
        case Export():
            source = io.BytesIO(await asyncio.to_thread(export.to_json))
        case bytes():
            source = io.BytesIO(export)
        case _:
            source = export
    query, headers = {"addresses": "true" if addresses else "false"}, {"content-type": MEDIA_TYPE}
    async with connection.stream(
        "POST", "api/imports", query=query, headers=headers, content=_pieces(source), silence=_IMPORTING
    ) as response:
        return decoded(await response.aread(), Imported)


_IMPORTING = 600.0


async def _pieces(source: BinaryIO) -> AsyncGenerator[bytes, None]:
    while piece := await asyncio.to_thread(source.read, _CHUNK):
        yield piece
