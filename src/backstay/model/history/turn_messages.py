"""Folds the events of one turn into the messages that the next turn reads.

Finishing, cancelling and reaping all use this fold, so after a crash the messages are exactly what was checkpointed.
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
    """The messages of these events. With `partial`, the agent's last message is marked as cut off."""
    messages = TurnMessages()
    for event in events:
        messages.add(event)
    return messages.close(partial=partial)


class PartPosition(NamedTuple):
    """The position of an output: the index of the turn's message, and of the part in it."""

    message: int
    part: int


class TurnMessages:
    """The messages of a turn while it runs. The position of an output is known at once and never changes."""

    def __init__(self) -> None:
        self._messages: list[NewMessage] = []
        self._role: Role = "assistant"
        self._parts: list[Part] = []
        self._words: list[str] = []
        self._text_type: type[Text | Thought] = Text
        self._open_calls: set[str] = set()
        self._steering: list[tuple[Part, ...]] = []

    def add(self, event: EventBody) -> PartPosition | None:
        """Add an event; returns its position, if it belongs to the agent's own messages."""
        position: PartPosition | None = None
        match event:
            case TextDelta(text=text):
                position = self._add_text(Text, text)
            case ThoughtDelta(text=text):
                position = self._add_text(Thought, text)
            case ToolCalled(call=call):
                position = self._add_part("assistant", call)
                self._open_calls.add(call.id)
            case CustomReported(name=name, data=data):
                position = self._add_part("assistant", Custom(name, data))
            case ToolReturned(result=result):
                position = self._add_part("tool", result)
                self._open_calls.discard(result.id)
            case SteeringTaken(parts=parts):
                self._steering.append(parts)
            case _:
                return None
        if self._steering and not self._open_calls:
            self._insert_steering()
        return position

    def pause(self) -> tuple[list[NewMessage], list[tuple[Part, ...]]]:
        """The messages so far, and the steering inputs that wait for the results of open calls."""
        self._turn_to(self._role)
        return self._messages, self._steering

    def close(self, *, partial: bool) -> list[NewMessage]:
        """All messages. With `partial`, the agent's last message is marked as cut off."""
        self._insert_steering()
        if partial:
            self._mark_last_answer()
        return self._messages

    def _insert_steering(self) -> None:
        """Insert the steering inputs; never between a tool call and its result, where no provider accepts them."""
        self._turn_to("assistant")
        for parts in self._steering:
            self._messages.append(NewMessage(role="user", parts=parts))
        self._steering = []

    def _add_text(self, text_type: type[Text | Thought], text: str) -> PartPosition:
        if self._role != "assistant" or self._text_type is not text_type:
            self._turn_to("assistant", flush=self._role != "assistant")
            self._flush_words()
            self._text_type = text_type
        self._words.append(text)
        return PartPosition(len(self._messages), len(self._parts))

    def _add_part(self, role: Role, part: Part) -> PartPosition:
        if self._role != role:
            self._turn_to(role)
        self._flush_words()
        self._parts.append(part)
        return PartPosition(len(self._messages), len(self._parts) - 1)

    def _turn_to(self, role: Role, *, flush: bool = True) -> None:
        if flush:
            self._flush_words()
            if self._parts:
                self._messages.append(NewMessage(role=self._role, parts=tuple(self._parts)))
                self._parts = []
        self._role = role

    def _flush_words(self) -> None:
        if self._words:
            self._parts.append(self._text_type("".join(self._words)))
            self._words = []

    def _mark_last_answer(self) -> None:
        for index in range(len(self._messages) - 1, -1, -1):
            message = self._messages[index]
            if message.role == "assistant":
                self._messages[index] = NewMessage(role="assistant", parts=message.parts, partial=True)
                return
