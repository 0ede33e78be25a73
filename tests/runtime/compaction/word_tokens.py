"""Compaction in words: one word is one token, so that a test can count the size of a window."""

from collections.abc import AsyncIterator, Callable
from typing import Any

from backstay import Compaction, Text
from backstay.agents.port import AgentTurn
from backstay.model.content import Body
from backstay.model.event import Event, TurnEnded, TurnStarted, WindowOpened
from backstay.model.message import Message
from backstay.model.turn import COMPACTOR, Outcome
from backstay.runtime.session_handle import Session
from backstay.runtime.turn_handle import Turn
from tests.runtime.controlled_agents import AgentFunction

# An answer of ten words, to inputs of two.
LONG_WINDED = " ".join(["word"] * 10)


def words(message: Message) -> int:
    """How many tokens a message takes here."""
    return len(message.text.split())


async def gist(turn: AgentTurn) -> AsyncIterator[Body]:
    """A summariser with short summaries."""
    yield Text(f"gist of {len(turn.messages) - 1}")


async def talkative(turn: AgentTurn) -> AsyncIterator[Body]:
    """An agent whose every turn takes twelve tokens, if the input takes two."""
    yield Text(LONG_WINDED)


def policy(**others: Any) -> Compaction:  # Any: the fields of a policy
    """Compacts above thirty tokens, to a tail of at most fourteen: one turn, and the summary."""
    return Compaction(**{"budget": 60, "threshold": 0.5, "keep": 14, "tokens": words, "summariser": gist, **others})


def counting(inner: AgentFunction, calls: list[AgentTurn]) -> AgentFunction:
    """The same summariser, with a record of its inputs."""

    async def summariser(turn: AgentTurn) -> AsyncIterator[Body]:
        calls.append(turn)
        async for body in inner(turn):
            yield body

    return summariser


async def converse(session: Session, turns: int) -> list[Turn]:
    """This number of turns, one after the other, each with its compaction."""
    handles = []
    for number in range(turns):
        handles.append(await session.send(f"question {number}"))
        await handles[-1].outcome()
        await at_rest(session)
    return handles


async def at_rest(session: Session) -> None:
    """Wait until no turn and no compaction runs."""
    while (running := (await session.read()).running) is not None:
        await (await session.turn(running)).outcome()


async def events_so_far(session: Session) -> list[Event]:
    """All events of the session."""
    last = (await session.read()).last_event
    roles_and_texts: list[Event] = []
    async for event in session.follow():
        roles_and_texts.append(event)
        if event.last >= last:
            break
    return roles_and_texts


async def compactions(session: Session) -> list[Outcome]:
    """How every compaction that was a turn of its own ended."""
    story = await events_so_far(session)
    ours = {event.turn for event in story if event.body == TurnStarted(COMPACTOR)}
    return [event.body.outcome for event in story if event.turn in ours and isinstance(event.body, TurnEnded)]


async def windows_opened(session: Session) -> int:
    """How often the session moved to another window."""
    return sum(isinstance(event.body, WindowOpened) for event in await events_so_far(session))


Summarise = Callable[[AgentTurn], AsyncIterator[Body]]
