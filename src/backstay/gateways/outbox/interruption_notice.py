"""One notice for an interrupted answer, however often it is interrupted, edited in place once it is continued."""

from contextlib import suppress
from functools import partial

from backstay.errors import NotFound
from backstay.gateways.outbox.answer_text import answer_of, has_content, is_broken_off
from backstay.gateways.outbox.chat_pauses import ChatPauses
from backstay.gateways.outbox.text_limits import piece, units
from backstay.gateways.platform import ChatPlace, Platform, SendRefused
from backstay.gateways.poller_tasks import PollerTasks
from backstay.model.gateways.delivery import Delivery, Ending, Receipt
from backstay.store.commands import gateway_commands


class InterruptionNotice:
    """The notices of one poller. What they say is in the messages of the sessions anyway."""

    def __init__(self, tasks: PollerTasks, platform: Platform, pauses: ChatPauses) -> None:
        self._tasks, self._platform, self._pauses = tasks, platform, pauses
        self._app, self._proof = tasks.app, tasks.proof

    async def before(self, delivery: Delivery, ending: Ending) -> Receipt | None:
        """The part that says that the turn, which this one continues, was interrupted. None: no chat shows it."""
        if not is_broken_off(ending.continues):
            return None
        receipts = await self._app.run(
            gateway_commands.receipts_before(
                delivery.id, ending.event, gateway=self._proof.name, owner=self._proof.owner
            )
        )
        shown = [receipt for receipt in receipts if receipt.state == "sent"]
        return shown[-1] if shown else None

    def repeats(self, notice: Receipt | None, ending: Ending) -> bool:
        """Whether the chat shows all of this ending already: the same answer was interrupted again, without a word."""
        return notice is not None and is_broken_off(ending.outcome) and not has_content(ending)

    def conclude(self, delivery: Delivery, notice: Receipt | None) -> None:
        """Let the notice say that the answer was continued."""
        if notice is not None and notice.platform_id is not None:
            work = partial(self._tasks.persist, "editing a notice", partial(self._edit, delivery, notice))
            self._tasks.start(f"notice {notice.platform_id}", work)

    async def _edit(self, delivery: Delivery, notice: Receipt) -> bool:
        with suppress(NotFound, SendRefused):
            text = await self._text(delivery, notice)
            if text is not None and notice.platform_id is not None:
                await self._pauses.claim(ChatPlace.parse(delivery.destination).chat, 0.0)
                await self._platform.edit(notice.platform_id, text)
        return True

    async def _text(self, delivery: Delivery, notice: Receipt) -> str | None:
        """The text of the part, with another end. None: the part is a file, or would be too long."""
        before = await self._app.run(
            gateway_commands.next_ending(delivery.session, notice.event - 1, owner=self._proof.owner)
        )
        if before is None or before.event != notice.event:
            return None
        text = answer_of(before, self._platform.most_file_bytes, continued=True).text
        shown = piece(text, notice.low, len(text))
        return shown if notice.low < len(text) and units(shown) <= self._platform.most_units else None
