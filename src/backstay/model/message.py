"""A message: one entry of a window, never changed once it is there."""

import msgspec

from backstay.model.content import Content, Part, Role, parts_of, text_of
from backstay.model.ids import MessageId, TurnId, WindowId


class Message(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """One entry as it stands at `position` of the window it was read from."""

    id: MessageId
    position: int
    turn: TurnId | None
    role: Role
    parts: tuple[Part, ...]
    at: int
    partial: bool = False

    @property
    def text(self) -> str:
        return text_of(self.parts)


class NewMessage(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """A message that has not been stored yet."""

    role: Role
    parts: tuple[Part, ...]
    partial: bool = False

    @property
    def text(self) -> str:
        return text_of(self.parts)


def user(content: Content) -> NewMessage:
    """What a person said."""
    return NewMessage(role="user", parts=parts_of(content))


def assistant(content: Content) -> NewMessage:
    """What an agent said."""
    return NewMessage(role="assistant", parts=parts_of(content))


def tool(content: Content) -> NewMessage:
    """What tools gave back."""
    return NewMessage(role="tool", parts=parts_of(content))


def summary(content: Content) -> NewMessage:
    """What stands for the part of the conversation that a compaction left behind."""
    return NewMessage(role="summary", parts=parts_of(content))


class MessagePage(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """Messages of one window. Positions stay the same in a window for ever, so they serve as cursors within it."""

    window: WindowId
    length: int
    messages: tuple[Message, ...]
