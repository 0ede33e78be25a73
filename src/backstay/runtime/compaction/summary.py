"""The summariser: an agent that summarises messages, in pieces of a size that it can read."""

from collections.abc import Callable, Iterator, Sequence

from backstay.agents.adapters import AgentFactory, output_of
from backstay.agents.port import Agent, AgentTurn
from backstay.agents.summariser import SummaryTurn
from backstay.concurrency.ctrl_c import is_ctrl_c
from backstay.errors import AgentFailed
from backstay.model.content import Text, Usage
from backstay.model.failure_reasons import Exited
from backstay.model.history.projection import readable
from backstay.model.history.tail import CountTokens
from backstay.model.ids import MessageId
from backstay.model.message import Message
from backstay.runtime.turns.agent_pool import close_agent


class Summariser:
    """Summarises messages with an agent; piece by piece, if they do not fit into one request."""

    def __init__(self, factory: AgentFactory, limit: float, count: CountTokens, grace: float) -> None:
        self._factory, self._limit, self._count, self._grace = factory, limit, count, grace

    async def summarise(
        self, turn: AgentTurn, messages: Sequence[Message], focus: str, report_usage: Callable[[Usage], None]
    ) -> str:
        """The summary of these messages. The usage is reported to `report_usage`.

        Each piece is summarised together with the summary of the pieces before it.
        """
        agent = self._factory.shared or await self._factory.make()
        try:
            summary = ""
            for piece in self._pieces(messages):
                before = (as_summary(turn, summary),) if summary else ()
                request = SummaryTurn(turn, readable((*before, *piece)), focus)
                summary = await _summarise_piece(agent, request, report_usage)
            return summary
        except (SystemExit, KeyboardInterrupt) as error:
            if is_ctrl_c(error):
                raise
            # Otherwise it would end the whole program, and every turn with it.
            raise Exited from error
        finally:
            if self._factory.shared is None:
                await close_agent(agent, "summariser", self._grace)

    async def aclose(self) -> None:
        """Close a summariser that is shared by all compactions."""
        if self._factory.shared is not None:
            await close_agent(self._factory.shared, "summariser", self._grace)

    def _pieces(self, messages: Sequence[Message]) -> Iterator[list[Message]]:
        """The messages in pieces below the limit. A tool call and its results stay together, however long."""
        piece: list[Message] = []
        size = 0
        for message in messages:
            weight = self._count(message)
            if piece and message.role != "tool" and size + weight > self._limit:
                yield piece
                piece, size = [], 0
            piece.append(message)
            size += weight
        yield piece


async def _summarise_piece(agent: Agent, request: SummaryTurn, report_usage: Callable[[Usage], None]) -> str:
    texts: list[str] = []
    async for body in output_of(agent, request):
        if isinstance(body, Text):
            texts.append(body.text)
        elif isinstance(body, Usage):
            report_usage(body)
    summary = "".join(texts).strip()
    if not summary:
        raise AgentFailed("the summariser returned an empty summary")
    return summary


def as_summary(turn: AgentTurn, summary: str) -> Message:
    """The summary as the message that it will become."""
    return Message(id=MessageId(""), position=0, turn=turn.id, role="summary", parts=(Text(summary),), at=0)
