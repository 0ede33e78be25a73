"""Estimates the number of tokens of a message."""

import msgspec

from backstay.model.content import Attachment, Part, Text, Thought
from backstay.model.message import Message, NewMessage

# Tokens that providers add around every message, and tokens of a picture or file.
_FRAME = 4
_ATTACHMENT = 1_000
BYTES_PER_TOKEN = 4

_encode = msgspec.json.Encoder().encode


def estimate(message: Message | NewMessage) -> int:
    """The approximate number of tokens of a message: a quarter of its bytes, which suits most languages and code."""
    return _FRAME + sum(_count_bytes(part) for part in message.parts)


def estimate_bytes(size: int) -> int:
    """The approximate number of tokens of a text with this number of bytes."""
    return -(-size // BYTES_PER_TOKEN)


def _count_bytes(part: Part) -> int:
    if isinstance(part, Attachment):
        return _ATTACHMENT
    if isinstance(part, Text | Thought):
        return estimate_bytes(len(part.text) if part.text.isascii() else len(part.text.encode()))
    return estimate_bytes(len(_encode(part)))
