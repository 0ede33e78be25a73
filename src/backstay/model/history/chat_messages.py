"""Messages in the shape of OpenAI's Chat Completions API: dictionaries with a role and a content."""

from collections.abc import Mapping, Sequence
from typing import cast

import msgspec

from backstay.errors import InvalidPayload
from backstay.model.content import (
    Attachment,
    Content,
    Json,
    Part,
    PartsLike,
    Role,
    Text,
    Thought,
    ToolCall,
    ToolResult,
    parts_of,
)
from backstay.model.history.call_arguments import parse_arguments
from backstay.model.message import NewMessage

# A message as it may be passed in: ours, or a dictionary such as {"role": "user", "content": "hello"}.
MessageLike = NewMessage | Mapping[str, Json]

_ROLES: dict[str, Role] = {
    "user": "user",
    "assistant": "assistant",
    "tool": "tool",
    "system": "system",
    "developer": "system",
}
_FIELDS = frozenset(
    {"role", "content", "tool_calls", "tool_call_id", "name", "refusal", "annotations", "reasoning_content"}
)
_TEXTS = {"text": "text", "input_text": "text", "output_text": "text", "refusal": "refusal"}
_EXAMPLE = 'Pass {"role": "user", "content": "hello"}, or a NewMessage.'
_FILES = "Upload the file with session.upload, and put the attachment into the content in its place."


def new_messages(messages: Sequence[MessageLike]) -> list[NewMessage]:
    """The messages, with every dictionary converted.

    Raises:
        InvalidPayload: A message is neither a `NewMessage` nor a dictionary of this shape; the error names it.
    """
    if isinstance(messages, str | bytes) or not isinstance(messages, Sequence):
        raise InvalidPayload(f"messages is {type(messages).__name__}", hint=f"Pass a list of messages. {_EXAMPLE}")
    return [
        message if isinstance(message, NewMessage) else _converted(message, f"messages[{index}]")
        for index, message in enumerate(messages)
    ]


def input_parts(content: Content) -> tuple[Part, ...]:
    """The parts of an input: text, or a list of texts, parts of ours and dictionaries of the shape of OpenAI's API.

    A dictionary is a message of the role "user", or one part of the content of such a message.

    Raises:
        InvalidPayload: It is none of these; the error names the part.
    """
    if isinstance(content, str):
        return parts_of(content)
    if isinstance(content, Mapping):
        return _input(content, "content")
    if isinstance(content, Sequence) and any(isinstance(part, Mapping | str) for part in content):
        return tuple(part for index, given in enumerate(content) for part in _input(given, f"content[{index}]"))
    return parts_of(cast("PartsLike", content))


def _input(given: PartsLike | Mapping[str, Json], where: str) -> tuple[Part, ...]:
    if not (isinstance(given, Mapping) and "role" in given):
        return (_part(given, where),)
    message = _converted(given, where)
    if message.role != "user":
        raise InvalidPayload(
            f"{where} has the role {given['role']!r}",
            hint='Send messages of the role "user"; `record` adds finished messages of every role.',
        )
    return message.parts


def _converted(message: Mapping[str, Json], where: str) -> NewMessage:
    if not isinstance(message, Mapping):
        raise InvalidPayload(f"{where} is {type(message).__name__}, not a message", hint=_EXAMPLE)
    given = {name: value for name, value in message.items() if value is not None and value != []}
    unknown = next((name for name in given if name not in _FIELDS), None)
    if unknown is not None:
        raise InvalidPayload(f"{where} has an unknown field {unknown!r}", hint=f"Use {', '.join(sorted(_FIELDS))}.")
    role = _ROLES.get(str(given.get("role")))
    if role is None:
        raise InvalidPayload(f"{where} has the role {given.get('role')!r}", hint=f"Use one of {', '.join(_ROLES)}.")
    if role == "tool":
        return NewMessage(role="tool", parts=(_result(given, where),))
    parts = (*_thoughts(given, where), *_content(given, where), *_calls(given, where))
    if not parts:
        raise InvalidPayload(f"{where} has no content", hint=_EXAMPLE)
    return NewMessage(role=role, parts=parts)


def _thoughts(given: Mapping[str, Json], where: str) -> tuple[Part, ...]:
    text = given.get("reasoning_content")
    return () if text is None else (Thought(_text(text, f"{where}.reasoning_content")),)


def _content(given: Mapping[str, Json], where: str) -> tuple[Part, ...]:
    content = given.get("content", given.get("refusal"))
    if content is None or content == "":
        return ()
    if isinstance(content, Sequence) and not isinstance(content, str | bytes):
        return tuple(_part(part, f"{where}.content[{index}]") for index, part in enumerate(content))
    return (Text(_text(content, f"{where}.content")),)


def _part(part: Json, where: str) -> Part:
    """A text of a content list, or a part of ours, such as an attachment."""
    if not isinstance(part, Mapping):
        return _own(part, where)
    if part.get("type") == "attachment":
        return _attachment(part, where)
    field = _TEXTS.get(str(part.get("type")))
    if field is None:
        raise InvalidPayload(f"{where} is of type {str(part.get('type'))[:64]!r}, which is not text", hint=_FILES)
    return Text(_text(part.get(field), f"{where}.{field}"))


def _attachment(part: Mapping[str, Json], where: str) -> Attachment:
    """An attachment as JSON, which has no shape of its own in OpenAI's API."""
    try:
        return msgspec.convert(part, Attachment)
    except msgspec.ValidationError as error:
        raise InvalidPayload(f"{where} is not an attachment: {error}", hint=_FILES) from error


def _own(part: PartsLike, where: str) -> Part:
    try:
        (only,) = parts_of(part)
    except (InvalidPayload, ValueError) as error:
        raise InvalidPayload(
            f"{where} is {type(part).__name__}, not text or a part", hint='Pass {"type": "text", "text": "…"}.'
        ) from error
    return only


def _calls(given: Mapping[str, Json], where: str) -> tuple[Part, ...]:
    calls = given.get("tool_calls", [])
    if not isinstance(calls, Sequence) or isinstance(calls, str | bytes):
        raise InvalidPayload(f"{where}.tool_calls is {type(calls).__name__}", hint="Pass a list of tool calls.")
    return tuple(_call(call, f"{where}.tool_calls[{index}]") for index, call in enumerate(calls))


def _call(call: Json, where: str) -> ToolCall:
    function = call.get("function") if isinstance(call, Mapping) else None
    if not isinstance(call, Mapping) or not isinstance(function, Mapping):
        raise InvalidPayload(
            f"{where} has no function",
            hint='Pass {"id": "…", "type": "function", "function": {"name": "…", "arguments": "{}"}}.',
        )
    arguments = function.get("arguments", {})
    return ToolCall(
        _text(call.get("id"), f"{where}.id"),
        _text(function.get("name"), f"{where}.function.name"),
        parse_arguments(arguments) if isinstance(arguments, str) else arguments,
    )


def _result(given: Mapping[str, Json], where: str) -> ToolResult:
    parts = _content(given, where)
    if not all(isinstance(part, Text) for part in parts):
        raise InvalidPayload(f"{where} is a tool's result with content other than text", hint="Send its text.")
    output = "\n".join(part.text for part in parts if isinstance(part, Text))
    return ToolResult(_text(given.get("tool_call_id"), f"{where}.tool_call_id"), output)


def _text(value: Json, where: str) -> str:
    if not isinstance(value, str):
        raise InvalidPayload(f"{where} is {type(value).__name__}, not text", hint=_EXAMPLE)
    return value
