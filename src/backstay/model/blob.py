"""A blob: the bytes of an attachment, named by their SHA-256."""

import re

import msgspec

from backstay.errors import NotFound

_HASH = re.compile(r"[0-9a-f]{64}")


def check_hash(text: object) -> str:
    """The same text as a blob's name, or `NotFound`: what cannot be a SHA-256 names nothing."""
    if isinstance(text, str) and _HASH.fullmatch(text):
        return text
    raise NotFound(f"{str(text)[:64]!r} is not the SHA-256 of a blob", hint="It has 64 digits and letters a to f.")


class Blob(msgspec.Struct, frozen=True, kw_only=True):
    """Bytes that an owner uploaded."""

    hash: str
    size: int
