"""The registry of agents that processes serve: filled when an app opens, read before a message is queued."""

from collections.abc import Collection

from backstay.errors import InvalidPayload, UnknownAgent
from backstay.model.codec import check_name
from backstay.model.turn import COMPACTOR
from backstay.store.engine import Transaction
from backstay.store.rows import value, values

_QUEUE = "To queue the message for an agent that is served later, set allow_unserved (--allow-unserved)."


def check_agent_name(tx: Transaction, agent: object) -> str:
    """Return the name of an agent that can answer, or raise `InvalidPayload`."""
    name = check_name("the agent's name", agent, tx.limits.name_bytes)
    if name == COMPACTOR:
        raise InvalidPayload(
            f"{name} is reserved and not the name of an agent", hint="Use `compact` to compact a session."
        )
    return name


def check_served(tx: Transaction, name: str) -> None:
    """Raise `UnknownAgent` unless a process serves this agent or has served it.

    In a new store, for which no process has served any agent yet, every name is accepted: one may just be starting.
    """
    if value(tx, "served_agent", name=name) is not None:
        return
    known = values(tx, "served_agents")
    # On PostgreSQL a process may have registered the agent between the two queries.
    if not known or name in known:
        return
    from difflib import get_close_matches  # noqa: PLC0415  # only this error needs it

    nearest = get_close_matches(name, known, n=1, cutoff=0.5)
    named = f"Did you mean {nearest[0]!r}?" if nearest else f"Agents of this store: {', '.join(known[:8])}."
    raise UnknownAgent(f"no process serves an agent called {name!r}, and none ever has", hint=f"{named} {_QUEUE}")


def unregistered(tx: Transaction, names: Collection[str]) -> tuple[str, ...]:
    """Return those of these agents that are not registered yet."""
    return tuple(name for name in names if value(tx, "served_agent", name=name) is None)


def register(tx: Transaction, names: Collection[str]) -> None:
    """Remember that these agents are served."""
    for name in names:
        tx.run("add_served_agent", name=check_agent_name(tx, name), now=tx.now)
