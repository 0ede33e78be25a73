"""Telegram: the platform of a bot.

`getUpdates` confirms what is before its offset and nothing else. The library's `Updater` is not used: it puts updates
into a queue in memory and confirms them with the next poll, whether or not they were stored.
"""

import warnings
from collections.abc import Awaitable, Callable, Sequence
from types import TracebackType
from typing import Self, TypeVar
from urllib.parse import urlencode

import httpx
from telegram import BotCommand, InlineKeyboardButton, InlineKeyboardMarkup, LinkPreviewOptions, Message
from telegram.constants import ParseMode
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
    ButtonRows,
    ChatPlace,
    OfferedCommand,
    PlatformFile,
    SendDeferred,
    SendRefused,
    SendUncertain,
    Update,
)
from backstay.gateways.telegram.telegram_markup import telegram_html
from backstay.gateways.telegram.telegram_updates import Account, parse_updates

T = TypeVar("T")

OFFICIAL = "https://api.telegram.org"
# A request that fails with one of these has certainly not reached the server.
_NOT_SENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout)
_MOST_UPDATES = 100
_THREAD_GONE = "message thread not found"
_CANNOT_PARSE = "can't parse entities"
_NOT_MODIFIED = "message is not modified"
_LONGEST_ANSWER = 200


class TelegramPlatform:
    """A bot. Use it with `async with`; `identify` connects."""

    most_units = 4096

    def __init__(self, token: str, *, server: str = OFFICIAL, poll_seconds: int = 50) -> None:
        self._poll_seconds = poll_seconds
        self._updates = HTTPXRequest(connection_pool_size=1, pool_timeout=30)
        self._bot: ExtBot[int] = ExtBot(
            token,
            base_url=f"{server}/bot",
            base_file_url=f"{server}/file/bot",
            request=HTTPXRequest(connection_pool_size=32, pool_timeout=30, read_timeout=20),
            get_updates_request=self._updates,
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
        asked = {
            "limit": str(_MOST_UPDATES),
            "timeout": str(self._poll_seconds),
            "allowed_updates": '["message","callback_query"]',
        } | ({"offset": str(offset)} if offset else {})
        # Not `Bot.get_updates`: it fails as a whole if it does not understand one update.
        found = await _translated(
            lambda: self._updates.post(
                f"{self._bot.base_url}/getUpdates?{urlencode(asked)}", read_timeout=self._poll_seconds + 20
            )
        )
        updates = [*parse_updates(found, offset, Account(id=self._bot.id, username=self._bot.username))]
        if found and not updates:
            raise SendUncertain("the answer of Telegram is not a list of updates")
        return updates

    async def send(self, place: ChatPlace, text: str) -> str:
        """Send a text as HTML; as it is, if Telegram cannot read the HTML."""
        return await self._send_formatted(place, text, None)

    async def ask(self, place: ChatPlace, text: str, buttons: ButtonRows) -> str:
        """Send a text with buttons."""
        return await self._send_formatted(place, text, _keyboard(buttons))

    async def edit(self, message: str, text: str, buttons: ButtonRows = ()) -> None:
        """Replace the text and the buttons of a message. A message that has them already is left as it is."""
        try:
            await self._edit(message, telegram_html(text), ParseMode.HTML, buttons)
        except SendRefused as error:
            if _CANNOT_PARSE in str(error).lower():
                await self._edit(message, text, None, buttons)
            elif _NOT_MODIFIED not in str(error).lower():
                raise

    async def answer(self, press: str, text: str) -> None:
        """Show a text to the person who pressed a button."""
        await _translated(lambda: self._bot.answer_callback_query(press, text=text[:_LONGEST_ANSWER]))

    async def offer(self, commands: Sequence[OfferedCommand]) -> None:
        """Put commands into the menu of the bot."""
        menu = [BotCommand(command.name, command.meaning) for command in commands]
        await _translated(lambda: self._bot.set_my_commands(menu))

    async def fetch(self, file: PlatformFile) -> bytes:
        """The bytes of a file. Telegram gives bots files of at most 20 MB."""
        found = await _translated(lambda: self._bot.get_file(file.id))
        return bytes(await _translated(found.download_as_bytearray))

    async def _send_formatted(self, place: ChatPlace, text: str, keyboard: InlineKeyboardMarkup | None) -> str:
        try:
            return await self._send(place, telegram_html(text), ParseMode.HTML, keyboard)
        except SendRefused as error:
            reason = str(error).lower()
            if _THREAD_GONE in reason and place.thread is not None:
                # The topic was deleted: the chat itself still gets the answer, and the person sees why.
                general = ChatPlace(kind=place.kind, chat=place.chat)
                return await self._send(general, f"(the topic is gone)\n{text}"[: self.most_units], None, keyboard)
            if _CANNOT_PARSE in reason or "must be non-empty" in reason:
                return await self._send(place, text, None, keyboard)
            raise

    async def _send(
        self, place: ChatPlace, text: str, mode: str | None, keyboard: InlineKeyboardMarkup | None = None
    ) -> str:
        def send(chat: str) -> Callable[[], Awaitable[Message]]:
            return lambda: self._bot.send_message(
                chat_id=int(chat),
                text=text,
                parse_mode=mode,
                # The general topic has no id: with one, Telegram refuses the message.
                message_thread_id=None if place.thread is None else int(place.thread),
                link_preview_options=LinkPreviewOptions(is_disabled=True),
                reply_markup=keyboard,
            )

        try:
            sent = await _translated(send(place.chat))
        except _Migrated as moved:
            sent = await _translated(send(moved.chat))
        return f"{sent.chat_id}/{sent.message_id}"

    async def _edit(self, message: str, text: str, mode: str | None, buttons: ButtonRows) -> None:
        chat, _, number = message.partition("/")
        await _translated(
            lambda: self._bot.edit_message_text(
                text,
                chat_id=int(chat),
                message_id=int(number),
                parse_mode=mode,
                link_preview_options=LinkPreviewOptions(is_disabled=True),
                reply_markup=_keyboard(buttons),
            )
        )


class _Migrated(Exception):
    """The group became a supergroup, with another id."""

    def __init__(self, chat: str) -> None:
        super().__init__(chat)
        self.chat = chat


def _keyboard(buttons: ButtonRows) -> InlineKeyboardMarkup | None:
    if not buttons:
        return None
    return InlineKeyboardMarkup(
        [[InlineKeyboardButton(button.label, callback_data=button.id) for button in row] for row in buttons]
    )


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
