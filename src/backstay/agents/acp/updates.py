"""Translates the updates of an ACP agent to the output of a turn."""

import json
from collections.abc import Iterator, Sequence
from typing import Any

from acp.schema import (
    AgentMessageChunk,
    AgentThoughtChunk,
    AvailableCommandsUpdate,
    ContentToolCallContent,
    FileEditToolCallContent,
    PromptResponse,
    TextContentBlock,
    ToolCallProgress,
    ToolCallStart,
    ToolCallUpdate,
    UsageUpdate,
    UserMessageChunk,
)
from pydantic import BaseModel

from backstay.errors import Rejected
from backstay.model.codec import check_body
from backstay.model.content import Body, Custom, Json, Text, Thought, ToolCall, ToolResult, Usage
from backstay.model.limits import Limits

# A longer text is split, and longer arguments and results of tools are cut: one body must fit into a message.
_PIECE, _MOST = 32_768, 262_144
_DONE = ("completed", "failed")
_LATEST = ("title", "content", "locations", "raw_input", "raw_output")
_LIMITS = Limits()


class _AcpCall:
    """A call of one of the agent's own tools: the details in its event, and the latest details."""

    def __init__(self, name: str, update: ToolCallUpdate) -> None:
        self.name, self.kind = name, update.kind or "other"
        self.sent = self.known = details(update)
        self.open = True
        self._update = update

    def add(self, update: ToolCallUpdate) -> None:
        """Add the fields of an update; fields that it leaves out keep their values."""
        self._update = self._update.model_copy(
            update={field: value for field in _LATEST if (value := getattr(update, field)) is not None}
        )
        self.known = details(self._update)

    @property
    def outcome(self) -> Json:
        """The result, with the details that arrived after the call's event."""
        later = {field: value for field, value in self.known.items() if self.sent.get(field) != value}
        output = _output(self._update)
        return {**later, "output": output} if later else output


class UpdateTranslator:
    """Translates one turn. A call becomes an event with its first update, so no call runs without an event."""

    def __init__(self, cost: float) -> None:
        self._calls: dict[str, _AcpCall] = {}
        self._cost_before = self.cost = cost
        self._usage: dict[str, Json] = {}

    def translate(self, update: object) -> Iterator[Body]:
        """Yield the output for an update; nothing for an echo of the user or for the list of commands."""
        match update:
            case AgentMessageChunk(content=TextContentBlock(text=text)):
                yield from _pieces(Text, text)
            case AgentThoughtChunk(content=TextContentBlock(text=text)):
                yield from _pieces(Thought, text)
            case AgentMessageChunk(content=content) | AgentThoughtChunk(content=content):
                yield storable(Custom("acp_content", _without_bulk(content)))
            case ToolCallStart() | ToolCallProgress():
                yield from self._tool(update)
            case UsageUpdate():
                self._count(update)
            case UserMessageChunk() | AvailableCommandsUpdate():
                return
            case BaseModel():
                about = plain(update)
                yield storable(Custom(f"acp_{about.pop('sessionUpdate', 'update')}", about))
            case _:
                yield storable(Custom("acp_update", update))

    def call(self, update: ToolCallUpdate) -> Iterator[Body]:
        """Add an update of a call; if the call is new, yield its event."""
        known = self._calls.get(update.tool_call_id)
        if known is not None:
            known.add(update)
            return
        call = _AcpCall(f"acp-{len(self._calls) + 1}", update)
        self._calls[update.tool_call_id] = call
        yield storable(ToolCall(call.name, call.kind, call.sent))

    def about(self, update: ToolCallUpdate) -> dict[str, Json]:
        """Return the id of a call in the events, and its details."""
        call = self._calls[update.tool_call_id]
        return {**call.known, "call": call.name}

    def refused(self, name: str) -> Iterator[Body]:
        """End a call that was not permitted, unless the agent has reported its end."""
        for call in self._calls.values():
            if call.name == name and call.open:
                call.open = False
                yield ToolResult(name, "not permitted", error=True)

    def finish(self, answer: PromptResponse) -> Iterator[Body]:
        """Yield the usage at the end of a turn, and a mark if the answer was cut off."""
        if answer.usage is not None:
            self._usage["turn"] = plain(answer.usage)
        if self._usage:
            yield storable(Custom("acp_usage", self._usage))
        if self.cost > self._cost_before:
            yield Usage(cost=self.cost - self._cost_before)
        if answer.stop_reason in ("max_tokens", "max_turn_requests"):
            yield Custom("answer_cut", {"reason": answer.stop_reason})

    def _tool(self, update: ToolCallStart | ToolCallProgress) -> Iterator[Body]:
        changed = ToolCallUpdate.model_validate(update.model_dump(exclude={"session_update"}))
        yield from self.call(changed)
        call = self._calls[changed.tool_call_id]
        if changed.status in _DONE and call.open:
            call.open = False
            yield storable(ToolResult(call.name, call.outcome, error=changed.status == "failed"))

    def _count(self, update: UsageUpdate) -> None:
        self._usage |= {"context_tokens": update.used, "context_size": update.size}
        if update.cost is not None:
            self._usage["session_cost"] = f"{update.cost.amount} {update.cost.currency}"
            if update.cost.currency == "USD":
                self.cost = max(self.cost, update.cost.amount)


def details(update: ToolCallUpdate) -> dict[str, Json]:
    """Return the details of a call: title, input, locations and file changes."""
    found: dict[str, Json] = {}
    if update.title:
        found["title"] = update.title
    if update.raw_input not in (None, {}):
        found["input"] = update.raw_input
    if update.locations:
        found["locations"] = [plain(location) for location in update.locations]
    changes = [content for content in update.content or () if isinstance(content, FileEditToolCallContent)]
    if changes:
        found["changes"] = [plain(change) for change in changes]
    try:
        check_body(Custom("acp", found), _LIMITS)
    except Rejected:
        return {"cut": _as_text(found)}
    return found if _fits(found) else {"cut": _as_text(found)}


def storable(body: Body) -> Body:
    """Return the body, or a similar one that can be stored."""
    try:
        return check_body(body, _LIMITS)
    except Rejected:
        pass
    match body:
        case Text(text):
            return Text(_clean(text))
        case Thought(text):
            return Thought(_clean(text))
        case ToolCall():
            return ToolCall(body.id, body.name, {"cut": _as_text(body.arguments)})
        case ToolResult():
            return ToolResult(body.id, _as_text(body.output), error=body.error)
        case Custom():
            return Custom("acp_update", _as_text(body.data))
        case Usage():
            return Usage()


def _pieces(kind: type[Text | Thought], text: str) -> Iterator[Body]:
    for begin in range(0, len(text), _PIECE):
        yield storable(kind(text[begin : begin + _PIECE]))


def _output(update: ToolCallUpdate) -> Json:
    """Return the result of a tool: text as text, all else as JSON. File changes are in the details instead."""
    given = [_content(one) for one in update.content or () if not isinstance(one, FileEditToolCallContent)]
    if not given:
        return _fitting(update.raw_output)
    if all(isinstance(one, str) for one in given):
        return _fitting("\n".join(given))
    return _fitting(given)


def _content(content: Any) -> Json:  # Any: one of the protocol's many kinds of content
    if isinstance(content, ContentToolCallContent):
        inner = content.content
        return inner.text if isinstance(inner, TextContentBlock) else _without_bulk(inner)
    return plain(content)


def _fitting(value: Json) -> Json:
    """Return the value, or the beginning of its text if it is too long to store."""
    return value if _fits(value) else _as_text(value)


def _fits(value: Json) -> bool:
    return len(value if isinstance(value, str) else json.dumps(value, default=str)) <= _MOST


def _as_text(value: Json) -> str:
    text = _clean(value) if isinstance(value, str) else json.dumps(value, default=str)
    return text if len(text) <= _PIECE else f"{text[:_PIECE]}… ({len(text) - _PIECE:,} more characters were cut off)"


def _clean(text: str) -> str:
    """Return the text without invalid characters, such as lone surrogates."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def plain(model: BaseModel) -> dict[str, Json]:
    """Return a value of the protocol as JSON."""
    return model.model_dump(mode="json", by_alias=True, exclude_none=True)


def _without_bulk(content: BaseModel) -> dict[str, Json]:
    """Return the fields of an image or a file without its bytes."""
    return {name: value for name, value in plain(content).items() if name not in ("data", "blob", "resource")}


def texts(parts: Sequence[str]) -> list[TextContentBlock]:
    """Return text blocks for a prompt."""
    return [TextContentBlock(type="text", text=part) for part in parts]
