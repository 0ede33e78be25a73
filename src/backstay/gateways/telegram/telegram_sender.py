"""Sends to Telegram: texts, files, previews, edits.

Two bots with one token send. Telegram limits how much a bot may send to a group; the library's rate limiter waits for
that. Only what must arrive goes through it: a preview never makes an answer wait.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypedDict, TypeVar

from telegram import Bot, InlineKeyboardButton, InlineKeyboardMarkup, InputFile, LinkPreviewOptions, Message
from telegram.constants import ParseMode
from telegram.ext import ExtBot

from backstay.gateways.platform import ButtonRows, ChatPlace, OutgoingFile, PlaceMoved, PreviewPace, SendRefused
from backstay.gateways.telegram.telegram_errors import translated
from backstay.gateways.telegram.telegram_markup import telegram_html
from backstay.gateways.telegram.telegram_updates import GENERAL

T = TypeVar("T")

_PHOTOS = frozenset({"image/jpeg", "image/png", "image/webp"})
_MOST_PHOTO_BYTES = 10_000_000
_VOICES = frozenset({"audio/ogg", "audio/opus"})
_AUDIOS = frozenset({"audio/mpeg", "audio/mp3", "audio/mp4", "audio/x-m4a", "audio/m4a"})

_THREAD_GONE = "message thread not found"
_UNREADABLE = ("can't parse entities", "must be non-empty")
_UNCHANGED = "message is not modified"
_NO_PREVIEW = LinkPreviewOptions(is_disabled=True)
# A draft disappears after 30 seconds; a group allows 20 messages a minute, answers included.
_DRAFT, _GROUP = PreviewPace(seconds=1.0, lasts=20.0), PreviewPace(seconds=4.0)


class _Where(TypedDict):
    """The arguments that name a place."""

    chat_id: int
    message_thread_id: int | None


class TelegramSender:
    """The outgoing half of a bot.

    Args:
        bot: Sends messages that must arrive.
        hasty: The same bot without a rate limiter, for previews, which may be lost.
    """

    # Telegram's limit, less a line that the gateway may add.
    most_units = 4096 - 64
    most_file_bytes = 50_000_000

    def __init__(self, bot: ExtBot[int], hasty: Bot) -> None:
        self._bot, self._hasty = bot, hasty

    def pace(self, place: ChatPlace) -> PreviewPace:
        """Drafts in private chats, edited messages in groups."""
        return _DRAFT if place.kind == "dm" else _GROUP

    async def send(self, place: ChatPlace, text: str) -> str:
        """Send a text as HTML; as it is, if Telegram cannot read the HTML."""
        return await self.ask(place, text, ())

    async def ask(self, place: ChatPlace, text: str, buttons: ButtonRows) -> str:
        """Send a text with buttons."""

        async def send(shown: str, mode: str | None) -> Message:
            return await self._bot.send_message(
                text=shown,
                parse_mode=mode,
                link_preview_options=_NO_PREVIEW,
                reply_markup=_keyboard(buttons),
                **_where(place),
            )

        return _name(await _readable(place, text, send))

    async def send_file(self, place: ChatPlace, file: OutgoingFile, note: str) -> str:
        """Send a file as its own kind; as a document, if Telegram or the person accepts it only so."""
        # In a thread: the library reads the types of files from the disk.
        upload = await asyncio.to_thread(InputFile, file.data, file.name)
        where, bot = _where(place), self._bot
        requests: dict[str, Callable[[], Awaitable[Message]]] = {
            "photo": lambda: bot.send_photo(photo=upload, caption=note, **where),
            "voice": lambda: bot.send_voice(voice=upload, caption=note, **where),
            "audio": lambda: bot.send_audio(audio=upload, caption=note, **where),
            "document": lambda: bot.send_document(document=upload, caption=note, **where),
        }
        try:
            return _name(await _in_place(place, requests[_shown_as(file)]))
        except SendRefused as error:
            # Wrong dimensions of a photo, or a person who accepts no voice messages: a document always goes.
            if type(error) is not SendRefused:
                raise
        return _name(await _in_place(place, requests["document"]))

    async def edit(self, message: str, text: str, buttons: ButtonRows = ()) -> None:
        """Replace the text and the buttons of a message. A message that has them already is left as it is."""
        chat, number = _parts(message)

        async def edit(shown: str, mode: str | None) -> object:
            return await self._hasty.edit_message_text(
                text=shown,
                chat_id=chat,
                message_id=number,
                parse_mode=mode,
                link_preview_options=_NO_PREVIEW,
                reply_markup=_keyboard(buttons),
            )

        try:
            await _readable(None, text, edit)
        except SendRefused as error:
            if _UNCHANGED not in str(error).lower():
                raise

    async def remove(self, message: str) -> None:
        """Delete a message of the bot."""
        chat, number = _parts(message)
        await translated(lambda: self._hasty.delete_message(chat_id=chat, message_id=number))

    async def preview(self, place: ChatPlace, text: str, *, number: int, message: str | None) -> str | None:
        """Show a draft in a private chat; send or edit a silent message in a group."""
        if place.kind == "dm":
            await self._draft(place, text, number)
            return None
        if message is not None:
            await self.edit(message, text)
            return message

        async def send(shown: str, mode: str | None) -> Message:
            return await self._hasty.send_message(
                text=shown,
                parse_mode=mode,
                disable_notification=True,
                link_preview_options=_NO_PREVIEW,
                **_where(place),
            )

        return _name(await _readable(place, text, send))

    async def _draft(self, place: ChatPlace, text: str, number: int) -> None:
        async def show(shown: str, mode: str | None) -> bool:
            return await self._hasty.send_message_draft(draft_id=number, text=shown, parse_mode=mode, **_where(place))

        await _readable(place, text, show)


async def _readable(place: ChatPlace | None, text: str, request: Callable[[str, str | None], Awaitable[T]]) -> T:
    """The result of a request with a text as HTML. If Telegram cannot read the HTML, once more as it is."""
    try:
        return await _in_place(place, lambda: request(telegram_html(text), ParseMode.HTML))
    except SendRefused as error:
        if not any(reason in str(error).lower() for reason in _UNREADABLE):
            raise
    return await _in_place(place, lambda: request(text, None))


async def _in_place(place: ChatPlace | None, request: Callable[[], Awaitable[T]]) -> T:
    try:
        return await translated(request)
    except SendRefused as error:
        if place is not None and place.thread is not None and _THREAD_GONE in str(error).lower():
            general = ChatPlace(kind=place.kind, chat=place.chat)
            raise PlaceMoved("the topic is gone", general) from error
        raise


def _where(place: ChatPlace) -> _Where:
    thread = None if place.thread is None else int(place.thread)
    # With the id of the general topic, Telegram refuses a message.
    return {"chat_id": int(place.chat), "message_thread_id": None if thread == GENERAL else thread}


def _shown_as(file: OutgoingFile) -> str:
    if file.media_type in _PHOTOS and len(file.data) <= _MOST_PHOTO_BYTES:
        return "photo"
    if file.media_type in _VOICES:
        return "voice"
    return "audio" if file.media_type in _AUDIOS else "document"


def _name(message: Message) -> str:
    return f"{message.chat_id}/{message.message_id}"


def _parts(message: str) -> tuple[int, int]:
    chat, _, number = message.partition("/")
    return int(chat), int(number)


def _keyboard(buttons: ButtonRows) -> InlineKeyboardMarkup | None:
    if not buttons:
        return None
    return InlineKeyboardMarkup(
        [[InlineKeyboardButton(button.label, callback_data=button.id) for button in row] for row in buttons]
    )
