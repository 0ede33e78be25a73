"""An app with the settings of a server, for every program that serves agents."""

import math
from collections.abc import Mapping

from backstay.agents.adapters import AgentLike
from backstay.config import Settings
from backstay.model.limits import Limits
from backstay.runtime.app import App, open_app
from backstay.runtime.compaction.policy import Compaction
from backstay.runtime.owner_limits import OwnerLimits
from backstay.runtime.timing import Timing
from backstay.runtime.titles import first_words


def served_app(settings: Settings, agents: Mapping[str, AgentLike]) -> App:
    """An app that serves these agents, to be opened with `async with`."""
    return open_app(
        settings.db,
        agents=agents,
        owner=settings.owner,
        on_interrupt=settings.on_interrupt,
        notify=settings.notify,
        titler=first_words if settings.titles else None,
        timing=Timing(grace=settings.grace_seconds),
        schedules=settings.schedules,
        debug=settings.debug,
        compaction=_compaction(settings.compact_tokens),
        per_owner=_per_owner(settings),
        limits=Limits(
            sessions_per_owner=settings.sessions_per_owner or None,
            stored_bytes_per_owner=settings.stored_bytes_per_owner or None,
            document_bytes=settings.import_line_bytes,
        ),
    )


def _compaction(tokens: int) -> Compaction | None:
    """Compact windows above `tokens`; the tail keeps a fifth of that budget, a summary replaces the rest."""
    return Compaction(budget=tokens, keep=tokens // 5) if tokens else None


def _per_owner(settings: Settings) -> OwnerLimits:
    """The limits per owner for one worker: the server-wide limits divided by the number of workers, rounded up."""

    def share(limit: int) -> int:
        return math.ceil(limit / settings.workers)

    return OwnerLimits(
        running_turns=share(settings.running_turns_per_owner),
        live_agents=share(settings.live_agents_per_owner),
        agent_processes=share(settings.agent_processes_per_owner),
    )
