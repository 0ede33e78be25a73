"""The requests of one turn to a provider."""

from collections.abc import Iterable, Sequence
from typing import Protocol

import msgspec

from backstay.model.content import Json, Part
from backstay.model.message import Message


class SentTranscript(Protocol):
    """The history in the form of one provider. Equal messages give equal bytes."""

    def read(self, messages: Iterable[Message]) -> None:
        """Add messages of the history, or of the running turn."""
        ...

    def add_user_message(self, parts: Sequence[Part]) -> None:
        """Add a message of the user."""
        ...


class Conversation:
    """The requests of one turn. Each begins with the bytes of the one before it.

    Args:
        transcript: The history.
        fields: The other fields of the request.
        name: The name of the field with the messages.
        entries: The messages of the transcript, which grow with it.
    """

    def __init__(
        self, transcript: SentTranscript, fields: dict[str, Json], name: str, entries: Sequence[object]
    ) -> None:
        self.transcript = transcript
        self._fields, self._name, self._entries = fields, name, entries

    def encode(self) -> bytes:
        """Return the next request. The messages are its last field, so that it begins like the one before it."""
        return msgspec.json.encode(self._fields | {self._name: self._entries})
