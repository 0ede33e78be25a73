"""Sends notifications to the devices of an owner: encrypted, without text of the conversation unless they allow it."""

import asyncio
import hashlib
from collections.abc import Sequence

import httpx2
import msgspec

from backstay.clock import Clock, SystemClock
from backstay.errors import NotFound
from backstay.model.gateways.delivery import PartDeferred, PartRefused, PartResult, PartSent
from backstay.model.gateways.notification import Notification, NotificationKind
from backstay.model.gateways.push_subscription import PushSubscription
from backstay.model.turn import Cancelled, Completed, Failed, Interrupted
from backstay.runtime.owner_sessions import OwnerSessions
from backstay.server.push.push_encryption import ServerKey, encoded, encrypt
from backstay.server.webhooks.webhook_sender import retry_after
from backstay.store.commands.gateways import push_commands

_TIMEOUT = 15.0
# The push service keeps a message for a device that is off for so long, in seconds.
_KEPT_SECONDS = 86_400
_LONGEST_TITLE, _LONGEST_TEXT = 80, 160
_GONE = frozenset({404, 410})


class PushMessage(msgspec.Struct, frozen=True, kw_only=True):
    """What the service worker shows. A later message about the same session replaces it."""

    title: str
    body: str
    session: str
    needs_you: bool


class PushSender:
    """Sends to all devices of one owner."""

    kinds: tuple[NotificationKind, ...] = ("turn_ended", "approval_wanted")

    def __init__(
        self, owned: OwnerSessions, key: ServerKey, contact: str, http: httpx2.AsyncClient, clock: Clock | None = None
    ) -> None:
        self._owned, self._key, self._contact, self._http = owned, key, contact, http
        self._clock = clock or SystemClock()

    async def receivers(self, notification: Notification) -> Sequence[int]:
        """The devices that are told, unless their owner has switched this off for the session."""
        owner = self._owned.owner
        if isinstance(notification.outcome, Cancelled) or (notification.call is None and notification.agent is None):
            # Whoever stopped the turn knows that it has ended, and nobody waits for what a program recorded.
            return ()
        try:
            choice = await self._owned.run(push_commands.push_choice(notification.session, owner=owner))
        except NotFound:
            return ()
        if not (choice.needs_you if _needs_you(notification) else choice.done):
            return ()
        # What happened before a device was added is not news to it.
        return [one.number for one in await self._devices() if one.created_at <= notification.at]

    async def send(self, notification: Notification, receiver: int) -> tuple[PartResult, float | None]:
        """Send a notification to a device, once. A device that is gone is removed."""
        device = next((one for one in await self._devices() if one.number == receiver), None)
        if device is None:
            return PartRefused("the device was removed"), None
        message = msgspec.json.encode(message_of(notification, with_text=device.text))
        try:
            content = encrypt(message, device.public_key, device.secret)
        except ValueError as error:
            return PartRefused(f"the keys of the device are not valid: {error}"), None
        try:
            async with (
                asyncio.timeout(_TIMEOUT),
                self._http.stream(
                    "POST", device.endpoint, content=content, headers=self._headers(notification, device)
                ) as response,
            ):
                return await self._result(response, device), retry_after(response, self._clock.now() / 1000)
        except TimeoutError:
            return PartDeferred(f"no answer within {_TIMEOUT:g} seconds"), None
        except (httpx2.HTTPError, OSError) as error:
            return PartDeferred(str(error) or type(error).__name__), None

    def _headers(self, notification: Notification, device: PushSubscription) -> dict[str, str]:
        return {
            "authorization": self._key.authorization(device.endpoint, self._contact, self._clock.now() // 1000),
            "content-encoding": "aes128gcm",
            "content-type": "application/octet-stream",
            "ttl": str(_KEPT_SECONDS),
            "urgency": "high" if _needs_you(notification) else "normal",
            # The service replaces a message that it could not deliver yet by a later one of the same topic.
            "topic": encoded(hashlib.sha256(notification.session.encode()).digest()[:18]),
        }

    async def _result(self, response: httpx2.Response, device: PushSubscription) -> PartResult:
        status = response.status_code
        if 200 <= status < 300:
            return PartSent(str(status))
        if status in _GONE:
            await self._forget(device)
            return PartRefused(f"HTTP {status}: the device is gone, and was removed")
        return PartDeferred(f"HTTP {status}") if status == 429 or status >= 500 else PartRefused(f"HTTP {status}")

    async def _forget(self, device: PushSubscription) -> None:
        try:
            await self._owned.run(push_commands.unsubscribe_push(device.number, owner=device.owner))
        except NotFound:
            return

    async def _devices(self) -> tuple[PushSubscription, ...]:
        return await self._owned.run(push_commands.push_subscriptions(owner=self._owned.owner))


def message_of(notification: Notification, *, with_text: bool) -> PushMessage:
    """What a device shows. Without its consent, only the title of the session comes from the conversation."""
    body = _summary(notification)
    if with_text and notification.text:
        body = f"{body}: {' '.join(notification.text.split())[:_LONGEST_TEXT]}"
    return PushMessage(
        title=(notification.title or "Backstay")[:_LONGEST_TITLE],
        body=body,
        session=notification.session,
        needs_you=_needs_you(notification),
    )


def _needs_you(notification: Notification) -> bool:
    return notification.kind == "approval_wanted" or (
        isinstance(notification.outcome, Interrupted) and notification.outcome.waiting_for_approval
    )


def _summary(notification: Notification) -> str:
    if _needs_you(notification):
        return "Needs your approval"
    match notification.outcome:
        case Completed():
            return "Done"
        case Failed():
            return "Failed"
        case _:
            return "Interrupted"
