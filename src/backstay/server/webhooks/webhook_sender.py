"""Sends notifications to a URL: signed requests, with an id that is the same at every attempt."""

import asyncio
from collections.abc import Sequence
from email.utils import parsedate_to_datetime
from importlib.metadata import version
from typing import Any

import httpx2
import msgspec

from backstay.clock import Clock, SystemClock
from backstay.model.gateways.delivery import PartDeferred, PartRefused, PartResult, PartSent
from backstay.model.gateways.notification import Notification, NotificationKind
from backstay.model.gateways.webhook_settings import OutgoingWebhook
from backstay.server.webhooks.webhook_signature import sign

# A request takes so long at most, in seconds.
TIMEOUT = 15.0
# A longer text is cut. The receiver reads the session for all of it.
_LONGEST_TEXT = 100_000
# The receiver will never accept this request. Anything else may be repaired there, and is tried again.
_PERMANENT = frozenset({400, 410, 413, 414, 415, 422, 431})

Json = dict[str, Any]  # Any: arbitrary JSON


class WebhookSender:
    """Sends to one URL. Use it inside `async with`."""

    def __init__(
        self, hook: OutgoingWebhook, secrets: Sequence[bytes], name: str, *, clock: Clock | None = None
    ) -> None:
        self._hook, self._secrets, self._name = hook, secrets, name
        self._clock = clock or SystemClock()
        self._client: httpx2.AsyncClient | None = None

    @property
    def kinds(self) -> tuple[NotificationKind, ...]:
        """The kinds of notifications that the URL receives."""
        return self._hook.events

    async def receivers(self, notification: Notification) -> Sequence[int]:
        """There is one receiver: the URL."""
        return (0,)

    async def send(self, notification: Notification, receiver: int) -> tuple[PartResult, float | None]:
        """Send a notification once."""
        return await self.post(notification.id, notification_body(notification, self._name, with_text=self._hook.text))

    async def post(self, id: str, body: Json) -> tuple[PartResult, float | None]:
        """Send a signed request once. Returns its result, and for how many seconds the receiver asks to wait."""
        content = msgspec.json.encode(body)
        headers = sign(self._secrets, id, self._clock.now() // 1000, content)
        headers |= {"content-type": "application/json", "user-agent": f"backstay/{version('backstay')}"}
        try:
            async with (
                asyncio.timeout(TIMEOUT),
                self._http().stream("POST", self._hook.url, content=content, headers=headers) as response,
            ):
                # The status says it all. The body of the answer is not read, however long it is.
                return _result(response), retry_after(response, self._clock.now() / 1000)
        except TimeoutError:
            return PartDeferred(f"no answer within {TIMEOUT:g} seconds"), None
        except (httpx2.HTTPError, OSError) as error:
            return PartDeferred(str(error) or type(error).__name__), None

    async def aclose(self) -> None:
        """Close the connections."""
        if self._client is not None:
            await self._client.aclose()

    def _http(self) -> httpx2.AsyncClient:
        # Opened when it is needed: to load the certificates of authorities takes longer than most requests.
        if self._client is None:
            self._client = httpx2.AsyncClient(follow_redirects=False, timeout=TIMEOUT)
        return self._client


def notification_body(notification: Notification, hook: str, *, with_text: bool) -> Json:
    """A notification as the JSON that is sent."""
    body: Json = {
        "id": notification.id,
        "type": notification.kind,
        "hook": hook,
        "at": notification.at,
        "session": {"id": notification.session, "title": notification.title},
    }
    if notification.change is not None:
        body["change"] = notification.change
    if notification.turn is not None:
        body["turn"] = {"id": notification.turn, "agent": notification.agent, "request_id": notification.request_id}
    if notification.outcome is not None:
        body["outcome"] = msgspec.to_builtins(notification.outcome)
        if with_text:
            body |= {"text": notification.text[:_LONGEST_TEXT], "truncated": len(notification.text) > _LONGEST_TEXT}
    if notification.call is not None:
        body["call"] = {"id": notification.call.id, "name": notification.call.name}
        if with_text:
            body["call"]["arguments"] = notification.call.arguments
    return body


def test_body(hook: str, at: int) -> Json:
    """The JSON of a test."""
    return {"id": f"test.{at}", "type": "test", "hook": hook, "at": at}


def _result(response: httpx2.Response) -> PartResult:
    status = response.status_code
    if 200 <= status < 300:
        return PartSent(str(status))
    if 300 <= status < 400:
        return PartRefused(f"HTTP {status}: redirects are not followed")
    return PartRefused(f"HTTP {status}") if status in _PERMANENT else PartDeferred(f"HTTP {status}")


def retry_after(response: httpx2.Response, now: float) -> float | None:
    """The Retry-After header in seconds, or None."""
    written = response.headers.get("retry-after", "").strip()
    if written.isascii() and written.isdigit() and len(written) <= 9:
        return float(written)
    try:
        return max(0.0, parsedate_to_datetime(written).timestamp() - now)
    except (TypeError, ValueError, OverflowError):
        return None
