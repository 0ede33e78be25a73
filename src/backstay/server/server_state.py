"""The server state: the objects that all requests of a server process share."""

from collections.abc import Mapping, Sequence

import msgspec

from backstay.agents.adapters import AgentLike
from backstay.clock import Clock, SystemClock
from backstay.config import Settings
from backstay.errors import TokenExpired
from backstay.gateways.gateway_service import GatewayService
from backstay.runtime.app import App
from backstay.server.auth.agent_roots import roots_for_clients
from backstay.server.auth.authenticator import Authenticator, Caller
from backstay.server.auth.rate_limit import RateLimiter
from backstay.server.http.error_responses import ErrorResponses
from backstay.server.process.readiness import WorkersWaiting, saved
from backstay.server.push.push_service import PushService
from backstay.server.sse.coalesced_reads import SharedReads
from backstay.server.sse.open_streams import OpenStreams
from backstay.server.telemetry.metrics import Metrics
from backstay.server.transfers import Transfers
from backstay.server.webhooks.outgoing_hooks import OutgoingHooks


class ServerInfo(msgspec.Struct, frozen=True, kw_only=True):
    """Public information about this server. `scripted` lists the agents that use no model."""

    version: str
    agents: tuple[str, ...]
    scripted: tuple[str, ...]
    why: str
    engine: str

    def for_caller(self, caller: Caller) -> "ServerInfo":
        """The part that this caller may see. Only the operator sees `why`: it can name addresses of their network."""
        return self if caller.operator else msgspec.structs.replace(self, why="")


class ServerState:
    """An open app, its settings and agents, and the shared state of the HTTP server."""

    def __init__(
        self,
        settings: Settings,
        app: App,
        metrics: Metrics,
        agents: Mapping[str, AgentLike],
        info: ServerInfo,
        *,
        error_responses: ErrorResponses,
        gateways: Sequence[GatewayService] = (),
    ) -> None:
        self.error_responses, self.gateways = error_responses, tuple(gateways)
        self.settings, self.app, self.metrics, self.agents, self.info = settings, app, metrics, agents, info
        self.rates = RateLimiter(settings.requests_per_second, settings.request_burst)
        self.streams = OpenStreams(settings, metrics)
        self.transfers = Transfers(settings.transfers, settings.transfers_per_owner, settings.transfer_wait_seconds)
        self.reads = SharedReads(app)
        self.authenticator = Authenticator(app, settings)
        self.clock: Clock = SystemClock()
        self.agent_roots = roots_for_clients(settings)
        self.webhooks = OutgoingHooks(settings)
        self.push = PushService(settings)

    def save_metrics(self) -> None:
        """Copy the pool's statistics into the metrics and save them for the other workers."""
        pool, metrics = self.app.pool.statistics, self.metrics
        metrics.live_agents.set(pool.kept)
        metrics.pool_hits.set(pool.hits)
        for reason, count in pool.built.items():
            metrics.pool_misses.set(count, reason=reason)
        for gateway in self.gateways:
            metrics.note_gateway(gateway.status)
        metrics.save()

    def waiting_workers(self) -> tuple[WorkersWaiting, ...]:
        """The causes for which other workers of this server still wait for the store."""
        return saved(self.metrics.folder)

    async def close(self) -> None:
        """End the transfers and reads whose requests have ended before them."""
        await self.transfers.close()
        await self.reads.close()

    async def is_authorized(self, caller: Caller) -> bool:
        """Whether the caller's token is still valid."""
        try:
            return caller.hash is None or await self.authenticator.valid_token(caller.hash) is not None
        except TokenExpired:
            return False
