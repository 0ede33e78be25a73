"""The agent driver: runs the right agent for a turn, and compacts when its history is too long for the model."""

from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence

from backstay.agents.adapters import AgentFactory, output_of
from backstay.agents.port import Loads
from backstay.concurrency.ctrl_c import is_ctrl_c
from backstay.errors import AgentError, AgentFailed, BackstayError, ContextOverflow, InvalidPayload
from backstay.model.content import Body
from backstay.model.event import UNSEEN, Cursor, EventBody
from backstay.model.failure_reasons import Exited, reason_of
from backstay.model.history.turn_messages import messages_of
from backstay.model.ids import MessageId
from backstay.model.message import Message
from backstay.model.turn import COMPACTOR, Finished, OpenTurn
from backstay.runtime import current_turn
from backstay.runtime.async_store import AsyncStore
from backstay.runtime.compaction.compactor import Compactor
from backstay.runtime.turns.agent_pool import Pool
from backstay.runtime.turns.history_cache import HistoryCache
from backstay.runtime.turns.ledger import Ledger
from backstay.runtime.turns.live_turn import LiveTurn
from backstay.runtime.turns.recorder import Recorder
from backstay.store import commands


class AgentDriver:
    """Answers turns with the agents of the app. Their output goes to the turn's recorder."""

    def __init__(self, store: AsyncStore, agents: Mapping[str, AgentFactory], pool: Pool, compactor: Compactor) -> None:
        self._store, self._agents, self._pool, self._compactor = store, agents, pool, compactor
        self._history = HistoryCache(store)

    def remember(self, opened: OpenTurn, finished: Finished) -> None:
        """Add the messages of a turn that has ended to the known history, so that the next turn need not read them."""
        self._history.add(opened, finished)

    async def drive(self, turn: LiveTurn, recorder: Recorder) -> str:
        """Run the agent; returns a note for the outcome. Tasks started here inherit the current turn."""
        current_turn.set_current(turn)
        try:
            if recorder.opened.agent == COMPACTOR:
                await self._load_history(turn, recorder)
                return await self._compactor.run(turn, recorder)
            await self._run_agent(turn, recorder)
        except (SystemExit, KeyboardInterrupt) as error:
            if is_ctrl_c(error):
                raise
            # Otherwise it would end the whole program, and every other turn with it.
            raise Exited from error
        return "" if recorder.has_output else "the agent sent no output"

    async def _run_agent(self, turn: LiveTurn, recorder: Recorder) -> None:
        factory = self._agents.get(recorder.opened.agent or "")
        if factory is None:
            raise AgentFailed(f"no agent called {recorder.opened.agent!r} is served here")
        agent = factory.shared or await self._pool.take(recorder.opened, factory)
        if factory.shared is None and isinstance(agent, Loads) and recorder.opened.root == recorder.opened.id:
            # The agent got the history when it was built, so only newer messages are read.
            turn.set_history(await self._pool.history(recorder.opened), (), Ledger())
        else:
            await self._load_history(turn, recorder)
        try:
            await _record_output(output_of(agent, turn), recorder)
        except ContextOverflow as overflow:
            if not self._compactor.automatic or not await self._make_room(turn, recorder, overflow):
                raise
            await self._reload_history(turn, recorder)
            agent = factory.shared or await self._pool.take(recorder.opened, factory)
            await _record_output(output_of(agent, turn), recorder)

    async def _load_history(self, turn: LiveTurn, recorder: Recorder) -> None:
        """Load the history for the agent, and for a resumed turn its earlier output and calls."""
        opened = recorder.opened
        resumed = opened.root != opened.id
        messages = await self._history.read(opened)
        if not resumed:
            turn.set_history(messages, (), Ledger())
            return
        earlier = tuple(message for message in messages if message.position > opened.input.position)
        calls = await self._store.run(commands.ledger(opened.root, owner=opened.owner))
        turn.set_history(messages, earlier, Ledger(calls, messages, turn=opened.id))

    async def _make_room(self, turn: LiveTurn, recorder: Recorder, overflow: ContextOverflow) -> bool:
        """Compact; returns whether it helped. The agent is discarded: it remembers messages that are summarised now."""
        self._pool.discard(turn.id)
        try:
            return await self._compactor.make_room(turn, recorder)
        except Exception as error:
            if isinstance(error, BackstayError) and not isinstance(error, AgentError | InvalidPayload):
                raise
            reason = reason_of(error, turn.id, "the summariser")
            # Still an overflow, so that the input is left out of later turns.
            message = f"{overflow.args[0]} The compaction failed, too: {reason}"
            raise ContextOverflow(message, hint=overflow.hint) from error

    async def _reload_history(self, turn: LiveTurn, recorder: Recorder) -> None:
        """Show the agent the new window and its own output of this turn, so that it does nothing twice."""
        # The output of this turn is read back from the store, so it must be there.
        await recorder.sync()
        opened = recorder.opened
        page = await self._store.run(commands.messages(opened.session, owner=opened.owner))
        whole = (*page.messages, *_messages_of(turn, await self._events_so_far(turn), after=page.length))
        earlier = tuple(message for message in whole if message.position > opened.input.position)
        calls = await self._store.run(commands.ledger(opened.root, owner=opened.owner))
        turn.set_history(whole, earlier, Ledger(calls, whole, turn=opened.id))

    async def _events_so_far(self, turn: LiveTurn) -> list[EventBody]:
        """The events of the turn up to now."""
        cursor, more = Cursor(fence=UNSEEN, number=turn.began), True
        events: list[EventBody] = []
        while more:
            page = await self._store.run(commands.events_after(turn.session, cursor, owner=turn.owner))
            events += [event.body for event in page.events if event.turn == turn.id]
            cursor, more = page.next, page.more
        return events


async def _record_output(bodies: AsyncIterator[Body], recorder: Recorder) -> None:
    try:
        async for body in bodies:
            await recorder.enqueue(body)
    except GeneratorExit:
        raise  # The event loop is closed: nothing else can be closed.
    except BaseException:
        await _close(bodies)
        raise
    recorder.agent_ended = True
    await _close(bodies)


async def _close(bodies: AsyncIterator[Body]) -> None:
    if isinstance(bodies, AsyncGenerator):
        await bodies.aclose()


def _messages_of(turn: LiveTurn, events: Sequence[EventBody], after: int) -> tuple[Message, ...]:
    """The output of a running turn as the messages that it will become."""
    return tuple(
        Message(
            id=MessageId(f"said {place}"), position=after + place, turn=turn.id, role=new.role, parts=new.parts, at=0
        )
        for place, new in enumerate(messages_of(events, partial=False))
    )
