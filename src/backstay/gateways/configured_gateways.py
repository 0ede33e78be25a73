"""The gateways that the settings name."""

from collections.abc import Collection, Mapping
from importlib.util import find_spec

from backstay.config import Settings, TelegramSettings
from backstay.errors import ConfigError
from backstay.gateways.gateway_options import GatewayOptions
from backstay.gateways.gateway_service import GatewayService
from backstay.gateways.telegram.bot_token import TOKEN_VARIABLE, account_of, find_token, require_token
from backstay.gateways.transcription import Transcription
from backstay.model.gateways.gateway_report import GatewayReport
from backstay.model.operations.findings import Finding

TRANSCRIPTION_KEY = "BACKSTAY_TRANSCRIPTION_KEY"


def configured_gateways(
    settings: Settings, environment: Mapping[str, str], agents: Collection[str]
) -> tuple[GatewayService, ...]:
    """The gateways that have a token. Nothing connects yet.

    Args:
        settings: The settings.
        environment: The environment, which may have a token.
        agents: The names of the agents that answer.

    Raises:
        ConfigError: The token or its file is not valid, an extra is not installed, or there is no such agent.
    """
    telegram = settings.gateways.telegram
    if find_token(telegram, environment) is None:
        if telegram != TelegramSettings():
            raise ConfigError(
                "gateways.telegram has settings, but the bot has no token",
                hint=f"Name its file in gateways.telegram.token_file, or set {TOKEN_VARIABLE}.",
            )
        return ()
    return (telegram_gateway(telegram, environment, agents),)


def telegram_gateway(
    telegram: TelegramSettings, environment: Mapping[str, str], agents: Collection[str]
) -> GatewayService:
    """The gateway of a Telegram bot.

    Raises:
        ConfigError: As for `configured_gateways`, and there is no token.
    """
    token = require_token(telegram, environment)
    if telegram.agent and telegram.agent not in agents:
        raise ConfigError(
            f"gateways.telegram.agent is {telegram.agent!r}, which is not an agent here",
            hint=f"Name one of these: {', '.join(agents) or 'none'}.",
        )
    _require_extra()
    # Imported here: only a server with a bot needs the extra.
    from backstay.gateways.telegram.telegram_platform import TelegramPlatform  # noqa: PLC0415

    server = telegram.server.rstrip("/")
    return GatewayService(
        f"telegram/{account_of(token)}",
        lambda: TelegramPlatform(require_token(telegram, environment), server=server),
        telegram_options(telegram, environment.get(TRANSCRIPTION_KEY, "")),
    )


async def examine_gateways(
    settings: Settings, environment: Mapping[str, str], reports: tuple[GatewayReport, ...], *, fix: bool = False
) -> list[Finding]:
    """Check the gateways of the settings. No message is received, so a poller is not disturbed.

    Args:
        settings: The settings.
        environment: The environment, which may have a token.
        reports: The reports about the gateways of the store.
        fix: Whether a webhook, which prevents polling, is removed.

    Raises:
        ConfigError: An extra is not installed.
    """
    _require_extra()
    from backstay.gateways.telegram.telegram_doctor import examine_telegram  # noqa: PLC0415  # as above

    return await examine_telegram(settings, environment, reports, fix=fix)


def _require_extra() -> None:
    if find_spec("telegram") is None:
        raise ConfigError(
            "a Telegram bot needs python-telegram-bot, which is not installed",
            hint="Install the extra: pip install 'backstay[telegram]'",
        )


def telegram_options(telegram: TelegramSettings, transcription_key: str = "") -> GatewayOptions:
    """The options of a Telegram bot."""
    url, model = telegram.transcription_url, telegram.transcription_model
    return GatewayOptions(
        allow=frozenset((*telegram.allow_users, *telegram.allow_chats)),
        pairing=telegram.pairing,
        approvers=frozenset(telegram.approvers),
        if_busy=telegram.if_busy,
        previews=telegram.previews,
        agent=telegram.agent or None,
        groups=telegram.groups,
        members=telegram.members,
        gather_texts=telegram.gather_texts,
        transcription=Transcription(url=url, model=model, key=transcription_key) if url else None,
    )
