"""The compactor: summarises the older messages of a window and opens the next window."""

import logging
from collections.abc import Callable
from typing import NamedTuple

from backstay.agents.adapters import agent_factory
from backstay.agents.port import AgentTurn
from backstay.errors import AgentTimedOut, SummaryTooLong
from backstay.model.history.tail import tail_of
from backstay.model.history.token_estimate import estimate, estimate_bytes
from backstay.model.ids import SessionId, TurnId, WindowId
from backstay.model.message import Message, MessagePage
from backstay.model.message import summary as summary_of
from backstay.runtime.async_store import AsyncStore
from backstay.runtime.compaction.compaction_backoff import CompactionBackoff
from backstay.runtime.compaction.policy import Compaction, CompactionRequest
from backstay.runtime.compaction.summary import Summariser, as_summary
from backstay.runtime.compaction.window_sizes import WindowSizes
from backstay.runtime.turns.deadline import run_with_deadline
from backstay.runtime.turns.live_turn import LiveTurn
from backstay.runtime.turns.recorder import Recorder
from backstay.store import commands

log = logging.getLogger("backstay.runtime")


class _Plan(NamedTuple):
    """The plan of a compaction: the messages to summarise, and the tail to keep."""

    window: WindowId
    older: tuple[Message, ...]
    tail: tuple[Message, ...]


class Compactor:
    """Compacts sessions, each in a turn that holds the session's lease.

    Without a policy it compacts only on request.
    """

    def __init__(self, store: AsyncStore, policy: Compaction | None, *, grace: float, now: Callable[[], float]) -> None:
        self.automatic = policy is not None
        self._store, self._policy = store, policy or Compaction()
        self._count = self._policy.tokens or estimate
        self._sizes = WindowSizes(self._count)
        self._summariser = Summariser(agent_factory(self._policy.summariser), self._policy.limit, self._count, grace)
        self._backoff = CompactionBackoff(self._policy.pause, now)
        self._requests: dict[TurnId, CompactionRequest] = {}

    def set_request(self, turn: TurnId, request: CompactionRequest) -> None:
        """Store the options of a requested compaction until its turn runs."""
        self._requests[turn] = request

    async def due(self, turn: LiveTurn, recorder: Recorder) -> bool:
        """Whether to compact the session after this turn: it is too long, the back-off allows it, and a plan exists."""
        if not self.automatic:
            return False
        size = recorder.usage.input_tokens + recorder.usage.output_tokens
        if not size:
            size = self._sizes.size_of(turn.window, turn.history) + estimate_bytes(recorder.output_bytes)
        if size < self._policy.limit or not self._backoff.allows(turn.session, size):
            return False
        return await self.compactable(turn.session, turn.owner, CompactionRequest()) is not None

    async def compactable(self, session: SessionId, owner: str, request: CompactionRequest) -> MessagePage | None:
        """The current messages, if a compaction would have something to summarise; otherwise None."""
        page = await self._page(session, owner)
        return page if self._plan(page, request) is not None else None

    async def run(self, turn: AgentTurn, recorder: Recorder) -> str:
        """Compact the session in the turn that was opened for it; returns a report for the outcome."""
        with recorder.waiting_for_others():
            done = await self._compact(turn, recorder, self._requests.pop(turn.id, CompactionRequest()))
        return done or "there was nothing to summarise"

    async def make_room(self, turn: AgentTurn, recorder: Recorder) -> bool:
        """Compact within a turn whose agent raised `ContextOverflow`; returns whether the history is shorter now."""
        page = await self._page(turn.session, turn.owner)
        # The model rejected the history, so the budget is wrong for it: keep at most a third of the history.
        keep = min(self._policy.keep, sum(map(self._count, page.messages)) // 3)
        return bool(await self._compact(turn, recorder, CompactionRequest(keep=keep), input=turn.input.position))

    async def aclose(self) -> None:
        """Close the summariser."""
        await self._summariser.aclose()

    # --- internal ---------------------------------------------------------------------------------------------------

    async def _compact(
        self, turn: AgentTurn, recorder: Recorder, request: CompactionRequest, input: int | None = None
    ) -> str:
        plan = self._plan(await self._page(turn.session, turn.owner), request, input)
        if plan is None:
            return ""
        try:
            summary = await self._summarise(turn, recorder, plan, request.focus)
            await recorder.rotate([summary_of(summary.parts)], parent=plan.window, keep_from=plan.tail[0].position)
        except Exception:
            self._backoff.failed(turn.session)
            raise
        return self._report(turn.session, plan, summary)

    async def _page(self, session: SessionId, owner: str) -> MessagePage:
        return await self._store.run(commands.messages(session, owner=owner))

    def _plan(self, page: MessagePage, request: CompactionRequest, input: int | None = None) -> _Plan | None:
        keep = self._policy.keep if request.keep is None else request.keep
        begin = tail_of(page.messages, keep, self._count, input)
        return _Plan(page.window, page.messages[:begin], page.messages[begin:]) if begin else None

    async def _summarise(self, turn: AgentTurn, recorder: Recorder, plan: _Plan, focus: str) -> Message:
        work = self._summariser.summarise(turn, plan.older, focus, recorder.enqueue_nowait)
        try:
            summary = as_summary(turn, await run_with_deadline(self._policy.timeout, work))
        except TimeoutError as error:
            raise AgentTimedOut(f"the summariser took longer than {self._policy.timeout:g} s") from error
        # A longer summary would make the window grow with each compaction.
        if self._count(summary) >= sum(map(self._count, plan.older)):
            raise SummaryTooLong(
                "the summary is longer than the messages that it replaces",
                hint="Compact it when it has grown, or use another summariser.",
            )
        return summary

    def _report(self, session: SessionId, plan: _Plan, summary: Message) -> str:
        tail = sum(map(self._count, plan.tail))
        before, after = sum(map(self._count, plan.older)) + tail, self._count(summary) + tail
        log.info("session compacted", extra={"session": session, "tokens_before": before, "tokens_after": after})
        report = (
            f"{len(plan.older):,} messages became a summary and {len(plan.tail):,} stay:"
            f" about {before:,} tokens became {after:,}"
        )
        if after < self._policy.limit:
            self._backoff.succeeded(session)
            return report
        self._backoff.still_long(session, after)
        log.warning("session is still too long", extra={"session": session, "tokens": after})
        return f"{report}, which is still too long"
