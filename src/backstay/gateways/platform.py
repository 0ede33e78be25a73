"""The interface of a chat platform to a gateway."""

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


class OutgoingFile(msgspec.Struct, frozen=True, kw_only=True):
    """A file that is sent.

    Attributes:
        name: The name that people see.
        media_type: Its type, such as `image/jpeg`.
        data: Its bytes.
    """

    name: str
    media_type: str
    data: bytes


class PreviewPace(msgspec.Struct, frozen=True, kw_only=True):
    """How often the preview of an unfinished text may change.

    Attributes:
        seconds: The least time between two changes in one chat.
        lasts: After so many seconds it is shown again, because it would disappear; None: it stays.
    """

    seconds: float
    lasts: float | None = None


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
        id: The text that the platform returns when it is pressed: at most 64 bytes.
        label: What people read.
    """

    id: str
    label: str


ButtonRows = tuple[tuple[Button, ...], ...]


class ButtonPress(msgspec.Struct, frozen=True, kw_only=True):
    """A press of a button. Everything in it may be forged, except the person and the place.

    Attributes:
        id: The platform's id of the press.
        button: The claimed id of the button.
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
    """An entry in the platform's list.

    Attributes:
        cursor: The cursor after it.
        message: The message, if it is one.
        press: The press of a button, if it is one.
        moved: Two places, if it says that the chat at the first one is at the second one now.
    """

    cursor: str
    message: IncomingMessage | None = None
    press: ButtonPress | None = None
    moved: tuple[ChatPlace, ChatPlace] | None = None


class SendRefused(Exception):
    """The platform will never accept this request."""


class ChatGone(SendRefused):
    """The chat accepts nothing from this account: it was blocked or removed, or the chat does not exist."""


class PlaceMoved(SendRefused):
    """The place does not exist any more. Send this and later messages to `instead`."""

    def __init__(self, reason: str, instead: ChatPlace) -> None:
        super().__init__(reason)
        self.instead = instead


class SendDeferred(Exception):
    """The platform has certainly not executed the request, and may do so later: after `seconds`, if it names them."""

    def __init__(self, reason: str, seconds: float | None = None) -> None:
        super().__init__(reason)
        self.seconds = seconds


class SendUncertain(Exception):
    """The connection was lost: the platform may have executed the request."""


class Platform(Protocol):
    """An account on a chat platform. Every method may raise `SendRefused`, `SendDeferred` or `SendUncertain`."""

    @property
    def most_units(self) -> int:
        """The length of the longest message, in UTF-16 units. One line of the gateway fits in addition."""
        ...

    @property
    def most_file_bytes(self) -> int:
        """The size of the largest file that can be sent."""
        ...

    async def identify(self) -> str:
        """The name of the account, the same for every token that it ever has, such as `telegram/123456`."""
        ...

    async def receive(self, cursor: str) -> Sequence[Update]:
        """The entries after a cursor, oldest first; waits a while for the first. The empty cursor is the beginning.

        So the first call after a start catches up with what was written meanwhile. Only this call confirms to the
        platform that everything up to the cursor is stored.
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

    async def send_file(self, place: ChatPlace, file: OutgoingFile, note: str) -> str:
        """Send a file, which is small enough, with a line of text, which may be empty. Returns the message's id."""
        ...

    async def remove(self, message: str) -> None:
        """Delete a message of this account."""
        ...

    def pace(self, place: ChatPlace) -> PreviewPace:
        """How often a preview may change there."""
        ...

    async def preview(self, place: ChatPlace, text: str, *, number: int, message: str | None) -> str | None:
        """Show an unfinished text, which is short enough.

        Args:
            place: Where.
            text: The text, in Markdown.
            number: Distinguishes the previews of a chat; more than 0.
            message: The result of the last call for this preview; None at first.

        Returns:
            The id of the message that shows it, which has to be removed; None if the preview disappears by itself.
        """
        ...

    async def answer(self, press: str, text: str) -> None:
        """Show a text only to the person who pressed a button."""
        ...

    async def offer(self, commands: Sequence[OfferedCommand]) -> None:
        """Put these commands into the menu of the platform, instead of those before."""
        ...

    async def fetch(self, file: PlatformFile) -> bytes:
        """The bytes of a file."""
        ...
