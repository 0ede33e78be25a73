"""The interface of a chat platform: what a gateway needs of it."""

from collections.abc import Sequence
from typing import Literal, Protocol

import msgspec

ChatKind = Literal["dm", "group"]


class ChatPlace(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Where a message was written, and where answers go: a chat, and perhaps a topic in it.

    Attributes:
        kind: A private chat, or one with several people.
        chat: The platform's id of the chat.
        thread: The topic; None for a chat without topics, and for its general one.
    """

    kind: ChatKind
    chat: str
    thread: str | None = None

    @property
    def destination(self) -> str:
        """The place as the text that the store keeps."""
        return msgspec.json.encode(self).decode()

    @staticmethod
    def parse(destination: str) -> "ChatPlace":
        """The place of a stored destination."""
        return msgspec.json.decode(destination, type=ChatPlace)


class PlatformFile(msgspec.Struct, frozen=True, kw_only=True):
    """A file of a message, which is fetched later.

    Attributes:
        id: The platform's id, under which it is fetched.
        name: The name that people see.
        media_type: Its type, such as `image/jpeg`.
    """

    id: str
    name: str
    media_type: str


class IncomingMessage(msgspec.Struct, frozen=True, kw_only=True):
    """A message that a person wrote.

    Attributes:
        id: The platform's id, unique within the account.
        place: Where it was written.
        number: Its place among the messages of the chat.
        sender: The platform's id of the person.
        text: Its text.
        name: The name of the person, for other people.
        album: The album that it belongs to.
        files: Its files.
        to_us: Whether it names the account, or answers one of its messages. Always true in private chats.
    """

    id: str
    place: ChatPlace
    number: int
    sender: str
    text: str
    name: str = ""
    album: str | None = None
    files: tuple[PlatformFile, ...] = ()
    to_us: bool = True


class Button(msgspec.Struct, frozen=True, kw_only=True):
    """A button under a message.

    Attributes:
        id: What the platform returns when it is pressed: at most 64 bytes.
        label: What people read.
    """

    id: str
    label: str


ButtonRows = tuple[tuple[Button, ...], ...]


class ButtonPress(msgspec.Struct, frozen=True, kw_only=True):
    """A press of a button. Everything in it may be forged, except the person and the place.

    Attributes:
        id: The platform's id of the press.
        button: The id that the button is said to have.
        place: The chat of the message.
        message: The platform's id of the message with the button; None if the platform does not say it any more.
        sender: The platform's id of the person.
        name: The name of the person, for other people.
    """

    id: str
    button: str
    place: ChatPlace
    message: str | None
    sender: str
    name: str


class OfferedCommand(msgspec.Struct, frozen=True, kw_only=True):
    """A command in the menu of the platform: its name without the slash, and its meaning."""

    name: str
    meaning: str


class Update(msgspec.Struct, frozen=True, kw_only=True):
    """An entry in the platform's list: the cursor after it, and the message or the press, if it is one."""

    cursor: str
    message: IncomingMessage | None = None
    press: ButtonPress | None = None


class SendRefused(Exception):
    """The platform will never accept this request."""


class SendDeferred(Exception):
    """The platform has certainly not done what was asked, and may do it later: after `seconds`, if it says so."""

    def __init__(self, reason: str, seconds: float | None = None) -> None:
        super().__init__(reason)
        self.seconds = seconds


class SendUncertain(Exception):
    """The connection was lost: the platform may have done what was asked."""


class Platform(Protocol):
    """An account on a chat platform. Every method may raise `SendRefused`, `SendDeferred` or `SendUncertain`."""

    @property
    def most_units(self) -> int:
        """The length of the longest message, in UTF-16 units."""
        ...

    async def identify(self) -> str:
        """The name of the account, the same for every token that it ever has, such as `telegram/123456`."""
        ...

    async def receive(self, cursor: str) -> Sequence[Update]:
        """The entries after a cursor, oldest first; waits a while for the first. The empty cursor is the beginning.

        Only this call tells the platform that everything up to the cursor is stored.
        """
        ...

    async def send(self, place: ChatPlace, text: str) -> str:
        """Send a Markdown text, which is short enough. Returns the platform's id of the message."""
        ...

    async def ask(self, place: ChatPlace, text: str, buttons: ButtonRows) -> str:
        """Send a Markdown text with buttons. Returns the platform's id of the message."""
        ...

    async def edit(self, message: str, text: str, buttons: ButtonRows = ()) -> None:
        """Replace the text and the buttons of a message that `send` or `ask` has sent. Doing it twice is harmless."""
        ...

    async def answer(self, press: str, text: str) -> None:
        """Tell the person who pressed a button, and nobody else."""
        ...

    async def offer(self, commands: Sequence[OfferedCommand]) -> None:
        """Put these commands into the menu of the platform, instead of those before."""
        ...

    async def fetch(self, file: PlatformFile) -> bytes:
        """The bytes of a file."""
        ...
