"""A blob: the bytes of an attachment, identified by their SHA-256."""

import re

import msgspec

from backstay.errors import NotFound

_HASH = re.compile(r"[0-9a-f]{64}")


def check_hash(text: object) -> str:
    """The same text as the hash of a blob, or `NotFound` if it is not a SHA-256."""
    if isinstance(text, str) and _HASH.fullmatch(text):
        return text
    raise NotFound(
        f"{str(text)[:64]!r} is not the SHA-256 of a blob", hint="A SHA-256 has 64 characters, 0 to 9 and a to f."
    )


class Blob(msgspec.Struct, frozen=True, kw_only=True):
    """Bytes that an owner uploaded: their SHA-256 and their length."""

    hash: str
    size: int
