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

T = TypeVar("T")

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
    """The result of a request, or one of the gateway's errors."""
    try:
        return await request()
    except RetryAfter as error:
        seconds = _seconds(error)
        raise SendDeferred(f"Telegram asks to wait for {seconds:g} s", seconds) from error
    except ChatMigrated as error:
        instead = ChatPlace(kind="group", chat=str(error.new_chat_id))
        raise PlaceMoved("the group became a supergroup", instead) from error
    except Conflict as error:
        raise SendDeferred(f"another program polls this bot: {error.message}") from error
    except InvalidToken as error:
        # A new token may be set any time. What waits to be sent is not given up because of the old one.
        raise SendDeferred(f"Telegram does not accept the token: {error.message}") from error
    except Forbidden as error:
        raise ChatGone(error.message) from error
    except BadRequest as error:
        gone = any(reason in error.message.lower() for reason in _CHAT_GONE)
        raise (ChatGone if gone else SendRefused)(error.message) from error
    except NetworkError as error:
        if isinstance(error.__cause__, _NOT_SENT):
            raise SendDeferred(error.message) from error
        raise SendUncertain(error.message) from error
    except TelegramError as error:
        raise SendUncertain(error.message) from error


def _seconds(error: RetryAfter) -> float:
    with warnings.catch_warnings():
        # The library warns that this number will be a `timedelta` one day. Both are read here.
        warnings.simplefilter("ignore")
        wait = error.retry_after
    return float(wait) if isinstance(wait, int) else wait.total_seconds()
