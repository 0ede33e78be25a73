"""A program that answers and tells a URL, to be killed: `python -m tests.webhooks.webhook_program DATABASE URL`."""

import asyncio
import sys
from collections.abc import AsyncIterator

import backstay
from backstay import Text
from backstay.agents import AgentTurn
from backstay.model.gateways.webhook_settings import OutgoingWebhook
from backstay.runtime.notifications.notification_outbox import NotificationOutbox
from backstay.runtime.notifications.notification_sender import NotificationRetry
from backstay.server.webhooks.webhook_sender import WebhookSender
from tests.webhooks.fake_receiver import SECRET


async def echo(turn: AgentTurn) -> AsyncIterator[Text]:
    yield Text("you said: ")
    yield Text(turn.input.text)


async def main(place: str, url: str) -> None:
    sender = WebhookSender(OutgoingWebhook(url=url), (SECRET,), "ops")
    policy = NotificationRetry(first=0.01, longest=0.1, takeover=0.02)
    async with backstay.open(place, agent=echo, lease_seconds=2) as app:
        await NotificationOutbox(app, "webhook/ops", sender, policy).run()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
