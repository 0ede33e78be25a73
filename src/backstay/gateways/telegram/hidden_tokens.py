"""Tokens of bots are removed from errors and logs: they are part of every address of the Bot API."""

import logging
import re

_TOKEN = re.compile(r"[0-9]+:[A-Za-z0-9_-]{8,}", re.ASCII)
# These log the addresses that they request.
_LOGGERS = ("httpx", "httpcore.connection", "httpcore.http11", "telegram.Bot", "telegram.ext.ExtBot")


def without_tokens(text: str) -> str:
    """The text without anything that looks like a token."""
    return _TOKEN.sub("…", text)


def hide_tokens_in_logs() -> None:
    """Remove tokens from the logs of the HTTP client, in any program. Calling it again changes nothing."""
    for name in _LOGGERS:
        logging.getLogger(name).addFilter(_hide)


def _hide(record: logging.LogRecord) -> bool:
    """A filter that keeps every record."""
    record.msg, record.args = without_tokens(record.getMessage()), ()
    return True
