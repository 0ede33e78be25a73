"""A program that runs a gateway, to be killed: `python -m tests.gateways.gateway_program DATABASE SERVER`."""

import asyncio
import sys
from collections.abc import AsyncIterator

import backstay
from backstay import Text
from backstay.agents import AgentTurn
from backstay.gateways.gateway_options import GatewayOptions
from backstay.gateways.gateway_runner import Gateway
from backstay.gateways.telegram.telegram_platform import TelegramPlatform
from tests.gateways.fake_telegram import TOKEN


async def echo(turn: AgentTurn) -> AsyncIterator[Text]:
    yield Text("you said: ")
    yield Text(turn.input.text)


async def main(place: str, server: str) -> None:
    options = GatewayOptions(allow=frozenset({"*"}), retry=0.01, takeover=0.02, quiet=0.05)
    # Whoever continues an interrupted turn answers it.
    async with (
        backstay.open(place, agent=echo, on_interrupt="resume", lease_seconds=2) as app,
        TelegramPlatform(TOKEN, server=server, poll_seconds=1) as platform,
    ):
        await Gateway(app, platform, options).run()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
