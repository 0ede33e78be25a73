"""The speaker: lets the right agent answer a turn, and makes room when it cannot read it all."""

from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence

from backstay.agents.adapters import Maker, words_of
from backstay.agents.port import Agent, Loads
from backstay.errors import AgentError, AgentFailed, ContextOverflow, InvalidPayload
from backstay.model.content import Body
from backstay.model.event import UNSEEN, Cursor, EventBody
from backstay.model.ids import MessageId
from backstay.model.message import Message
from backstay.model.projection import readable
from backstay.model.story import messages_of
from backstay.model.turn import COMPACTOR, Call
from backstay.runtime import context
from backstay.runtime.compactor import Compactor
from backstay.runtime.crossing import Crossing
from backstay.runtime.ledger import Ledger
from backstay.runtime.live import LiveTurn
from backstay.runtime.pool import Pool
from backstay.runtime.recorder import Recorder


class Speaker:
    """Answers turns with the agents it was given. What they say goes to the turn's recorder."""

    def __init__(self, crossing: Crossing, agents: Mapping[str, Maker], pool: Pool, compactor: Compactor) -> None:
        self._crossing, self._agents, self._pool, self._compactor = crossing, agents, pool, compactor

    async def speak(self, turn: LiveTurn, recorder: Recorder) -> str:
        """Have the turn answered; what there is to say about it besides. All that is started here inherits the turn."""
        context.enter(turn)
        try:
            if recorder.proof.agent == COMPACTOR:
                return await self._compactor.run(turn, recorder)
            await self._answer(turn, recorder)
        except SystemExit as error:
            # It would end the whole program, and every other turn with it.
            raise AgentFailed(f"SystemExit: {error}") from error
        return "" if recorder.spoken else "the agent said nothing"

    async def _answer(self, turn: LiveTurn, recorder: Recorder) -> None:
        maker = self._agents.get(recorder.proof.agent or "")
        if maker is None:
            raise AgentFailed(f"no agent called {recorder.proof.agent!r} is served here")
        agent = maker.shared or await self._pool.take(recorder.proof, maker)
        await self._show(turn, recorder, agent)
        try:
            await _listen(words_of(agent, turn), recorder)
        except ContextOverflow as overflow:
            if not self._compactor.automatic or not await self._make_room(turn, recorder, overflow):
                raise
            await self._show_again(turn, recorder)
            agent = maker.shared or await self._pool.take(recorder.proof, maker)
            await _listen(words_of(agent, turn), recorder)

    async def _show(self, turn: LiveTurn, recorder: Recorder, agent: Agent) -> None:
        """Show the agent what was said. One that was told when it was built need not be told again."""
        proof, store = recorder.proof, self._crossing.store
        goes_on = proof.root != proof.id
        if isinstance(agent, Loads) and not goes_on:
            return
        page = await self._crossing.read(store.messages, proof.session, owner=proof.owner)
        said: tuple[Message, ...] = ()
        calls: tuple[Call, ...] = ()
        if goes_on:
            said = tuple(message for message in page.messages if message.position > proof.input.position)
            calls = await self._crossing.read(store.ledger, proof.root, owner=proof.owner)
        turn.show(readable(page.messages), said, Ledger(calls, page.messages))

    async def _make_room(self, turn: LiveTurn, recorder: Recorder, overflow: ContextOverflow) -> bool:
        """Compact; whether it helped. The agent is not used again: it would remember what is summarised now."""
        self._pool.discard(turn.id)
        try:
            return await self._compactor.make_room(turn, recorder)
        except (AgentError, InvalidPayload) as error:
            raise AgentFailed(f"{overflow} The compaction failed, too: {error}") from error

    async def _show_again(self, turn: LiveTurn, recorder: Recorder) -> None:
        """Show the agent the new window, and what it said in this turn already, so that nothing is done twice."""
        await recorder.sync()
        proof, store = recorder.proof, self._crossing.store
        page = await self._crossing.read(store.messages, proof.session, owner=proof.owner)
        whole = (*page.messages, *_messages_of(turn, await self._story(turn), after=page.length))
        said = tuple(message for message in whole if message.position > proof.input.position)
        calls = await self._crossing.read(store.ledger, proof.root, owner=proof.owner)
        turn.show(readable(whole), said, Ledger(calls, whole))

    async def _story(self, turn: LiveTurn) -> list[EventBody]:
        """What was told of the turn up to now."""
        store, cursor, more = self._crossing.store, Cursor(fence=UNSEEN, number=turn.began), True
        story: list[EventBody] = []
        while more:
            page = await self._crossing.read(store.events_after, turn.session, cursor, owner=turn.owner)
            story += [event.body for event in page.events if event.turn == turn.id]
            cursor, more = page.next, page.more
        return story


async def _listen(words: AsyncIterator[Body], recorder: Recorder) -> None:
    try:
        async for body in words:
            await recorder.put(body)
    except GeneratorExit:
        raise  # The loop is gone, and with it every way to close anything.
    except BaseException:
        await _close(words)
        raise
    await _close(words)


async def _close(words: AsyncIterator[Body]) -> None:
    if isinstance(words, AsyncGenerator):
        await words.aclose()


def _messages_of(turn: LiveTurn, story: Sequence[EventBody], after: int) -> tuple[Message, ...]:
    """What a turn that still runs said, as the messages it will become."""
    return tuple(
        Message(
            id=MessageId(f"said {place}"), position=after + place, turn=turn.id, role=new.role, parts=new.parts, at=0
        )
        for place, new in enumerate(messages_of(story, partial=False))
    )
