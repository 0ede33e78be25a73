"""Webhook operations: list them, test one, list abandoned notifications and send them again."""

from typing import Annotated

import msgspec
from msgspec import Meta

from backstay.model.gateways.notification import DeadLetter
from backstay.server.http.api_request import ApiRequest, ApiResponse, NoInput
from backstay.server.http.operation import AnyOperation, Operation
from backstay.server.webhooks.outgoing_hooks import HookTest, OutgoingHookInfo


class IncomingHookInfo(msgspec.Struct, frozen=True, kw_only=True):
    """An incoming webhook: its name, its path on this server, and how requests are signed."""

    name: str
    path: str
    format: str


class WebhookList(msgspec.Struct, frozen=True, kw_only=True):
    """The webhooks of the caller's sessions. Only the settings of the server change them."""

    incoming: tuple[IncomingHookInfo, ...]
    outgoing: tuple[OutgoingHookInfo, ...]


class DeadLetterList(msgspec.Struct, frozen=True, kw_only=True):
    """The notifications that could not be delivered, newest first."""

    failed: tuple[DeadLetter, ...]


class WantedRetry(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Send abandoned notifications again: the one with this id, or all."""

    notification: Annotated[str, Meta(min_length=1, max_length=128)] | None = None


class Retried(msgspec.Struct, frozen=True, kw_only=True):
    """How many notifications are sent again."""

    retried: int


async def list_webhooks(call: ApiRequest[NoInput, NoInput]) -> ApiResponse:
    """List the webhooks of the caller's sessions."""
    settings = call.service.settings
    incoming = tuple(
        IncomingHookInfo(name=name, path=f"/hooks/{name}", format=hook.format)
        for name, hook in settings.webhooks.incoming.items()
        if (hook.owner or settings.owner) == call.owner
    )
    outgoing = await call.service.webhooks.infos(call.service.app, call.owner)
    return ApiResponse(value=WebhookList(incoming=incoming, outgoing=outgoing))


async def read_failed(call: ApiRequest[NoInput, NoInput]) -> ApiResponse:
    """List the abandoned notifications of an outgoing webhook."""
    found = await call.service.webhooks.failed(call.service.app, call.owner, call.named("webhook"))
    return ApiResponse(value=DeadLetterList(failed=found))


async def retry_webhook(call: ApiRequest[WantedRetry, NoInput]) -> ApiResponse:
    """Send abandoned notifications again."""
    count = await call.service.webhooks.retry(
        call.service.app, call.owner, call.named("webhook"), call.body.notification
    )
    return ApiResponse(value=Retried(retried=count))


async def try_webhook(call: ApiRequest[NoInput, NoInput]) -> ApiResponse:
    """Send a test to an outgoing webhook, once."""
    return ApiResponse(value=await call.service.webhooks.test(call.owner, call.named("webhook")))


OPERATIONS: tuple[AnyOperation, ...] = (
    Operation(
        method="GET",
        path="/api/webhooks",
        name="list_webhooks",
        summary="List the webhooks of the caller's sessions.",
        run=list_webhooks,
        body=NoInput,
        query=NoInput,
        answer=WebhookList,
    ),
    Operation(
        method="GET",
        path="/api/webhooks/{webhook}/failed",
        name="list_failed_webhook_notifications",
        summary="List the abandoned notifications of an outgoing webhook, newest first.",
        run=read_failed,
        body=NoInput,
        query=NoInput,
        answer=DeadLetterList,
    ),
    Operation(
        method="POST",
        path="/api/webhooks/{webhook}/retry",
        name="retry_webhook",
        summary="Send abandoned notifications again: one, or all.",
        run=retry_webhook,
        body=WantedRetry,
        query=NoInput,
        answer=Retried,
    ),
    Operation(
        method="POST",
        path="/api/webhooks/{webhook}/test",
        name="test_webhook",
        summary="Send a test to an outgoing webhook, once.",
        run=try_webhook,
        body=NoInput,
        query=NoInput,
        answer=HookTest,
    ),
)
