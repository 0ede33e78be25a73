"""A blob: the bytes of an attachment, named by their SHA-256."""

import msgspec


class Blob(msgspec.Struct, frozen=True, kw_only=True):
    """Bytes that an owner uploaded."""

    hash: str
    size: int
