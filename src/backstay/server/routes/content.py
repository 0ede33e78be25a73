"""Content as clients send it: words, or a list of parts."""

import msgspec

from backstay.model.content import Attachment, Content, Custom, Text
from backstay.server.problems import invalid

# What a person can say; calls and results are an agent's.
InputPart = Text | Attachment | Custom


class Said(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Something a person says: `text`, or `parts` with attachments."""

    text: str | None = None
    parts: tuple[InputPart, ...] | None = None


def content_of(said: Said) -> Content:
    """What was said, in one shape; refused unless it was said in exactly one way."""
    match said:
        case Said(text=str(text), parts=None):
            return text
        case Said(text=None, parts=tuple(parts)):
            return parts
        case _:
            raise invalid("say something in `text`, or in `parts`, not in both", hint='{"text": "hello"}')
