"""Items: what was said, as this wire shows it.

A message of a person is one item. An agent's message is one item for each thing in it: words, a thought, a call. The
result of a tool that the server ran belongs to its call; the result of a tool that a client ran is an item of its own.
"""

from collections.abc import Iterator, Sequence
from typing import Annotated, Any, NamedTuple

import msgspec
from msgspec import Meta

from backstay.model.content import Attachment, Custom, Json, Part, Text, Thought, ToolCall, ToolResult
from backstay.model.message import Message
from backstay.model.projection import INTERRUPTED
from backstay.server.openai.names import Spot, item_name

# An item of which our parts tell only so much: kept as it came, before the parts that agents read of it.
KEPT = "openai.item"
SERVER_LABEL = "backstay"

# Any: an item is whatever JSON its type says.
Value = dict[str, Any]

_encode = msgspec.json.Encoder().encode


class Item(NamedTuple):
    """An item, where it stands, how many parts it takes there, and where the result is that it shows."""

    value: Value
    position: int
    spot: Spot
    parts: int
    result: Spot | None = None

    @property
    def name(self) -> str:
        return str(self.value["id"])


class Kept(msgspec.Struct, frozen=True):
    """An item as it came, and how many of the parts that follow stand for it."""

    item: dict[str, Any]  # Any: whatever JSON a client sent
    parts: Annotated[int, Meta(ge=0)]


class Result(NamedTuple):
    """What a call gave back, and where that stands."""

    value: ToolResult
    spot: Spot


def items_of(messages: Sequence[Message]) -> list[Item]:
    """The items of messages that stand side by side. Results are found if they stand among them."""
    calls, results = _paired(messages)
    return [item for message in messages for item in _of_message(message, calls, results)]


def _paired(messages: Sequence[Message]) -> tuple[dict[Spot, ToolCall], dict[Spot, Result]]:
    """For each result the call that it answers, and for each call its result; found by who speaks of it last."""
    latest: dict[str, tuple[Spot, ToolCall]] = {}
    calls: dict[Spot, ToolCall] = {}
    results: dict[Spot, Result] = {}
    for message in messages:
        for index, part in enumerate(message.parts):
            here = Spot(message.id, index)
            if isinstance(part, ToolCall):
                latest[part.id] = here, part
            elif isinstance(part, ToolResult) and part.id in latest:
                asked, calls[here] = latest.pop(part.id)
                results[asked] = Result(part, here)
    return calls, results


def _of_message(message: Message, calls: dict[Spot, ToolCall], results: dict[Spot, Result]) -> Iterator[Item]:
    index = 0
    while index < len(message.parts):
        here, part = Spot(message.id, index), message.parts[index]
        kept = kept_in(part)
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


def _joined(part: Part, found: Result) -> Spot | None:
    return found.spot if isinstance(part, ToolCall) and not part.client else None


def _words(message: Message, index: int) -> int:
    """How many parts from here on are one item of a person's message."""
    count = 0
    for part in message.parts[index:]:
        if not isinstance(part, Text | Attachment):
            break
        count += 1
    return count


def _value(
    message: Message, here: Spot, taken: int, calls: dict[Spot, ToolCall], results: dict[Spot, Result]
) -> Value | None:
    parts = message.parts[here.part : here.part + taken]
    status = "incomplete" if message.partial and here.part + taken >= len(message.parts) else "completed"
    if message.role == "summary":
        return compaction(here, message.text) if here.part == 0 else None
    if message.role in ("user", "system"):
        return said_by(message.role, here, parts) if parts else None
    match parts[0]:
        case Text(text=text):
            return words(here, text, status)
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


def kept_in(part: Part) -> Kept | None:
    """The item that this part keeps as it came."""
    if not isinstance(part, Custom) or part.kind != KEPT:
        return None
    try:
        return msgspec.convert(part.data, Kept)
    except msgspec.ValidationError:
        return None


# --- one item of each type -------------------------------------------------------------------------------------------


def said_by(role: str, spot: Spot, parts: Sequence[Part]) -> Value:
    """What a person or a program said."""
    content = [_input_content(part) for part in parts]
    name = item_name("message", spot)
    return {"id": name, "type": "message", "role": role, "status": "completed", "content": content}


def _input_content(part: Part) -> Value:
    if isinstance(part, Attachment):
        return {"type": "input_file", "file_id": part.blob, "filename": part.name}
    return {"type": "input_text", "text": part.text if isinstance(part, Text) else ""}


def words(spot: Spot, text: str, status: str) -> Value:
    """What an agent said."""
    name = item_name("message", spot)
    return {"id": name, "type": "message", "role": "assistant", "status": status, "content": [output_text(text)]}


def output_text(text: str) -> Value:
    """Words of an agent, as the content of an item."""
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


def thought(spot: Spot, text: str, status: str) -> Value:
    """What an agent thought."""
    summary = [{"type": "summary_text", "text": text}] if text else []
    return {"id": item_name("reasoning", spot), "type": "reasoning", "summary": summary, "status": status}


def function_call(spot: Spot, call: ToolCall, status: str) -> Value:
    """A call that the client is to make."""
    return {
        "id": item_name("function_call", spot),
        "type": "function_call",
        "call_id": call.id,
        "name": call.name,
        "arguments": arguments_of(call),
        "status": status,
    }


def function_output(spot: Spot, result: ToolResult) -> Value:
    """What a client's tool gave back."""
    as_it_is = isinstance(result.output, str | list)
    return {
        "id": item_name("function_call_output", spot),
        "type": "function_call_output",
        "call_id": result.id,
        "output": result.output if as_it_is else _encode(result.output).decode(),
        "status": "completed",
    }


def mcp_call(spot: Spot, call: ToolCall, result: ToolResult | None, *, running: bool = False) -> Value:
    """A call that the server made, and what came of it. Without a result, nobody knows whether it ran."""
    value: Value = {
        "id": item_name("mcp_call", spot),
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


def compaction(spot: Spot, text: str) -> Value:
    """What stands for the part of the conversation that was compacted."""
    return {"id": item_name("compaction", spot), "type": "compaction", "encrypted_content": text}


def arguments_of(call: ToolCall) -> str:
    """A call's arguments as JSON text; what a model wrote that is no JSON is left as it is."""
    return call.arguments if isinstance(call.arguments, str) else _encode(call.arguments).decode()


def text_of_output(output: Json) -> str:
    """What a tool gave back, as text."""
    return output if isinstance(output, str) else _encode(output).decode()


def _failure(content: str) -> Value:
    return {"type": "mcp_tool_execution_error", "content": [{"type": "text", "text": content}]}
