"""Telegram: the platform of a bot.

`getUpdates` confirms what is before its offset and nothing else. The library's `Updater` is not used: it puts updates
into a queue in memory and confirms them with the next poll, whether or not they were stored.
"""

from collections.abc import Sequence
from types import TracebackType
from typing import Self
from urllib.parse import urlencode

import msgspec
from telegram import Bot, BotCommand
from telegram.error import InvalidToken
from telegram.ext import AIORateLimiter, ExtBot
from telegram.request import HTTPXRequest

from backstay.gateways.platform import OfferedCommand, PlatformFile, SendRefused, SendUncertain, Update
from backstay.gateways.telegram.hidden_tokens import hide_tokens_in_logs
from backstay.gateways.telegram.telegram_errors import TOKEN_REFUSED, translated
from backstay.gateways.telegram.telegram_sender import TelegramSender
from backstay.gateways.telegram.telegram_updates import Account, parse_updates

OFFICIAL = "https://api.telegram.org"
_MOST_UPDATES = 100
_LONGEST_ANSWER = 200


class BotFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What Telegram says about a bot.

    Attributes:
        name: The name of the gateway.
        username: The name under which people find the bot.
        reads_all: Whether it receives all messages of its groups, and not only those that name it.
        joins_groups: Whether it may be added to groups.
        has_webhook: Whether Telegram sends the messages to a webhook. Then the bot cannot be polled.
        waiting: How many messages wait at Telegram.
    """

    name: str
    username: str
    reads_all: bool
    joins_groups: bool
    has_webhook: bool
    waiting: int


class TelegramPlatform(TelegramSender):
    """A bot. Use it with `async with`; `identify` connects."""

    def __init__(self, token: str, *, server: str = OFFICIAL, poll_seconds: int = 50) -> None:
        # The library logs addresses as soon as a bot is made.
        hide_tokens_in_logs()
        self._poll_seconds = poll_seconds
        base, files = f"{server}/bot", f"{server}/file/bot"
        self._updates = HTTPXRequest(connection_pool_size=1, pool_timeout=30)
        bot: ExtBot[int] = ExtBot(
            token,
            base_url=base,
            base_file_url=files,
            request=HTTPXRequest(connection_pool_size=32, pool_timeout=30, read_timeout=20, media_write_timeout=120),
            get_updates_request=self._updates,
            rate_limiter=AIORateLimiter(),
        )
        # A preview that takes longer is out of date.
        self._previews = HTTPXRequest(connection_pool_size=16, pool_timeout=5, read_timeout=10)
        super().__init__(bot, Bot(token, base_url=base, base_file_url=files, request=self._previews))

    async def __aenter__(self) -> Self:
        await self._previews.initialize()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._bot.shutdown()
        await self._previews.shutdown()

    async def identify(self) -> str:
        """The name of the bot: its id is the same for every token that it ever has."""
        await translated(self._initialize)
        return f"telegram/{self._bot.id}"

    async def _initialize(self) -> None:
        try:
            await self._bot.initialize()
        except InvalidToken:
            # Not as the cause: the library's error has the token in its text.
            raise SendRefused(TOKEN_REFUSED) from None

    async def receive(self, cursor: str) -> Sequence[Update]:
        """The updates from an offset on. This confirms the updates before it."""
        offset = int(cursor) if cursor else 0
        asked = {
            "limit": str(_MOST_UPDATES),
            "timeout": str(self._poll_seconds),
            "allowed_updates": '["message","callback_query"]',
        } | ({"offset": str(offset)} if offset else {})
        # Not `Bot.get_updates`: it fails as a whole if it does not understand one update.
        found = await translated(
            lambda: self._updates.post(
                f"{self._bot.base_url}/getUpdates?{urlencode(asked)}", read_timeout=self._poll_seconds + 20
            )
        )
        updates = [*parse_updates(found, offset, Account(id=self._bot.id, username=self._bot.username))]
        if found and not updates:
            raise SendUncertain("the answer of Telegram is not a list of updates")
        return updates

    async def answer(self, press: str, text: str) -> None:
        """Show a text to the person who pressed a button."""
        await translated(lambda: self._bot.answer_callback_query(press, text=text[:_LONGEST_ANSWER]))

    async def offer(self, commands: Sequence[OfferedCommand]) -> None:
        """Put commands into the menu of the bot."""
        menu = [BotCommand(command.name, command.meaning) for command in commands]
        await translated(lambda: self._bot.set_my_commands(menu))

    async def fetch(self, file: PlatformFile) -> bytes:
        """The bytes of a file. Telegram gives bots files of at most 20 MB."""
        found = await translated(lambda: self._bot.get_file(file.id))
        return bytes(await translated(found.download_as_bytearray))

    async def facts(self) -> BotFacts:
        """What Telegram says about the bot. This receives no messages."""
        name = await self.identify()
        webhook = await translated(self._bot.get_webhook_info)
        bot = self._bot.bot
        return BotFacts(
            name=name,
            username=bot.username or "",
            reads_all=bool(bot.can_read_all_group_messages),
            joins_groups=bot.can_join_groups is not False,
            has_webhook=bool(webhook.url),
            waiting=webhook.pending_update_count,
        )

    async def remove_webhook(self) -> None:
        """Let the bot be polled. The messages that wait are kept."""
        await translated(lambda: self._bot.delete_webhook(drop_pending_updates=False))
