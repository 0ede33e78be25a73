"""The summary: asked of an agent, in pieces that it can read."""

from collections.abc import Callable, Iterator, Sequence

from backstay.agents.adapters import Maker, words_of
from backstay.agents.port import Agent, AgentTurn
from backstay.agents.summarising import SummaryTurn
from backstay.errors import AgentFailed
from backstay.model.content import Text, Usage
from backstay.model.ids import MessageId
from backstay.model.message import Message
from backstay.model.projection import readable
from backstay.model.tail import Weigh
from backstay.runtime.pool import close_agent


class Summariser:
    """Asks for the gist of messages. What does not fit into one question is asked piece by piece."""

    def __init__(self, maker: Maker, limit: float, weigh: Weigh, grace: float) -> None:
        self._maker, self._limit, self._weigh, self._grace = maker, limit, weigh, grace

    async def ask(
        self, turn: AgentTurn, messages: Sequence[Message], focus: str, spent: Callable[[Usage], None]
    ) -> str:
        """The gist of these messages; what asking for it cost is reported to `spent`."""
        agent = self._maker.shared or await self._maker.make()
        try:
            gist = ""
            for piece in self._pieces(messages):
                before = (as_summary(turn, gist),) if gist else ()
                asked = SummaryTurn(turn, readable((*before, *piece)), focus)
                gist = await _answer(agent, asked, spent)
            return gist
        except SystemExit as error:
            # It would end the whole program, and every turn with it.
            raise AgentFailed(f"SystemExit: {error}") from error
        finally:
            if self._maker.shared is None:
                await close_agent(agent, "summariser", self._grace)

    async def aclose(self) -> None:
        """Close a summariser that served every compaction."""
        if self._maker.shared is not None:
            await close_agent(self._maker.shared, "summariser", self._grace)

    def _pieces(self, messages: Sequence[Message]) -> Iterator[list[Message]]:
        """The messages in pieces below the limit; a tool call and its results stay together, however long."""
        piece: list[Message] = []
        size = 0
        for message in messages:
            weight = self._weigh(message)
            if piece and message.role != "tool" and size + weight > self._limit:
                yield piece
                piece, size = [], 0
            piece.append(message)
            size += weight
        yield piece


async def _answer(agent: Agent, asked: SummaryTurn, spent: Callable[[Usage], None]) -> str:
    words: list[str] = []
    async for body in words_of(agent, asked):
        if isinstance(body, Text):
            words.append(body.text)
        elif isinstance(body, Usage):
            spent(body)
    gist = "".join(words).strip()
    if not gist:
        raise AgentFailed("the summariser said nothing")
    return gist


def as_summary(turn: AgentTurn, gist: str) -> Message:
    """The gist as the message that it will be."""
    return Message(id=MessageId(""), position=0, turn=turn.id, role="summary", parts=(Text(gist),), at=0)
