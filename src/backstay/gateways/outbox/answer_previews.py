"""Shows answers while they are written. A preview may be lost at any moment, and never makes an answer wait.

One delivery shows one preview at a time, and the next one after the answer to this one was sent. A message that shows a
preview is noted in the store before it is changed again, so that the next poller removes it.
"""

import asyncio
from contextlib import suppress
from functools import partial

from backstay.errors import BackstayError, LeaseLost, NotFound
from backstay.gateways.outbox.chat_pauses import ChatPauses
from backstay.gateways.outbox.preview_text import PreviewText
from backstay.gateways.platform import ChatPlace, Platform, SendDeferred, SendRefused, SendUncertain
from backstay.gateways.poller_tasks import PollerTasks
from backstay.model.gateways.delivery import Delivery
from backstay.model.ids import DeliveryId, SessionId
from backstay.model.turn import COMPACTOR
from backstay.runtime.turn_handle import Turn
from backstay.store import commands
from backstay.store.commands import gateway_commands

# Further answers are sent without a preview.
_MOST_PREVIEWS = 100
_MOST_REQUESTS = 8
# An answer waits so many seconds for a preview under way, which would otherwise be shown after it.
_LAST_REQUEST = 1.0
_FIRST_DRAFT = 0.3


class _Preview:
    """The preview of one turn."""

    def __init__(self, delivery: Delivery, turn: Turn) -> None:
        self.delivery, self.turn = delivery.id, turn
        self.place = ChatPlace.parse(delivery.destination)
        self.text, self.changed = PreviewText(), asyncio.Event()
        self.message = delivery.preview
        self.last = ""
        self.stopped = False
        self.request: asyncio.Task[None] | None = None


class AnswerPreviews:
    """The previews of one poller."""

    def __init__(self, tasks: PollerTasks, platform: Platform, pauses: ChatPauses) -> None:
        self._tasks, self._platform, self._pauses = tasks, platform, pauses
        self._app, self._proof, self._options = tasks.app, tasks.proof, tasks.options
        self._shown: dict[DeliveryId, _Preview] = {}
        self._requests = asyncio.Semaphore(_MOST_REQUESTS)

    async def resume(self) -> None:
        """Remove the previews of an earlier poller, and show the answers that are being written."""
        owner, gateway = self._proof.owner, self._proof.name
        for delivery in await self._app.run(gateway_commands.deliveries_with_preview(gateway, owner=owner)):
            if delivery.preview is not None:
                self._remove_later(delivery.id, delivery.preview)
        for delivery in await self._app.run(gateway_commands.running_deliveries(gateway, owner=owner)):
            self.start(delivery.session)

    def start(self, session: SessionId) -> None:
        """Show the answer that is being written in a session, wherever the session is sent."""
        if self._options.previews:
            self._tasks.start(f"previews of {session}", partial(self._start_all, session), again=True)

    async def _start_all(self, session: SessionId) -> None:
        with suppress(NotFound):
            for delivery in await self._app.run(gateway_commands.deliveries_of(session, owner=self._proof.owner)):
                if delivery.gateway == self._proof.name and delivery.stopped is None:
                    await self._start(delivery)

    async def _start(self, delivery: Delivery) -> None:
        owner, session = self._proof.owner, delivery.session
        running = (await self._app.run(commands.session(session, owner=owner))).running
        earlier = await self._app.run(gateway_commands.next_ending(session, delivery.cursor, owner=owner))
        if running is None or earlier is not None or delivery.id in self._shown:
            # An earlier answer is sent first, and starts this again.
            return
        turn = await self._app.run(commands.turn(running, owner=owner))
        if turn.agent != COMPACTOR and len(self._shown) < _MOST_PREVIEWS:
            preview = self._shown[delivery.id] = _Preview(delivery, await self._app.turn(running))
            self._tasks.start(f"preview {delivery.id}", partial(self._follow, preview))

    async def _follow(self, preview: _Preview) -> None:
        """Show the events of a turn until it ends."""
        try:
            async with asyncio.TaskGroup() as group:
                shower = group.create_task(self._show(preview))
                async for event in preview.turn.events():
                    if preview.stopped:
                        break
                    if preview.text.add(event.body):
                        preview.changed.set()
                shower.cancel()
        except* LeaseLost:
            raise
        except* BackstayError:
            # The session was deleted, or its history has changed. The answer does not depend on this.
            preview.stopped = True

    async def _show(self, preview: _Preview) -> None:
        chat, pace = preview.place.chat, self._platform.pace(preview.place)
        seconds = pace.seconds if self._options.preview_seconds is None else self._options.preview_seconds
        # A short answer needs no preview, least of all a message that has to be removed.
        await asyncio.sleep(seconds if pace.lasts is None else min(seconds, _FIRST_DRAFT))
        while not preview.stopped:
            await self._pauses.claim(chat, seconds)
            preview.changed.clear()
            text = preview.text.shown(self._platform.most_units)
            if text != preview.last or pace.lasts is not None:
                preview.last = text
                await self._request(preview, text)
            with suppress(TimeoutError):
                async with asyncio.timeout(pace.lasts):
                    await preview.changed.wait()

    async def _request(self, preview: _Preview, text: str) -> None:
        """Change the preview once. A request that is under way is never given up: its message has to be noted."""
        if preview.stopped:
            return
        preview.request = asyncio.ensure_future(self._change(preview, text))
        await self._tasks.complete(preview.request)

    async def _change(self, preview: _Preview, text: str) -> None:
        number = preview.turn.first_event
        try:
            async with self._requests:
                shown = await self._platform.preview(preview.place, text, number=number, message=preview.message)
        except SendDeferred as error:
            self._pauses.note(preview.place.chat, error.seconds or 0.0)
            # Nothing was shown: again, after the pause.
            preview.last = ""
            preview.changed.set()
        except SendRefused:
            preview.stopped = True
        except SendUncertain:
            # If the first one has arrived, its id is unknown and it cannot be removed. Another one would make it two.
            preview.stopped = self._platform.pace(preview.place).lasts is None and preview.message is None
        else:
            if shown is not None and shown != preview.message:
                preview.message = shown
                with suppress(NotFound):
                    await self._app.run(gateway_commands.note_preview(self._proof, preview.delivery, shown))

    # --- the end --------------------------------------------------------------------------------------------------

    async def stop(self, delivery: DeliveryId) -> None:
        """Change the preview no more: its answer is sent now."""
        preview = self._shown.get(delivery)
        if preview is None:
            return
        preview.stopped = True
        preview.changed.set()
        if preview.request is not None:
            await asyncio.wait([preview.request], timeout=_LAST_REQUEST)

    def finish(self, delivery: Delivery) -> None:
        """Remove the preview: its answer was sent. The next answer may be shown."""
        preview = self._shown.pop(delivery.id, None)
        if preview is not None and preview.request is not None and not preview.request.done():
            preview.request.add_done_callback(lambda _: self._remove_message(preview))
        elif preview is not None:
            self._remove_message(preview)
        self.start(delivery.session)

    def drop(self, delivery: DeliveryId) -> None:
        """The delivery has ended, with its session or because its chat is gone."""
        preview = self._shown.pop(delivery, None)
        if preview is not None:
            preview.stopped = True
            preview.changed.set()

    def _remove_message(self, preview: _Preview) -> None:
        if preview.message is not None:
            self._remove_later(preview.delivery, preview.message)

    def _remove_later(self, delivery: DeliveryId, message: str) -> None:
        self._tasks.start(f"removal of {message}", partial(self._remove, delivery, message))

    async def _remove(self, delivery: DeliveryId, message: str) -> None:
        async def remove() -> bool:
            # A message that cannot be removed, or is gone, is none of ours any more.
            with suppress(SendRefused):
                await self._platform.remove(message)
            return True

        await self._tasks.persist(f"removing the preview {message}", remove)
        with suppress(NotFound):
            await self._app.run(gateway_commands.forget_preview(self._proof, delivery, message))
