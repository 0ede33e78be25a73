"""Converts a turn's events to one chat completion or to its chunks. A pure function of the log.

Calls of the server's own tools are left out: this API cannot represent them.
"""

from collections.abc import Sequence
from typing import NamedTuple

from backstay.model.content import Text, ToolCall, Usage
from backstay.model.event import CustomReported, Event, TextDelta, ToolCalled, TurnEnded, TurnFolded, UsageReported
from backstay.model.ids import TurnId
from backstay.model.message import Message
from backstay.model.turn import Cancelled, Completed, Failed, Interrupted, Outcome, TurnInfo
from backstay.server.openai.encoding.items import Value, arguments_of
from backstay.server.openai.encoding.response_encoder import CUT
from backstay.server.openai.encoding.response_stream import encode


class CompletionPiece(NamedTuple):
    """A piece of a completion: text, or a tool call for the client."""

    text: str = ""
    call: ToolCall | None = None


class Answered(NamedTuple):
    """A complete answer."""

    text: str
    calls: list[ToolCall]
    reason: str
    usage: Usage
    failure: str | None


class CompletionReader:
    """Converts a turn's events to pieces of a completion. Calls of the server's own tools are left out."""

    def __init__(self, turn: TurnInfo) -> None:
        self._turn = turn
        self.usage = Usage()
        self.outcome: Outcome | None = None
        self._cut: str | None = None
        self._has_client_calls = False

    def read(self, event: Event) -> list[CompletionPiece]:
        """Convert the next event of the turn."""
        match event.body:
            case TextDelta(text=text):
                return [CompletionPiece(text=text)]
            case ToolCalled(call=call) if call.client:
                self._has_client_calls = True
                return [CompletionPiece(call=call)]
            case UsageReported(usage=usage):
                self.usage += usage
            case CustomReported(name=name, data=data) if name == CUT and isinstance(data, dict):
                self._cut = str(data.get("reason"))
            case TurnFolded(messages=messages, outcome=outcome):
                self.outcome, self.usage = outcome or self.outcome, self._turn.usage
                return _folded(messages[1:] if outcome is not None else messages)
            case TurnEnded(outcome=outcome):
                self.outcome = outcome
            case _:
                pass
        return []

    @property
    def reason(self) -> str:
        """The finish reason."""
        if self._has_client_calls:
            return "tool_calls"
        return self._cut if self._cut in ("length", "content_filter") else "stop"

    @property
    def failure(self) -> str | None:
        """Why the answer is incomplete; None if it is complete or not yet ended."""
        match self.outcome:
            case Completed() | None:
                return None
            case Cancelled():
                return "the response was cancelled"
            case Failed(reason=reason):
                return reason or "the agent failed"
            case Interrupted(reason=reason):
                return f"interrupted: {reason}"


def _folded(messages: Sequence[Message]) -> list[CompletionPiece]:
    return [
        CompletionPiece(call=part) if isinstance(part, ToolCall) else CompletionPiece(text=part.text)
        for message in messages
        if message.role == "assistant"
        for part in message.parts
        if isinstance(part, Text) or (isinstance(part, ToolCall) and part.client)
    ]


def answer_of(events: Sequence[Event], turn: TurnInfo) -> Answered:
    """The complete answer of an ended turn."""
    reader = CompletionReader(turn)
    pieces = [one for event in events for one in reader.read(event)]
    return Answered(
        text="".join(one.text for one in pieces),
        calls=[one.call for one in pieces if one.call is not None],
        reason=reader.reason,
        usage=reader.usage,
        failure=reader.failure,
    )


def completion_name(turn: TurnId) -> str:
    """The id of a turn as a completion."""
    return f"chatcmpl-{turn[4:]}"


def completion_of(turn: TurnInfo, answer: Answered) -> Value:
    """The whole completion object."""
    message: Value = {"role": "assistant", "content": answer.text or None, "refusal": None, "annotations": []}
    if answer.calls:
        message["tool_calls"] = [_tool_call(call) for call in answer.calls]
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": answer.reason}
    return _head(turn, "chat.completion") | {"choices": [choice], "usage": _usage(answer.usage)}


class ChatEncoder:
    """Encodes a turn's events as the chunks of a completion."""

    def __init__(self, turn: TurnInfo, *, usage: bool) -> None:
        self._turn, self._wants_usage = turn, usage
        self._reader = CompletionReader(turn)
        self._begun = False
        self._calls = 0

    @property
    def over(self) -> bool:
        return self._reader.outcome is not None

    def encode_event(self, event: Event) -> bytes:
        chunks = [self._chunk(self._delta(one)) for one in self._reader.read(event)]
        if not self._begun:
            self._begun = True
            chunks.insert(0, self._chunk({"role": "assistant", "content": "", "refusal": None}))
        return b"".join(chunks)

    def closing_frames(self) -> bytes:
        if self._reader.failure is not None:
            error = {"message": self._reader.failure, "type": "server_error", "param": None, "code": "agent_failed"}
            return _frame({"error": error})
        last = self._chunk({}, self._reader.reason)
        usage = _head(self._turn, "chat.completion.chunk") | {"choices": [], "usage": _usage(self._reader.usage)}
        return last + (_frame(usage) if self._wants_usage else b"") + b"data: [DONE]\n\n"

    def _delta(self, pieces: CompletionPiece) -> Value:
        if pieces.call is None:
            return {"content": pieces.text}
        index, self._calls = self._calls, self._calls + 1
        return {"tool_calls": [{"index": index, **_tool_call(pieces.call)}]}

    def _chunk(self, delta: Value, reason: str | None = None) -> bytes:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": reason}
        more = {"usage": None} if self._wants_usage else {}
        return _frame(_head(self._turn, "chat.completion.chunk") | {"choices": [choice]} | more)


def _head(turn: TurnInfo, kind: str) -> Value:
    return {
        "id": completion_name(turn.id),
        "object": kind,
        "created": turn.created_at // 1000,
        "model": turn.agent,
        "service_tier": "default",
        "system_fingerprint": None,
    }


def _tool_call(call: ToolCall) -> Value:
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": arguments_of(call)}}


def _usage(usage: Usage) -> Value:
    return {
        "prompt_tokens": usage.input_tokens,
        "completion_tokens": usage.output_tokens,
        "total_tokens": usage.input_tokens + usage.output_tokens,
        "prompt_tokens_details": {"cached_tokens": usage.cached_tokens},
        "completion_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
    }


def _frame(value: Value) -> bytes:
    return b"data: %s\n\n" % encode(value)
