"""Updates of Telegram, parsed. An update may contain anything: one that is not understood only moves the cursor."""

from collections.abc import Iterator
from typing import Annotated

import msgspec

from backstay.gateways.platform import ButtonPress, ChatKind, ChatPlace, IncomingMessage, PlatformFile, Update

_Number = Annotated[int, msgspec.Meta(ge=-(1 << 52), le=1 << 52)]
_MOST_UNITS = 1 << 16
_LONGEST_NAME = 64
# The general topic of a forum.
GENERAL = 1


class UpdateNumber(msgspec.Struct, frozen=True):
    """The part of an update that the cursor needs."""

    update_id: _Number


class _Chat(msgspec.Struct, frozen=True):
    id: _Number
    type: str


class _User(msgspec.Struct, frozen=True):
    id: _Number
    is_bot: bool = False
    first_name: str = ""
    username: str = ""

    @property
    def shown(self) -> str:
        name = self.first_name.strip() or self.username.strip() or str(self.id)
        return _clean(name)[:_LONGEST_NAME]


class _PhotoSize(msgspec.Struct, frozen=True):
    file_id: str
    width: _Number = 0
    height: _Number = 0


class _File(msgspec.Struct, frozen=True):
    file_id: str
    file_name: str | None = None
    mime_type: str | None = None


class _Sticker(msgspec.Struct, frozen=True):
    emoji: str = ""


class _Location(msgspec.Struct, frozen=True):
    latitude: float
    longitude: float


class _Answered(msgspec.Struct, frozen=True, rename={"sender": "from"}):
    sender: _User | None = None


class _Message(msgspec.Struct, frozen=True, rename={"sender": "from"}):
    """A message, as far as it is read here."""

    message_id: _Number
    chat: _Chat
    sender: _User | None = None
    text: str | None = None
    caption: str | None = None
    message_thread_id: _Number | None = None
    is_topic_message: bool = False
    media_group_id: str | None = None
    reply_to_message: _Answered | None = None
    migrate_to_chat_id: _Number | None = None
    photo: tuple[_PhotoSize, ...] = ()
    document: _File | None = None
    audio: _File | None = None
    video: _File | None = None
    voice: _File | None = None
    video_note: _File | None = None
    sticker: _Sticker | None = None
    location: _Location | None = None

    @property
    def id(self) -> str:
        return f"{self.chat.id}/{self.message_id}"

    @property
    def place(self) -> ChatPlace:
        kind: ChatKind = "dm" if self.chat.type == "private" else "group"
        # Some messages of the general topic have an id. Nothing may be sent to it.
        topic = self.message_thread_id if self.is_topic_message and self.message_thread_id != GENERAL else None
        return ChatPlace(kind=kind, chat=str(self.chat.id), thread=None if topic is None else str(topic))


class _Press(msgspec.Struct, frozen=True, rename={"sender": "from"}):
    id: str
    sender: _User
    data: str = ""
    message: _Message | None = None


class _Content(msgspec.Struct, frozen=True):
    message: _Message | None = None
    callback_query: _Press | None = None


class Account(msgspec.Struct, frozen=True, kw_only=True):
    """The bot: its id, and its name without the @."""

    id: int
    username: str


def parse_updates(raw: object, offset: int, us: Account) -> Iterator[Update]:
    """The updates of an answer of the server, in their order. The cursor never moves back."""
    entries = [_with_whole_characters(entry) for entry in raw] if isinstance(raw, list) else []
    numbered = [(number, entry) for entry in entries if (number := _number_of(entry)) is not None]
    for number, entry in sorted(numbered, key=lambda pair: pair[0]):
        # A server that repeats earlier updates must not move the offset back.
        offset = max(offset, number + 1)
        yield _parsed(str(offset), entry, us)


def _with_whole_characters(value: object) -> object:
    """The value without halves of characters: JSON may have them, also in names that nobody reads."""
    match value:
        case str():
            return value.encode("utf-8", "replace").decode()
        case list():
            return [_with_whole_characters(inner) for inner in value]
        case dict():
            return {_with_whole_characters(name): _with_whole_characters(inner) for name, inner in value.items()}
        case _:
            return value


def _number_of(entry: object) -> int | None:
    try:
        return msgspec.convert(entry, UpdateNumber).update_id
    except msgspec.ValidationError:
        return None


def _parsed(cursor: str, entry: object, us: Account) -> Update:
    try:
        content = msgspec.convert(entry, _Content)
    except msgspec.ValidationError:
        return Update(cursor=cursor)
    message = None if content.message is None else _incoming(content.message, us)
    press = None if content.callback_query is None else _pressed(content.callback_query)
    moved = None if content.message is None else _moved(content.message)
    return Update(cursor=cursor, message=message, press=press, moved=moved)


def _incoming(message: _Message, us: Account) -> IncomingMessage | None:
    if message.sender is None or message.sender.is_bot or message.chat.type == "channel":
        return None
    text, files = _clean(message.text or message.caption or _described(message)), tuple(_files_of(message))
    if not (text.strip() or files):
        return None
    return IncomingMessage(
        id=message.id,
        place=message.place,
        number=message.message_id,
        sender=str(message.sender.id),
        text=text,
        name=message.sender.shown,
        album=None if message.media_group_id is None else _clean(message.media_group_id),
        files=files,
        to_us=message.place.kind == "dm" or _is_to_us(message, text, us),
    )


def _moved(message: _Message) -> tuple[ChatPlace, ChatPlace] | None:
    """The places of a group that became a supergroup."""
    if message.migrate_to_chat_id is None:
        return None
    old, new = str(message.chat.id), str(message.migrate_to_chat_id)
    return ChatPlace(kind="group", chat=old), ChatPlace(kind="group", chat=new)


def _described(message: _Message) -> str:
    """What an agent can read of a message that has neither a text nor files."""
    if message.location is not None:
        return f"[location: {message.location.latitude:.6f}, {message.location.longitude:.6f}]"
    return "" if message.sticker is None else f"[sticker: {message.sticker.emoji or 'without an emoji'}]"


def _pressed(press: _Press) -> ButtonPress | None:
    if press.message is None:
        # A message that is too old: Telegram does not say where it was.
        return None
    return ButtonPress(
        id=_clean(press.id),
        button=_clean(press.data),
        place=press.message.place,
        message=press.message.id,
        sender=str(press.sender.id),
        name=press.sender.shown,
    )


def _is_to_us(message: _Message, text: str, us: Account) -> bool:
    answered = None if message.reply_to_message is None else message.reply_to_message.sender
    if answered is not None and answered.id == us.id:
        return True
    if f"@{us.username}".lower() in text.lower():
        return True
    return text.startswith("/") and "@" not in text.split(maxsplit=1)[0]


def _files_of(message: _Message) -> Iterator[PlatformFile]:
    number = message.message_id
    if message.photo:
        largest = max(message.photo, key=lambda size: size.width * size.height)
        yield PlatformFile(id=_clean(largest.file_id), name=f"photo-{number}.jpg", media_type="image/jpeg")
    for found, name, media_type in (
        (message.document, f"file-{number}", "application/octet-stream"),
        (message.audio, f"audio-{number}.mp3", "audio/mpeg"),
        (message.video, f"video-{number}.mp4", "video/mp4"),
        (message.voice, f"voice-{number}.ogg", "audio/ogg"),
        (message.video_note, f"video-{number}.mp4", "video/mp4"),
    ):
        if found is not None:
            yield PlatformFile(
                id=_clean(found.file_id),
                name=_clean(found.file_name or name),
                media_type=_clean(found.mime_type or media_type),
            )


def _clean(text: str) -> str:
    """The text without halves of characters and zeros, which cannot be stored."""
    return text.encode("utf-8", "replace").decode().replace("\0", " ")[:_MOST_UNITS]
