"""Blobs: the bytes of attachments, uploaded in chunks, stored once per owner, gone with their last use."""

from collections.abc import Iterator
from hashlib import sha256

from backstay.errors import Conflict, CorruptRecord, InvalidPayload, NotFound, TooLarge
from backstay.model.blob import Blob
from backstay.model.content import Attachment, Part
from backstay.model.ids import UploadId
from backstay.store.engine import Transaction


def begin(tx: Transaction, owner: str) -> UploadId:
    """Open an upload."""
    upload = tx.ids.upload()
    tx.run("add_upload", owner=owner, upload=upload, now=tx.now)
    return upload


def add_chunk(tx: Transaction, upload: UploadId, owner: str, start: int, data: bytes) -> int:
    """Add the bytes that begin at `start`; how many there are now. A repeated chunk changes nothing."""
    blob, size = _upload(tx, upload, owner)
    if start >= 0 and start + len(data) <= size:
        return _repeated(tx, upload, blob, start, data, size=size)
    if start != size:
        raise Conflict(f"{upload} has {size:,} bytes; the chunk begins at {start:,}", hint=f"Go on from {size}.")
    if size + len(data) > tx.limits.blob_bytes:
        raise TooLarge(f"the file has more than {tx.limits.blob_bytes:,} bytes", hint="Send a smaller file.")
    tx.run("add_chunk", blob=blob, start=start, bytes=data)
    tx.run("grow_blob", blob=blob, size=size + len(data))
    return size + len(data)


def finish(tx: Transaction, upload: UploadId, owner: str, expected: str | None) -> Blob:
    """Close an upload; the same bytes uploaded before are kept once."""
    blob, size = _upload(tx, upload, owner)
    digest = sha256()
    for chunk in _chunks(tx, upload, blob, 0, size):
        digest.update(chunk)
    found = digest.hexdigest()
    if expected is not None and expected != found:
        raise InvalidPayload(f"the upload's hash is {found}, not {expected}", hint="Upload the file again.")
    before = tx.one("blob", owner=owner, hash=found)
    if before is None:
        tx.run("name_blob", blob=blob, hash=found, now=tx.now)
    else:
        tx.run("drop_blob", blob=blob)
        _promise(tx, before[0], upload)
    return Blob(hash=found, size=size)


def get(tx: Transaction, hash: str, owner: str) -> Blob:
    """What is known of a blob."""
    row = tx.one("blob", owner=owner, hash=hash)
    if row is None:
        raise NotFound(f"no blob {hash} of {owner!r}")
    return Blob(hash=hash, size=row[1])


def read(tx: Transaction, hash: str, owner: str, start: int, length: int) -> bytes:
    """Some of a blob's bytes; fewer at its end."""
    row = tx.one("blob", owner=owner, hash=hash)
    if row is None:
        raise NotFound(f"no blob {hash} of {owner!r}")
    if start < 0 or length < 0:
        raise InvalidPayload("start and length cannot be negative")
    return b"".join(_chunks(tx, hash, row[0], start, min(row[1], start + length)))


def use(tx: Transaction, owner: str, hash: str, holder: str) -> None:
    """Keep a blob as long as this message or waiting turn lives."""
    row = tx.one("blob", owner=owner, hash=hash)
    if row is None:
        raise InvalidPayload(f"no attachment {hash} was uploaded", hint="Upload the file first, then send the message.")
    tx.run("use_blob", blob=row[0], holder=holder)
    tx.run("drop_promises", blob=row[0])


def _promise(tx: Transaction, blob: int, upload: UploadId) -> None:
    """Uploaded again: the bytes stay for a day even if the message that brought them first goes before this one's."""
    tx.run("refresh_blob", blob=blob, now=tx.now)
    tx.run("use_blob", blob=blob, holder=upload)


def drop_forgotten(tx: Transaction, moment: int, limit: int) -> int:
    """Drop what was uploaded before this moment and never finished, or never taken by a message."""
    rows = tx.all("forgotten_blobs", moment=moment, limit=limit)
    for row in rows:
        tx.run("drop_promises", blob=row[0])
        tx.run("drop_blob", blob=row[0])
    return len(rows)


def release(tx: Transaction, holder: str) -> int:
    """This message or turn needs its blobs no more; how many went with it."""
    return sum(tx.run("drop_unused_blob", blob=row[0]) for row in tx.all("release_blobs", holder=holder))


def release_others(tx: Transaction, holder: str, parts: tuple[Part, ...]) -> None:
    """Keep only the blobs of these parts."""
    wanted = {part.blob for part in parts if isinstance(part, Attachment)}
    freed = [row[0] for row in tx.all("release_blobs", holder=holder)]
    for key, named in _named(tx, freed):
        if named in wanted:
            tx.run("use_blob", blob=key, holder=holder)
        else:
            tx.run("drop_unused_blob", blob=key)


def _named(tx: Transaction, keys: list[int]) -> Iterator[tuple[int, str]]:
    for key in keys:
        row = tx.one("blob_hash", blob=key)
        if row is not None:
            yield key, row[0]


def _upload(tx: Transaction, upload: UploadId, owner: str) -> tuple[int, int]:
    row = tx.one("upload", upload=upload, owner=owner)
    if row is None:
        raise NotFound(f"no upload {upload} of {owner!r}", hint="It may be finished, or dropped after a day.")
    return row[0], row[1]


def _repeated(tx: Transaction, upload: UploadId, blob: int, start: int, data: bytes, *, size: int) -> int:
    stored = b"".join(_chunks(tx, upload, blob, start, start + len(data)))
    if stored != data:
        raise Conflict(f"other bytes were uploaded at {start:,} before", hint="Start a new upload.")
    return size


def _chunks(tx: Transaction, name: str, blob: int, start: int, end: int) -> Iterator[bytes]:
    """The bytes of a blob from one place to another, neither of which is beyond its end."""
    while start < end:
        row = tx.one("chunk_at", blob=blob, start=start)
        piece = b"" if row is None else row[1][start - row[0] : end - row[0]]
        if not piece:
            raise CorruptRecord(f"blob {name}", f"has no bytes at {start:,}")
        yield piece
        start += len(piece)
