"""A program that runs a gateway, to be killed: `python -m tests.gateways.gateway_program DATABASE SERVER [STEP TEXT]`.

With a step, it kills itself there, once it meets a message with this text.
"""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Sequence

import backstay
from backstay import Text
from backstay.agents import AgentTurn
from backstay.gateways.gateway_options import GatewayOptions
from backstay.gateways.gateway_runner import Gateway
from backstay.gateways.platform import ChatPlace, Update
from backstay.gateways.telegram.telegram_platform import TelegramPlatform
from tests.gateways.fake_telegram import TOKEN

STEPS = ("receive", "store", "acknowledge", "run", "send", "receipt")


class Death:
    """The end of the process at a step, for a message with a text."""

    def __init__(self, step: str = "", text: str = "") -> None:
        self._step, self._text = step, text

    def at(self, step: str, text: str) -> None:
        """Die, if it is here."""
        if self._step == step and self._text in text:
            os.kill(os.getpid(), signal.SIGKILL)


class MortalPlatform(TelegramPlatform):
    """Telegram; the process dies between its calls."""

    def __init__(self, server: str, death: Death) -> None:
        super().__init__(TOKEN, server=server, poll_seconds=1)
        self._death, self._received = death, ""

    async def receive(self, cursor: str) -> Sequence[Update]:
        # The last messages are stored, and Telegram is not told yet.
        self._death.at("store", self._received)
        found = await super().receive(cursor)
        self._death.at("acknowledge", self._received)
        self._received = " ".join(update.message.text for update in found if update.message is not None)
        self._death.at("receive", self._received)
        return found

    async def send(self, place: ChatPlace, text: str) -> str:
        self._death.at("send", text)
        sent = await super().send(place, text)
        self._death.at("receipt", text)
        return sent


async def echo(death: Death, turn: AgentTurn) -> AsyncIterator[Text]:
    yield Text("you said: ")
    death.at("run", turn.input.text)
    yield Text(turn.input.text)


async def main(place: str, server: str, *death: str) -> None:
    options = GatewayOptions(allow=frozenset({"*"}), retry=0.01, takeover=0.02, quiet=0.05, previews=False)
    end = Death(*death)

    async def agent(turn: AgentTurn) -> AsyncIterator[Text]:
        async for text in echo(end, turn):
            yield text

    # Whoever continues an interrupted turn answers it.
    async with (
        backstay.open(place, agent=agent, on_interrupt="resume", lease_seconds=2) as app,
        MortalPlatform(server, end) as platform,
    ):
        await Gateway(app, platform, options).run()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
