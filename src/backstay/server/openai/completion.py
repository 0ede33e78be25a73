"""A completion: a turn's events, told as one chat completion or as its chunks. A pure function of the log.

What the server's tools do is not told: this wire has no words for it.
"""

from collections.abc import Sequence
from typing import NamedTuple

from backstay.model.content import Text, ToolCall, Usage
from backstay.model.event import CustomReported, Event, TextDelta, ToolCalled, TurnEnded, TurnFolded, UsageReported
from backstay.model.ids import TurnId
from backstay.model.message import Message
from backstay.model.turn import Cancelled, Completed, Failed, Interrupted, Outcome, Turn
from backstay.server.openai.items import Value, arguments_of
from backstay.server.openai.narration import CUT
from backstay.server.openai.telling import encode


class Said(NamedTuple):
    """One thing that a completion tells: words, or a call that the client is to make."""

    text: str = ""
    call: ToolCall | None = None


class Answered(NamedTuple):
    """A whole answer."""

    text: str
    calls: list[ToolCall]
    reason: str
    usage: Usage
    failure: str | None


class Listener:
    """Hears a turn's events: what a completion would tell of them. What the server's tools do is not told."""

    def __init__(self, turn: Turn) -> None:
        self._turn = turn
        self.usage = Usage()
        self.outcome: Outcome | None = None
        self._cut: str | None = None
        self._asked = False

    def hear(self, event: Event) -> list[Said]:
        """What this event says."""
        match event.body:
            case TextDelta(text=text):
                return [Said(text=text)]
            case ToolCalled(call=call) if call.client:
                self._asked = True
                return [Said(call=call)]
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
        """Why the answer ends."""
        if self._asked:
            return "tool_calls"
        return self._cut if self._cut in ("length", "content_filter") else "stop"

    @property
    def failure(self) -> str | None:
        """Why there is no whole answer; None if there is one."""
        match self.outcome:
            case Completed() | None:
                return None
            case Cancelled():
                return "it was cancelled"
            case Failed(reason=reason):
                return reason or "the agent failed"
            case Interrupted(reason=reason):
                return f"interrupted: {reason}"


def _folded(messages: Sequence[Message]) -> list[Said]:
    return [
        Said(call=part) if isinstance(part, ToolCall) else Said(text=part.text)
        for message in messages
        if message.role == "assistant"
        for part in message.parts
        if isinstance(part, Text) or (isinstance(part, ToolCall) and part.client)
    ]


def answer_of(story: Sequence[Event], turn: Turn) -> Answered:
    """The whole answer of a turn that has ended."""
    listener = Listener(turn)
    said = [one for event in story for one in listener.hear(event)]
    return Answered(
        text="".join(one.text for one in said),
        calls=[one.call for one in said if one.call is not None],
        reason=listener.reason,
        usage=listener.usage,
        failure=listener.failure,
    )


def completion_name(turn: TurnId) -> str:
    """What a turn is called as a completion."""
    return f"chatcmpl-{turn[4:]}"


def completion_of(turn: Turn, answer: Answered) -> Value:
    """The whole completion."""
    message: Value = {"role": "assistant", "content": answer.text or None, "refusal": None, "annotations": []}
    if answer.calls:
        message["tool_calls"] = [_tool_call(call) for call in answer.calls]
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": answer.reason}
    return _head(turn, "chat.completion") | {"choices": [choice], "usage": _usage(answer.usage)}


class ChatTeller:
    """The chunks of a completion."""

    def __init__(self, turn: Turn, *, usage: bool) -> None:
        self._turn, self._wants_usage = turn, usage
        self._listener = Listener(turn)
        self._begun = False
        self._calls = 0

    @property
    def over(self) -> bool:
        return self._listener.outcome is not None

    def tell(self, event: Event) -> bytes:
        chunks = [self._chunk(self._delta(one)) for one in self._listener.hear(event)]
        if not self._begun:
            self._begun = True
            chunks.insert(0, self._chunk({"role": "assistant", "content": "", "refusal": None}))
        return b"".join(chunks)

    def farewell(self) -> bytes:
        if self._listener.failure is not None:
            error = {"message": self._listener.failure, "type": "server_error", "param": None, "code": "agent_failed"}
            return _frame({"error": error})
        last = self._chunk({}, self._listener.reason)
        usage = _head(self._turn, "chat.completion.chunk") | {"choices": [], "usage": _usage(self._listener.usage)}
        return last + (_frame(usage) if self._wants_usage else b"") + b"data: [DONE]\n\n"

    def _delta(self, said: Said) -> Value:
        if said.call is None:
            return {"content": said.text}
        index, self._calls = self._calls, self._calls + 1
        return {"tool_calls": [{"index": index, **_tool_call(said.call)}]}

    def _chunk(self, delta: Value, reason: str | None = None) -> bytes:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": reason}
        more = {"usage": None} if self._wants_usage else {}
        return _frame(_head(self._turn, "chat.completion.chunk") | {"choices": [choice]} | more)


def _head(turn: Turn, kind: str) -> Value:
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
    }


def _frame(value: Value) -> bytes:
    return b"data: %s\n\n" % encode(value)
