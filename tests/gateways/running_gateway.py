"""A gateway to the fake Telegram, in this process."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import backstay
from backstay import Text
from backstay.agents import AgentLike, AgentTurn
from backstay.gateways.gateway_options import GatewayOptions
from backstay.gateways.gateway_runner import Gateway
from backstay.gateways.telegram.telegram_platform import TelegramPlatform
from backstay.runtime.app import OnInterrupt
from tests.databases import Place
from tests.gateways.fake_telegram import TOKEN, FakeTelegram

# Only tests about acknowledgements see them, however slow the machine is.
QUICK = GatewayOptions(allow=frozenset({"42"}), quiet=0.05, retry=0.01, takeover=0.05, acknowledge=60.0)


async def echo(turn: AgentTurn) -> AsyncIterator[Text]:
    yield Text(f"you said: {turn.input.text}")


@asynccontextmanager
async def running(
    place: Place,
    telegram: FakeTelegram,
    options: GatewayOptions = QUICK,
    agent: AgentLike = echo,
    *,
    platform: type[TelegramPlatform] = TelegramPlatform,
    on_interrupt: OnInterrupt = "leave",
) -> AsyncIterator[backstay.App]:
    """A gateway inside the block."""
    async with (
        backstay.open(place, agent=agent, on_interrupt=on_interrupt) as app,
        platform(TOKEN, server=telegram.url, poll_seconds=1) as bot,
    ):
        task = asyncio.create_task(Gateway(app, bot, options).run())
        try:
            yield app
        finally:
            task.cancel()
            (end,) = await asyncio.gather(task, return_exceptions=True)
            assert isinstance(end, asyncio.CancelledError), f"the gateway ended by itself: {end!r}"


async def seen(telegram: FakeTelegram, count: int, chat: int = 42) -> list[str]:
    """Wait until the people in a chat see so many messages of the bot."""
    await asyncio.to_thread(telegram.wait_for, lambda: sum(one.chat == chat for one in telegram.seen) >= count)
    return telegram.texts(chat)


async def until(app: backstay.App, condition: Callable[[], Awaitable[bool]]) -> None:
    """Wait until the store is like this."""
    with app.subscribe((), everything=True) as subscription:
        while True:
            # Clear before the read: a write during the read sets the event again.
            subscription.changed.clear()
            if await condition():
                return
            await asyncio.wait_for(subscription.changed.wait(), 60)
