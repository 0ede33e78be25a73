"""The response encoder: converts the events of a turn to the events of a response. A pure function of the log.

Until it is folded, a turn always gives the same events with the same numbers, in every process and however often it is
read. A client that lost its connection after one number therefore continues with the next.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple, assert_never

from backstay.model.content import Custom, Part, Text, Thought, ToolCall, ToolResult, Usage
from backstay.model.event import (
    CustomReported,
    Event,
    EventBody,
    SteeringTaken,
    TextDelta,
    ThoughtDelta,
    ToolCalled,
    ToolReturned,
    TurnEnded,
    TurnFolded,
    TurnStarted,
    TurnSubmitted,
    UsageReported,
)
from backstay.model.history.turn_messages import PartPosition, TurnMessages
from backstay.model.ids import MessageId, TurnId, message_of
from backstay.model.message import Message
from backstay.model.turn import REFUSALS, Cancelled, Completed, Failed, Interrupted, Outcome, TurnInfo
from backstay.server.openai.encoding.items import (
    Value,
    agent_text,
    arguments_of,
    function_call,
    mcp_call,
    output_text,
    thought,
)
from backstay.server.openai.openai_ids import ItemPosition, conversation_name, response_name
from backstay.server.openai.stored_request import USUAL, StoredRequest, request_of

# The custom event that reports a truncated answer, and the names that this API has for the reasons.
CUT = "answer_cut"
_REASONS = {"length": "max_output_tokens", "content_filter": "content_filter"}
_ENDINGS = {"completed": "response.completed", "failed": "response.failed"}

Values = list[Value]


class PartialText(NamedTuple):
    """A text or a thought that the agent is producing."""

    kind: type[Text | Thought]
    place: PartPosition
    position: ItemPosition
    output: int
    texts: list[str]

    @property
    def text(self) -> str:
        return "".join(self.texts)


class RunningCall(NamedTuple):
    """A call of one of the server's tools that has not returned yet."""

    call: ToolCall
    position: ItemPosition
    output: int


class ResponseEncoder:
    """Converts one turn: takes its stored events in order, and returns the events of the response."""

    def __init__(self, turn: TurnInfo) -> None:
        self._turn = turn
        self._number = 0
        self._messages = TurnMessages()
        self._names: list[MessageId] | None = None
        self._status = "queued"
        self._request = USUAL
        self._output: list[Value] = []
        self._partial: PartialText | None = None
        self._running: dict[str, RunningCall] = {}
        self._usage = Usage()
        self._cut: str | None = None
        self._outcome: Outcome | None = None
        self._ended_at: int | None = None
        self._begun = False
        self.folded = False
        self.last_message: MessageId | None = None
        self.input: Message | None = None

    @property
    def over(self) -> bool:
        """Whether the response has ended."""
        return self._outcome is not None

    @property
    def next_number(self) -> int:
        """The number of the next event."""
        return self._number

    def encode_events(self, events: Iterable[Event]) -> Values:
        """Convert these events, in order."""
        return [value for event in events for value in self.encode_event(event)]

    def encode_event(self, event: Event) -> Values:
        """Convert the next event of the turn."""
        body = event.body
        if isinstance(body, TurnFolded):
            return self._encode_fold(body, event.at)
        return self._encode_body(body, event.at)

    # --- events of the turn -------------------------------------------------------------------------------------------

    def _encode_body(self, body: EventBody, at: int) -> Values:
        match body:
            case TurnSubmitted(parts=parts):
                return [*self._begin(parts, "queued"), self._about("response.queued")]
            case TurnStarted(message=message):
                return self._start(message)
            case TurnEnded(outcome=outcome):
                return self._end(outcome, at)
            case UsageReported(usage=usage):
                self._usage += usage
                return []
            case _:
                return self._encode_output(body)

    def _encode_output(self, body: EventBody) -> Values:
        """Convert output of the agent."""
        match body:
            case TextDelta(text=text):
                return self._add_text(Text, text, body)
            case ThoughtDelta(text=text):
                return self._add_text(Thought, text, body)
            case ToolCalled(call=call):
                return self._call(call, body)
            case ToolReturned(result=result):
                return self._return(result, body)
            case CustomReported(name=name, data=data):
                self._place(body)
                if name == CUT and isinstance(data, dict):
                    self._cut = _REASONS.get(str(data.get("reason")))
            case _:
                self._messages.add(body)
        return []

    def _begin(self, parts: Sequence[Part], status: str) -> Values:
        """Begin the response, once. It keeps the request of the submission, even if the waiting turn was edited."""
        if self._begun:
            return []
        self._begun, self._status, self._request = True, status, request_of(parts)
        return [self._about("response.created")]

    def _start(self, message: Message | None) -> Values:
        values = self._begin(() if message is None else message.parts, "in_progress")
        self._status = "in_progress"
        self.input = message
        self.last_message = None if message is None else message.id
        return [*values, self._about("response.in_progress")]

    def _add_text(self, kind: type[Text | Thought], text: str, body: EventBody) -> Values:
        place, values = self._place(body), Values()
        partial = self._partial
        if partial is None or partial.place != place or partial.kind is not kind:
            values += self._finish_partial("completed")
            partial = self._partial = PartialText(kind, place, self._position_of(place), len(self._output), [])
            values += self._open_partial(partial)
        partial.texts.append(text)
        return [*values, self._delta(partial, text)]

    def _call(self, call: ToolCall, body: EventBody) -> Values:
        values = self._finish_partial("completed")
        position, index = self._position_of(self._place(body)), len(self._output)
        item = (
            function_call(position, call, "in_progress")
            if call.client
            else mcp_call(position, call, None, running=True)
        )
        self._output.append(item)
        values.append(self._item("response.output_item.added", index, item | {"arguments": ""}))
        where = {"item_id": item["id"], "output_index": index}
        if not call.client:
            self._running[call.id] = RunningCall(call, position, index)
            values.append(self._event("response.mcp_call.in_progress", where))
        kind = "function_call" if call.client else "mcp_call"
        values.append(self._event(f"response.{kind}_arguments.delta", where | {"delta": arguments_of(call)}))
        done = where | {"arguments": arguments_of(call)} | ({"name": call.name} if call.client else {})
        values.append(self._event(f"response.{kind}_arguments.done", done))
        if call.client:
            values.append(self._done(index, function_call(position, call, "completed")))
        return values

    def _return(self, result: ToolResult, body: EventBody) -> Values:
        values = self._finish_partial("completed")
        self._place(body)
        asked = self._running.pop(result.id, None)
        return values if asked is None else [*values, *self._finish_call(asked, result)]

    def _finish_call(self, asked: RunningCall, result: ToolResult | None) -> Values:
        item = mcp_call(asked.position, asked.call, result)
        ended = "completed" if item["status"] == "completed" else "failed"
        event = self._event(f"response.mcp_call.{ended}", {"item_id": item["id"], "output_index": asked.output})
        return [event, self._done(asked.output, item)]

    def _end(self, outcome: Outcome, at: int) -> Values:
        values = [] if self._begun else self._begin((), "in_progress")
        whole = isinstance(outcome, Completed)
        values += self._finish_partial("completed" if whole else "incomplete")
        for asked in self._running.values():
            values += self._finish_call(asked, None)
        self._running = {}
        self._outcome, self._ended_at, self._status = outcome, at, status_of(outcome, self._cut)
        return [*values, self._about(_ENDINGS.get(self._status, "response.incomplete"))]

    # --- partial text -------------------------------------------------------------------------------------------------

    def _open_partial(self, partial: PartialText) -> Values:
        item = _text_item(partial, "in_progress")
        empty = item | {"content": []} if partial.kind is Text else item
        self._output.append(empty)
        values = [self._item("response.output_item.added", partial.output, empty)]
        where = self._within(partial)
        if partial.kind is Text:
            return [*values, self._event("response.content_part.added", where | {"part": output_text("")})]
        part = {"type": "summary_text", "text": ""}
        return [*values, self._event("response.reasoning_summary_part.added", where | {"part": part})]

    def _delta(self, partial: PartialText, text: str) -> Value:
        if partial.kind is Text:
            return self._event("response.output_text.delta", self._within(partial) | {"delta": text, "logprobs": []})
        return self._event("response.reasoning_summary_text.delta", self._within(partial) | {"delta": text})

    def _finish_partial(self, status: str) -> Values:
        partial, self._partial = self._partial, None
        if partial is None:
            return []
        where, text = self._within(partial), partial.text
        if partial.kind is Text:
            values = [
                self._event("response.output_text.done", where | {"text": text, "logprobs": []}),
                self._event("response.content_part.done", where | {"part": output_text(text)}),
            ]
        else:
            part = {"type": "summary_text", "text": text}
            values = [
                self._event("response.reasoning_summary_text.done", where | {"text": text}),
                self._event("response.reasoning_summary_part.done", where | {"part": part}),
            ]
        return [*values, self._done(partial.output, _text_item(partial, status))]

    def _within(self, partial: PartialText) -> Value:
        item = self._output[partial.output]
        part = "content_index" if partial.kind is Text else "summary_index"
        return {"item_id": item["id"], "output_index": partial.output, part: 0}

    # --- folds --------------------------------------------------------------------------------------------------------

    def _encode_fold(self, fold: TurnFolded, at: int) -> Values:
        """Convert a fold. It has the complete output, in fewer deltas than were first sent."""
        self.folded = True
        messages, values = fold.messages, Values()
        if not messages:
            return values
        if fold.outcome is not None:
            values += self._start(messages[0])
            messages = messages[1:]
        self._names = [message.id for message in messages]
        for message in messages:
            for body in _bodies_of(message):
                values += self._encode_body(body, at)
        if fold.outcome is not None:
            self._usage = self._turn.usage
            values += self._end(fold.outcome, at)
        return values

    # --- positions ----------------------------------------------------------------------------------------------------

    def _place(self, body: EventBody) -> PartPosition:
        place = self._messages.add(body)
        assert place is not None  # noqa: S101  # callers pass only bodies that belong to a message
        self.last_message = self._position_of(place).message
        return place

    def _position_of(self, place: PartPosition) -> ItemPosition:
        if self._names is not None and place.message < len(self._names):
            return ItemPosition(self._names[place.message], place.part)
        return ItemPosition(message_of(self._turn.id, place.message), place.part)

    # --- events -------------------------------------------------------------------------------------------------------

    def _event(self, kind: str, more: Value) -> Value:
        event = {"type": kind, "sequence_number": self._number, **more}
        self._number += 1
        return event

    def _item(self, kind: str, index: int, item: Value) -> Value:
        return self._event(kind, {"output_index": index, "item": item})

    def _done(self, index: int, item: Value) -> Value:
        self._output[index] = item
        return self._item("response.output_item.done", index, item)

    def _about(self, kind: str) -> Value:
        return self._event(kind, {"response": self.response()})

    # --- the response as a whole --------------------------------------------------------------------------------------

    def response(self) -> Value:
        """The response object after the events so far."""
        turn, asked = self._turn, self._request
        completed = self._ended_at if self._status == "completed" else None
        return {
            "id": response_name(turn.id),
            "object": "response",
            "created_at": turn.created_at // 1000,
            "status": self._status,
            "completed_at": None if completed is None else completed // 1000,
            "conversation": {"id": conversation_name(turn.session)} if asked.conversation else None,
            "error": self._error(),
            "incomplete_details": self._why_incomplete(),
            "model": turn.agent or "",
            "output": [self._shown(index) for index in range(len(self._output))],
            "usage": usage_of(self._usage) if self._outcome is not None else None,
            **asked.shown(),
        }

    @property
    def request(self) -> StoredRequest:
        """The request parameters, without the input."""
        return self._request

    def _shown(self, index: int) -> Value:
        """An output item in its current state; an unfinished text is included as far as it goes."""
        partial = self._partial
        return (
            _text_item(partial, "in_progress")
            if partial is not None and partial.output == index
            else self._output[index]
        )

    def _error(self) -> Value | None:
        match self._outcome:
            case Failed(reason=reason, code=code):
                refused = "invalid_prompt" if code in REFUSALS else "server_error"
                return {"code": refused, "message": reason or "the agent failed"}
            case Interrupted(reason=reason):
                return {"code": "server_error", "message": f"interrupted: {reason}" if reason else "interrupted"}
            case _:
                return None

    def _why_incomplete(self) -> Value | None:
        return {"reason": self._cut} if self._status == "incomplete" else None


def encode_turn(turn: TurnInfo, events: Iterable[Event]) -> tuple[ResponseEncoder, Values]:
    """Convert a turn's events so far, from its first."""
    encoder = ResponseEncoder(turn)
    return encoder, encoder.encode_events(events)


def status_of(outcome: Outcome, cut: str | None) -> str:
    """The status of a response whose turn ended with this outcome."""
    match outcome:
        case Completed():
            return "completed" if cut is None else "incomplete"
        case Cancelled():
            return "cancelled"
        case Failed() | Interrupted():
            return "failed"
    assert_never(outcome)


def usage_of(usage: Usage) -> Value:
    """Token counts in the format of a response."""
    return {
        "input_tokens": usage.input_tokens,
        "input_tokens_details": {"cached_tokens": usage.cached_tokens, "cache_write_tokens": 0},
        "output_tokens": usage.output_tokens,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
        "total_tokens": usage.input_tokens + usage.output_tokens,
    }


def _text_item(partial: PartialText, status: str) -> Value:
    return (
        agent_text(partial.position, partial.text, status)
        if partial.kind is Text
        else thought(partial.position, partial.text, status)
    )


def _bodies_of(message: Message) -> Iterable[EventBody]:
    """The events from which this message was built."""
    if message.role == "user":
        yield SteeringTaken(message.turn or TurnId(""), message.parts)
        return
    for part in message.parts:
        match part:
            case Text(text=text):
                yield TextDelta(text)
            case Thought(text=text):
                yield ThoughtDelta(text)
            case ToolCall():
                yield ToolCalled(part, "")
            case ToolResult():
                yield ToolReturned(part)
            case Custom(kind=kind, data=data):
                yield CustomReported(kind, data)
            case _:
                pass
