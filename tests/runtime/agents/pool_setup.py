"""A pool of live agents on a real store, with agents that count how often they were closed."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from msgspec.structs import replace

from backstay import Pooling, Text, live, open_store
from backstay.agents.adapters import AgentFactory, Configuration, agent_factory
from backstay.agents.port import Agent, AgentTurn
from backstay.model.content import Body
from backstay.model.ids import SessionId, TurnId
from backstay.model.message import Message
from backstay.model.turn import Completed, Finished, OpenTurn
from backstay.runtime.async_store import AsyncStore
from backstay.runtime.owner_limits import OwnerLimits
from backstay.runtime.turns.agent_pool import Pool
from backstay.store import Store
from backstay.testing import ManualClock

ME = "local"


class CountingAgent:
    """An agent that counts its closes, and fails if it is used afterwards."""

    def __init__(self) -> None:
        self.heard: list[str] = []
        self.closed = 0
        self.gone = asyncio.Event()

    async def load(self, messages: tuple[Message, ...]) -> None:
        self.heard = [message.text for message in messages]

    async def stream(self, turn: AgentTurn) -> AsyncIterator[Body]:
        assert not self.closed
        yield Text("hm")

    async def aclose(self) -> None:
        self.closed += 1
        self.gone.set()


class PoolSetup:
    """A pool, and the turns and agents of one test."""

    def __init__(self, store: Store, pool: Pool, clock: ManualClock) -> None:
        self.store, self.pool, self.clock = store, pool, clock
        self.agents: list[CountingAgent] = []

    def factory(
        self, kind: Callable[[], CountingAgent] = CountingAgent, configuration: Configuration = None
    ) -> AgentFactory:
        """Creates agents of this kind, and keeps a list of them."""

        def make() -> Agent:
            self.agents.append(kind())
            return self.agents[-1]

        return agent_factory(live(make, configuration=configuration))

    def session(self) -> SessionId:
        return self.store.create(owner=ME).id

    def open(self, session: SessionId) -> OpenTurn:
        """A turn that just began."""
        opened = self.store.submit(session, "well?", owner=ME, start=True).opened
        assert opened is not None
        return opened

    def finish(self, opened: OpenTurn) -> Finished:
        """The end of a turn, as the store reports it."""
        return self.store.finish(opened, Completed(), bodies=[Text("hm")])

    async def live_through(self, session: SessionId, factory: AgentFactory) -> Agent:
        """One whole turn; the agent that answered it."""
        opened = self.open(session)
        agent = await self.pool.take(opened, factory)
        self.pool.give_back(opened.id, self.finish(opened))
        return agent

    async def until_closed(self, *places: int) -> None:
        """Wait until these agents are closed, which happens in the background."""
        for place in places:
            await self.agents[place].gone.wait()

    @property
    def closed(self) -> list[int]:
        """How often each agent was closed."""
        return [agent.closed for agent in self.agents]


@asynccontextmanager
async def pool_setup(path: Path, pooling: Pooling | None = None, *, grace: float = 1.0) -> AsyncIterator[PoolSetup]:
    """A pool without agents."""
    clock = ManualClock()
    store = open_store(path, clock=clock)
    store.register_worker()
    async_store = AsyncStore(store)
    pool = Pool(async_store, pooling or Pooling(), OwnerLimits(), grace, lambda: clock.boot() / 1000)
    try:
        yield PoolSetup(store, pool, clock)
    finally:
        await async_store.close()


def numbered(opened: OpenTurn, number: int) -> OpenTurn:
    """The same turn under another id, as if many ran at once."""
    return replace(opened, id=TurnId(f"{opened.id}.{number}"))
