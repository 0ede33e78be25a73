"""A process that runs a gateway and serves agents to it, without HTTP."""

import asyncio
import os
from collections.abc import Awaitable, Callable

import msgspec

from backstay.agents.selection.selection import AgentSelection
from backstay.config import Settings
from backstay.errors import ConfigError
from backstay.gateways.configured_gateways import telegram_gateway
from backstay.gateways.gateway_service import GatewayService
from backstay.gateways.platform import SendDeferred, SendRefused, SendUncertain
from backstay.runtime.served_app import served_app
from backstay.server.process.background_upkeep import maintain_periodically
from backstay.server.process.shutdown import Shutdown
from backstay.server.process.worker import agents_of, on_a_loop
from backstay.server.telemetry.logs import set_up


def run_telegram(settings: Settings, selection: AgentSelection, announce: Callable[[str], None]) -> None:
    """Receive messages of the Telegram bot and send the answers, until a stop signal.

    Raises:
        BackstayError: The gateway cannot start, and waiting would not help.
    """
    stopping = Shutdown()
    set_up(settings.log_level, settings.log_format)
    settings = msgspec.structs.replace(settings, agent=selection.agent)
    agents = agents_of(settings)
    service = telegram_gateway(settings.gateways.telegram, os.environ, agents)

    async def serve() -> None:
        await _refuse_wrong_token(service)
        async with served_app(settings, agents) as app, asyncio.TaskGroup() as group:
            group.create_task(maintain_periodically(app, settings), name="backstay upkeep")
            announce(service.status.name)
            await service.run(app)

    on_a_loop(_until_stopped(serve, stopping))


async def _until_stopped(serve: Callable[[], Awaitable[None]], stopping: Shutdown) -> None:
    serving = asyncio.ensure_future(serve())
    with stopping.handled_by(lambda _: serving.cancel()):
        await asyncio.wait({serving})
    if not serving.cancelled():
        await serving


async def _refuse_wrong_token(service: GatewayService) -> None:
    """Raise for a token that the platform refuses. A platform that does not answer is waited for later."""
    async with await asyncio.to_thread(service.connect) as platform:
        try:
            await platform.identify()
        except SendRefused as error:
            raise ConfigError(f"{service.status.name}: {error}", hint="@BotFather shows the token of a bot.") from None
        except (SendDeferred, SendUncertain):
            return
