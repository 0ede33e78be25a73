"""Commands for attachments: upload them in chunks, read them."""

from backstay.errors import InvalidPayload, TooLarge
from backstay.model.blob import Blob, check_hash
from backstay.model.ids import UploadId, check_upload_id
from backstay.store.commands.command import Read, Write
from backstay.store.commands.input_checks import check_owner
from backstay.store.engine import Transaction
from backstay.store.verbs import blob_store


def begin_upload(*, owner: str) -> Write[UploadId]:
    """Open an upload. One that is not finished is dropped after a day.

    Args:
        owner: The owner of the attachment.

    Returns:
        The id of the upload.

    Raises:
        InvalidPayload: The owner's name is not valid.
        QuotaExceeded: The owner has reached its limit of stored bytes.
    """
    return Write(
        name="begin_upload",
        owner=owner,
        read_first=True,
        wakes=False,
        verb=lambda tx: blob_store.begin(tx, check_owner(tx, owner)),
    )


def upload_chunk(upload: UploadId, start: int, data: bytes, *, owner: str) -> Write[int]:
    """Add bytes to an upload, in a transaction of their own. Repeating a chunk is harmless.

    Args:
        upload: The upload.
        start: Where the bytes begin.
        data: The bytes.
        owner: The owner of the upload.

    Returns:
        The size so far.

    Raises:
        NotFound: The owner has no such upload.
        Conflict: The chunk does not begin at the end, or other bytes were uploaded there before.
        QuotaExceeded: The owner has reached its limit of stored bytes.
        InvalidPayload: The chunk is empty.
        TooLarge: The chunk or the attachment is too large.
    """
    if not data:
        raise InvalidPayload("the chunk is empty")
    which, chunk = check_upload_id(upload), bytes(data)

    def add(tx: Transaction) -> int:
        if len(chunk) > tx.limits.chunk_bytes:
            raise TooLarge(
                f"the chunk has {len(chunk):,} bytes; at most {tx.limits.chunk_bytes:,} are accepted",
                hint="Send the file in smaller chunks.",
            )
        return blob_store.add_chunk(tx, which, owner, start, chunk)

    return Write(name="upload_chunk", owner=owner, exclusive=True, read_first=True, wakes=False, verb=add)


def finish_upload(upload: UploadId, *, owner: str, expected_hash: str | None = None) -> Write[Blob]:
    """Close an upload; from now on messages may refer to it. Equal bytes of one owner are stored once.

    Args:
        upload: The upload.
        owner: The owner of the upload.
        expected_hash: The SHA-256 that the bytes must have.

    Returns:
        The blob.

    Raises:
        NotFound: The owner has no such upload.
        InvalidPayload: The bytes have another hash.
    """
    which = check_upload_id(upload)
    return Write(
        name="finish_upload",
        owner=owner,
        exclusive=True,
        wakes=False,
        verb=lambda tx: blob_store.finish(tx, which, owner, expected_hash),
    )


def blob(hash: str, *, owner: str) -> Read[Blob]:
    """Find a blob by its hash.

    Args:
        hash: The SHA-256 of its bytes.
        owner: The owner of the blob.

    Returns:
        The blob.

    Raises:
        NotFound: The owner has no such blob.
    """
    which = check_hash(hash)
    return Read(name="blob", owner=owner, verb=lambda tx: blob_store.get(tx, which, owner))


def read_blob(hash: str, *, owner: str, start: int = 0, length: int = 1 << 20) -> Read[bytes]:
    """Read a range of a blob's bytes.

    Args:
        hash: The SHA-256 of its bytes.
        owner: The owner of the blob.
        start: Where the range begins.
        length: How many bytes are read at most.

    Returns:
        The bytes.

    Raises:
        NotFound: The owner has no such blob.
        InvalidPayload: The range is negative.
    """
    which = check_hash(hash)
    # A few steps may return many bytes.
    return Read(
        name="read_blob", owner=owner, long=True, verb=lambda tx: blob_store.read(tx, which, owner, start, length)
    )
