"""Attachments: uploaded in chunks, read in ranges. They come back as files, never as pages."""

import re
from collections.abc import AsyncIterator
from typing import Annotated

import msgspec
from msgspec import Meta
from starlette.responses import StreamingResponse

from backstay.model.blob import Blob
from backstay.model.ids import UploadId
from backstay.runtime.owned import Owned
from backstay.server.call import Answer, Call, Nothing
from backstay.server.operation import OCTETS, AnyOperation, Operation
from backstay.server.problems import Refused
from backstay.store.port import Store

# More than this is not read at once.
PIECE = 1 << 20
_RANGE = re.compile(r"bytes=([0-9]{1,18})?-([0-9]{1,18})?", re.ASCII)


class Upload(msgspec.Struct, frozen=True, kw_only=True):
    """An upload under way; `size` is how many bytes have arrived."""

    id: UploadId
    size: int


class ChunkQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where the chunk belongs."""

    start: Annotated[int, Meta(ge=0, le=1 << 53)] = 0


class Finish(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The SHA-256 that the whole file must have, if the sender knows it."""

    hash: str | None = None


async def begin(call: Call[Nothing, Nothing]) -> Answer:
    """Open an upload."""
    upload = await call.owned.write(Store.begin_upload)
    return Answer(value=Upload(id=upload, size=0), headers={"location": f"/api/uploads/{upload}"})


async def add_chunk(call: Call[bytes, ChunkQuery]) -> Answer:
    """Add bytes; sending a chunk again is harmless."""
    size = await call.owned.write(Store.upload_chunk, call.upload, call.query.start, call.body)
    return Answer(value=Upload(id=call.upload, size=size))


async def finish(call: Call[Finish, Nothing]) -> Answer:
    """Close the upload; from now on messages may refer to it."""
    blob = await call.owned.write(Store.finish_upload, call.upload, expected_hash=call.body.hash)
    return Answer(value=blob, headers={"location": f"/api/blobs/{blob.hash}"})


async def download(call: Call[Nothing, Nothing]) -> Answer:
    """The bytes, or the part of them that Range asks for; of that, at most a piece at a time."""
    blob = await call.owned.read(Store.blob, call.blob)
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
        return Answer(app=StreamingResponse(pieces, headers=headers, media_type="application/octet-stream"))
    start, stop = _range(wanted, blob)
    stop = min(stop, start + PIECE)
    headers["content-range"] = f"bytes {start}-{stop - 1}/{blob.size}"
    content = await call.owned.read(Store.read_blob, blob.hash, start=start, length=stop - start)
    return Answer(content=content, status=206, headers=headers)


async def _pieces(owned: Owned, blob: Blob) -> AsyncIterator[bytes]:
    """All bytes, a piece in memory at a time."""
    for start in range(0, blob.size, PIECE):
        yield await owned.read(Store.read_blob, blob.hash, start=start, length=PIECE)


def _range(told: str, blob: Blob) -> tuple[int, int]:
    """From where to where; a range that holds nothing is refused."""
    found = _RANGE.fullmatch(told.strip())
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
            f"{told[:60]!r} is no range of {blob.size:,} bytes",
            hint="Ask for one range, such as bytes=0-1023.",
            headers={"content-range": f"bytes */{blob.size}"},
        )
    return start, stop


OPERATIONS: tuple[AnyOperation, ...] = (
    Operation(
        method="POST",
        path="/api/uploads",
        name="begin_upload",
        summary="Open an upload. One that is not finished is dropped after a day.",
        run=begin,
        body=Nothing,
        query=Nothing,
        answer=Upload,
        status=201,
    ),
    Operation(
        method="PUT",
        path="/api/uploads/{upload}",
        name="add_chunk",
        summary="Add bytes at `start`. Sending a chunk again is harmless.",
        run=add_chunk,
        body=OCTETS,
        query=ChunkQuery,
        answer=Upload,
    ),
    Operation(
        method="POST",
        path="/api/uploads/{upload}/finish",
        name="finish_upload",
        summary="Close an upload; from now on messages may refer to its hash.",
        run=finish,
        body=Finish,
        query=Nothing,
        answer=Blob,
    ),
    Operation(
        method="GET",
        path="/api/blobs/{blob}",
        name="download",
        summary="The bytes of an attachment, or a range of them; of a range at most one mebibyte at a time.",
        run=download,
        body=Nothing,
        query=Nothing,
        answer=OCTETS,
        also=(206,),
        problems=(416,),
        media_type="application/octet-stream",
    ),
)
