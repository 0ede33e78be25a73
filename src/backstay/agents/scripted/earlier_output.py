"""The output of a turn before it was interrupted. A deterministic agent that runs again does not send it twice."""

import re
from collections.abc import Iterable

from backstay.model.content import Body, Text, Thought
from backstay.model.message import Message

_STEERING = re.compile(r"\n\(You said in between: “[^”]*”\)\n")


class EarlierOutput:
    """The text and the thoughts of a turn that this one resumes; they are skipped once, from their beginning."""

    def __init__(self, messages: Iterable[Message]) -> None:
        parts = [part for message in messages if message.role == "assistant" for part in message.parts]
        self._text = "".join(part.text for part in parts if isinstance(part, Text))
        self._thoughts = "".join(part.text for part in parts if isinstance(part, Thought))

    def contains(self, text: str) -> bool:
        """Return whether the next text is this one."""
        return self._text.startswith(text) or _without_steering(self._text).startswith(text)

    def without(self, body: Body) -> Body | None:
        """Return the part of a body that was not sent before; None if all of it was."""
        match body:
            case Text(text=text):
                rest, self._text = _rest(text, self._text)
                return Text(rest) if rest else None
            case Thought(text=text):
                rest, self._thoughts = _rest(text, self._thoughts)
                return Thought(rest) if rest else None
            case _:
                return body


def _rest(text: str, sent: str) -> tuple[str, str]:
    """Return the part of a text that was not sent, and the text that was sent after it."""
    if not sent.startswith(text):
        sent = _without_steering(sent)
    if sent.startswith(text):
        return "", sent.removeprefix(text)
    if text.startswith(sent):
        return text.removeprefix(sent), ""
    # The agent answers otherwise than before: from here on everything is new.
    return text, ""


def _without_steering(sent: str) -> str:
    """Return the text after notes of steering inputs at its beginning: no turn receives them a second time."""
    note = _STEERING.match(sent)
    return _without_steering(sent[note.end() :]) if note else sent
