"""The outgoing webhooks of a server: one outbox for each, and its state for the operator."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import msgspec

from backstay.clock import SystemClock
from backstay.config import Settings
from backstay.errors import NotFound
from backstay.model.gateways.delivery import PartSent
from backstay.model.gateways.notification import WEBHOOK, DeadLetter, NotificationKind
from backstay.model.gateways.webhook_settings import OutgoingWebhook, shown_url
from backstay.model.ids import SessionId, check_session_id
from backstay.runtime.app import App
from backstay.runtime.notifications.notification_outbox import NotificationOutbox
from backstay.runtime.notifications.notification_sender import NotificationRetry
from backstay.server.telemetry.logs import log
from backstay.server.webhooks.incoming_message import incoming_hooks
from backstay.server.webhooks.webhook_secrets import read_secrets
from backstay.server.webhooks.webhook_sender import WebhookSender, test_body
from backstay.store.commands.gateways import notification_commands


class OutgoingHookInfo(msgspec.Struct, frozen=True, kw_only=True):
    """An outgoing webhook. `url` is only the scheme and the host. `waiting`: the sessions with something to send."""

    name: str
    url: str
    events: tuple[NotificationKind, ...]
    waiting: int
    failed: int


class HookTest(msgspec.Struct, frozen=True, kw_only=True):
    """The answer of the receiver to a test."""

    accepted: bool
    answer: str


class OutgoingHooks:
    """All outgoing webhooks of a server."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._hooks = {name: (hook, read_secrets(f"out.{name}", hook)) for name, hook in settings.webhooks.out.items()}

    @asynccontextmanager
    async def running(self, app: App) -> AsyncIterator[None]:
        """Send inside the block."""
        async with AsyncExitStack() as stack:
            outboxes = {name: self._outbox(app, name, stack) for name in self._hooks}
            for outbox in outboxes.values():
                await outbox.begin()
            tasks = [asyncio.create_task(box.run(), name=f"backstay webhook {name}") for name, box in outboxes.items()]
            for task in tasks:
                task.add_done_callback(_log_failure)
            try:
                yield
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)

    def _outbox(self, app: App, name: str, stack: AsyncExitStack) -> NotificationOutbox:
        hook, _ = self._hooks[name]
        sender = self._sender(name)
        stack.push_async_callback(sender.aclose)
        policy = NotificationRetry(first=hook.retry_seconds, give_up=hook.give_up_seconds)
        return NotificationOutbox(app.owned_by(self._owner(hook)), WEBHOOK + name, sender, policy)

    async def infos(self, app: App, owner: str) -> tuple[OutgoingHookInfo, ...]:
        """The webhooks that receive the notifications of an owner."""
        found = []
        for name, (hook, _) in self._hooks.items():
            if self._owner(hook) == owner:
                backlog = await app.owned_by(owner).run(
                    notification_commands.notification_backlog(WEBHOOK + name, owner=owner)
                )
                found.append(
                    OutgoingHookInfo(
                        name=name,
                        url=shown_url(hook.url),
                        events=hook.events,
                        waiting=backlog.waiting,
                        failed=backlog.failed,
                    )
                )
        return tuple(found)

    async def failed(self, app: App, owner: str, name: str) -> tuple[DeadLetter, ...]:
        """The requests that were given up, newest first."""
        self._require(owner, name)
        return await app.owned_by(owner).run(notification_commands.dead_letters(WEBHOOK + name, owner=owner))

    async def retry(self, app: App, owner: str, name: str, notification: str | None) -> int:
        """Send abandoned notifications again: one, or all. Returns how many."""
        self._require(owner, name)
        session, event = (None, None) if notification is None else parse_notification_id(notification)
        return await app.owned_by(owner).run(
            notification_commands.retry_notifications(WEBHOOK + name, owner=owner, session=session, event=event)
        )

    async def test(self, owner: str, name: str) -> HookTest:
        """Send a test, once."""
        self._require(owner, name)
        sender = self._sender(name)
        body = test_body(name, SystemClock().now())
        try:
            result, _ = await sender.post(body["id"], body)
        finally:
            await sender.aclose()
        if isinstance(result, PartSent):
            return HookTest(accepted=True, answer=f"HTTP {result.platform_id}")
        return HookTest(accepted=False, answer=result.reason)

    def _sender(self, name: str) -> WebhookSender:
        hook, secrets = self._hooks[name]
        return WebhookSender(hook, secrets, name)

    def _owner(self, hook: OutgoingWebhook) -> str:
        return hook.owner or self._settings.owner

    def _require(self, owner: str, name: str) -> None:
        if name not in self._hooks or self._owner(self._hooks[name][0]) != owner:
            raise NotFound(f"no outgoing webhook {name[:64]!r}", hint="`backstay webhooks` lists them.")


def _log_failure(task: "asyncio.Task[None]") -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        log.error("webhook stopped", extra={"task": task.get_name()}, exc_info=error)


def parse_notification_id(text: str) -> tuple[SessionId, int]:
    """The session and the event of a notification.

    Raises:
        NotFound: This is not the id of a notification.
    """
    session, dot, number = text.rpartition(".")
    if not dot or not (number.isascii() and number.isdigit() and len(number) <= 15):
        raise NotFound(f"{text[:64]!r} is not the id of a notification", hint="An id looks like ses_01kb….17.")
    return check_session_id(session), int(number)


def check_webhooks(settings: Settings) -> None:
    """Check all webhooks before the server listens, so that a wrong one is reported once and not by every worker.

    Raises:
        ConfigError: A secret cannot be read, or a setting is not valid.
    """
    incoming_hooks(settings)
    OutgoingHooks(settings)
