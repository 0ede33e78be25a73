"""The secrets of webhooks, read from files and environment variables when the server starts."""

import os
from collections.abc import Mapping
from pathlib import Path

from backstay.errors import ConfigError
from backstay.model.gateways.webhook_settings import IncomingWebhook, OutgoingWebhook
from backstay.server.webhooks.webhook_signature import parse_secret

_HINT = "Write a secret of at least 16 characters, such as one of `openssl rand -base64 32`, one in each line."


def read_secrets(
    name: str, hook: IncomingWebhook | OutgoingWebhook, environment: Mapping[str, str] = os.environ
) -> tuple[bytes, ...]:
    """The secrets of a webhook, newest first.

    Raises:
        ConfigError: There is no valid secret.
    """
    where = hook.secret_file or f"the variable {hook.secret_env}"
    text = _read(name, hook.secret_file) if hook.secret_file else environment.get(hook.secret_env, "")
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if not lines:
        raise ConfigError(f"webhook {name}: {where} has no secret", hint=_HINT)
    try:
        return tuple(map(parse_secret, lines))
    except ValueError as error:
        raise ConfigError(f"webhook {name}: the secret in {where} is not valid: {error}", hint=_HINT) from error


def _read(name: str, file: str) -> str:
    try:
        return Path(file).expanduser().read_text("utf-8")
    except OSError as error:
        raise ConfigError(f"webhook {name}: {file} cannot be read: {error.strerror}", hint=_HINT) from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"webhook {name}: {file} is not text", hint=_HINT) from error
