"""The token of a Telegram bot: read from a file or the environment, and never shown."""

import re
from collections.abc import Mapping
from pathlib import Path

from backstay.config import TelegramSettings
from backstay.errors import ConfigError

TOKEN_VARIABLE = "BACKSTAY_TELEGRAM_TOKEN"  # noqa: S105  # the name of a variable

_TOKEN = re.compile(r"[0-9]{1,20}:[A-Za-z0-9_-]{8,200}", re.ASCII)
# Longer than any token: another file, such as a device, is not read to its end.
_MOST_BYTES = 4_096


def find_token(telegram: TelegramSettings, environment: Mapping[str, str]) -> str | None:
    """The token in the named file, or else in the environment; None if neither is given.

    Raises:
        ConfigError: The file cannot be read, or does not contain a token. The error does not show its content.
    """
    if telegram.token_file:
        return _checked(_read(Path(telegram.token_file)), telegram.token_file)
    written = environment.get(TOKEN_VARIABLE, "")
    return _checked(written, TOKEN_VARIABLE) if written.strip() else None


def require_token(telegram: TelegramSettings, environment: Mapping[str, str]) -> str:
    """The token in the named file, or else in the environment.

    Raises:
        ConfigError: As for `find_token`, and there is no token.
    """
    token = find_token(telegram, environment)
    if token is None:
        raise ConfigError(
            "the Telegram bot has no token",
            hint=f"Get one from @BotFather. Write it into a file for --token-file, or set {TOKEN_VARIABLE}.",
        )
    return token


def account_of(token: str) -> str:
    """The id of the bot, which is not secret."""
    return token.partition(":")[0]


def _read(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return file.read(_MOST_BYTES).decode(errors="replace")
    except OSError as error:
        raise ConfigError(
            f"{path} with the token of the bot cannot be read: {error.strerror}",
            hint="Write the token into this file, readable only by you.",
        ) from error


def _checked(written: str, where: str) -> str:
    token = written.strip()
    if not _TOKEN.fullmatch(token):
        raise ConfigError(
            f"{where} does not contain the token of a Telegram bot",
            hint="@BotFather gives one for each bot: a number, a colon, and letters.",
        )
    return token
