"""The pool by itself: one agent per session and name, built once, lent once, closed once, and never while in use."""

import asyncio
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from backstay import Pooling, live
from backstay.agents.adapters import maker_of
from backstay.errors import ConfigError, StoreUnavailable
from backstay.model import message
from backstay.model.content import Body, ToolCall, ToolResult
from backstay.model.ids import SessionId
from backstay.model.message import Message
from backstay.model.turn import Completed, OpenTurn
from tests.runtime.house import ME, House, Resident, house, numbered
from tests.runtime.stage import Gate, play

# --- building -------------------------------------------------------------------------------------------------------


def test_a_hundred_takers_at_once_build_one_agent_and_have_it_one_after_the_other(path: Path) -> None:
    async def story() -> None:
        async with house(path) as home:
            maker, opened = home.maker(), home.open(home.session())
            finished = replace(home.finish(opened), context=opened.found)
            in_use: set[object] = set()

            async def use(number: int) -> None:
                turn = numbered(opened, number)
                agent = await home.pool.take(turn, maker)
                assert agent not in in_use
                in_use.add(agent)
                await asyncio.sleep(0)
                in_use.remove(agent)
                home.pool.give_back(turn.id, finished)

            await asyncio.gather(*(use(number) for number in range(100)))
            statistics = home.pool.statistics
            assert (len(home.residents), statistics.hits, statistics.built) == (1, 99, {"first": 1})
            assert (statistics.kept, statistics.in_use) == (1, 0)

    play(story())


def test_a_build_that_failed_is_not_kept_and_the_next_taker_builds(path: Path) -> None:
    async def story() -> None:
        async with house(path) as home:
            faults: list[Exception] = [OSError("no model"), ValueError("no key")]

            def make() -> Resident:
                if faults:
                    raise faults.pop(0)
                return Resident()

            maker, opened = maker_of(live(make)), home.open(home.session())
            takers = [home.pool.take(numbered(opened, number), maker) for number in range(3)]
            answers = await asyncio.gather(*takers, return_exceptions=True)
            assert [type(answer) for answer in answers] == [OSError, ValueError, Resident]
            statistics = home.pool.statistics
            assert (statistics.failed, statistics.built, statistics.kept) == (2, {"first": 1}, 1)

    play(story())


@pytest.mark.parametrize("made", [None, "an agent", object()])
def test_what_is_no_agent_is_refused_with_what_it_needs(path: Path, made: object) -> None:
    async def story() -> None:
        async with house(path) as home:
            maker = maker_of(live(lambda: made))  # type: ignore[arg-type,return-value]  # that is the point
            with pytest.raises(ConfigError, match="is no agent"):
                await home.pool.take(home.open(home.session()), maker)
            assert (home.pool.statistics.kept, home.pool.statistics.in_use) == (0, 0)

    play(story())


def test_an_agent_may_be_awaited(path: Path) -> None:
    async def story() -> None:
        async with house(path) as home:

            async def make() -> Resident:
                await asyncio.sleep(0)
                return Resident()

            session, maker = home.session(), maker_of(live(make))
            first = await home.live_through(session, maker)
            assert await home.live_through(session, maker) is first

    play(story())


class Failing(Resident):
    """Cannot learn what was said."""

    async def load(self, messages: tuple[Message, ...]) -> None:
        raise LookupError("lost my notes")


def test_an_agent_that_cannot_be_told_the_history_is_closed_and_the_error_is_told(path: Path) -> None:
    async def story() -> None:
        async with house(path) as home:
            with pytest.raises(LookupError, match="lost my notes"):
                await home.pool.take(home.open(home.session()), home.maker(Failing))
            await home.pool.aclose()
            assert (home.closed, home.pool.statistics.failed, home.pool.statistics.kept) == ([1], 1, 0)

    play(story())


def test_if_the_history_cannot_be_read_nothing_is_lent(path: Path) -> None:
    async def story() -> None:
        async with house(path) as home:
            session, maker = home.session(), home.maker()
            await home.live_through(session, maker)
            home.store.record(session, [message.user("by the way")], owner=ME)
            opened = home.open(session)
            home.store.close()
            with pytest.raises(StoreUnavailable):
                await home.pool.take(opened, maker)
            await home.pool.aclose()
            assert home.closed == [1, 1]

    play(story())


class Slow(Resident):
    """Stops at the next of these gates whenever it is to learn something; a deaf one stays even when cancelled."""

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


def test_a_build_that_is_cancelled_leaves_room_for_the_next(path: Path) -> None:
    async def story() -> None:
        async with house(path) as home:
            gate, opened = Gate(), home.open(home.session())
            building = asyncio.create_task(home.pool.take(opened, home.maker(lambda: Slow([gate], deaf=False))))
            waiting = asyncio.create_task(home.pool.take(numbered(opened, 1), home.maker()))
            await gate.reached()
            building.cancel()
            assert await waiting is home.residents[1]
            home.pool.discard(numbered(opened, 1).id)
            await home.pool.aclose()
            assert home.closed == [1, 1]

    play(story())


def test_a_taker_that_is_cancelled_while_it_waits_takes_nothing(path: Path) -> None:
    async def story() -> None:
        async with house(path) as home:
            session, maker = home.session(), home.maker()
            opened = home.open(session)
            await home.pool.take(opened, maker)
            waiting = asyncio.create_task(home.pool.take(numbered(opened, 1), maker))
            await asyncio.sleep(0)
            waiting.cancel()
            await asyncio.gather(waiting, return_exceptions=True)
            home.pool.give_back(opened.id, home.finish(opened))
            assert home.pool.statistics.in_use == 0
            assert await home.live_through(session, maker) is home.residents[0]

    play(story())


@pytest.mark.parametrize("warm", [False, True], ids=["load", "catch_up"])
def test_an_agent_that_never_gets_ready_does_not_keep_others_from_its_session(path: Path, warm: bool) -> None:
    async def story() -> None:
        async with house(path) as home:
            gates: list[Gate] = []
            gate, session, slow = Gate(), home.session(), home.maker(lambda: Slow(gates, deaf=True))
            if warm:
                await home.live_through(session, slow)
                home.store.record(session, [message.user("by the way")], owner=ME)
            gates.append(gate)
            opened = home.open(session)
            getting_ready = asyncio.create_task(home.pool.take(opened, slow))
            await gate.reached()
            getting_ready.cancel()
            # What the runner does with an agent that does not stop.
            home.pool.discard(opened.id, close=False)
            home.finish(opened)
            other = await home.live_through(session, home.maker())
            gate.open()
            await asyncio.gather(getting_ready, return_exceptions=True)
            assert await home.live_through(session, home.maker()) is other
            assert home.pool.statistics.in_use == 0

    play(story())


# --- knowing --------------------------------------------------------------------------------------------------------


def test_another_configuration_makes_another_agent(path: Path) -> None:
    async def story() -> None:
        async with house(path) as home:
            model = ["small"]
            session, maker = home.session(), home.maker(configuration=lambda: {"model": model[0]})
            first = await home.live_through(session, maker)
            assert await home.live_through(session, maker) is first
            model[0] = "large"
            assert await home.live_through(session, maker) is not first
            assert home.pool.statistics.built == {"first": 1, "configuration": 1}
            await home.pool.aclose()
            assert home.closed == [1, 1]

    play(story())


def test_a_configuration_that_cannot_be_told_is_an_error_and_nothing_is_reused_blindly(path: Path) -> None:
    async def story() -> None:
        async with house(path) as home:
            sources: list[object] = [{"model": "small"}]

            def configuration() -> object:
                return sources.pop() if sources else 1 / 0

            session, maker = home.session(), home.maker(configuration=configuration)
            await home.live_through(session, maker)
            with pytest.raises(ZeroDivisionError):
                await home.live_through(session, maker)
            await home.pool.aclose()
            assert (home.closed, home.pool.statistics.kept) == ([1], 0)

    play(story())


def test_agents_of_two_names_in_one_session_are_two_and_each_learns_of_the_other(path: Path) -> None:
    async def story() -> None:
        async with house(path) as home:
            session, maker = home.session(), home.maker()
            for name in ("poet", "critic", "poet", "critic"):
                opened = home.store.submit(session, name, owner=ME, agent=name, start=True).opened
                assert opened is not None
                agent = await home.pool.take(opened, maker)
                assert isinstance(agent, Resident)
                assert len(agent.heard) == opened.input.position
                home.pool.give_back(opened.id, home.finish(opened))
            assert home.pool.statistics.built == {"first": 2, "foreign": 2}
            assert home.pool.statistics.kept == 2

    play(story())


def test_only_an_unbroken_chain_of_ones_own_writes_is_stamped(path: Path) -> None:
    async def story() -> None:
        async with house(path) as home:
            session, maker = home.session(), home.maker()
            for change in ({"unbroken": False}, {"window": "win_of_somebody_else"}):
                opened = home.open(session)
                await home.pool.take(opened, maker)
                home.pool.give_back(opened.id, replace(home.finish(opened), **change))
                assert home.pool.statistics.kept == 0
            await home.pool.aclose()
            assert home.closed == [1, 1]

    play(story())


def test_an_equal_context_number_in_another_window_is_not_taken_for_the_same(path: Path) -> None:
    async def story() -> None:
        async with house(path) as home:
            session, maker = home.session(), home.maker()
            first = home.open(session)
            await home.pool.take(first, maker)
            finished = home.finish(first)
            home.pool.give_back(first.id, finished)
            said = [message.summary("so far")]
            home.store.rotate(session, said, owner=ME, parent=finished.window, keep_from=1)
            opened = replace(home.open(session), found=finished.context)
            assert await home.pool.take(opened, maker) is home.residents[1]
            assert home.pool.statistics.built == {"first": 1, "window": 1}

    play(story())


class Learning(Resident):
    """Can be told what others added."""

    async def catch_up(self, messages: tuple[Message, ...]) -> None:
        if any(said.text == "the end" for said in messages):
            raise EOFError("no more")
        self.heard += [said.text for said in messages]


def test_an_agent_that_cannot_catch_up_is_closed_and_the_error_is_told(path: Path) -> None:
    async def story() -> None:
        async with house(path) as home:
            session, maker = home.session(), home.maker(Learning)
            await home.live_through(session, maker)
            home.store.record(session, [message.user("the end")], owner=ME)
            with pytest.raises(EOFError):
                await home.live_through(session, maker)
            await home.pool.aclose()
            assert (home.closed, home.pool.statistics.caught_up) == ([1], 0)

    play(story())


def test_a_result_for_a_call_that_an_agent_left_open_is_read_with_its_call(path: Path) -> None:
    async def story() -> None:
        async with house(path) as home:
            session, maker = home.session(), home.maker(Learning)
            opened = home.open(session)
            await home.pool.take(opened, maker)
            asking: list[Body] = [ToolCall("c", "look")]
            home.pool.give_back(opened.id, home.store.finish(opened, Completed(), bodies=asking))
            home.store.record(session, [message.tool(ToolResult("c", "found")), message.assistant("ah")], owner=ME)
            await home.live_through(session, maker)
            assert home.pool.statistics.caught_up == 0
            assert len(home.residents) == 2

    play(story())


# --- keeping --------------------------------------------------------------------------------------------------------


def test_the_longest_unused_agents_go_first_when_there_are_too_many(path: Path) -> None:
    async def story() -> None:
        async with house(path, Pooling(capacity=2)) as home:
            maker = home.maker()
            first, second, third = (home.session() for _ in range(3))
            for session in (first, second, first, third):
                await home.live_through(session, maker)
            await home.until_closed(1)
            assert home.closed == [0, 1, 0]
            assert (home.pool.statistics.kept, home.pool.statistics.evicted) == (2, 1)
            await home.live_through(second, maker)
            assert home.pool.statistics.built == {"first": 3, "evicted": 1}

    play(story())


def test_with_a_capacity_of_nothing_every_turn_has_an_agent_of_its_own(path: Path) -> None:
    async def story() -> None:
        async with house(path, Pooling(capacity=0)) as home:
            session, maker = home.session(), home.maker()
            for _ in range(3):
                await home.live_through(session, maker)
            await home.pool.aclose()
            assert home.closed == [1, 1, 1]

    play(story())


def test_an_agent_that_was_not_used_for_too_long_is_closed(path: Path) -> None:
    async def story() -> None:
        async with house(path, Pooling(idle=60)) as home:
            maker, early, late = home.maker(), home.session(), home.session()
            await home.live_through(early, maker)
            home.clock.advance(30)
            await home.live_through(late, maker)
            home.clock.advance(29.9)
            assert home.pool.expire() == 0
            home.clock.advance(0.1)
            assert home.pool.expire() == 1
            await home.until_closed(0)
            assert home.closed == [1, 0]
            home.clock.advance(30)
            assert home.pool.expire() == 1

    play(story())


def test_without_an_idle_time_agents_are_kept_for_ever(path: Path) -> None:
    async def story() -> None:
        async with house(path, Pooling(idle=None)) as home:
            await home.live_through(home.session(), home.maker())
            home.clock.advance(1e9)
            assert home.pool.expire() == 0

    play(story())


def test_under_memory_pressure_all_but_those_in_use_are_let_go(path: Path) -> None:
    async def story() -> None:
        async with house(path) as home:
            maker = home.maker()
            for _ in range(5):
                await home.live_through(home.session(), maker)
            opened = home.open(home.session())
            await home.pool.take(opened, maker)
            assert home.pool.trim(3) == 3
            assert home.pool.trim() == 2
            assert home.pool.trim() == 0
            await home.until_closed(0, 1, 2, 3, 4)
            assert home.closed == [1, 1, 1, 1, 1, 0]
            home.pool.give_back(opened.id, home.finish(opened))
            assert home.pool.statistics.kept == 1

    play(story())


def test_an_agent_in_use_or_being_built_is_neither_evicted_nor_expired(path: Path) -> None:
    async def story() -> None:
        async with house(path, Pooling(capacity=0, idle=0)) as home:
            gate = Gate()
            used, built = home.open(home.session()), home.open(home.session())
            await home.pool.take(used, home.maker())
            building = asyncio.create_task(home.pool.take(built, home.maker(lambda: Slow([gate], deaf=False))))
            await gate.reached()
            home.clock.advance(3600)
            assert (home.pool.trim(), home.pool.expire()) == (0, 0)
            gate.open()
            assert await building is home.residents[1]
            assert home.closed == [0, 0]

    play(story())


class Clinging(Resident):
    """Does not want to go."""

    def __init__(self, gate: Gate) -> None:
        super().__init__()
        self._gate = gate

    async def aclose(self) -> None:
        await self._gate.stop_here()
        await super().aclose()


def test_nobody_waits_for_an_agent_that_is_being_closed(path: Path) -> None:
    async def story() -> None:
        async with house(path) as home:
            gate, session = Gate(), home.session()
            await home.live_through(session, home.maker(lambda: Clinging(gate)))
            assert home.pool.trim() == 1
            await gate.reached()
            await home.live_through(session, home.maker())
            assert home.closed == [0, 0]
            gate.open()
            await home.pool.aclose()
            assert home.closed == [1, 1]

    play(story())


class Rude(Resident):
    """Breaks when it is closed, in this way."""

    def __init__(self, error: BaseException) -> None:
        super().__init__()
        self._error = error

    async def aclose(self) -> None:
        await super().aclose()
        raise self._error


@pytest.mark.parametrize("error", [OSError("gone"), SystemExit(3), KeyboardInterrupt(), asyncio.CancelledError()])
def test_an_agent_that_breaks_when_it_is_closed_disturbs_nobody(path: Path, error: BaseException) -> None:
    async def story() -> None:
        async with house(path) as home:
            await home.live_through(home.session(), home.maker(lambda: Rude(error)))
            await home.live_through(home.session(), home.maker())
            await home.pool.aclose()
            assert home.closed == [1, 1]

    play(story())


def test_an_agent_that_never_finishes_closing_is_left_behind_after_the_grace_time(path: Path) -> None:
    async def story() -> None:
        async with house(path, grace=0.01) as home:
            await home.live_through(home.session(), home.maker(lambda: Clinging(Gate())))
            await home.pool.aclose()
            assert home.closed == [0]

    play(story())


@pytest.mark.parametrize("wrong", [{"capacity": -1}, {"idle": -0.5}])
def test_a_pool_that_cannot_be_kept_to_is_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ConfigError):
        Pooling(**wrong)  # type: ignore[arg-type]  # one of them is a float


# --- whatever happens -----------------------------------------------------------------------------------------------

STEPS = st.one_of(
    st.tuples(st.sampled_from(["take", "give_back", "discard", "abandon", "foreign"]), st.integers(0, 3)),
    st.tuples(st.sampled_from(["trim", "expire", "advance", "reconfigure"]), st.integers(0, 40)),
)


class Keeper:
    """Does one thing after the other to a pool, and knows what must be true then."""

    def __init__(self, home: House, capacity: int) -> None:
        self.home, self.capacity, self.model = home, capacity, 0
        self.maker = home.maker(configuration=lambda: self.model)
        self.sessions = [home.session() for _ in range(4)]
        self.lent: dict[SessionId, tuple[OpenTurn, Resident]] = {}
        self.abandoned: list[Resident] = []

    async def do(self, step: str, number: int) -> None:
        pool = self.home.pool
        if step == "trim":
            pool.trim(number % 4)
        elif step == "expire":
            pool.expire()
        elif step == "advance":
            self.home.clock.advance(number)
        elif step == "reconfigure":
            self.model += 1
        else:
            await self.touch(step, self.sessions[number])

    async def touch(self, step: str, session: SessionId) -> None:
        if step in ("take", "foreign") and session not in self.lent:
            if step == "foreign":
                self.home.store.record(session, [message.user("by the way")], owner=ME)
            await self.take(session)
        elif session in self.lent and step in ("give_back", "discard", "abandon"):
            opened, agent = self.lent.pop(session)
            finished = self.home.finish(opened)
            if step == "give_back":
                agent.heard += [said.text for said in self.home.store.messages(session, owner=ME, last=2).messages]
                self.home.pool.give_back(opened.id, finished)
                assert self.home.pool.statistics.kept <= max(self.capacity, len(self.lent))
            else:
                self.home.pool.discard(opened.id, close=step == "discard")
                self.abandoned += [agent] if step == "abandon" else []

    async def take(self, session: SessionId) -> None:
        opened = self.home.open(session)
        agent = await self.home.pool.take(opened, self.maker)
        assert isinstance(agent, Resident)
        assert agent not in [other for _, other in self.lent.values()]
        before = self.home.store.messages(session, owner=ME, before=opened.input.position).messages
        assert agent.heard == [said.text for said in before]
        self.lent[session] = opened, agent

    def check(self) -> None:
        assert all(agent.closed == 0 for _, agent in self.lent.values())
        assert all(times <= 1 for times in self.home.closed)
        assert self.home.pool.statistics.in_use == len(self.lent)


@settings(deadline=None, max_examples=40, suppress_health_check=list(HealthCheck))
@given(steps=st.lists(STEPS, max_size=30), capacity=st.integers(0, 3))
def test_whatever_is_done_to_it_agents_know_what_they_must_and_are_closed_once_and_not_in_use(
    steps: list[tuple[str, int]], capacity: int
) -> None:
    async def story(folder: str) -> None:
        async with house(Path(folder) / "chat.db", Pooling(capacity=capacity, idle=60)) as home:
            keeper = Keeper(home, capacity)
            for step, number in steps:
                await keeper.do(step, number)
                await asyncio.sleep(0)
                keeper.check()
            for session in list(keeper.lent):
                await keeper.touch("discard", session)
            await home.pool.aclose()
            open_still = [agent for agent in home.residents if agent.closed == 0]
            assert sorted(map(id, open_still)) == sorted(map(id, keeper.abandoned))

    with TemporaryDirectory() as folder:
        play(story(folder))
