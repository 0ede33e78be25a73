"""A reader of the page about Telegram, with a bot, a phone, and a Bot API on loopback."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.documentation.code_blocks import Command
from tests.documentation.page_shell import PageShell
from tests.gateways.fake_telegram import TOKEN, FakeTelegram, fake_telegram

# The code in the page; the bot gives another one.
_CODE = "ABCD-2345"


class TelegramReader:
    """Writes to the bot when the page says so."""

    def __init__(self, telegram: FakeTelegram, shell: PageShell) -> None:
        self._telegram, self._shell = telegram, shell
        self._is_let_in = False

    def read(self, command: Command) -> None:
        """Do what stands before a command: ask the bot for a code."""
        if _CODE in command.text and _CODE not in self._shell.names:
            self._telegram.write("hello")
            self._telegram.wait_for(lambda: bool(self._telegram.texts()))
            self._shell.names[_CODE] = re.findall(r"[0-9A-Z]{4}-[0-9A-Z]{4}", self._telegram.texts()[0])[0]
            self._is_let_in = True

    def finish(self) -> None:
        """Write to the bot again: whoever was let in is answered."""
        if self._is_let_in:
            self._telegram.write("Are you there?")
            self._telegram.wait_for(lambda: any("Are you there?" in text for text in self._telegram.texts()))


@contextmanager
def telegram_reader(page: Path, shell: PageShell) -> Iterator[TelegramReader | None]:
    """The reader, if this page is about Telegram."""
    if page.name != "telegram.md":
        yield None
        return
    with fake_telegram() as telegram:
        shell.put("bot-token", TOKEN)
        shell.settings["BACKSTAY_GATEWAYS_TELEGRAM_SERVER"] = telegram.url
        yield TelegramReader(telegram, shell)
