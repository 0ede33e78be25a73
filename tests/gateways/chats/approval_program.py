"""A gateway without an agent: `python -m tests.gateways.chats.approval_program DATABASE SERVER [STEP]`.

With a step, it kills itself there: before or after a request about a notice.
"""

import asyncio
import os
import signal
import sys

import backstay
from backstay.gateways.gateway_options import GatewayOptions
from backstay.gateways.gateway_runner import Gateway
from backstay.gateways.platform import ButtonRows, ChatPlace
from backstay.gateways.telegram.telegram_platform import TelegramPlatform
from tests.gateways.fake_telegram import TOKEN

# Before and after a question is sent; before and after a press is answered; before and after a question is edited.
STEPS = ("ask", "asked", "answer", "answered", "edit", "edited")


class DyingPlatform(TelegramPlatform):
    """Telegram; the process dies beside one of its calls."""

    def __init__(self, server: str, step: str) -> None:
        super().__init__(TOKEN, server=server, poll_seconds=1)
        self._step = step

    async def ask(self, place: ChatPlace, text: str, buttons: ButtonRows) -> str:
        self._die("ask", text)
        sent = await super().ask(place, text, buttons)
        self._die("asked", text)
        return sent

    async def edit(self, message: str, text: str, buttons: ButtonRows = ()) -> None:
        self._die("edit", text)
        await super().edit(message, text, buttons)
        self._die("edited", text)

    async def answer(self, press: str, text: str) -> None:
        self._die("answer")
        await super().answer(press, text)
        self._die("answered")

    def _die(self, step: str, text: str = "🔐") -> None:
        if step == self._step and "🔐" in text:
            os.kill(os.getpid(), signal.SIGKILL)


async def main(place: str, server: str, step: str = "") -> None:
    options = GatewayOptions(allow=frozenset({"42"}), retry=0.01, takeover=0.02, quiet=0.05, previews=False)
    async with backstay.open(place, lease_seconds=2) as app, DyingPlatform(server, step) as platform:
        await Gateway(app, platform, options).run()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
