"""Checks of a Telegram bot: token, webhook, permissions, people, messages and poller."""

import asyncio
import stat
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from backstay.config import Settings, TelegramSettings
from backstay.errors import ConfigError
from backstay.gateways.platform import SendDeferred, SendRefused, SendUncertain
from backstay.gateways.telegram.bot_token import account_of, require_token
from backstay.gateways.telegram.telegram_platform import BotFacts, TelegramPlatform
from backstay.model.gateways.gateway_report import GatewayReport
from backstay.model.operations.findings import Finding, Level


async def examine_telegram(
    settings: Settings, environment: Mapping[str, str], reports: tuple[GatewayReport, ...], *, fix: bool = False
) -> list[Finding]:
    """Check the bot of the settings. It receives no messages, so a poller is not disturbed.

    Args:
        settings: The settings.
        environment: The environment, which may have the token.
        reports: The reports about the gateways of the store.
        fix: Whether a webhook is removed.
    """
    telegram = settings.gateways.telegram
    try:
        token = await asyncio.to_thread(require_token, telegram, environment)
    except ConfigError as error:
        return [_finding("token", "wrong", str(error.args[0]), error.hint or "")]
    name = f"telegram/{account_of(token)}"
    report = next((one for one in reports if one.name == name), None)
    stored = [*_people(telegram, report), *_messages(name, report)]
    connect = partial(TelegramPlatform, token, server=telegram.server.rstrip("/"))
    async with await asyncio.to_thread(connect) as platform:
        try:
            facts = await platform.facts()
            if fix and facts.has_webhook:
                await platform.remove_webhook()
                facts = await platform.facts()
        except SendRefused as error:
            return [_finding("token", "wrong", str(error), "@BotFather shows the token of a bot."), *stored]
        except (SendDeferred, SendUncertain) as error:
            return [
                _finding("Bot API", "wrong", f"{telegram.server} does not answer: {error}", "Check the network."),
                *stored,
            ]
    return [*await asyncio.to_thread(_token, telegram, facts), *_permissions(telegram, facts), *stored]


def _finding(about: str, level: Level, detail: str, hint: str = "") -> Finding:
    return Finding(about=about, level=level, detail=detail, hint=hint)


def _token(telegram: TelegramSettings, facts: BotFacts) -> list[Finding]:
    found = [_finding("token", "fine", f"{facts.name} is @{facts.username}")]
    file = telegram.token_file
    if file and stat.S_IMODE(Path(file).stat().st_mode) & 0o077:
        found.append(_finding("token file", "wrong", f"other users can read {file}", f"Run chmod 600 {file}."))
    return found


def _permissions(telegram: TelegramSettings, facts: BotFacts) -> list[Finding]:
    found = [_webhook(facts)]
    if facts.waiting:
        found.append(_finding("waiting", "note", f"{facts.waiting} messages wait at Telegram"))
    groups = any(one.startswith("-") for one in telegram.allow_chats)
    if not facts.joins_groups and groups:
        found.append(_finding("groups", "wrong", "the bot may not join groups", "Send /setjoingroups to @BotFather."))
    elif facts.reads_all:
        found.append(_finding("groups", "fine", "the bot receives all messages of its groups"))
    else:
        level: Level = "wrong" if telegram.groups == "all" else "fine"
        hint = "Send /setprivacy to @BotFather, then add the bot to the group again." if level == "wrong" else ""
        found.append(_finding("groups", level, "the bot receives only group messages that name or answer it", hint))
    return found


def _webhook(facts: BotFacts) -> Finding:
    if not facts.has_webhook:
        return _finding("webhook", "fine", "none is set")
    return _finding(
        "webhook",
        "wrong",
        "one is set, so Telegram gives the messages to another program and the bot cannot be polled",
        "Run `backstay gateway doctor --fix` to remove it. The messages that wait are kept.",
    )


def _people(telegram: TelegramSettings, report: GatewayReport | None) -> list[Finding]:
    allowed = (*telegram.allow_users, *telegram.allow_chats)
    if "*" in allowed:
        return [_finding("people", "note", "everybody on Telegram may write to the bot")]
    if allowed:
        return [_finding("people", "fine", f"{len(allowed)} people or chats are allowed")]
    paired = [] if report is None else [one for one in report.people if one.paired_at is not None]
    if not telegram.pairing:
        return [_finding("people", "wrong", "nobody may write to the bot", "Name people in allow_users.")]
    if paired:
        return [_finding("people", "fine", f"{len(paired)} let in by a code")]
    return [_finding("people", "note", "nobody may write yet", "Write to the bot: it answers with a code to confirm.")]


def _messages(name: str, report: GatewayReport | None) -> list[Finding]:
    if report is None:
        return [_finding("poller", "note", f"{name} has not run with this store", "Run `backstay gateway telegram`.")]
    received = "none was received yet"
    if report.received_at is not None:
        received = f"the last one was received at {_moment(report.received_at)}"
    return [_finding("messages", "fine", received), _poller(report)]


def _poller(report: GatewayReport) -> Finding:
    if report.state in ("polling", "starting"):
        answered = "" if report.answered_at is None else f"; Telegram answered at {_moment(report.answered_at)}"
        return _finding("poller", "fine", f"{report.state}, by {report.poller}{answered}")
    hint = "Start `backstay serve` or `backstay gateway telegram`, or read its log."
    return _finding("poller", "wrong", f"{report.state}: {report.problem}", hint)


def _moment(milliseconds: int) -> str:
    return f"{datetime.fromtimestamp(milliseconds / 1000, UTC):%Y-%m-%d %H:%M:%S} UTC"
