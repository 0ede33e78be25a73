"""Reading items: what clients send becomes messages that agents read, and nothing of it is lost.

What our parts can tell again in the same words is stored as parts alone. Anything else is kept beside them as it came.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import msgspec

from backstay.model.content import Custom, Json, Part, Role, Text, Thought, ToolCall, ToolResult
from backstay.model.ids import MessageId
from backstay.model.message import Message, NewMessage
from backstay.server.openai.faults import BadParameter
from backstay.server.openai.items import KEPT, Value, items_of

_ROLES: dict[str, Role] = {"user": "user", "assistant": "assistant", "system": "system", "developer": "system"}
_TEXTS = {"input_text": "text", "output_text": "text", "text": "text", "summary_text": "text", "refusal": "refusal"}
# What is said of an item when it is shown, and need not be remembered.
_PASSING = frozenset({"id", "status", "created_by"})
_FINISHED = frozenset({"message", "function_call", "function_call_output"})
_SAMPLE = MessageId("msg_" + "0" * 26)


class Read(NamedTuple):
    """An item as a message of one role; `whole` unless an agent would miss something that is in it."""

    role: Role
    parts: tuple[Part, ...]
    whole: bool


def messages_from(items: Sequence[Value], *, param: str, strict: bool = False) -> list[NewMessage]:
    """What these items say. With `strict`, what an agent could not read is refused instead of only kept.

    Calls that stand side by side become one message, and so do their results: so agents' histories have it.
    """
    read = [_checked(item, f"{param}[{index}]", strict=strict) for index, item in enumerate(items)]
    return [NewMessage(role=role, parts=parts) for role, parts in _merged(read)]


def with_results_kept(messages: Iterable[NewMessage]) -> list[NewMessage]:
    """The same messages, but results that answer nothing here are only kept: for histories that were cut."""
    asked: set[str] = set()
    kept: list[NewMessage] = []
    for message in messages:
        asked = asked | {part.id for part in message.parts if isinstance(part, ToolCall)}
        lost = [part for part in message.parts if isinstance(part, ToolResult) and part.id not in asked]
        kept.append(_without_results(message, lost) if lost else message)
    return kept


def _without_results(message: NewMessage, lost: Sequence[ToolResult]) -> NewMessage:
    parts = tuple(_as_kept(part) if part in lost and isinstance(part, ToolResult) else part for part in message.parts)
    return NewMessage(role="assistant" if len(lost) == len(message.parts) else message.role, parts=parts)


def _as_kept(result: ToolResult) -> Custom:
    item = {"type": "function_call_output", "call_id": result.id, "output": result.output, "status": "completed"}
    return Custom(KEPT, {"item": item, "parts": 0})


def _merged(read: Iterable[Read]) -> Iterator[tuple[Role, tuple[Part, ...]]]:
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


def _checked(item: Value, param: str, *, strict: bool) -> Read:
    read = _read(item, param)
    if strict and not read.whole:
        raise BadParameter(
            param,
            f"{param} has content that the agents here cannot read",
            hint="Send text, function calls and their outputs; upload files through /api.",
            code="unsupported_content",
        )
    return read if _tells_all(read, item) else read._replace(parts=(_kept(item, len(read.parts)), *read.parts))


def _kept(item: Value, parts: int) -> Custom:
    """The item as it will be shown: its content as a list, and finished unless it says otherwise."""
    kept = {name: value for name, value in item.items() if name != "id"}
    if "role" in kept and isinstance(kept.get("content"), str):
        kept |= {"type": "message", "content": _content(kept["role"], kept["content"])}
    if kept.get("type", "message") in _FINISHED:
        kept = {"type": "message", "status": "completed"} | kept
    return Custom(KEPT, {"item": kept, "parts": parts})


def _read(item: Value, param: str) -> Read:
    kind = item.get("type") or ("message" if "role" in item else None)
    match kind:
        case "message":
            return _message(item, param)
        case "function_call":
            arguments = _text(item, "arguments", param)
            call = ToolCall(_text(item, "call_id", param), _text(item, "name", param), _json(arguments), client=True)
            return Read("assistant", (call,), whole=True)
        case "function_call_output":
            return Read("tool", (ToolResult(_text(item, "call_id", param), _output(item, param)),), whole=True)
        case "reasoning":
            texts = _texts(item.get("summary") or [], f"{param}.summary") or []
            return Read("assistant", tuple(Thought(text) for text in texts if text), whole=True)
        case str():
            return Read("assistant", (), whole=False)
        case _:
            raise BadParameter(param, f"{param} has no type", hint='Send {"type": "message", "role": "user", …}.')


def _message(item: Value, param: str) -> Read:
    role = _ROLES.get(str(item.get("role")))
    if role is None:
        raise BadParameter(f"{param}.role", f"{param} has no role we know", hint=f"Use one of {', '.join(_ROLES)}.")
    content = item.get("content")
    if isinstance(content, str):
        return Read(role, (Text(content),), whole=True)
    if not isinstance(content, list):
        raise BadParameter(f"{param}.content", f"{param} has no content", hint="Send text, or a list of parts.")
    texts = _texts(content, f"{param}.content")
    return Read(role, tuple(Text(text) for text in texts), whole=len(texts) == len(content))


def _texts(content: Json, param: str) -> list[str]:
    """The texts of a list of content; what is no text is left out."""
    if not isinstance(content, list) or not all(isinstance(part, dict) for part in content):
        raise BadParameter(param, f"{param} is no list of objects", hint='Send [{"type": "input_text", "text": "…"}].')
    found = [(index, part, _TEXTS.get(str(part.get("type")))) for index, part in enumerate(content)]
    return [_text(part, name, f"{param}[{index}]") for index, part, name in found if name is not None]


def _text(item: Value, name: str, param: str) -> str:
    value = item.get(name)
    if not isinstance(value, str):
        raise BadParameter(f"{param}.{name}", f"{param} has no {name}", hint=f"Send {name} as text.")
    return value


def _output(item: Value, param: str) -> str | list[Any]:  # Any: content as a client's tool gives it
    output = item.get("output")
    if not isinstance(output, str | list):
        raise BadParameter(f"{param}.output", f"{param} has no output", hint="Send it as text, or a list of content.")
    return output


def _json(text: str) -> Json:
    """Arguments as JSON; text that is none is kept as it is."""
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return text


def _tells_all(read: Read, item: Value) -> bool:
    """Whether the parts alone would be shown as this very item."""
    sample = Message(id=_SAMPLE, position=0, turn=None, role=read.role, parts=read.parts, at=0)
    shown = items_of([sample]) if read.parts else []
    return len(shown) == 1 and _essence(shown[0].value) == _essence(item)


def _essence(item: Value) -> Value:
    """What an item says, however it is written down."""
    said = {name: value for name, value in item.items() if name not in _PASSING and value is not None}
    if "role" in said:
        said["type"] = "message"
        said["content"] = _content(said["role"], said.get("content"))
    return said


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
