"""Attachments: uploaded in chunks, read in ranges. They are always sent as downloads, never as web pages."""

import re
from collections.abc import AsyncIterator
from typing import Annotated

import msgspec
from msgspec import Meta
from starlette.responses import StreamingResponse

from backstay.model.blob import Blob
from backstay.model.ids import UploadId
from backstay.runtime.owner_sessions import OwnerSessions
from backstay.server.http.api_request import ApiRequest, ApiResponse, NoInput
from backstay.server.http.operation import OCTETS, AnyOperation, Operation
from backstay.server.http.problems import Refused
from backstay.store import commands

# The most bytes that are read at once.
PIECE = 1 << 20
_RANGE = re.compile(r"bytes=([0-9]{1,18})?-([0-9]{1,18})?", re.ASCII)


class Upload(msgspec.Struct, frozen=True, kw_only=True):
    """An unfinished upload; `size` is the number of bytes received."""

    id: UploadId
    size: int


class ChunkQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The position of the chunk in the file."""

    start: Annotated[int, Meta(ge=0, le=1 << 53)] = 0


class Finish(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The SHA-256 of the whole file, if the client wants it to be checked."""

    hash: str | None = None


async def begin(call: ApiRequest[NoInput, NoInput]) -> ApiResponse:
    """Open an upload."""
    upload = await call.run(commands.begin_upload(owner=call.owner))
    return ApiResponse(value=Upload(id=upload, size=0), headers={"location": f"/api/uploads/{upload}"})


async def add_chunk(call: ApiRequest[bytes, ChunkQuery]) -> ApiResponse:
    """Store a chunk. Sending a chunk again is harmless."""
    size = await call.run(commands.upload_chunk(call.upload, call.query.start, call.body, owner=call.owner))
    return ApiResponse(value=Upload(id=call.upload, size=size))


async def finish(call: ApiRequest[Finish, NoInput]) -> ApiResponse:
    """Complete the upload; messages may then refer to it."""
    blob = await call.run(commands.finish_upload(call.upload, expected_hash=call.body.hash, owner=call.owner))
    return ApiResponse(value=blob, headers={"location": f"/api/blobs/{blob.hash}"})


async def download(call: ApiRequest[NoInput, NoInput]) -> ApiResponse:
    """Send the whole attachment, or the requested range, shortened to `PIECE` bytes."""
    blob = await call.run(commands.blob(call.blob, owner=call.owner))
    wanted = call.request.headers.get("range")
    headers = {
        "accept-ranges": "bytes",
        "content-disposition": f'attachment; filename="{blob.hash[:16]}"',
        "etag": f'"{blob.hash}"',
        "cache-control": "private, max-age=31536000, immutable",
    }
    if wanted is None:
        pieces = _pieces(call.owned, blob) if call.request.method == "GET" else iter(())
        headers["content-length"] = str(blob.size)
        return ApiResponse(app=StreamingResponse(pieces, headers=headers, media_type="application/octet-stream"))
    start, stop = _range(wanted, blob)
    stop = min(stop, start + PIECE)
    headers["content-range"] = f"bytes {start}-{stop - 1}/{blob.size}"
    content = await call.run(commands.read_blob(blob.hash, start=start, length=stop - start, owner=call.owner))
    return ApiResponse(content=content, status=206, headers=headers)


async def _pieces(owned: OwnerSessions, blob: Blob) -> AsyncIterator[bytes]:
    """All bytes, with one piece in memory at a time."""
    for start in range(0, blob.size, PIECE):
        yield await owned.run(commands.read_blob(blob.hash, start=start, length=PIECE, owner=owned.owner))


def _range(header: str, blob: Blob) -> tuple[int, int]:
    """The start and end of a Range header.

    Raises:
        Refused: The range is malformed or empty.
    """
    found = _RANGE.fullmatch(header.strip())
    first, last = found.groups() if found else (None, None)
    if first is not None:
        start, stop = int(first), blob.size if last is None else min(int(last) + 1, blob.size)
    elif last is not None:
        start, stop = max(0, blob.size - int(last)), blob.size
    else:
        start = stop = 0
    if start >= stop:
        raise Refused(
            416,
            "range",
            f"{header[:60]!r} is not a valid range of {blob.size:,} bytes",
            hint="Request one range, such as bytes=0-1023.",
            headers={"content-range": f"bytes */{blob.size}"},
        )
    return start, stop


OPERATIONS: tuple[AnyOperation, ...] = (
    Operation(
        method="POST",
        path="/api/uploads",
        name="begin_upload",
        summary="Open an upload. An unfinished upload is dropped after a day.",
        run=begin,
        body=NoInput,
        query=NoInput,
        answer=Upload,
        status=201,
    ),
    Operation(
        method="PUT",
        path="/api/uploads/{upload}",
        name="add_chunk",
        summary="Add bytes at `start`. A chunk may be sent again.",
        run=add_chunk,
        body=OCTETS,
        query=ChunkQuery,
        answer=Upload,
    ),
    Operation(
        method="POST",
        path="/api/uploads/{upload}/finish",
        name="finish_upload",
        summary="Complete an upload. Messages may then refer to its hash.",
        run=finish,
        body=Finish,
        query=NoInput,
        answer=Blob,
    ),
    Operation(
        method="GET",
        path="/api/blobs/{blob}",
        name="download",
        summary="Get the bytes of an attachment, or a range of at most 1 MiB.",
        run=download,
        body=NoInput,
        query=NoInput,
        answer=OCTETS,
        also=(206,),
        problems=(416,),
        media_type="application/octet-stream",
    ),
)
