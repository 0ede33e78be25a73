"""The current turn of the running code."""

from contextvars import ContextVar

from backstay.agents.port import AgentTurn

_current: ContextVar[AgentTurn] = ContextVar("backstay_turn")


def current() -> AgentTurn:
    """The turn of the running code, for agents, their tasks, their tools and `asyncio.to_thread`.

    A thread that you start yourself, or an executor, has the turn only if its function runs with
    `contextvars.copy_context().run`. There is one object per turn. Its `window` is always the current one, also after a
    compaction.

    Returns:
        The turn, as the agent sees it.

    Raises:
        LookupError: The code runs outside a turn, or in a thread without a copy of the context.
    """
    try:
        return _current.get()
    except LookupError:
        raise LookupError(
            "no turn runs in this task or thread; start threads with contextvars.copy_context().run"
        ) from None


def set_current(turn: AgentTurn) -> None:
    """Make this the current turn of the running task and of all tasks that it starts."""
    _current.set(turn)
