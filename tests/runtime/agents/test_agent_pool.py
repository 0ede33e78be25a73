"""The pool by itself: one agent per session and name, built once, lent once, closed once, and never while in use."""

import asyncio
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from backstay import Pooling, live
from backstay.agents.adapters import agent_factory
from backstay.errors import ConfigError, StoreUnavailable
from backstay.model import message
from backstay.model.content import Body, ToolCall, ToolResult
from backstay.model.ids import SessionId
from backstay.model.message import Message
from backstay.model.turn import Completed, OpenTurn
from tests.runtime.agents.pool_setup import ME, CountingAgent, PoolSetup, numbered, pool_setup
from tests.runtime.controlled_agents import Gate, play

# These tests are about agents and their output in the runtime: the engine cannot matter.
pytestmark = pytest.mark.engines("sqlite")

# --- building -------------------------------------------------------------------------------------------------------


async def test_a_hundred_takers_at_once_build_one_agent_and_have_it_one_after_the_other(path: Path) -> None:
    async with pool_setup(path) as setup:
        factory, opened = setup.factory(), setup.open(setup.session())
        finished = replace(setup.finish(opened), context=opened.found)
        in_use: set[object] = set()

        async def use(number: int) -> None:
            turn = numbered(opened, number)
            agent = await setup.pool.take(turn, factory)
            assert agent not in in_use
            in_use.add(agent)
            await asyncio.sleep(0)
            in_use.remove(agent)
            setup.pool.give_back(turn.id, finished)

        await asyncio.gather(*(use(number) for number in range(100)))
        statistics = setup.pool.statistics
        assert (len(setup.agents), statistics.hits, statistics.built) == (1, 99, {"first": 1})
        assert (statistics.kept, statistics.in_use) == (1, 0)


async def test_a_build_that_failed_is_not_kept_and_the_next_taker_builds(path: Path) -> None:
    async with pool_setup(path) as setup:
        faults: list[Exception] = [OSError("no model"), ValueError("no key")]

        def make() -> CountingAgent:
            if faults:
                raise faults.pop(0)
            return CountingAgent()

        factory, opened = agent_factory(live(make)), setup.open(setup.session())
        takers = [setup.pool.take(numbered(opened, number), factory) for number in range(3)]
        answers = await asyncio.gather(*takers, return_exceptions=True)
        assert [type(answer) for answer in answers] == [OSError, ValueError, CountingAgent]
        statistics = setup.pool.statistics
        assert (statistics.failed, statistics.built, statistics.kept) == (2, {"first": 1}, 1)


@pytest.mark.parametrize("made", [None, "an agent", object()])
async def test_an_object_that_is_not_an_agent_is_rejected(path: Path, made: object) -> None:
    async with pool_setup(path) as setup:
        factory = agent_factory(live(lambda: made))  # type: ignore[arg-type,return-value]  # that is the point
        with pytest.raises(ConfigError, match="is not an agent"):
            await setup.pool.take(setup.open(setup.session()), factory)
        assert (setup.pool.statistics.kept, setup.pool.statistics.in_use) == (0, 0)


async def test_an_agent_may_be_awaited(path: Path) -> None:
    async with pool_setup(path) as setup:

        async def make() -> CountingAgent:
            await asyncio.sleep(0)
            return CountingAgent()

        session, factory = setup.session(), agent_factory(live(make))
        first = await setup.live_through(session, factory)
        assert await setup.live_through(session, factory) is first


class Failing(CountingAgent):
    """Raises when it gets the history."""

    async def load(self, messages: tuple[Message, ...]) -> None:
        raise LookupError("lost my notes")


async def test_an_agent_that_fails_to_load_the_history_is_closed_and_raises(path: Path) -> None:
    async with pool_setup(path) as setup:
        with pytest.raises(LookupError, match="lost my notes"):
            await setup.pool.take(setup.open(setup.session()), setup.factory(Failing))
        await setup.pool.aclose()
        assert (setup.closed, setup.pool.statistics.failed, setup.pool.statistics.kept) == ([1], 1, 0)


async def test_no_agent_is_lent_if_the_history_cannot_be_read(path: Path) -> None:
    async with pool_setup(path) as setup:
        session, factory = setup.session(), setup.factory()
        await setup.live_through(session, factory)
        setup.store.record(session, [message.user("by the way")], owner=ME)
        opened = setup.open(session)
        setup.store.close()
        with pytest.raises(StoreUnavailable):
            await setup.pool.take(opened, factory)
        await setup.pool.aclose()
        assert setup.closed == [1, 1]


class Slow(CountingAgent):
    """Stops at the next of these gates whenever it gets the history; a deaf one stays even when cancelled."""

    def __init__(self, gates: list[Gate], *, deaf: bool) -> None:
        super().__init__()
        self._gates, self._deaf = gates, deaf

    async def load(self, messages: tuple[Message, ...]) -> None:
        await self._learn()

    async def catch_up(self, messages: tuple[Message, ...]) -> None:
        await self._learn()

    async def _learn(self) -> None:
        if not self._gates:
            return
        learning = asyncio.ensure_future(self._gates.pop(0).stop_here())
        while not learning.done():
            try:
                await asyncio.shield(learning)
            except asyncio.CancelledError:
                if not self._deaf:
                    raise


async def test_a_build_that_is_cancelled_leaves_room_for_the_next(path: Path) -> None:
    async with pool_setup(path) as setup:
        gate, opened = Gate(), setup.open(setup.session())
        building = asyncio.create_task(setup.pool.take(opened, setup.factory(lambda: Slow([gate], deaf=False))))
        waiting = asyncio.create_task(setup.pool.take(numbered(opened, 1), setup.factory()))
        await gate.reached()
        building.cancel()
        assert await waiting is setup.agents[1]
        setup.pool.discard(numbered(opened, 1).id)
        await setup.pool.aclose()
        assert setup.closed == [1, 1]


async def test_a_taker_that_is_cancelled_while_it_waits_takes_nothing(path: Path) -> None:
    async with pool_setup(path) as setup:
        session, factory = setup.session(), setup.factory()
        opened = setup.open(session)
        await setup.pool.take(opened, factory)
        waiting = asyncio.create_task(setup.pool.take(numbered(opened, 1), factory))
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        setup.pool.give_back(opened.id, setup.finish(opened))
        assert setup.pool.statistics.in_use == 0
        assert await setup.live_through(session, factory) is setup.agents[0]


@pytest.mark.parametrize("warm", [False, True], ids=["load", "catch_up"])
async def test_an_agent_that_never_gets_ready_does_not_keep_others_from_its_session(path: Path, warm: bool) -> None:
    async with pool_setup(path) as setup:
        gates: list[Gate] = []
        gate, session, slow = Gate(), setup.session(), setup.factory(lambda: Slow(gates, deaf=True))
        if warm:
            await setup.live_through(session, slow)
            setup.store.record(session, [message.user("by the way")], owner=ME)
        gates.append(gate)
        opened = setup.open(session)
        getting_ready = asyncio.create_task(setup.pool.take(opened, slow))
        await gate.reached()
        getting_ready.cancel()
        # The runner does this with an agent that does not stop.
        setup.pool.discard(opened.id, close=False)
        setup.finish(opened)
        other = await setup.live_through(session, setup.factory())
        gate.open()
        await asyncio.gather(getting_ready, return_exceptions=True)
        assert await setup.live_through(session, setup.factory()) is other
        assert setup.pool.statistics.in_use == 0


# --- knowing --------------------------------------------------------------------------------------------------------


async def test_another_configuration_makes_another_agent(path: Path) -> None:
    async with pool_setup(path) as setup:
        model = ["small"]
        session, factory = setup.session(), setup.factory(configuration=lambda: {"model": model[0]})
        first = await setup.live_through(session, factory)
        assert await setup.live_through(session, factory) is first
        model[0] = "large"
        assert await setup.live_through(session, factory) is not first
        assert setup.pool.statistics.built == {"first": 1, "configuration": 1}
        await setup.pool.aclose()
        assert setup.closed == [1, 1]


async def test_an_unknown_configuration_is_an_error_and_no_agent_is_reused_blindly(path: Path) -> None:
    async with pool_setup(path) as setup:
        sources: list[object] = [{"model": "small"}]

        def configuration() -> object:
            return sources.pop() if sources else 1 / 0

        session, factory = setup.session(), setup.factory(configuration=configuration)
        await setup.live_through(session, factory)
        with pytest.raises(ZeroDivisionError):
            await setup.live_through(session, factory)
        await setup.pool.aclose()
        assert (setup.closed, setup.pool.statistics.kept) == ([1], 0)


async def test_two_agents_of_one_session_are_separate_and_each_sees_the_others_messages(path: Path) -> None:
    async with pool_setup(path) as setup:
        session, factory = setup.session(), setup.factory()
        for name in ("poet", "critic", "poet", "critic"):
            opened = setup.store.submit(session, name, owner=ME, agent=name, start=True).opened
            assert opened is not None
            agent = await setup.pool.take(opened, factory)
            assert isinstance(agent, CountingAgent)
            assert len(agent.heard) == opened.input.position
            setup.pool.give_back(opened.id, setup.finish(opened))
        assert setup.pool.statistics.built == {"first": 2, "foreign": 2}
        assert setup.pool.statistics.kept == 2


async def test_only_an_unbroken_chain_of_own_writes_is_stamped(path: Path) -> None:
    async with pool_setup(path) as setup:
        session, factory = setup.session(), setup.factory()
        for change in ({"unbroken": False}, {"window": "win_of_somebody_else"}):
            opened = setup.open(session)
            await setup.pool.take(opened, factory)
            setup.pool.give_back(opened.id, replace(setup.finish(opened), **change))
            assert setup.pool.statistics.kept == 0
        await setup.pool.aclose()
        assert setup.closed == [1, 1]


async def test_an_equal_context_number_in_another_window_is_not_taken_for_the_same(path: Path) -> None:
    async with pool_setup(path) as setup:
        session, factory = setup.session(), setup.factory()
        first = setup.open(session)
        await setup.pool.take(first, factory)
        finished = setup.finish(first)
        setup.pool.give_back(first.id, finished)
        said = [message.summary("so far")]
        setup.store.rotate(session, said, owner=ME, parent=finished.window, keep_from=1)
        opened = replace(setup.open(session), found=finished.context)
        assert await setup.pool.take(opened, factory) is setup.agents[1]
        assert setup.pool.statistics.built == {"first": 1, "window": 1}


class Learning(CountingAgent):
    """Can catch up with messages that others added."""

    async def catch_up(self, messages: tuple[Message, ...]) -> None:
        if any(said.text == "the end" for said in messages):
            raise EOFError("no more")
        self.heard += [said.text for said in messages]


async def test_an_agent_that_fails_to_catch_up_is_closed_and_raises(path: Path) -> None:
    async with pool_setup(path) as setup:
        session, factory = setup.session(), setup.factory(Learning)
        await setup.live_through(session, factory)
        setup.store.record(session, [message.user("the end")], owner=ME)
        with pytest.raises(EOFError):
            await setup.live_through(session, factory)
        await setup.pool.aclose()
        assert (setup.closed, setup.pool.statistics.caught_up) == ([1], 0)


async def test_a_result_for_a_call_that_an_agent_left_open_is_read_with_its_call(path: Path) -> None:
    async with pool_setup(path) as setup:
        session, factory = setup.session(), setup.factory(Learning)
        opened = setup.open(session)
        await setup.pool.take(opened, factory)
        asking: list[Body] = [ToolCall("c", "look")]
        setup.pool.give_back(opened.id, setup.store.finish(opened, Completed(), bodies=asking))
        setup.store.record(session, [message.tool(ToolResult("c", "found")), message.assistant("ah")], owner=ME)
        await setup.live_through(session, factory)
        assert setup.pool.statistics.caught_up == 0
        assert len(setup.agents) == 2


# --- keeping --------------------------------------------------------------------------------------------------------


async def test_the_longest_unused_agents_go_first_when_there_are_too_many(path: Path) -> None:
    async with pool_setup(path, Pooling(capacity=2)) as setup:
        factory = setup.factory()
        first, second, third = (setup.session() for _ in range(3))
        for session in (first, second, first, third):
            await setup.live_through(session, factory)
        await setup.until_closed(1)
        assert setup.closed == [0, 1, 0]
        assert (setup.pool.statistics.kept, setup.pool.statistics.evicted) == (2, 1)
        await setup.live_through(second, factory)
        assert setup.pool.statistics.built == {"first": 3, "evicted": 1}


async def test_with_a_capacity_of_nothing_every_turn_has_an_agent_of_its_own(path: Path) -> None:
    async with pool_setup(path, Pooling(capacity=0)) as setup:
        session, factory = setup.session(), setup.factory()
        for _ in range(3):
            await setup.live_through(session, factory)
        await setup.pool.aclose()
        assert setup.closed == [1, 1, 1]


async def test_an_agent_that_was_not_used_for_too_long_is_closed(path: Path) -> None:
    async with pool_setup(path, Pooling(idle=60)) as setup:
        factory, early, late = setup.factory(), setup.session(), setup.session()
        await setup.live_through(early, factory)
        setup.clock.advance(30)
        await setup.live_through(late, factory)
        setup.clock.advance(29.9)
        assert setup.pool.expire() == 0
        setup.clock.advance(0.1)
        assert setup.pool.expire() == 1
        await setup.until_closed(0)
        assert setup.closed == [1, 0]
        setup.clock.advance(30)
        assert setup.pool.expire() == 1


async def test_without_an_idle_time_agents_are_kept_until_the_app_closes(path: Path) -> None:
    async with pool_setup(path, Pooling(idle=None)) as setup:
        await setup.live_through(setup.session(), setup.factory())
        setup.clock.advance(1e9)
        assert setup.pool.expire() == 0


async def test_under_memory_pressure_all_idle_agents_are_closed(path: Path) -> None:
    async with pool_setup(path) as setup:
        factory = setup.factory()
        for _ in range(5):
            await setup.live_through(setup.session(), factory)
        opened = setup.open(setup.session())
        await setup.pool.take(opened, factory)
        assert setup.pool.trim(3) == 3
        assert setup.pool.trim() == 2
        assert setup.pool.trim() == 0
        await setup.until_closed(0, 1, 2, 3, 4)
        assert setup.closed == [1, 1, 1, 1, 1, 0]
        setup.pool.give_back(opened.id, setup.finish(opened))
        assert setup.pool.statistics.kept == 1


async def test_an_agent_in_use_or_being_built_is_neither_evicted_nor_expired(path: Path) -> None:
    async with pool_setup(path, Pooling(capacity=0, idle=0)) as setup:
        gate = Gate()
        used, built = setup.open(setup.session()), setup.open(setup.session())
        await setup.pool.take(used, setup.factory())
        building = asyncio.create_task(setup.pool.take(built, setup.factory(lambda: Slow([gate], deaf=False))))
        await gate.reached()
        setup.clock.advance(3600)
        assert (setup.pool.trim(), setup.pool.expire()) == (0, 0)
        gate.open()
        assert await building is setup.agents[1]
        assert setup.closed == [0, 0]


class Clinging(CountingAgent):
    """Its `aclose` does not return."""

    def __init__(self, gate: Gate) -> None:
        super().__init__()
        self._gate = gate

    async def aclose(self) -> None:
        await self._gate.stop_here()
        await super().aclose()


async def test_a_taker_does_not_wait_for_an_agent_that_is_closing(path: Path) -> None:
    async with pool_setup(path) as setup:
        gate, session = Gate(), setup.session()
        await setup.live_through(session, setup.factory(lambda: Clinging(gate)))
        assert setup.pool.trim() == 1
        await gate.reached()
        await setup.live_through(session, setup.factory())
        assert setup.closed == [0, 0]
        gate.open()
        await setup.pool.aclose()
        assert setup.closed == [1, 1]


class Rude(CountingAgent):
    """Breaks when it is closed, in this way."""

    def __init__(self, error: BaseException) -> None:
        super().__init__()
        self._error = error

    async def aclose(self) -> None:
        await super().aclose()
        raise self._error


@pytest.mark.parametrize("error", [OSError("gone"), SystemExit(3), KeyboardInterrupt(), asyncio.CancelledError()])
async def test_an_agent_that_raises_on_close_affects_no_other(path: Path, error: BaseException) -> None:
    async with pool_setup(path) as setup:
        await setup.live_through(setup.session(), setup.factory(lambda: Rude(error)))
        await setup.live_through(setup.session(), setup.factory())
        await setup.pool.aclose()
        assert setup.closed == [1, 1]


async def test_an_agent_that_never_finishes_closing_is_left_behind_after_the_grace_time(path: Path) -> None:
    async with pool_setup(path, grace=0.01) as setup:
        await setup.live_through(setup.session(), setup.factory(lambda: Clinging(Gate())))
        await setup.pool.aclose()
        assert setup.closed == [0]


@pytest.mark.parametrize("wrong", [{"capacity": -1}, {"idle": -0.5}])
def test_an_invalid_pooling_is_rejected(wrong: dict[str, float]) -> None:
    with pytest.raises(ConfigError):
        Pooling(**wrong)  # type: ignore[arg-type]  # one of them is a float


# --- random histories -----------------------------------------------------------------------------------------------

STEPS = st.one_of(
    st.tuples(st.sampled_from(["take", "give_back", "discard", "abandon", "foreign"]), st.integers(0, 3)),
    st.tuples(st.sampled_from(["trim", "expire", "advance", "reconfigure"]), st.integers(0, 40)),
)


class Keeper:
    """Does random operations on a pool, and checks its invariants."""

    def __init__(self, setup: PoolSetup, capacity: int) -> None:
        self.setup, self.capacity, self.model = setup, capacity, 0
        self.factory = setup.factory(configuration=lambda: self.model)
        self.sessions = [setup.session() for _ in range(4)]
        self.lent: dict[SessionId, tuple[OpenTurn, CountingAgent]] = {}
        self.abandoned: list[CountingAgent] = []

    async def do(self, step: str, number: int) -> None:
        pool = self.setup.pool
        if step == "trim":
            pool.trim(number % 4)
        elif step == "expire":
            pool.expire()
        elif step == "advance":
            self.setup.clock.advance(number)
        elif step == "reconfigure":
            self.model += 1
        else:
            await self.touch(step, self.sessions[number])

    async def touch(self, step: str, session: SessionId) -> None:
        if step in ("take", "foreign") and session not in self.lent:
            if step == "foreign":
                self.setup.store.record(session, [message.user("by the way")], owner=ME)
            await self.take(session)
        elif session in self.lent and step in ("give_back", "discard", "abandon"):
            opened, agent = self.lent.pop(session)
            finished = self.setup.finish(opened)
            if step == "give_back":
                agent.heard += [said.text for said in self.setup.store.messages(session, owner=ME, last=2).messages]
                self.setup.pool.give_back(opened.id, finished)
                assert self.setup.pool.statistics.kept <= max(self.capacity, len(self.lent))
            else:
                self.setup.pool.discard(opened.id, close=step == "discard")
                self.abandoned += [agent] if step == "abandon" else []

    async def take(self, session: SessionId) -> None:
        opened = self.setup.open(session)
        agent = await self.setup.pool.take(opened, self.factory)
        assert isinstance(agent, CountingAgent)
        assert agent not in [other for _, other in self.lent.values()]
        before = self.setup.store.messages(session, owner=ME, before=opened.input.position).messages
        assert agent.heard == [said.text for said in before]
        self.lent[session] = opened, agent

    def check(self) -> None:
        assert all(agent.closed == 0 for _, agent in self.lent.values())
        assert all(times <= 1 for times in self.setup.closed)
        assert self.setup.pool.statistics.in_use == len(self.lent)


@settings(deadline=None, max_examples=40, suppress_health_check=list(HealthCheck))
@given(steps=st.lists(STEPS, max_size=30), capacity=st.integers(0, 3))
def test_in_any_history_pooled_agents_match_their_session_and_close_once(
    steps: list[tuple[str, int]], capacity: int
) -> None:
    async def scenario(folder: str) -> None:
        async with pool_setup(Path(folder) / "chat.db", Pooling(capacity=capacity, idle=60)) as setup:
            keeper = Keeper(setup, capacity)
            for step, number in steps:
                await keeper.do(step, number)
                await asyncio.sleep(0)
                keeper.check()
            for session in list(keeper.lent):
                await keeper.touch("discard", session)
            await setup.pool.aclose()
            open_still = [agent for agent in setup.agents if agent.closed == 0]
            assert sorted(map(id, open_still)) == sorted(map(id, keeper.abandoned))

    with TemporaryDirectory() as folder:
        play(scenario(folder))
