"""Upkeep: what a server does for its store when nobody asks."""

import asyncio

import msgspec

from backstay.config import Settings
from backstay.errors import StoreError
from backstay.runtime.app import App
from backstay.server.logs import log

_DAY = 86_400


async def keep_up(app: App, settings: Settings) -> None:
    """Tidy the store for ever, round after round; ends by cancellation.

    Several workers may do the same at once: each step is a small transaction, and what one did the other does not find.
    """
    keep = settings.keep_closed_days * _DAY or None
    while True:
        try:
            tidied = await app.unscoped.tidy(keep_closed_for=keep, fold_after=settings.fold_seconds)
        except StoreError:
            log.warning("store could not be tidied", exc_info=True)
        else:
            log.debug("store was tidied", extra={"did": msgspec.to_builtins(tidied)})
        await asyncio.sleep(settings.upkeep_seconds)
