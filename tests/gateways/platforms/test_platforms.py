"""Every platform keeps the contract, each against its fake."""

from collections import deque
from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager

import pytest

from backstay.gateways.platform import ChatPlace
from backstay.gateways.telegram.telegram_platform import TelegramPlatform
from tests.gateways.fake_telegram import TOKEN, FakeTelegram, Fault, fake_telegram
from tests.gateways.platforms.platform_contract import ChatService, PlatformContract, Trouble, Visible

ANN, GROUP = 42, -100
METHODS = {
    "receive": "getUpdates",
    "send": "sendMessage",
    "ask": "sendMessage",
    "send_file": "sendPhoto",
    "edit": "editMessageText",
    "remove": "deleteMessage",
    "preview": "sendMessageDraft",
}
FAULTS: dict[Trouble, list[Fault]] = {
    "wait": ["429"],
    "not sent": ["500 before"],
    "lost": ["cut after"],
    "refused": ["refused", "refused"],
}


class TelegramService:
    """The fake Bot API."""

    def __init__(self, fake: FakeTelegram) -> None:
        self._fake = fake

    def connect(self) -> AbstractAsyncContextManager[TelegramPlatform]:
        return TelegramPlatform(TOKEN, server=self._fake.url, poll_seconds=1)

    def place(self, *, group: bool = False) -> ChatPlace:
        return ChatPlace(kind="group" if group else "dm", chat=str(GROUP if group else ANN))

    def write(self, text: str, *, group: bool = False, file: bytes | None = None) -> None:
        if file is not None:
            self._fake.files["photo"] = file
        self._fake.write(
            f"{text} @fake_bot" if group else text,
            chat=GROUP if group else ANN,
            kind="supergroup" if group else "private",
            photo=None if file is None else "photo",
        )

    def press(self, message: str, button: str) -> None:
        self._fake.press(int(message.partition("/")[2]), button)

    def visible(self, *, group: bool = False) -> list[Visible]:
        chat = GROUP if group else ANN
        return [
            Visible(
                f"{chat}/{one.number}",
                one.text,
                one.file[2] if one.file else None,
                tuple(label for label, _ in one.buttons),
            )
            for one in self._fake.seen
            if one.chat == chat
        ]

    def previews(self) -> list[str]:
        return [text for chat, text in self._fake.drafts.items() if chat == ANN]

    def expect(self, operation: str, trouble: Trouble) -> None:
        self._fake.faults[METHODS[operation]] = deque(FAULTS[trouble])
        if (operation, trouble) == ("send_file", "refused"):
            # A refused photo is tried as a document.
            self._fake.faults["sendDocument"] = deque(FAULTS[trouble])

    def block(self) -> None:
        self._fake.blocked.add(ANN)


@pytest.mark.engines("sqlite")
class TestTelegram(PlatformContract):
    @pytest.fixture
    def service(self) -> Iterator[ChatService]:
        with fake_telegram() as fake:
            yield TelegramService(fake)
