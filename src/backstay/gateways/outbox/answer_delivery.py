"""Sends the ends of turns: the feed shows which are due, and each part is sent under a receipt."""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial

from backstay.errors import NotFound, StoreError
from backstay.gateways.outbox.answer_previews import AnswerPreviews
from backstay.gateways.outbox.answer_text import MARK, ChatAnswer, answer_of
from backstay.gateways.outbox.chat_pauses import ChatPauses
from backstay.gateways.outbox.interruption_notice import InterruptionNotice
from backstay.gateways.outbox.moved_chats import move_chat
from backstay.gateways.outbox.text_limits import piece, units
from backstay.gateways.platform import (
    ChatGone,
    ChatPlace,
    OutgoingFile,
    PlaceMoved,
    Platform,
    SendDeferred,
    SendRefused,
    SendUncertain,
)
from backstay.gateways.poller_tasks import PollerTasks, log
from backstay.model.content import Attachment
from backstay.model.gateways.delivery import (
    Delivery,
    EndedTurns,
    Ending,
    PartDeferred,
    PartRefused,
    PartResult,
    PartSent,
    PartUncertain,
    Receipt,
)
from backstay.model.ids import DeliveryId
from backstay.store.commands import Write, gateway_commands

# So many chats are sent to at once.
_MOST_SENDING = 16
# So many deliveries are under way at most. Those that wait for their chat count, too: memory is bounded by this.
_MOST_DELIVERING = 5_000
# So many files are in memory at once.
_MOST_UPLOADING = 2


class AnswerDelivery:
    """The outbox of one poller."""

    def __init__(self, tasks: PollerTasks, platform: Platform, pauses: ChatPauses, previews: AnswerPreviews) -> None:
        self._tasks, self._platform, self._pauses, self._previews = tasks, platform, pauses, previews
        self._app, self._proof, self._options = tasks.app, tasks.proof, tasks.options
        self._interruptions = InterruptionNotice(tasks, platform, pauses)
        self._sending, self._uploading = asyncio.Semaphore(_MOST_SENDING), asyncio.Semaphore(_MOST_UPLOADING)
        # A gateway that has received nothing has no deliveries: it begins at the end of the feed.
        # The end of the feed of a new store is 0, so the position alone does not show this.
        is_new = not self._proof.feed and not self._proof.cursor
        self._position: int | None = None if is_new else self._proof.feed
        self._delivering, self._delivered = 0, asyncio.Event()
        self.ready = asyncio.Event()

    async def run(self) -> None:
        """Send the due answers, now and as they become due."""
        await self._tasks.persist("reading the feed", self._begin)
        with self._app.subscribe((), everything=True) as subscription:
            await self._tasks.persist("reading the feed", partial(self._read_on, subscription.changed))

    async def _begin(self) -> bool:
        if self._position is None:
            end = (await self._app.run(gateway_commands.ended_turns(None, owner=self._proof.owner))).next
            ended = EndedTurns(sessions={}, next=end, more=False)
            await self._app.run(gateway_commands.mark_due(self._proof, ended))
            self._position = end
        # Messages are received meanwhile, however much is due.
        self.ready.set()
        await self._start_due()
        return True

    async def _read_on(self, changed: asyncio.Event) -> bool:
        """Read the feed to its end, and wait for a write."""
        # Clear before the read: a write during the read sets the event again, and is not missed.
        changed.clear()
        ended = await self._app.run(gateway_commands.ended_turns(self._position or 0, owner=self._proof.owner))
        for session in ended.started:
            self._previews.start(session)
        if ended.sessions:
            await self._app.run(gateway_commands.mark_due(self._proof, ended))
            await self._start_due()
        self._position = ended.next
        if not ended.more:
            await changed.wait()
        return False

    async def _start_due(self) -> None:
        after: DeliveryId | None = None
        while True:
            page = await self._app.run(
                gateway_commands.due_deliveries(self._proof.name, owner=self._proof.owner, after=after)
            )
            if not page:
                return
            while self._delivering >= _MOST_DELIVERING:
                self._delivered.clear()
                await self._delivered.wait()
            for delivery in page:
                self._tasks.start(f"delivery {delivery.id}", partial(self._deliver, delivery), again=True)
            after = page[-1].id

    async def _deliver(self, delivery: Delivery) -> None:
        """Send all that is due for one destination, in order."""
        self._delivering += 1
        try:
            await self._tasks.persist(
                f"sending to {delivery.destination}", partial(self._deliver_next, delivery.id, [delivery])
            )
        except NotFound:
            # The session may be deleted at any moment, and its delivery with it.
            self._previews.drop(delivery.id)
        finally:
            self._delivering -= 1
            self._delivered.set()

    async def _deliver_next(self, name: DeliveryId, known: list[Delivery]) -> bool:
        """Send one end of a turn. Returns whether nothing is left. `known` keeps the delivery between the attempts."""
        delivery = known[0]
        ending = await self._app.run(
            gateway_commands.next_ending(delivery.session, delivery.cursor, owner=self._proof.owner)
        )
        if ending is not None:
            await self._previews.stop(name)
            try:
                async with self._sending:
                    await self._send(delivery, ending)
            except ChatGone as error:
                await self._stop(delivery, str(error))
                return True
        event = delivery.cursor if ending is None else ending.event
        settled = await self._app.run(gateway_commands.settle(self._proof, name, event))
        self._previews.finish(delivery)
        if settled is None or not settled.due:
            return True
        known[0] = settled
        return False

    async def _stop(self, delivery: Delivery, reason: str) -> None:
        self._previews.drop(delivery.id)
        log.warning("%s: nothing more is sent to %s: %s", self._proof.name, delivery.destination, reason)
        await self._app.run(gateway_commands.stop_delivery(self._proof, delivery.id, reason))

    async def _send(self, delivery: Delivery, ending: Ending) -> None:
        """Send the parts of an answer that were not sent yet. Raises if one has to wait, or if the chat is gone."""
        answer = answer_of(ending, self._platform.most_file_bytes)
        place = ChatPlace.parse(delivery.destination)
        owner, gateway = self._proof.owner, self._proof.name
        begun = await self._app.run(gateway_commands.receipts(delivery.id, ending.event, gateway=gateway, owner=owner))
        limit = self._platform.most_units - units(MARK)
        notice = await self._interruptions.before(delivery, ending)
        if not begun and self._interruptions.repeats(notice, ending):
            return
        start = part = 0
        while start < answer.end:
            end = begun[part].high if part < len(begun) else answer.next_cut(start, limit)
            begin = gateway_commands.begin_part(self._proof, delivery.id, ending.event, part, low=start, high=end)
            receipt, place = await self._tasks.complete(self._send_part(place, begin, answer))
            start, part = receipt.high, part + 1
        self._interruptions.conclude(delivery, notice)

    async def _send_part(
        self, place: ChatPlace, begin: Write[Receipt], answer: ChatAnswer
    ) -> tuple[Receipt, ChatPlace]:
        """Send a part unless that is done, and store its receipt. Returns where the next one is sent, too."""
        receipt = await self._app.run(begin)
        if receipt.state != "sending":
            return receipt, place
        problem: SendDeferred | SendUncertain | ChatGone | None = None
        status = self._tasks.status
        result: PartResult
        try:
            message, place = await self._request(place, answer, receipt)
            result = PartSent(message)
            status.sent += 1
        except ChatGone as error:
            problem, result = error, PartRefused(str(error))
        except (SendRefused, NotFound) as error:
            result = PartRefused(str(error))
            status.failed += 1
        except SendDeferred as error:
            if error.seconds is not None:
                self._pauses.note(place.chat, error.seconds)
            problem, result = error, PartDeferred(str(error))
            status.deferred += 1
        except SendUncertain as error:
            problem, result = error, PartUncertain(str(error))
            status.unknown += 1
        stored = await self._app.run(
            gateway_commands.finish_part(
                self._proof,
                receipt.delivery,
                receipt.event,
                receipt.part,
                result,
                max_age_seconds=self._options.max_age,
            )
        )
        if isinstance(problem, ChatGone) or (problem is not None and stored.state != "failed"):
            raise problem
        return receipt, place

    async def _request(self, place: ChatPlace, answer: ChatAnswer, receipt: Receipt) -> tuple[str, ChatPlace]:
        """Send a part. Returns the message, and the place where it is."""
        mark, file = MARK if receipt.repeated else "", answer.file_at(receipt.low)
        if file is None:
            text = mark + piece(answer.text, receipt.low, receipt.high)
            return await self._in_place(place, lambda there, note: self._platform.send(there, note + text))
        async with self._uploading:
            sent = OutgoingFile(name=file.name, media_type=file.media_type, data=await self._read(file))
            return await self._in_place(
                place, lambda there, note: self._platform.send_file(there, sent, (note + mark).strip())
            )

    async def _in_place(
        self, place: ChatPlace, send: Callable[[ChatPlace, str], Awaitable[str]]
    ) -> tuple[str, ChatPlace]:
        """Send to a place, or to the one that is there instead of it."""
        try:
            return await send(place, ""), place
        except PlaceMoved as moved:
            instead = moved.instead
            # A chat with another id is the same chat for the people in it. A lost topic is not.
            message = await send(instead, f"({moved})\n" if instead.chat == place.chat else "")
        await move_chat(self._app, self._proof, place, instead)
        return message, instead

    async def _read(self, file: Attachment) -> bytes:
        try:
            return await self._app.download(file, limit=self._platform.most_file_bytes)
        except StoreError as error:
            raise SendDeferred(f"{file.name} cannot be read now: {error}") from error
