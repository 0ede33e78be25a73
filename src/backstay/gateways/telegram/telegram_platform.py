"""Telegram: the platform of a bot.

`Bot.get_updates` confirms what is before its offset and nothing else. The library's `Updater` is not used: it puts
updates into a queue in memory and confirms them with the next poll, whether or not they were stored.
"""

import warnings
from collections.abc import Awaitable, Callable, Sequence
from types import TracebackType
from typing import Self, TypeVar

import httpx
from telegram import LinkPreviewOptions, Message
from telegram import Update as TelegramUpdate
from telegram.constants import ChatType, ParseMode
from telegram.error import (
    BadRequest,
    ChatMigrated,
    Conflict,
    Forbidden,
    InvalidToken,
    NetworkError,
    RetryAfter,
    TelegramError,
)
from telegram.ext import AIORateLimiter, ExtBot
from telegram.request import HTTPXRequest

from backstay.gateways.platform import (
    ChatKind,
    ChatPlace,
    IncomingMessage,
    PlatformFile,
    SendDeferred,
    SendRefused,
    SendUncertain,
    Update,
)
from backstay.gateways.telegram.telegram_markup import telegram_html

T = TypeVar("T")

OFFICIAL = "https://api.telegram.org"
# A request that fails with one of these has certainly not reached the server.
_NOT_SENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout)
_MOST_UPDATES = 100
_THREAD_GONE = "message thread not found"
_CANNOT_PARSE = "can't parse entities"


class TelegramPlatform:
    """A bot. Use it with `async with`; `identify` connects."""

    most_units = 4096

    def __init__(self, token: str, *, server: str = OFFICIAL, poll_seconds: int = 50) -> None:
        self._poll_seconds = poll_seconds
        self._bot: ExtBot[int] = ExtBot(
            token,
            base_url=f"{server}/bot",
            base_file_url=f"{server}/file/bot",
            request=HTTPXRequest(connection_pool_size=32, pool_timeout=30, read_timeout=20),
            get_updates_request=HTTPXRequest(connection_pool_size=1, pool_timeout=30),
            rate_limiter=AIORateLimiter(),
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._bot.shutdown()

    async def identify(self) -> str:
        """The name of the bot: its id is the same for every token that it ever has."""
        await _translated(self._bot.initialize)
        return f"telegram/{self._bot.id}"

    async def receive(self, cursor: str) -> Sequence[Update]:
        """The updates from an offset on. This confirms the updates before it."""
        offset = int(cursor) if cursor else 0
        found = await _translated(
            lambda: self._bot.get_updates(
                offset=offset or None,
                limit=_MOST_UPDATES,
                timeout=self._poll_seconds,
                allowed_updates=["message"],
                read_timeout=self._poll_seconds + 20,
            )
        )
        updates = []
        for update in sorted(found, key=lambda update: update.update_id):
            # A server that repeats earlier updates must not move the offset back.
            offset = max(offset, update.update_id + 1)
            updates.append(Update(cursor=str(offset), message=self._message(update)))
        return updates

    async def send(self, place: ChatPlace, text: str) -> str:
        """Send a text as HTML; as it is, if Telegram cannot read the HTML."""
        try:
            return await self._send(place, telegram_html(text), ParseMode.HTML)
        except SendRefused as error:
            reason = str(error).lower()
            if _THREAD_GONE in reason and place.thread is not None:
                # The topic was deleted: the chat itself still gets the answer, and the person sees why.
                general = ChatPlace(kind=place.kind, chat=place.chat)
                return await self._send(general, f"(the topic is gone)\n{text}"[: self.most_units], None)
            if _CANNOT_PARSE in reason or "must be non-empty" in reason:
                return await self._send(place, text, None)
            raise

    async def fetch(self, file: PlatformFile) -> bytes:
        """The bytes of a file. Telegram gives bots files of at most 20 MB."""
        found = await _translated(lambda: self._bot.get_file(file.id))
        return bytes(await _translated(found.download_as_bytearray))

    async def _send(self, place: ChatPlace, text: str, mode: str | None) -> str:
        def send(chat: str) -> Callable[[], Awaitable[Message]]:
            return lambda: self._bot.send_message(
                chat_id=int(chat),
                text=text,
                parse_mode=mode,
                # The general topic has no id: with one, Telegram refuses the message.
                message_thread_id=None if place.thread is None else int(place.thread),
                link_preview_options=LinkPreviewOptions(is_disabled=True),
            )

        try:
            sent = await _translated(send(place.chat))
        except _Migrated as moved:
            sent = await _translated(send(moved.chat))
        return f"{sent.chat_id}/{sent.message_id}"

    def _message(self, update: TelegramUpdate) -> IncomingMessage | None:
        message = update.message
        if message is None or message.from_user is None or message.from_user.is_bot:
            return None
        kind: ChatKind = "dm" if message.chat.type == ChatType.PRIVATE else "group"
        text, files = message.text or message.caption or "", _files_of(message)
        if message.chat.type == ChatType.CHANNEL or not (text.strip() or files):
            return None
        topic = message.message_thread_id if message.is_topic_message else None
        return IncomingMessage(
            id=f"{message.chat_id}/{message.message_id}",
            place=ChatPlace(kind=kind, chat=str(message.chat_id), thread=None if topic is None else str(topic)),
            number=message.message_id,
            sender=str(message.from_user.id),
            text=text,
            album=message.media_group_id,
            files=files,
            to_us=kind == "dm" or self._is_to_us(message, text),
        )

    def _is_to_us(self, message: Message, text: str) -> bool:
        answered = message.reply_to_message
        if answered is not None and answered.from_user is not None and answered.from_user.id == self._bot.id:
            return True
        if f"@{self._bot.username}".lower() in text.lower():
            return True
        return text.startswith("/") and "@" not in text.split(maxsplit=1)[0]


class _Migrated(Exception):
    """The group became a supergroup, with another id."""

    def __init__(self, chat: str) -> None:
        super().__init__(chat)
        self.chat = chat


def _files_of(message: Message) -> tuple[PlatformFile, ...]:
    files: list[PlatformFile] = []
    number = message.message_id
    if message.photo:
        largest = max(message.photo, key=lambda size: size.width * size.height)
        files.append(PlatformFile(id=largest.file_id, name=f"photo-{number}.jpg", media_type="image/jpeg"))
    for found, name, media_type in (
        (message.document, f"file-{number}", "application/octet-stream"),
        (message.audio, f"audio-{number}.mp3", "audio/mpeg"),
        (message.video, f"video-{number}.mp4", "video/mp4"),
    ):
        if found is not None:
            named = found.file_name or name
            files.append(PlatformFile(id=found.file_id, name=named, media_type=found.mime_type or media_type))
    if message.voice is not None:
        media_type = message.voice.mime_type or "audio/ogg"
        files.append(PlatformFile(id=message.voice.file_id, name=f"voice-{number}.ogg", media_type=media_type))
    return tuple(files)


def _seconds(error: RetryAfter) -> float:
    with warnings.catch_warnings():
        # The library warns that this number will be a `timedelta` one day. Both are read here.
        warnings.simplefilter("ignore")
        wait = error.retry_after
    return float(wait) if isinstance(wait, int) else wait.total_seconds()


async def _translated(request: Callable[[], Awaitable[T]]) -> T:
    """The result of a request, or one of the gateway's errors."""
    try:
        return await request()
    except RetryAfter as error:
        seconds = _seconds(error)
        raise SendDeferred(f"Telegram asks to wait for {seconds:g} s", seconds) from error
    except ChatMigrated as error:
        raise _Migrated(str(error.new_chat_id)) from error
    except Conflict as error:
        raise SendDeferred(f"another program polls this bot: {error.message}") from error
    except (BadRequest, Forbidden, InvalidToken) as error:
        raise SendRefused(error.message) from error
    except NetworkError as error:
        if isinstance(error.__cause__, _NOT_SENT):
            raise SendDeferred(error.message) from error
        raise SendUncertain(error.message) from error
    except TelegramError as error:
        raise SendUncertain(error.message) from error
