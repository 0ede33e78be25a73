"""Web Push of a server: one outbox for each owner that has devices."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import cached_property
from importlib.util import find_spec
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import httpx2

from backstay.config import Settings
from backstay.errors import BackstayError
from backstay.model.gateways.notification import PUSH
from backstay.model.gateways.push_subscription import PushSubscription
from backstay.runtime.app import App
from backstay.runtime.notifications.notification_outbox import NotificationOutbox
from backstay.runtime.notifications.notification_sender import NotificationRetry
from backstay.server.http.problems import Refused, invalid
from backstay.server.telemetry.logs import log
from backstay.store.commands.gateways import push_commands

if TYPE_CHECKING:
    from backstay.server.push.push_encryption import ServerKey

# The push services of the makers of browsers. Other addresses are not called: they come from clients.
SERVICES = ("fcm.googleapis.com", "updates.push.services.mozilla.com", "*.push.apple.com", "*.notify.windows.com")
# How often other processes look for owners that have got their first device, in seconds.
_LOOK_SECONDS = 60.0


class PushService:
    """The outboxes of all owners with devices, and the key of the store."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._key: ServerKey | None = None
        self._tasks: dict[str, asyncio.Task[None]] = {}

    @cached_property
    def available(self) -> bool:
        """Whether the extra `push` is installed."""
        return find_spec("cryptography") is not None

    @asynccontextmanager
    async def running(self, app: App) -> AsyncIterator[None]:
        """Send inside the block."""
        if not self.available:
            yield
            return
        async with httpx2.AsyncClient(follow_redirects=False) as http:
            looking = asyncio.create_task(self._look(app, http), name="backstay push")
            self._http = http
            try:
                yield
            finally:
                tasks = [looking, *self._tasks.values()]
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)
                self._tasks.clear()

    async def key(self, app: App) -> "ServerKey":
        """The key of the store. It is made once, and kept: browsers subscribe to it."""
        from backstay.server.push.push_encryption import ServerKey, new_private_key  # noqa: PLC0415  # the extra

        if self._key is None:
            self._key = ServerKey(await app.run_for_all(push_commands.keep_push_key(new_private_key())))
        return self._key

    async def subscribe(
        self, app: App, owner: str, endpoint: str, *, public_key: str, secret: str, name: str, text: bool
    ) -> PushSubscription:
        """Store a device of an owner, and send to it from now on.

        Raises:
            Refused: The keys are not valid, or the endpoint belongs to no known push service.
        """
        from backstay.server.push.push_encryption import check_device  # noqa: PLC0415  # the extra

        if not self.is_service(endpoint):
            raise Refused(
                422,
                "push_service",
                "this push service is not known",
                hint="The operator can add its host to the setting push_services.",
            )
        try:
            check_device(public_key, secret)
        except ValueError as error:
            raise invalid(f"the keys are not valid: {error}", "Send those of PushSubscription.toJSON().") from error
        # First the outbox: a new one begins with what happens from now on.
        await self._ensure(app, owner)
        return await app.owned_by(owner).run(
            push_commands.subscribe_push(
                endpoint, owner=owner, public_key=public_key, secret=secret, name=name, text=text
            )
        )

    def is_service(self, endpoint: str) -> bool:
        """Whether the endpoint belongs to a push service of a browser, or to one that the operator has added."""
        try:
            parts = urlsplit(endpoint)
            host, place = parts.hostname or "", parts.netloc
        except ValueError:
            return False
        if place in self._settings.push_services:
            return parts.scheme in ("http", "https")
        return parts.scheme == "https" and place == host and any(_matches(host, one) for one in SERVICES)

    async def _look(self, app: App, http: httpx2.AsyncClient) -> None:
        """Start the outboxes of owners that have devices, also those that another process has stored."""
        while True:
            try:
                for owner in await app.run_for_all(push_commands.push_owners()):
                    await self._ensure(app, owner)
            except BackstayError:
                log.warning("devices could not be read", exc_info=True)
            await asyncio.sleep(_LOOK_SECONDS)

    async def _ensure(self, app: App, owner: str) -> None:
        if owner in self._tasks:
            return
        from backstay.server.push.push_sender import PushSender  # noqa: PLC0415  # the extra

        sender = PushSender(app.owned_by(owner), await self.key(app), self._contact(), self._http)
        outbox = NotificationOutbox(app.owned_by(owner), PUSH, sender, NotificationRetry())
        await outbox.begin()
        if owner not in self._tasks:
            self._tasks[owner] = asyncio.create_task(outbox.run(), name=f"backstay push {owner}")

    def _contact(self) -> str:
        host = next(iter(self._settings.allowed_hosts), "example.org").partition(":")[0]
        return self._settings.push_contact or f"mailto:backstay@{host}"


def _matches(host: str, pattern: str) -> bool:
    return host == pattern or (pattern.startswith("*.") and host.endswith(pattern[1:]))
