"""The outbox of notifications: derives them from the feed of an owner, and sends them under receipts.

One process sends, under the lease of a gateway; the others wait and take over. Notifications about one session are sent
in order. One that cannot be sent holds up only those about its session, until it is given up.
"""

import asyncio
import logging
from collections.abc import Sequence
from contextlib import suppress

from backstay.errors import Conflict, LeaseLost, NotFound, StoreError
from backstay.model.gateways.delivery import Delivery
from backstay.model.gateways.gateway import OpenGateway
from backstay.model.gateways.notification import NextNotification, Notification
from backstay.model.ids import DeliveryId
from backstay.runtime.notifications.notification_sender import NotificationRetry, NotificationSender
from backstay.runtime.owner_sessions import OwnerSessions
from backstay.store.commands import gateway_commands
from backstay.store.commands.gateways import notification_commands

log = logging.getLogger("backstay.notifications")

# So many requests are sent at once, and so many sessions wait for their next attempt in memory; the rest stays due.
_MOST_SENDING, _MOST_SESSIONS = 8, 500
# Between two reads of the feed, in seconds. A running turn commits often, and most of its events cause no notification.
_PACE = 0.1
# How long a request under way may take when the outbox stops, in seconds.
_STOPPING_SECONDS = 5.0
# A receiver may ask to wait so long at most, in seconds.
_LONGEST_ASKED = 3_600.0


class NotificationOutbox:
    """Sends the notifications of one owner through one sender, until it is cancelled."""

    def __init__(self, app: OwnerSessions, name: str, sender: NotificationSender, policy: NotificationRetry) -> None:
        self._app, self._name, self._sender, self._policy = app, name, sender, policy
        self._first: OpenGateway | None = None

    async def begin(self) -> None:
        """Store the present end of the feed as the start of a new outbox. Do this before there is work."""
        self._first = await self._try_to_send()

    async def run(self) -> None:
        """Send until this is cancelled. A lost lease is waited for again."""
        while True:
            proof = self._first or await self._become_sender()
            self._first = None
            try:
                async with asyncio.TaskGroup() as group:
                    group.create_task(self._renew(proof), name=f"{self._name} lease")
                    group.create_task(_Sending(self._app, proof, self._sender, self._policy).run())
            except* LeaseLost:
                log.warning("another process sends now", extra={"gateway": self._name})
            finally:
                await self._give_up(proof)

    async def _become_sender(self) -> OpenGateway:
        while True:
            proof = await self._try_to_send()
            if proof is not None:
                return proof
            await asyncio.sleep(self._policy.takeover)

    async def _try_to_send(self) -> OpenGateway | None:
        """Take the lease; None while another process has it, or the store cannot be written."""
        try:
            proof = await self._app.run(gateway_commands.open_gateway(self._name, owner=self._app.owner))
            return None if proof is None else await self._app.run(notification_commands.begin_notifications(proof))
        except (StoreError, Conflict) as error:
            log.warning("the store cannot be written yet", extra={"gateway": self._name, "error": str(error)})
            return None

    async def _renew(self, proof: OpenGateway) -> None:
        while True:
            await asyncio.sleep(proof.lasts / 3000)
            try:
                await self._app.run(gateway_commands.renew_gateway(proof))
            except StoreError as error:
                log.warning("the lease was not renewed", extra={"gateway": self._name, "error": str(error)})

    async def _give_up(self, proof: OpenGateway) -> None:
        """Let another process send at once. Without this it waits for the end of the lease."""
        with suppress(LeaseLost, StoreError):
            await asyncio.shield(self._app.run(gateway_commands.close_gateway(proof)))


class _Sending:
    """One process sends, as long as it has the lease."""

    def __init__(
        self, app: OwnerSessions, proof: OpenGateway, sender: NotificationSender, policy: NotificationRetry
    ) -> None:
        self._app, self._proof, self._sender, self._policy = app, proof, sender, policy
        self._feed = proof.feed
        self._slots = asyncio.Semaphore(_MOST_SENDING)
        self._sessions: dict[DeliveryId, asyncio.Task[None]] = {}
        self._requests: set[asyncio.Task[float]] = set()
        self._changed = asyncio.Event()

    async def run(self) -> None:
        """Send the due notifications, now and as they become due."""
        try:
            async with asyncio.TaskGroup() as group:
                with self._app.subscribe((), everything=True) as subscription:
                    self._changed = subscription.changed
                    while True:
                        await self._look(group)
        finally:
            await self._finish_requests()

    async def _look(self, group: asyncio.TaskGroup) -> None:
        """Read the feed to its end, start what is due, and wait for a write."""
        # Clear before the read: a write during the read sets the event again, and is not missed.
        self._changed.clear()
        try:
            more = await self._read_feed()
            await self._start_due(group)
        except StoreError as error:
            log.warning("notifications could not be read", extra={"gateway": self._proof.name, "error": str(error)})
            await asyncio.sleep(self._policy.first)
            return
        if not more:
            await self._changed.wait()
            await asyncio.sleep(_PACE)

    async def _read_feed(self) -> bool:
        found = await self._app.run(
            notification_commands.notable_events(self._proof.name, self._feed, owner=self._proof.owner)
        )
        if found.sessions:
            await self._app.run(notification_commands.mark_notable(self._proof, found))
        self._feed = found.next
        return found.more

    async def _start_due(self, group: asyncio.TaskGroup) -> None:
        after: DeliveryId | None = None
        while len(self._sessions) < _MOST_SESSIONS:
            page = await self._app.run(
                gateway_commands.due_deliveries(self._proof.name, owner=self._proof.owner, after=after)
            )
            if not page:
                return
            for delivery in page:
                self._start(group, delivery)
            after = page[-1].id

    def _start(self, group: asyncio.TaskGroup, delivery: Delivery) -> None:
        if delivery.id in self._sessions:
            return
        task = group.create_task(self._tell(delivery), name=f"{self._proof.name} {delivery.session}")
        self._sessions[delivery.id] = task
        task.add_done_callback(lambda _: self._told(delivery))

    def _told(self, delivery: Delivery) -> None:
        del self._sessions[delivery.id]
        # It may have become due again meanwhile.
        self._changed.set()

    async def _tell(self, delivery: Delivery) -> None:
        """Send all notifications about a session, in order."""
        while True:
            try:
                pause = await self._tell_next(delivery)
            except NotFound:
                # The session was deleted, and its delivery with it. Another delivery sends its tombstone.
                return
            except StoreError:
                pause = self._policy.first
            if pause is None:
                return
            await asyncio.sleep(pause)

    async def _tell_next(self, delivery: Delivery) -> float | None:
        """Send one notification. Returns the pause before the next step; None: nothing is left."""
        proof = self._proof
        found = await self._app.run(
            notification_commands.next_notification(
                delivery.id, self._sender.kinds, gateway=proof.name, owner=proof.owner
            )
        )
        if found.notification is not None:
            pauses = [await self._tell_one(delivery, found.notification, one) for one in await self._receivers(found)]
            if longest := max(pauses, default=0.0):
                return longest
        settled = await self._app.run(notification_commands.settle_notification(proof, delivery.id, found.event))
        return None if settled is None or not settled.due else 0.0

    async def _receivers(self, found: NextNotification) -> Sequence[int]:
        if found.retried or found.notification is None:
            return [receipt.part for receipt in found.receipts if receipt.state in ("waiting", "unknown")]
        return await self._sender.receivers(found.notification)

    async def _tell_one(self, delivery: Delivery, notification: Notification, receiver: int) -> float:
        """Send a notification to one receiver, unless that is done. Returns the pause before the next attempt, or 0."""
        async with self._slots:
            work = asyncio.create_task(self._request(delivery, notification, receiver))
            self._requests.add(work)
            work.add_done_callback(self._requests.discard)
            # A sent notification gets its receipt, also if this is cancelled.
            return await asyncio.shield(work)

    async def _request(self, delivery: Delivery, notification: Notification, receiver: int) -> float:
        begin = gateway_commands.begin_part(self._proof, delivery.id, notification.event, receiver, low=0, high=1)
        begun = await self._app.run(begin)
        if begun.state != "sending":
            return 0.0
        result, asked = await self._sender.send(notification, receiver)
        stored = await self._app.run(
            gateway_commands.finish_part(
                self._proof, delivery.id, notification.event, receiver, result, max_age_seconds=self._policy.give_up
            )
        )
        if stored.state == "failed":
            log.warning(
                "a notification was given up",
                extra={"gateway": self._proof.name, "notification": notification.id, "reason": stored.reason},
            )
        if stored.state not in ("waiting", "unknown"):
            return 0.0
        return max(self._policy.pause(stored.attempts), min(asked or 0.0, _LONGEST_ASKED))

    async def _finish_requests(self) -> None:
        """Wait for requests under way, for a while. The next process sends the rest again."""
        if self._requests:
            _, late = await asyncio.wait(self._requests, timeout=_STOPPING_SECONDS)
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)
