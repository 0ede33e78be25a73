"""The service: what every request of a server process shares."""

from collections.abc import Mapping

import msgspec

from backstay.agents.adapters import AgentLike
from backstay.config import Settings
from backstay.runtime.app import App
from backstay.server.caller import Caller
from backstay.server.keys import Keys
from backstay.server.metrics import Metrics
from backstay.server.rates import Rates
from backstay.server.sharing import SharedReads
from backstay.server.streams import Streams


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """What can be said of a server to anybody who may ask it. `scripted` are the agents behind which no model is."""

    version: str
    agents: tuple[str, ...]
    scripted: tuple[str, ...]
    why: str
    engine: str


class Service:
    """An open app, its settings, the agents that answer in it, and what is counted about it."""

    def __init__(
        self, settings: Settings, app: App, metrics: Metrics, agents: Mapping[str, AgentLike], facts: Facts
    ) -> None:
        self.settings, self.app, self.metrics, self.agents, self.facts = settings, app, metrics, agents, facts
        self.rates = Rates(settings.requests_per_second, settings.request_burst)
        self.streams = Streams(settings, metrics)
        self.reads = SharedReads(app)
        self.keys = Keys(app, settings)

    def save_metrics(self) -> None:
        """Let the other workers see what was counted here."""
        pool, metrics = self.app.pool.statistics, self.metrics
        metrics.live_agents.set(pool.kept)
        metrics.pool_hits.set(pool.hits)
        for reason, count in pool.built.items():
            metrics.pool_misses.set(count, reason=reason)
        metrics.save()

    async def still_holds(self, caller: Caller) -> bool:
        """Whether the token by which a caller was let in still lets them in."""
        return caller.hash is None or await self.keys.holder(caller.hash) is not None
