"""Blobs: the bytes of attachments. Uploaded in chunks, stored once per owner, dropped after the last use."""

from collections.abc import Iterable, Iterator
from hashlib import sha256
from typing import NamedTuple

from backstay.errors import Conflict, CorruptRecord, InvalidPayload, NotFound, TooLarge
from backstay.model.blob import Blob
from backstay.model.content import Part, attachments_in
from backstay.model.ids import UploadId
from backstay.store.engine import Transaction
from backstay.store.rows import Rows, value, values
from backstay.store.verbs import owner_totals


class _BlobRow(NamedTuple):
    """A blob or an unfinished upload."""

    key: int
    size: int


class _ChunkRow(NamedTuple):
    """Some bytes of a blob, and where they begin."""

    start: int
    bytes: bytes


_BLOB = Rows("blob", _BlobRow)
_UPLOAD = Rows("upload", _BlobRow)
_CHUNK_AT = Rows("chunk_at", _ChunkRow)


def begin(tx: Transaction, owner: str) -> UploadId:
    """Begin an upload."""
    owner_totals.require_room(tx, owner)
    upload = tx.ids.upload()
    tx.run("add_upload", owner=owner, upload=upload, now=tx.now)
    return upload


def reserve(tx: Transaction, owner: str, hash: str) -> UploadId | None:
    """Begin an upload of these bytes. None if they are stored already: then they stay until a message uses them."""
    before = _BLOB.one(tx, owner=owner, hash=hash)
    if before is None:
        return begin(tx, owner)
    _add_upload(tx, before.key, tx.ids.upload())
    return None


def drop_upload(tx: Transaction, upload: UploadId, owner: str, hash: str) -> None:
    """Drop an upload, finished or not, that no message uses."""
    row = _UPLOAD.one(tx, upload=upload, owner=owner) or _BLOB.one(tx, owner=owner, hash=hash)
    if row is not None:
        tx.run("drop_unused_blob", blob=row.key)


def missing(tx: Transaction, owner: str, hashes: Iterable[str]) -> set[str]:
    """The hashes among these that the owner does not have."""
    return {name for name in hashes if _BLOB.one(tx, owner=owner, hash=name) is None}


def add_chunk(tx: Transaction, upload: UploadId, owner: str, start: int, data: bytes) -> int:
    """Append the bytes that begin at `start`. Returns the size so far. A repeated chunk changes nothing."""
    blob, size = _find_upload(tx, upload, owner)
    if start >= 0 and start + len(data) <= size:
        return _repeated(tx, upload, blob, start, data, size=size)
    if start != size:
        raise Conflict(f"{upload} has {size:,} bytes; the chunk begins at {start:,}", hint=f"Continue at byte {size}.")
    owner_totals.require_room(tx, owner, adding=len(data))
    if size + len(data) > tx.limits.blob_bytes:
        raise TooLarge(f"the file has more than {tx.limits.blob_bytes:,} bytes", hint="Send a smaller file.")
    tx.run("add_chunk", blob=blob, start=start, bytes=data)
    tx.run("grow_blob", blob=blob, size=size + len(data))
    return size + len(data)


def finish(tx: Transaction, upload: UploadId, owner: str, expected: str | None) -> Blob:
    """Finish an upload. Bytes that the owner uploaded before are stored once."""
    blob, size = _find_upload(tx, upload, owner)
    digest = sha256()
    for chunk in _chunks(tx, upload, blob, 0, size):
        digest.update(chunk)
    found = digest.hexdigest()
    if expected is not None and expected != found:
        raise InvalidPayload(f"the upload's hash is {found}, not {expected}", hint="Upload the file again.")
    before = _BLOB.one(tx, owner=owner, hash=found)
    if before is None:
        tx.run("name_blob", blob=blob, hash=found, now=tx.now)
    else:
        tx.run("drop_blob", blob=blob)
        _add_upload(tx, before.key, upload)
    return Blob(hash=found, size=size)


def get(tx: Transaction, hash: str, owner: str) -> Blob:
    """The size of a blob. Raises `NotFound`."""
    return Blob(hash=hash, size=_find(tx, hash, owner).size)


def _find(tx: Transaction, hash: str, owner: str) -> _BlobRow:
    row = _BLOB.one(tx, owner=owner, hash=hash)
    if row is None:
        raise NotFound(f"no blob {hash} of {owner!r}")
    return row


def read(tx: Transaction, hash: str, owner: str, start: int, length: int) -> bytes:
    """Some bytes of a blob; fewer at its end."""
    row = _find(tx, hash, owner)
    if start < 0 or length < 0:
        raise InvalidPayload("start and length cannot be negative")
    return b"".join(_chunks(tx, hash, row.key, start, min(row.size, start + length)))


def owned(tx: Transaction, owner: str, hash: str) -> bool:
    """Whether the owner has this blob."""
    return _BLOB.one(tx, owner=owner, hash=hash) is not None


def use(tx: Transaction, owner: str, hash: str, holder: str) -> None:
    """Keep a blob as long as this message or waiting turn exists."""
    row = _BLOB.one(tx, owner=owner, hash=hash)
    if row is None:
        raise InvalidPayload(f"no attachment {hash} was uploaded", hint="Upload the file first, then send the message.")
    tx.run("use_blob", blob=row.key, holder=holder)
    tx.run("drop_promises", blob=row.key)


def _add_upload(tx: Transaction, blob: int, upload: UploadId) -> None:
    """Keep bytes that were uploaded again for a day, even if the message that used them first is deleted."""
    tx.run("refresh_blob", blob=blob, now=tx.now)
    tx.run("use_blob", blob=blob, holder=upload)


def drop_forgotten(tx: Transaction, moment: int, limit: int) -> int:
    """Drop uploads from before this moment that were never finished, or that no message uses. Returns how many."""
    keys = values(tx, "forgotten_blobs", moment=moment, limit=limit)
    for key in keys:
        tx.run("drop_promises", blob=key)
        tx.run("drop_blob", blob=key)
    return len(keys)


def release(tx: Transaction, holder: str) -> int:
    """Release the blobs of this message or turn. Returns how many were dropped."""
    return sum(tx.changed("drop_unused_blob", blob=key) for key in values(tx, "release_blobs", holder=holder))


def release_others(tx: Transaction, holder: str, parts: tuple[Part, ...]) -> None:
    """Keep only the blobs of these parts."""
    wanted = {file.blob for file in attachments_in(parts)}
    for key in values(tx, "release_blobs", holder=holder):
        if value(tx, "blob_hash", blob=key) in wanted:
            tx.run("use_blob", blob=key, holder=holder)
        else:
            tx.run("drop_unused_blob", blob=key)


def _find_upload(tx: Transaction, upload: UploadId, owner: str) -> _BlobRow:
    row = _UPLOAD.one(tx, upload=upload, owner=owner)
    if row is None:
        raise NotFound(f"no upload {upload} of {owner!r}", hint="It may be finished, or dropped after a day.")
    return row


def _repeated(tx: Transaction, upload: UploadId, blob: int, start: int, data: bytes, *, size: int) -> int:
    stored = b"".join(_chunks(tx, upload, blob, start, start + len(data)))
    if stored != data:
        raise Conflict(f"other bytes were uploaded at {start:,} before", hint="Start a new upload.")
    return size


def _chunks(tx: Transaction, name: str, blob: int, start: int, end: int) -> Iterator[bytes]:
    """The bytes of a blob from `start` to `end`, which is not beyond its size."""
    while start < end:
        chunk = _CHUNK_AT.one(tx, blob=blob, start=start)
        piece = b"" if chunk is None else chunk.bytes[start - chunk.start : end - chunk.start]
        if not piece:
            raise CorruptRecord(f"blob {name}", f"has no bytes at {start:,}")
        yield piece
        start += len(piece)
