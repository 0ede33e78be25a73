"""Items: messages in the format of the OpenAI-compatible API.

A message of a user is one item. A message of an agent is one item for each text, thought and tool call in it. The
result of a tool that the server ran is part of the item of its call; the result of a client's tool is its own item.
"""

from collections.abc import Iterator, Sequence
from typing import Annotated, Any, NamedTuple

import msgspec
from msgspec import Meta

from backstay.model.content import Attachment, Custom, Json, Part, Text, Thought, ToolCall, ToolResult
from backstay.model.history.projection import INTERRUPTED
from backstay.model.message import Message
from backstay.server.openai.openai_ids import ItemPosition, item_name

# The kind of a part that has the raw item, for items that our parts cannot represent completely. It stands before the
# parts that agents read of the item.
KEPT = "openai.item"
SERVER_LABEL = "backstay"

# Any: an item is a JSON object whose type field defines its content.
Value = dict[str, Any]

_encode = msgspec.json.Encoder().encode


class Item(NamedTuple):
    """An item, its position and number of parts, and the position of the result that it includes."""

    value: Value
    position: int
    item_position: ItemPosition
    parts: int
    result: ItemPosition | None = None

    @property
    def name(self) -> str:
        return str(self.value["id"])


class RawItem(msgspec.Struct, frozen=True):
    """A raw item, and how many of the parts after it represent it."""

    item: dict[str, Any]  # Any: arbitrary JSON of a client
    parts: Annotated[int, Meta(ge=0)]


class Result(NamedTuple):
    """The result of a call, and its position."""

    value: ToolResult
    item_position: ItemPosition


def items_of(messages: Sequence[Message]) -> list[Item]:
    """The items of consecutive messages. A call and its result are matched if both are among them."""
    calls, results = _paired(messages)
    return [item for message in messages for item in _of_message(message, calls, results)]


def _paired(messages: Sequence[Message]) -> tuple[dict[ItemPosition, ToolCall], dict[ItemPosition, Result]]:
    """For each result its call, and for each call its result. A result belongs to the last earlier call with its id."""
    latest: dict[str, tuple[ItemPosition, ToolCall]] = {}
    calls: dict[ItemPosition, ToolCall] = {}
    results: dict[ItemPosition, Result] = {}
    for message in messages:
        for index, part in enumerate(message.parts):
            here = ItemPosition(message.id, index)
            if isinstance(part, ToolCall):
                latest[part.id] = here, part
            elif isinstance(part, ToolResult) and part.id in latest:
                asked, calls[here] = latest.pop(part.id)
                results[asked] = Result(part, here)
    return calls, results


def _of_message(
    message: Message, calls: dict[ItemPosition, ToolCall], results: dict[ItemPosition, Result]
) -> Iterator[Item]:
    index = 0
    while index < len(message.parts):
        here, part = ItemPosition(message.id, index), message.parts[index]
        kept = raw_item_in(part)
        if kept is not None:
            name = item_name(str(kept.item.get("type", "message")), here)
            yield Item({**kept.item, "id": name}, message.position, here, 1 + kept.parts)
            index += 1 + kept.parts
            continue
        taken = _words(message, index) if message.role not in ("assistant", "tool") else 1
        value = _value(message, here, taken, calls, results)
        if value is not None:
            found = results.get(here)
            yield Item(value, message.position, here, taken, None if found is None else _joined(part, found))
        index += max(taken, 1)


def _joined(part: Part, found: Result) -> ItemPosition | None:
    return found.item_position if isinstance(part, ToolCall) and not part.client else None


def _words(message: Message, index: int) -> int:
    """How many parts from `index` on form one item of a user's message."""
    count = 0
    for part in message.parts[index:]:
        if not isinstance(part, Text | Attachment):
            break
        count += 1
    return count


def _value(
    message: Message,
    here: ItemPosition,
    taken: int,
    calls: dict[ItemPosition, ToolCall],
    results: dict[ItemPosition, Result],
) -> Value | None:
    parts = message.parts[here.part : here.part + taken]
    status = "incomplete" if message.partial and here.part + taken >= len(message.parts) else "completed"
    if message.role == "summary":
        return compaction(here, message.text) if here.part == 0 else None
    if message.role in ("user", "system"):
        return user_message(message.role, here, parts) if parts else None
    match parts[0]:
        case Text(text=text):
            return agent_text(here, text, status)
        case Thought(text=text):
            return thought(here, text, status)
        case ToolCall() as call if call.client:
            return function_call(here, call, "completed")
        case ToolCall() as call:
            found = results.get(here)
            return mcp_call(here, call, None if found is None else found.value)
        case ToolResult() as result if here not in calls or calls[here].client:
            return function_output(here, result)
        case _:
            return None


def raw_item_in(part: Part) -> RawItem | None:
    """The raw item in this part, if it has one."""
    if not isinstance(part, Custom) or part.kind != KEPT:
        return None
    try:
        return msgspec.convert(part.data, RawItem)
    except msgspec.ValidationError:
        return None


# --- one item of each type --------------------------------------------------------------------------------------------


def user_message(role: str, item_position: ItemPosition, parts: Sequence[Part]) -> Value:
    """A message of a user or of the system."""
    content = [_input_content(part) for part in parts]
    name = item_name("message", item_position)
    return {"id": name, "type": "message", "role": role, "status": "completed", "content": content}


def _input_content(part: Part) -> Value:
    if isinstance(part, Attachment) and part.media_type.startswith("image/"):
        return {"type": "input_image", "file_id": part.blob, "detail": "auto"}
    if isinstance(part, Attachment):
        return {"type": "input_file", "file_id": part.blob, "filename": part.name}
    return {"type": "input_text", "text": part.text if isinstance(part, Text) else ""}


def agent_text(item_position: ItemPosition, text: str, status: str) -> Value:
    """A text of an agent."""
    name = item_name("message", item_position)
    return {"id": name, "type": "message", "role": "assistant", "status": status, "content": [output_text(text)]}


def output_text(text: str) -> Value:
    """A text of an agent as the content of an item."""
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


def thought(item_position: ItemPosition, text: str, status: str) -> Value:
    """A thought of an agent."""
    summary = [{"type": "summary_text", "text": text}] if text else []
    return {"id": item_name("reasoning", item_position), "type": "reasoning", "summary": summary, "status": status}


def function_call(item_position: ItemPosition, call: ToolCall, status: str) -> Value:
    """A tool call that the client runs."""
    return {
        "id": item_name("function_call", item_position),
        "type": "function_call",
        "call_id": call.id,
        "name": call.name,
        "arguments": arguments_of(call),
        "status": status,
    }


def function_output(item_position: ItemPosition, result: ToolResult) -> Value:
    """The result of a client's tool."""
    as_it_is = isinstance(result.output, str | list)
    return {
        "id": item_name("function_call_output", item_position),
        "type": "function_call_output",
        "call_id": result.id,
        "output": result.output if as_it_is else _encode(result.output).decode(),
        "status": "completed",
    }


def mcp_call(item_position: ItemPosition, call: ToolCall, result: ToolResult | None, *, running: bool = False) -> Value:
    """A call of a server tool, with its result. An ended call without a result may or may not have run."""
    value: Value = {
        "id": item_name("mcp_call", item_position),
        "type": "mcp_call",
        "server_label": SERVER_LABEL,
        "name": call.name,
        "arguments": arguments_of(call),
        "approval_request_id": None,
        "output": None,
        "error": None,
        "status": "in_progress",
    }
    if result is None:
        return value if running else value | {"status": "incomplete", "error": _failure(INTERRUPTED)}
    if result.error:
        return value | {"status": "failed", "error": _failure(text_of_output(result.output))}
    return value | {"status": "completed", "output": text_of_output(result.output)}


def compaction(item_position: ItemPosition, text: str) -> Value:
    """The summary of the messages that a compaction replaced."""
    return {"id": item_name("compaction", item_position), "type": "compaction", "encrypted_content": text}


def arguments_of(call: ToolCall) -> str:
    """A call's arguments as JSON text. Arguments that are not valid JSON are returned unchanged."""
    return call.arguments if isinstance(call.arguments, str) else _encode(call.arguments).decode()


def text_of_output(output: Json) -> str:
    """A tool's result as text."""
    return output if isinstance(output, str) else _encode(output).decode()


def _failure(content: str) -> Value:
    return {"type": "mcp_tool_execution_error", "content": [{"type": "text", "text": content}]}
