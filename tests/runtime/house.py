"""A house for live agents: a real store, a pool on it, and agents that remember what was done to them."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from msgspec.structs import replace

from backstay import Pooling, Text, live, open_store
from backstay.agents.adapters import Configuration, Maker, maker_of
from backstay.agents.port import Agent, AgentTurn
from backstay.model.content import Body
from backstay.model.ids import SessionId, TurnId
from backstay.model.message import Message
from backstay.model.turn import Completed, Finished, OpenTurn
from backstay.runtime.crossing import Crossing
from backstay.runtime.pool import Pool
from backstay.store.sqlstore import SqlStore
from backstay.testing import ManualClock

ME = "local"


class Resident:
    """An agent that counts how often it was closed, and checks that nobody uses it then."""

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


class House:
    """A pool, and the turns and agents of one test."""

    def __init__(self, store: SqlStore, pool: Pool, clock: ManualClock) -> None:
        self.store, self.pool, self.clock = store, pool, clock
        self.residents: list[Resident] = []

    def maker(self, kind: Callable[[], Resident] = Resident, configuration: Configuration = None) -> Maker:
        """Makes residents of this kind, and remembers them."""

        def make() -> Agent:
            self.residents.append(kind())
            return self.residents[-1]

        return maker_of(live(make, configuration=configuration))

    def session(self) -> SessionId:
        return self.store.create(owner=ME).id

    def open(self, session: SessionId) -> OpenTurn:
        """A turn that just began."""
        opened = self.store.submit(session, "well?", owner=ME, start=True).opened
        assert opened is not None
        return opened

    def finish(self, opened: OpenTurn) -> Finished:
        """The end of a turn, as the store tells it."""
        return self.store.finish(opened, Completed(), bodies=[Text("hm")])

    async def live_through(self, session: SessionId, maker: Maker) -> Agent:
        """One whole turn; the agent that answered it."""
        opened = self.open(session)
        agent = await self.pool.take(opened, maker)
        self.pool.give_back(opened.id, self.finish(opened))
        return agent

    async def until_closed(self, *places: int) -> None:
        """Wait until these residents were closed: that happens on the side."""
        for place in places:
            await self.residents[place].gone.wait()

    @property
    def closed(self) -> list[int]:
        """How often each resident was closed."""
        return [resident.closed for resident in self.residents]


@asynccontextmanager
async def house(path: Path, pooling: Pooling | None = None, *, grace: float = 1.0) -> AsyncIterator[House]:
    """A house with nobody in it yet."""
    clock = ManualClock()
    store = open_store(path, clock=clock)
    assert isinstance(store, SqlStore)
    store.enter()
    crossing = Crossing(store)
    pool = Pool(crossing, pooling or Pooling(), grace, lambda: clock.boot() / 1000)
    try:
        yield House(store, pool, clock)
    finally:
        await crossing.close()


def numbered(opened: OpenTurn, number: int) -> OpenTurn:
    """The same turn under another id, as if many ran at once."""
    return replace(opened, id=TurnId(f"{opened.id}.{number}"))
