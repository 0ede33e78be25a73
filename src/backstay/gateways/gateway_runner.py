"""A gateway: becomes the poller of an account, and receives and sends until it is stopped or another one polls."""

import asyncio
import logging

from backstay.errors import LeaseLost, StoreError
from backstay.gateways.chats.command_menu import offered
from backstay.gateways.chats.notice_delivery import NoticeDelivery
from backstay.gateways.gateway_options import GatewayOptions
from backstay.gateways.gateway_status import GatewayStatus
from backstay.gateways.gatherings import Gatherings
from backstay.gateways.message_inbox import MessageInbox
from backstay.gateways.outbox.answer_delivery import AnswerDelivery
from backstay.gateways.outbox.answer_previews import AnswerPreviews
from backstay.gateways.outbox.chat_pauses import ChatPauses
from backstay.gateways.platform import Platform, SendDeferred, SendUncertain
from backstay.gateways.poller_tasks import PollerTasks
from backstay.model.gateways.gateway import OpenGateway
from backstay.runtime.owner_sessions import OwnerSessions
from backstay.store.commands import gateway_commands

log = logging.getLogger("backstay.gateways")


class Gateway:
    """One account on a chat platform, over an open app. Several processes may run it: one polls, the others wait."""

    def __init__(
        self, app: OwnerSessions, platform: Platform, options: GatewayOptions, status: GatewayStatus | None = None
    ) -> None:
        self._app, self._platform, self._options = app, platform, options
        self.status = status or GatewayStatus(name="")

    async def run(self) -> None:
        """Receive and send until this is cancelled. A lost lease is waited for again.

        Raises:
            SendRefused: The platform does not accept the token.
        """
        self.status.change("starting")
        name = self.status.name = await self._identify()
        while True:
            self.status.change("waiting")
            proof = await self._become_poller(name)
            self.status.change("polling")
            log.info("%s: polling", name)
            try:
                await self._poll(proof)
            except* LeaseLost:
                log.warning("%s: another process polls now", name)
            finally:
                await self._give_up(proof)

    async def _identify(self) -> str:
        pause = self._options.retry
        while True:
            try:
                return await self._platform.identify()
            except (SendDeferred, SendUncertain, OSError) as error:
                if self.status.change("failing", str(error)):
                    log.warning("the platform does not answer yet: %s", error)
                await asyncio.sleep(pause)
                pause = min(pause * 2, 60.0)

    async def _become_poller(self, name: str) -> OpenGateway:
        while True:
            try:
                proof = await self._app.run(gateway_commands.open_gateway(name, owner=self._app.owner))
            except StoreError as error:
                log.warning("%s: the store cannot be written yet: %s", name, error)
                proof = None
            if proof is not None:
                return proof
            await asyncio.sleep(self._options.takeover)

    async def _poll(self, proof: OpenGateway) -> None:
        tasks: PollerTasks | None = None
        try:
            async with asyncio.TaskGroup() as group:
                tasks = PollerTasks(self._app, proof, self._options, group, self.status)
                await self._start(tasks)
        finally:
            if tasks is not None:
                await tasks.settle()

    async def _start(self, tasks: PollerTasks) -> None:
        gatherings = Gatherings(tasks, self._platform)
        await gatherings.resume()
        pauses = ChatPauses()
        previews = AnswerPreviews(tasks, self._platform, pauses)
        await previews.resume()
        delivery = AnswerDelivery(tasks, self._platform, pauses, previews)
        notices = NoticeDelivery(tasks, self._platform, pauses)
        tasks.start("lease", lambda: self._renew(tasks))
        # The outbox notes the end of the feed before the first message is received.
        tasks.start("outbox", delivery.run)
        await delivery.ready.wait()
        tasks.start("notices", notices.run)
        tasks.start("menu", lambda: self._offer_commands(tasks))
        tasks.start("inbox", MessageInbox(tasks, self._platform, gatherings, notices).run)

    async def _offer_commands(self, tasks: PollerTasks) -> None:
        async def offer() -> bool:
            await self._platform.offer(offered())
            return True

        await tasks.persist("offering commands", offer)

    async def _renew(self, tasks: PollerTasks) -> None:
        while True:
            await asyncio.sleep(tasks.proof.lasts / 3000)
            await tasks.persist("renewing the lease", lambda: self._renew_once(tasks))

    async def _renew_once(self, tasks: PollerTasks) -> bool:
        await self._app.run(gateway_commands.renew_gateway(tasks.proof, tasks.status.health()))
        return True

    async def _give_up(self, proof: OpenGateway) -> None:
        """Let another process poll at once. Without this it waits for the end of the lease."""
        try:
            await asyncio.shield(asyncio.ensure_future(self._close(proof)))
        except (LeaseLost, StoreError):
            log.debug("%s: the lease was not given up", proof.name)

    async def _close(self, proof: OpenGateway) -> None:
        await self._app.run(gateway_commands.close_gateway(proof))
