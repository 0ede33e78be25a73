"""Errors of the Bot API as errors of a gateway."""

import warnings
from collections.abc import Awaitable, Callable
from typing import TypeVar

import httpx
from telegram.error import (
    BadRequest,
    ChatMigrated,
    Conflict,
    Forbidden,
    InvalidToken,
    NetworkError,
    RetryAfter,
    TelegramError,
)

from backstay.gateways.platform import ChatGone, ChatPlace, PlaceMoved, SendDeferred, SendRefused, SendUncertain
from backstay.gateways.telegram.hidden_tokens import without_tokens

T = TypeVar("T")

TOKEN_REFUSED = "Telegram does not accept the token of the bot"  # noqa: S105  # it is not a token
# A request that fails with one of these has certainly not reached the server.
_NOT_SENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout)
# "Bad Request", although it is the chat that accepts nothing.
_CHAT_GONE = (
    "chat not found",
    "user not found",
    "peer_id_invalid",
    "chat_write_forbidden",
    "not enough rights to send text",
)


async def translated(request: Callable[[], Awaitable[T]]) -> T:
    """The result of a request, or one of the gateway's errors.

    The library's error is not its cause: it may contain the token, and a traceback would show it.
    """
    try:
        return await request()
    except RetryAfter as error:
        seconds = _seconds(error)
        raise SendDeferred(f"Telegram asks to wait for {seconds:g} s", seconds) from None
    except ChatMigrated as error:
        instead = ChatPlace(kind="group", chat=str(error.new_chat_id))
        raise PlaceMoved("the group became a supergroup", instead) from None
    except Conflict as error:
        raise SendDeferred(_conflict(error.message)) from None
    except InvalidToken:
        # A new token may be set any time. Waiting answers are not given up because of the old one.
        raise SendDeferred(TOKEN_REFUSED) from None
    except Forbidden as error:
        raise ChatGone(without_tokens(error.message)) from None
    except BadRequest as error:
        gone = any(reason in error.message.lower() for reason in _CHAT_GONE)
        raise (ChatGone if gone else SendRefused)(without_tokens(error.message)) from None
    except NetworkError as error:
        if isinstance(error.__cause__, _NOT_SENT):
            raise SendDeferred(without_tokens(error.message)) from None
        raise SendUncertain(without_tokens(error.message)) from None
    except TelegramError as error:
        raise SendUncertain(without_tokens(error.message)) from None


def _conflict(message: str) -> str:
    if "webhook" in message.lower():
        return "a webhook of the bot is set, so it cannot be polled: `backstay gateway doctor --fix` removes it"
    return f"another program polls this bot: {message}"


def _seconds(error: RetryAfter) -> float:
    with warnings.catch_warnings():
        # The library warns that this number will be a `timedelta` one day. Both are read here.
        warnings.simplefilter("ignore")
        wait = error.retry_after
    return float(wait) if isinstance(wait, int) else wait.total_seconds()
