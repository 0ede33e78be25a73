"""Input and finished messages as clients send them: text, a list of parts, or the shape of OpenAI's API."""

from typing import Literal

import msgspec

from backstay.model.content import Attachment, Content, Custom, Json, Part, Role, Text
from backstay.model.history.chat_messages import MessageLike
from backstay.model.message import NewMessage
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


class FinishedMessage(msgspec.Struct, frozen=True, kw_only=True):
    """A message to record: with `parts`, or with the fields of a message of the Chat Completions API."""

    role: Role | Literal["developer"]
    parts: tuple[Part, ...] | None = None
    partial: bool = False
    content: str | tuple[dict[str, Json], ...] | None = None
    tool_calls: tuple[dict[str, Json], ...] | None = None
    tool_call_id: str | None = None
    name: str | None = None
    refusal: str | None = None
    annotations: tuple[dict[str, Json], ...] | None = None
    reasoning_content: str | None = None


_OWN = {"role", "parts", "partial"}


def message_of(message: FinishedMessage) -> MessageLike:
    """Return the message as `record` takes it.

    Raises:
        Refused: It has both `parts` and fields of the Chat Completions API.
    """
    given = {name: value for name, value in msgspec.structs.asdict(message).items() if value is not None}
    if message.parts is None and not message.partial:
        return {name: value for name, value in given.items() if name != "partial"}
    if message.parts is None or message.role == "developer" or given.keys() > _OWN:
        raise invalid("pass either `parts` or `content`", hint='{"role": "user", "content": "hello"}')
    return NewMessage(role=message.role, parts=message.parts, partial=message.partial)
