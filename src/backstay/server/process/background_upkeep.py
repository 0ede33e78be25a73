"""Periodic maintenance of the store."""

import asyncio

import msgspec

from backstay.config import Settings
from backstay.errors import StoreError
from backstay.runtime.app import App
from backstay.server.telemetry.logs import log

_DAY = 86_400


async def maintain_periodically(app: App, settings: Settings) -> None:
    """Maintain the store periodically, until cancelled.

    A round closes expired sessions, deletes old closed ones, folds ended turns and updates the search index.

    Several workers may do this at once: each step is a small transaction that skips finished work.
    """
    keep = settings.keep_closed_days * _DAY or None
    while True:
        try:
            report = await app.run_upkeep(keep_closed_for=keep, fold_after=settings.fold_seconds)
        except StoreError:
            log.warning("store upkeep failed", exc_info=True)
        else:
            log.debug("store upkeep done", extra={"did": msgspec.to_builtins(report)})
        await asyncio.sleep(settings.upkeep_seconds)
