"""Which turn the running code belongs to."""

from contextvars import ContextVar

from backstay.agents.port import AgentTurn

_current: ContextVar[AgentTurn] = ContextVar("backstay_turn")


def current() -> AgentTurn:
    """The turn this code runs in: right inside the agent, its tasks and its threads, and nowhere else.

    One object per turn; its window is read live, so it is right after a compaction too. `LookupError` outside a turn.
    """
    return _current.get()


def enter(turn: AgentTurn) -> None:
    """Make this the current turn of the running task and of everything it starts."""
    _current.set(turn)
