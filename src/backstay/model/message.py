"""A message: one entry of a window, which never changes."""

import msgspec

from backstay.model.content import Part, PartsLike, Role, parts_of, text_of
from backstay.model.ids import MessageId, TurnId, WindowId


class Message(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """A message, at its position in the window from which it was read.

    Attributes:
        id: The id of the message.
        position: Its index in the window.
        turn: The turn that added it; None if no turn did.
        role: user, assistant, tool, system or summary.
        parts: Its content.
        at: When it was stored, in milliseconds since 1970 (UTC).
        partial: Whether the agent was cut off in the middle of it.
    """

    id: MessageId
    position: int
    turn: TurnId | None
    role: Role
    parts: tuple[Part, ...]
    at: int
    partial: bool = False

    @property
    def text(self) -> str:
        """The text of its parts, without thoughts, calls and files."""
        return text_of(self.parts)


class NewMessage(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """A message that is not stored yet.

    Attributes:
        role: user, assistant, tool, system or summary.
        parts: Its content.
        partial: Whether the agent was cut off in the middle of it.
    """

    role: Role
    parts: tuple[Part, ...]
    partial: bool = False

    @property
    def text(self) -> str:
        """The text of its parts, without thoughts, calls and files."""
        return text_of(self.parts)


def user(content: PartsLike) -> NewMessage:
    """A message of a person. Raises `InvalidPayload` if the content is not text or parts."""
    return NewMessage(role="user", parts=parts_of(content))


def assistant(content: PartsLike) -> NewMessage:
    """A message of an agent. Raises `InvalidPayload` if the content is not text or parts."""
    return NewMessage(role="assistant", parts=parts_of(content))


def tool(content: PartsLike) -> NewMessage:
    """A message with the results of tools. Raises `InvalidPayload` if the content is not text or parts."""
    return NewMessage(role="tool", parts=parts_of(content))


def summary(content: PartsLike) -> NewMessage:
    """A message that replaces the messages before a compaction. Raises `InvalidPayload` if the content is invalid."""
    return NewMessage(role="summary", parts=parts_of(content))


class MessagePage(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """Messages of one window. A position never changes within its window, so it can be used as a cursor.

    Attributes:
        window: The window.
        length: The number of messages in the window.
        messages: The requested messages.
    """

    window: WindowId
    length: int
    messages: tuple[Message, ...]
