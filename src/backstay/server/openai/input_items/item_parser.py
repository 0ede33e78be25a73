"""Converts the items that clients send to messages that agents read, without loss.

An item that our parts represent completely is stored as parts only. Any other item is stored raw beside its parts.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from backstay.model.content import Custom, Json, Part, Role, Text, Thought, ToolCall, ToolResult
from backstay.model.history.call_arguments import parse_arguments
from backstay.model.ids import MessageId
from backstay.model.message import Message, NewMessage
from backstay.server.openai.encoding.items import KEPT, Value, items_of
from backstay.server.openai.input_items.item_files import FileKey, Files, StoredItems
from backstay.server.openai.openai_errors import BadParameter

_ROLES: dict[str, Role] = {"user": "user", "assistant": "assistant", "system": "system", "developer": "system"}
_TEXTS = {"input_text": "text", "output_text": "text", "text": "text", "summary_text": "text", "refusal": "refusal"}
# Fields that are not part of an item's content, and are not stored.
_PASSING = frozenset({"id", "status", "created_by"})
_FINISHED = frozenset({"message", "function_call", "function_call_output"})
_SAMPLES = (MessageId("msg_" + "0" * 26), MessageId("msg_" + "0" * 25 + "1"))


class ParsedItems(NamedTuple):
    """An item as a message; `whole` is false if agents cannot read all of its content."""

    role: Role
    parts: tuple[Part, ...]
    whole: bool


def messages_from(stored: StoredItems, *, param: str, strict: bool = False) -> list[NewMessage]:
    """Convert items to messages. With `strict`, content that agents cannot read is rejected instead of only stored.

    Consecutive tool calls become one message, and so do their results, as in the histories of agents.
    """
    read = [
        one
        for index, item in enumerate(stored.items)
        for one in _checked(item, f"{param}[{index}]", stored.files, strict=strict)
    ]
    return [NewMessage(role=role, parts=parts) for role, parts in _merged(read)]


def with_raw_results(messages: Iterable[NewMessage]) -> list[NewMessage]:
    """The same messages, with results that have no call among them as raw items: for histories that were cut."""
    asked: set[str] = set()
    kept: list[NewMessage] = []
    for message in messages:
        asked = asked | {part.id for part in message.parts if isinstance(part, ToolCall)}
        lost = [part for part in message.parts if isinstance(part, ToolResult) and part.id not in asked]
        kept.append(_without_results(message, lost) if lost else message)
    return kept


def _without_results(message: NewMessage, lost: Sequence[ToolResult]) -> NewMessage:
    parts = tuple(
        _as_raw_item(part) if part in lost and isinstance(part, ToolResult) else part for part in message.parts
    )
    return NewMessage(role="assistant" if len(lost) == len(message.parts) else message.role, parts=parts)


def _as_raw_item(result: ToolResult) -> Custom:
    item = {"type": "function_call_output", "call_id": result.id, "output": result.output, "status": "completed"}
    return Custom(KEPT, {"item": item, "parts": 0})


def _merged(read: Iterable[ParsedItems]) -> Iterator[tuple[Role, tuple[Part, ...]]]:
    role: Role | None = None
    parts: tuple[Part, ...] = ()
    for one in read:
        if one.role == role and role in ("assistant", "tool"):
            parts += one.parts
            continue
        if role is not None:
            yield role, parts
        role, parts = one.role, one.parts
    if role is not None:
        yield role, parts


def _checked(item: Value, param: str, files: Files, *, strict: bool) -> list[ParsedItems]:
    first, *more = _read(item, param, files)
    if strict and not first.whole:
        raise BadParameter(
            param,
            f"{param} has content that the agents of this server cannot read",
            hint="Send text, images, files, function calls and their outputs.",
            code="unsupported_content",
        )
    if _is_complete([first, *more], item):
        return [first, *more]
    return [first._replace(parts=(_kept(item, len(first.parts)), *first.parts)), *more]


def _kept(item: Value, parts: int) -> Custom:
    """The raw item as it will be returned: its content as a list, and its status completed by default."""
    kept = {name: value for name, value in item.items() if name != "id"}
    if "role" in kept and isinstance(kept.get("content"), str):
        kept |= {"type": "message", "content": _content(kept["role"], kept["content"])}
    if kept.get("type", "message") in _FINISHED:
        kept = {"type": "message", "status": "completed"} | kept
    return Custom(KEPT, {"item": kept, "parts": parts})


def _read(item: Value, param: str, files: Files) -> list[ParsedItems]:
    """The messages of an item: one, and for a call of a server's tool with a result another one."""
    if item.get("type") == "mcp_call":
        return [*_server_call(item, param)]
    return [_read_one(item, param, files)]


def _read_one(item: Value, param: str, files: Files) -> ParsedItems:
    kind = item.get("type") or ("message" if "role" in item else None)
    match kind:
        case "message":
            return _message(item, param, files)
        case "function_call":
            arguments = _text(item, "arguments", param)
            name = _text(item, "name", param)
            call = ToolCall(_text(item, "call_id", param), name, parse_arguments(arguments), client=True)
            return ParsedItems("assistant", (call,), whole=True)
        case "function_call_output":
            return ParsedItems("tool", (ToolResult(_text(item, "call_id", param), _output(item, param)),), whole=True)
        case "reasoning":
            texts = _texts(item.get("summary") or [], f"{param}.summary") or []
            return ParsedItems("assistant", tuple(Thought(text) for text in texts if text), whole=True)
        case "compaction" if isinstance(item.get("encrypted_content"), str):
            return ParsedItems("summary", (Text(item["encrypted_content"]),), whole=True)
        case str():
            return ParsedItems("assistant", (), whole=False)
        case _:
            raise BadParameter(param, f"{param} has no type", hint='Send {"type": "message", "role": "user", …}.')


def _server_call(item: Value, param: str) -> Iterator[ParsedItems]:
    """A call of a tool that a server ran, and its result. Its id pairs them: it is unique among the items."""
    name = item.get("id") if isinstance(item.get("id"), str) else param
    arguments = parse_arguments(_text(item, "arguments", param))
    yield ParsedItems("assistant", (ToolCall(str(name), _text(item, "name", param), arguments),), whole=True)
    error, output = item.get("error"), item.get("output")
    if error is not None:
        yield ParsedItems("tool", (ToolResult(str(name), _failure_text(error), error=True),), whole=True)
    elif output is not None:
        yield ParsedItems("tool", (ToolResult(str(name), output),), whole=True)


def _failure_text(error: Json) -> Json:
    """The text of a failed call; any other error as it is."""
    match error:
        case {"content": [{"text": str(text)}]} | {"message": str(text)}:
            return text
        case _:
            return error


def _message(item: Value, param: str, files: Files) -> ParsedItems:
    role = _ROLES.get(str(item.get("role")))
    if role is None:
        raise BadParameter(f"{param}.role", f"{param} has an unknown role", hint=f"Use one of {', '.join(_ROLES)}.")
    content = item.get("content")
    if isinstance(content, str):
        return ParsedItems(role, (Text(content),), whole=True)
    if not isinstance(content, list):
        raise BadParameter(f"{param}.content", f"{param} has no content", hint="Send text, or a list of parts.")
    parts = tuple(_parts(content, f"{param}.content", files))
    return ParsedItems(role, parts, whole=len(parts) == len(content))


def _parts(content: Json, param: str, files: Files) -> Iterator[Part]:
    """The texts and files of a content list; other content is left out."""
    _check_list(content, param)
    for index, part in enumerate(content):
        kind, file_id = str(part.get("type")), str(part.get("file_id"))
        if (name := _TEXTS.get(kind)) is not None:
            yield Text(_text(part, name, f"{param}[{index}]"))
        elif (file := files.get(FileKey(kind, file_id, part.get("filename")))) is not None:
            yield file


def _texts(content: Json, param: str) -> list[str]:
    """The texts of a content list; other content is left out."""
    _check_list(content, param)
    found = [(index, part, _TEXTS.get(str(part.get("type")))) for index, part in enumerate(content)]
    return [_text(part, name, f"{param}[{index}]") for index, part, name in found if name is not None]


def _check_list(content: Json, param: str) -> None:
    if not isinstance(content, list) or not all(isinstance(part, dict) for part in content):
        raise BadParameter(
            param, f"{param} is not a list of objects", hint='Send [{"type": "input_text", "text": "…"}].'
        )


def _text(item: Value, name: str, param: str) -> str:
    value = item.get(name)
    if not isinstance(value, str):
        raise BadParameter(f"{param}.{name}", f"{param} has no {name}", hint=f"Send {name} as text.")
    return value


def _output(item: Value, param: str) -> str | list[Any]:  # Any: arbitrary content of a client's tool
    output = item.get("output")
    if not isinstance(output, str | list):
        raise BadParameter(f"{param}.output", f"{param} has no output", hint="Send it as text, or a list of content.")
    return output


def _is_complete(read: Sequence[ParsedItems], item: Value) -> bool:
    """Whether the parts alone would be converted back to this item."""
    sample = [
        Message(id=name, position=index, turn=None, role=one.role, parts=one.parts, at=0)
        for index, (name, one) in enumerate(zip(_SAMPLES, read, strict=False))
    ]
    shown = items_of(sample) if read[0].parts else []
    return len(shown) == 1 and _essence(shown[0].value) == _essence(item)


def _essence(item: Value) -> Value:
    """An item in a normal form, for comparison."""
    essential = {name: value for name, value in item.items() if name not in _PASSING and value is not None}
    if "role" in essential:
        essential["type"] = "message"
        essential["content"] = _content(essential["role"], essential.get("content"))
    return essential


def _content(role: str, content: Json) -> Json:
    kind = "output_text" if role == "assistant" else "input_text"
    if isinstance(content, str):
        return [{"type": kind, "text": content}]
    return [
        {name: value for name, value in part.items() if name == "type" or value not in ([], None)}
        if isinstance(part, dict)
        else part
        for part in content or []
    ]
