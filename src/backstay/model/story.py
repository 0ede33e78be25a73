"""A turn's story: folds the events of one turn into the messages that the next turn reads.

Finishing, cancelling and reaping all use this one fold, so what a crash leaves is exactly what was checkpointed.
"""

from collections.abc import Iterable
from typing import NamedTuple

from backstay.model.content import Custom, Part, Role, Text, Thought
from backstay.model.event import (
    CustomReported,
    EventBody,
    SteeringTaken,
    TextDelta,
    ThoughtDelta,
    ToolCalled,
    ToolReturned,
)
from backstay.model.message import NewMessage


def messages_of(events: Iterable[EventBody], *, partial: bool) -> list[NewMessage]:
    """What was said in these events. With `partial`, the last thing the agent said is marked as cut off."""
    story = Story()
    for event in events:
        story.add(event)
    return story.close(partial=partial)


class Place(NamedTuple):
    """Where something that was said will stand: in which of the turn's messages, and as which of its parts."""

    message: int
    part: int


class Story:
    """A turn's messages as they come about. Where something stands is known when it is said, and never changes."""

    def __init__(self) -> None:
        self._messages: list[NewMessage] = []
        self._role: Role = "assistant"
        self._parts: list[Part] = []
        self._words: list[str] = []
        self._speech: type[Text | Thought] = Text
        self._open_calls: set[str] = set()
        self._steering: list[tuple[Part, ...]] = []

    def add(self, event: EventBody) -> Place | None:
        """Go on with what was said; where it stands, if it stands in the agent's own messages."""
        place: Place | None = None
        match event:
            case TextDelta(text=text):
                place = self._say(Text, text)
            case ThoughtDelta(text=text):
                place = self._say(Thought, text)
            case ToolCalled(call=call):
                place = self._put("assistant", call)
                self._open_calls.add(call.id)
            case CustomReported(name=name, data=data):
                place = self._put("assistant", Custom(name, data))
            case ToolReturned(result=result):
                place = self._put("tool", result)
                self._open_calls.discard(result.id)
            case SteeringTaken(parts=parts):
                self._steering.append(parts)
            case _:
                return None
        if self._steering and not self._open_calls:
            self._hear()
        return place

    def pause(self) -> tuple[list[NewMessage], list[tuple[Part, ...]]]:
        """All that was said so far, and the steering inputs that wait for the results of open calls."""
        self._turn_to(self._role)
        return self._messages, self._steering

    def close(self, *, partial: bool) -> list[NewMessage]:
        """All that was said. With `partial`, the last thing the agent said is marked as cut off."""
        self._hear()
        if partial:
            self._mark_last_answer()
        return self._messages

    def _hear(self) -> None:
        """Put the steering inputs in; not between a tool call and its result, where no provider would accept them."""
        self._turn_to("assistant")
        for parts in self._steering:
            self._messages.append(NewMessage(role="user", parts=parts))
        self._steering = []

    def _say(self, speech: type[Text | Thought], text: str) -> Place:
        if self._role != "assistant" or self._speech is not speech:
            self._turn_to("assistant", flush=self._role != "assistant")
            self._flush_words()
            self._speech = speech
        self._words.append(text)
        return Place(len(self._messages), len(self._parts))

    def _put(self, role: Role, part: Part) -> Place:
        if self._role != role:
            self._turn_to(role)
        self._flush_words()
        self._parts.append(part)
        return Place(len(self._messages), len(self._parts) - 1)

    def _turn_to(self, role: Role, *, flush: bool = True) -> None:
        if flush:
            self._flush_words()
            if self._parts:
                self._messages.append(NewMessage(role=self._role, parts=tuple(self._parts)))
                self._parts = []
        self._role = role

    def _flush_words(self) -> None:
        if self._words:
            self._parts.append(self._speech("".join(self._words)))
            self._words = []

    def _mark_last_answer(self) -> None:
        for index in range(len(self._messages) - 1, -1, -1):
            message = self._messages[index]
            if message.role == "assistant":
                self._messages[index] = NewMessage(role="assistant", parts=message.parts, partial=True)
                return
