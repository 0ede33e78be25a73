"""Input as clients send it: text, or a list of parts."""

import msgspec

from backstay.model.content import Attachment, Content, Custom, Text
from backstay.server.http.problems import invalid

# The parts that an input may have; tool calls and results come only from agents.
InputPart = Text | Attachment | Custom


class MessageBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An input: either `text`, or `parts` with attachments."""

    text: str | None = None
    parts: tuple[InputPart, ...] | None = None


def content_of(content: MessageBody) -> Content:
    """Return the content of an input.

    Raises:
        Refused: The input has both `text` and `parts`, or neither.
    """
    match content:
        case MessageBody(text=str(text), parts=None):
            return text
        case MessageBody(text=None, parts=tuple(parts)):
            return parts
        case _:
            raise invalid("pass either `text` or `parts`", hint='{"text": "hello"}')
