"""Narration: a turn's events, told as the events of a response. A pure function of the log.

Whoever narrates the same turn gets the same events under the same numbers, in whatever process, however often, from
wherever they go on: so a reader that was cut off at a number goes on at the next one.
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
from backstay.model.ids import MessageId, TurnId, message_of
from backstay.model.message import Message
from backstay.model.story import Place, Story
from backstay.model.turn import Cancelled, Completed, Failed, Interrupted, Outcome, Turn
from backstay.server.openai.items import (
    Value,
    arguments_of,
    function_call,
    mcp_call,
    output_text,
    thought,
    words,
)
from backstay.server.openai.names import Spot, conversation_name, response_name
from backstay.server.openai.request import USUAL, Request, request_of

# The name under which a model's answer that was cut is reported, and what this wire calls the reasons.
CUT = "answer_cut"
_REASONS = {"length": "max_output_tokens", "content_filter": "content_filter"}
_ENDINGS = {"completed": "response.completed", "failed": "response.failed"}

Told = list[Value]


class Speech(NamedTuple):
    """Words or thoughts that are being said."""

    kind: type[Text | Thought]
    place: Place
    spot: Spot
    output: int
    said: list[str]

    @property
    def text(self) -> str:
        return "".join(self.said)


class Asked(NamedTuple):
    """A tool that the server is running."""

    call: ToolCall
    spot: Spot
    output: int


class Narrator:
    """Tells one turn. Events go in as they were stored, and what they mean on this wire comes out."""

    def __init__(self, turn: Turn) -> None:
        self._turn = turn
        self._number = 0
        self._story = Story()
        self._names: list[MessageId] | None = None
        self._status = "queued"
        self._request = USUAL
        self._output: list[Value] = []
        self._speech: Speech | None = None
        self._running: dict[str, Asked] = {}
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

    def tell_all(self, events: Iterable[Event]) -> Told:
        """Everything these events mean, in order."""
        return [told for event in events for told in self.tell(event)]

    def tell(self, event: Event) -> Told:
        """What the next event of the turn means."""
        body = event.body
        if isinstance(body, TurnFolded):
            return self._tell_fold(body, event.at)
        return self._tell(body, event.at)

    # --- what happens ------------------------------------------------------------------------------------------------

    def _tell(self, body: EventBody, at: int) -> Told:
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
                return self._tell_speech(body)

    def _tell_speech(self, body: EventBody) -> Told:
        """What the agent said or did."""
        match body:
            case TextDelta(text=text):
                return self._say(Text, text, body)
            case ThoughtDelta(text=text):
                return self._say(Thought, text, body)
            case ToolCalled(call=call):
                return self._call(call, body)
            case ToolReturned(result=result):
                return self._return(result, body)
            case CustomReported(name=name, data=data):
                self._place(body)
                if name == CUT and isinstance(data, dict):
                    self._cut = _REASONS.get(str(data.get("reason")))
            case _:
                self._story.add(body)
        return []

    def _begin(self, parts: Sequence[Part], status: str) -> Told:
        """The response is there. A turn that was edited while it waited is asked for as it was at first."""
        if self._begun:
            return []
        self._begun, self._status, self._request = True, status, request_of(parts)
        return [self._about("response.created")]

    def _start(self, message: Message | None) -> Told:
        told = self._begin(() if message is None else message.parts, "in_progress")
        self._status = "in_progress"
        self.input = message
        self.last_message = None if message is None else message.id
        return [*told, self._about("response.in_progress")]

    def _say(self, kind: type[Text | Thought], text: str, body: EventBody) -> Told:
        place, told = self._place(body), Told()
        speech = self._speech
        if speech is None or speech.place != place or speech.kind is not kind:
            told += self._finish_speech("completed")
            speech = self._speech = Speech(kind, place, self._spot(place), len(self._output), [])
            told += self._open_speech(speech)
        speech.said.append(text)
        return [*told, self._delta(speech, text)]

    def _call(self, call: ToolCall, body: EventBody) -> Told:
        told = self._finish_speech("completed")
        spot, index = self._spot(self._place(body)), len(self._output)
        item = function_call(spot, call, "in_progress") if call.client else mcp_call(spot, call, None, running=True)
        self._output.append(item)
        told.append(self._item("response.output_item.added", index, item | {"arguments": ""}))
        where = {"item_id": item["id"], "output_index": index}
        if not call.client:
            self._running[call.id] = Asked(call, spot, index)
            told.append(self._event("response.mcp_call.in_progress", where))
        kind = "function_call" if call.client else "mcp_call"
        told.append(self._event(f"response.{kind}_arguments.delta", where | {"delta": arguments_of(call)}))
        done = where | {"arguments": arguments_of(call)} | ({"name": call.name} if call.client else {})
        told.append(self._event(f"response.{kind}_arguments.done", done))
        if call.client:
            told.append(self._done(index, function_call(spot, call, "completed")))
        return told

    def _return(self, result: ToolResult, body: EventBody) -> Told:
        told = self._finish_speech("completed")
        self._place(body)
        asked = self._running.pop(result.id, None)
        return told if asked is None else [*told, *self._finish_call(asked, result)]

    def _finish_call(self, asked: Asked, result: ToolResult | None) -> Told:
        item = mcp_call(asked.spot, asked.call, result)
        ended = "completed" if item["status"] == "completed" else "failed"
        told = self._event(f"response.mcp_call.{ended}", {"item_id": item["id"], "output_index": asked.output})
        return [told, self._done(asked.output, item)]

    def _end(self, outcome: Outcome, at: int) -> Told:
        told = [] if self._begun else self._begin((), "in_progress")
        whole = isinstance(outcome, Completed)
        told += self._finish_speech("completed" if whole else "incomplete")
        for asked in self._running.values():
            told += self._finish_call(asked, None)
        self._running = {}
        self._outcome, self._ended_at, self._status = outcome, at, status_of(outcome, self._cut)
        return [*told, self._about(_ENDINGS.get(self._status, "response.incomplete"))]

    # --- speech ------------------------------------------------------------------------------------------------------

    def _open_speech(self, speech: Speech) -> Told:
        item = _spoken(speech, "in_progress")
        empty = item | {"content": []} if speech.kind is Text else item
        self._output.append(empty)
        told = [self._item("response.output_item.added", speech.output, empty)]
        where = self._within(speech)
        if speech.kind is Text:
            return [*told, self._event("response.content_part.added", where | {"part": output_text("")})]
        part = {"type": "summary_text", "text": ""}
        return [*told, self._event("response.reasoning_summary_part.added", where | {"part": part})]

    def _delta(self, speech: Speech, text: str) -> Value:
        if speech.kind is Text:
            return self._event("response.output_text.delta", self._within(speech) | {"delta": text, "logprobs": []})
        return self._event("response.reasoning_summary_text.delta", self._within(speech) | {"delta": text})

    def _finish_speech(self, status: str) -> Told:
        speech, self._speech = self._speech, None
        if speech is None:
            return []
        where, text = self._within(speech), speech.text
        if speech.kind is Text:
            told = [
                self._event("response.output_text.done", where | {"text": text, "logprobs": []}),
                self._event("response.content_part.done", where | {"part": output_text(text)}),
            ]
        else:
            part = {"type": "summary_text", "text": text}
            told = [
                self._event("response.reasoning_summary_text.done", where | {"text": text}),
                self._event("response.reasoning_summary_part.done", where | {"part": part}),
            ]
        return [*told, self._done(speech.output, _spoken(speech, status))]

    def _within(self, speech: Speech) -> Value:
        item = self._output[speech.output]
        part = "content_index" if speech.kind is Text else "summary_index"
        return {"item_id": item["id"], "output_index": speech.output, part: 0}

    # --- folds -------------------------------------------------------------------------------------------------------

    def _tell_fold(self, fold: TurnFolded, at: int) -> Told:
        """What a fold stands for. Its words are all there, in fewer pieces than they were said in."""
        self.folded = True
        said, told = fold.messages, Told()
        if not said:
            return told
        if fold.outcome is not None:
            told += self._start(said[0])
            said = said[1:]
        self._names = [message.id for message in said]
        for message in said:
            for body in _bodies_of(message):
                told += self._tell(body, at)
        if fold.outcome is not None:
            self._usage = self._turn.usage
            told += self._end(fold.outcome, at)
        return told

    # --- where things stand ------------------------------------------------------------------------------------------

    def _place(self, body: EventBody) -> Place:
        place = self._story.add(body)
        assert place is not None  # noqa: S101  # only what stands in a message comes here
        self.last_message = self._spot(place).message
        return place

    def _spot(self, place: Place) -> Spot:
        if self._names is not None and place.message < len(self._names):
            return Spot(self._names[place.message], place.part)
        return Spot(message_of(self._turn.id, place.message), place.part)

    # --- events ------------------------------------------------------------------------------------------------------

    def _event(self, kind: str, more: Value) -> Value:
        told = {"type": kind, "sequence_number": self._number, **more}
        self._number += 1
        return told

    def _item(self, kind: str, index: int, item: Value) -> Value:
        return self._event(kind, {"output_index": index, "item": item})

    def _done(self, index: int, item: Value) -> Value:
        self._output[index] = item
        return self._item("response.output_item.done", index, item)

    def _about(self, kind: str) -> Value:
        return self._event(kind, {"response": self.response()})

    # --- the response as a whole -------------------------------------------------------------------------------------

    def response(self) -> Value:
        """The response as it is after what was told."""
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
    def request(self) -> Request:
        """What was asked for, beside what was said."""
        return self._request

    def _shown(self, index: int) -> Value:
        """An item as it is now; words that are still being said as far as they go."""
        speech = self._speech
        return _spoken(speech, "in_progress") if speech is not None and speech.output == index else self._output[index]

    def _error(self) -> Value | None:
        match self._outcome:
            case Failed(reason=reason):
                return {"code": "server_error", "message": reason or "the agent failed"}
            case Interrupted(reason=reason):
                return {"code": "server_error", "message": f"interrupted: {reason}" if reason else "interrupted"}
            case _:
                return None

    def _why_incomplete(self) -> Value | None:
        return {"reason": self._cut} if self._status == "incomplete" else None


def narrate(turn: Turn, events: Iterable[Event]) -> tuple[Narrator, Told]:
    """A turn's story so far, told from its beginning."""
    narrator = Narrator(turn)
    return narrator, narrator.tell_all(events)


def status_of(outcome: Outcome, cut: str | None) -> str:
    """How a response ended."""
    match outcome:
        case Completed():
            return "completed" if cut is None else "incomplete"
        case Cancelled():
            return "cancelled"
        case Failed() | Interrupted():
            return "failed"
    assert_never(outcome)


def usage_of(usage: Usage) -> Value:
    """What a response cost."""
    return {
        "input_tokens": usage.input_tokens,
        "input_tokens_details": {"cached_tokens": usage.cached_tokens, "cache_write_tokens": 0},
        "output_tokens": usage.output_tokens,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": usage.input_tokens + usage.output_tokens,
    }


def _spoken(speech: Speech, status: str) -> Value:
    return words(speech.spot, speech.text, status) if speech.kind is Text else thought(speech.spot, speech.text, status)


def _bodies_of(message: Message) -> Iterable[EventBody]:
    """What was told when this message came about."""
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
