"""Shows notices in chats: sends each once, edits it while its state changes, and asks for approvals.

Everything follows from the state of the store, so it does not matter where a decision was made, or by which process.
"""

import asyncio
from contextlib import suppress
from functools import partial

from backstay.errors import NotFound
from backstay.gateways.chats.notice_texts import marked, next_phase, question
from backstay.gateways.outbox.chat_pauses import ChatPauses
from backstay.gateways.outbox.moved_chats import move_chat
from backstay.gateways.outbox.text_limits import units
from backstay.gateways.platform import (
    Button,
    ButtonRows,
    ChatPlace,
    PlaceMoved,
    Platform,
    SendDeferred,
    SendRefused,
    SendUncertain,
)
from backstay.gateways.poller_tasks import PollerTasks
from backstay.model.gateways.delivery import PartDeferred, PartRefused, PartResult, PartSent, PartUncertain
from backstay.model.gateways.notice import Notice
from backstay.model.ids import NoticeId
from backstay.store.commands.gateways import notice_commands

_MOST_SENDING = 16
# The state is read at most so often, in seconds.
_PAUSE = 0.2


class NoticeDelivery:
    """The notices of one poller."""

    def __init__(self, tasks: PollerTasks, platform: Platform, pauses: ChatPauses) -> None:
        self._tasks, self._platform, self._pauses = tasks, platform, pauses
        self._app, self._proof, self._options = tasks.app, tasks.proof, tasks.options
        self._sending = asyncio.Semaphore(_MOST_SENDING)
        self._changed = asyncio.Event()
        # When this process saw a waiting message first: most are answered before a person would wonder.
        self._first_seen: dict[NoticeId, float] = {}
        # The names of the notices whose tasks this process does.
        self.working: set[str] = set()

    def wake(self) -> None:
        """A notice was stored: show it now."""
        self._changed.set()

    async def run(self) -> None:
        """Show the due notices, now and as they become due."""
        with self._app.subscribe((), everything=True) as subscription:
            self._changed = subscription.changed
            await self._tasks.persist("showing notices", self._next)

    async def _next(self) -> bool:
        # Clear before the read: a write during the read sets the event again, and is not missed.
        self._changed.clear()
        await self._ask()
        await self._revise()
        await self._start_due()
        await asyncio.sleep(min(_PAUSE, self._options.retry))
        await self._changed.wait()
        return False

    async def _ask(self) -> None:
        for unasked in await self._app.run(notice_commands.unasked_calls(self._proof.name, owner=self._proof.owner)):
            await self._app.run(notice_commands.ask(self._proof, question(unasked)))

    async def _revise(self) -> None:
        for watched in await self._app.run(notice_commands.watched_notices(self._proof.name, owner=self._proof.owner)):
            notice = watched.notice
            phase = next_phase(watched, working=notice.name in self.working)
            if phase is not None:
                await self._app.run(
                    notice_commands.revise_notice(
                        self._proof, notice.id, phase.content, phase=phase.name, final=phase.final
                    )
                )

    async def _start_due(self) -> None:
        after: NoticeId | None = None
        due: dict[str, list[Notice]] = {}
        while True:
            page = await self._app.run(
                notice_commands.due_notices(self._proof.name, owner=self._proof.owner, after=after)
            )
            if not page:
                break
            for notice in page:
                if not self._waits(notice):
                    due.setdefault(notice.destination, []).append(notice)
            after = page[-1].id
        self._first_seen = {known: at for known, at in self._first_seen.items() if at > self._now() - 3_600}
        for destination, found in due.items():
            self._tasks.start(f"notices to {destination}", partial(self._show_all, found), again=True)

    def _waits(self, notice: Notice) -> bool:
        """Whether it is too early to show the state of a waiting message."""
        if notice.kind != "busy" or notice.platform_id is not None or notice.final:
            return False
        left = self._first_seen.setdefault(notice.id, self._now()) + self._options.acknowledge - self._now()
        if left > 0:
            asyncio.get_running_loop().call_later(left, self.wake)
        return left > 0

    @staticmethod
    def _now() -> float:
        return asyncio.get_running_loop().time()

    async def _show_all(self, due: list[Notice]) -> None:
        for notice in due:
            with suppress(NotFound):
                await self._tasks.persist(f"a notice to {notice.destination}", partial(self._show, notice))
        # Further ones may have come meanwhile.
        self.wake()

    async def _show(self, notice: Notice) -> bool:
        if notice.platform_id is not None:
            await self._pauses.claim(ChatPlace.parse(notice.destination).chat, 0.0)
            await self._tasks.complete(self._finish(notice, notice.platform_id))
            return True
        begun = await self._app.run(notice_commands.begin_notice(self._proof, notice.id))
        if begun is not None:
            async with self._sending:
                await self._tasks.complete(self._finish(begun, None))
        return True

    async def _finish(self, notice: Notice, message: str | None) -> None:
        """Send or edit a notice, and store its receipt. Raises if it has to be done later."""
        problem: SendDeferred | SendUncertain | None = None
        result: PartResult
        try:
            result = PartSent(await self._request(notice, message))
        except SendRefused as error:
            result = PartRefused(str(error))
        except SendDeferred as error:
            if error.seconds is not None:
                self._pauses.note(ChatPlace.parse(notice.destination).chat, error.seconds)
            problem, result = error, PartDeferred(str(error))
        except SendUncertain as error:
            problem, result = error, PartUncertain(str(error))
        stored = await self._app.run(
            notice_commands.finish_notice(self._proof, notice, result, max_age_seconds=self._options.max_age)
        )
        if problem is not None and stored is not None and stored.state != "failed":
            raise problem

    async def _request(self, notice: Notice, message: str | None) -> str:
        text, buttons = marked(notice), _buttons(notice)
        if units(text) > self._platform.most_units:
            text = text[: self._platform.most_units // 2]
        if message is not None:
            await self._platform.edit(message, text, buttons)
            return message
        place = ChatPlace.parse(notice.destination)
        try:
            return await self._platform.ask(place, text, buttons)
        except PlaceMoved as moved:
            instead = moved.instead
            sent = await self._platform.ask(instead, text, buttons)
        await move_chat(self._app, self._proof, place, instead)
        return sent


def _buttons(notice: Notice) -> ButtonRows:
    return tuple(tuple(Button(id=button.id, label=button.label) for button in row) for row in notice.rows)
