"""The compactor: summarises what a window can do without, and opens the next one."""

import logging
from collections.abc import Callable
from typing import NamedTuple

from backstay.agents.adapters import maker_of
from backstay.agents.port import AgentTurn
from backstay.errors import AgentFailed, AgentTimedOut
from backstay.model.ids import SessionId, TurnId, WindowId
from backstay.model.message import Message, MessagePage
from backstay.model.message import summary as summary_of
from backstay.model.tail import tail_of
from backstay.model.weight import estimate, estimate_bytes
from backstay.runtime.compaction import Compaction, Wish
from backstay.runtime.crossing import Crossing
from backstay.runtime.live import LiveTurn
from backstay.runtime.patience import within
from backstay.runtime.recorder import Recorder
from backstay.runtime.rest import Rest
from backstay.runtime.summary import Summariser, as_summary

log = logging.getLogger("backstay.runtime")


class _Plan(NamedTuple):
    """What a compaction would do: the messages it leaves behind, and those it keeps."""

    window: WindowId
    leaving: tuple[Message, ...]
    tail: tuple[Message, ...]


class Compactor:
    """Compacts sessions, each in a turn that holds its lease. Without a policy, only those that somebody asks for."""

    def __init__(
        self, crossing: Crossing, policy: Compaction | None, *, grace: float, now: Callable[[], float]
    ) -> None:
        self.automatic = policy is not None
        self._crossing, self._policy = crossing, policy or Compaction()
        self._weigh = self._policy.tokens or estimate
        self._summariser = Summariser(maker_of(self._policy.summariser), self._policy.limit, self._weigh, grace)
        self._rest = Rest(self._policy.pause, now)
        self._wishes: dict[TurnId, Wish] = {}

    def wish(self, turn: TurnId, wish: Wish) -> None:
        """Remember what was asked of a compaction that is about to run."""
        self._wishes[turn] = wish

    async def due(self, turn: LiveTurn, recorder: Recorder) -> bool:
        """Whether the session should be compacted after this turn: it is too long, and something can be done."""
        if not self.automatic:
            return False
        size = recorder.usage.input_tokens + recorder.usage.output_tokens
        if not size:
            messages = turn.shown or (await self._page(turn.session, turn.owner)).messages
            size = sum(map(self._weigh, messages)) + estimate_bytes(recorder.said_bytes)
        if size < self._policy.limit or not self._rest.over(turn.session, size):
            return False
        return await self.worth(turn.session, turn.owner, Wish()) is not None

    async def worth(self, session: SessionId, owner: str, wish: Wish) -> MessagePage | None:
        """What is read now, if there is anything in it that a compaction could leave behind."""
        page = await self._page(session, owner)
        return page if self._plan(page, wish) is not None else None

    async def run(self, turn: AgentTurn, recorder: Recorder) -> str:
        """Compact the session in the turn that was opened for it; what was done, in words."""
        with recorder.waiting_for_others():
            done = await self._compact(turn, recorder, self._wishes.pop(turn.id, Wish()))
        return done or "there was nothing that could be left behind"

    async def make_room(self, turn: AgentTurn, recorder: Recorder) -> bool:
        """Compact within a turn whose agent could not read it all; whether there is less to read now."""
        page = await self._page(turn.session, turn.owner)
        # The model can read less than is there, whatever the budget says.
        keep = min(self._policy.keep, sum(map(self._weigh, page.messages)) // 3)
        return bool(await self._compact(turn, recorder, Wish(keep=keep), input=turn.input.position))

    async def aclose(self) -> None:
        """Close the summariser."""
        await self._summariser.aclose()

    # --- within -----------------------------------------------------------------------------------------------------

    async def _compact(self, turn: AgentTurn, recorder: Recorder, wish: Wish, input: int | None = None) -> str:
        plan = self._plan(await self._page(turn.session, turn.owner), wish, input)
        if plan is None:
            return ""
        try:
            said = await self._summarise(turn, recorder, plan, wish.focus)
            await recorder.rotate([summary_of(said.parts)], parent=plan.window, keep_from=plan.tail[0].position)
        except Exception:
            self._rest.failed(turn.session)
            raise
        return self._report(turn.session, plan, said)

    async def _page(self, session: SessionId, owner: str) -> MessagePage:
        return await self._crossing.read(self._crossing.store.messages, session, owner=owner)

    def _plan(self, page: MessagePage, wish: Wish, input: int | None = None) -> _Plan | None:
        keep = self._policy.keep if wish.keep is None else wish.keep
        begin = tail_of(page.messages, keep, self._weigh, input)
        return _Plan(page.window, page.messages[:begin], page.messages[begin:]) if begin else None

    async def _summarise(self, turn: AgentTurn, recorder: Recorder, plan: _Plan, focus: str) -> Message:
        asking = self._summariser.ask(turn, plan.leaving, focus, recorder.keep)
        try:
            said = as_summary(turn, await within(self._policy.timeout, asking))
        except TimeoutError as error:
            raise AgentTimedOut(f"the summariser took longer than {self._policy.timeout:g} s") from error
        if self._weigh(said) >= sum(map(self._weigh, plan.leaving)):
            raise AgentFailed("the summary is longer than what it stands for", hint="Use another summariser.")
        return said

    def _report(self, session: SessionId, plan: _Plan, said: Message) -> str:
        tail = sum(map(self._weigh, plan.tail))
        before, after = sum(map(self._weigh, plan.leaving)) + tail, self._weigh(said) + tail
        log.info("session compacted", extra={"session": session, "tokens_before": before, "tokens_after": after})
        report = (
            f"{len(plan.leaving):,} messages became a summary and {len(plan.tail):,} stay:"
            f" about {before:,} tokens became {after:,}"
        )
        if after < self._policy.limit:
            self._rest.helped(session)
            return report
        self._rest.still_long(session, after)
        log.warning("session is still too long", extra={"session": session, "tokens": after})
        return f"{report}, which is still too long"
