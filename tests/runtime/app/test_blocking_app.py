"""The blocking app: the same verbs for scripts and notebooks, each waiting until it is done."""

import asyncio
import signal
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest

import backstay
from backstay import Address, Text, Timing
from backstay.agents.blocking_agent import BlockingAgentTurn as AgentsTurn
from backstay.agents.port import AgentTurn
from backstay.agents.tools import tool
from backstay.concurrency.blocking_handle import Portal
from backstay.errors import BackstayError, ConfigError, NotFound, SessionBusy, StoreUnavailable
from backstay.model import message
from backstay.model.content import Body
from backstay.model.event import Event, SessionDeleted, SessionRenamed, TextDelta, ToolCalled, TurnEnded
from backstay.model.turn import Cancelled, Completed, Interrupted
from tests.databases import Place
from tests.runtime.controlled_agents import PATIENCE, Gate, echo, roles_and_texts, words_in

CHAT = Address.chat("telegram", "dm", chat="42")


class Latch:
    """A point where an agent on the app's loop stops until the script opens it."""

    def __init__(self) -> None:
        self._gate, self._reached = Gate(), threading.Event()
        self._loop: asyncio.AbstractEventLoop | None = None

    async def agent(self, turn: AgentTurn) -> AsyncIterator[Body]:
        yield Text("one ")
        self._loop = asyncio.get_running_loop()
        self._reached.set()
        await self._gate.stop_here()
        yield Text("two")

    def reached(self) -> None:
        assert self._reached.wait(PATIENCE)

    def open(self) -> None:
        assert self._loop is not None
        self._loop.call_soon_threadsafe(self._gate.open)


def test_a_script_sends_reads_and_changes_its_mind(path: Place) -> None:
    with backstay.open_blocking(path, agent=echo) as app:
        session = app.session(CHAT)
        turn = session.send("hello", request_id="m-1")
        assert "".join(words_in(turn.events())) == "heard hello"
        assert turn.outcome() == Completed()
        assert session.send("hello", request_id="m-1").repeated
        assert roles_and_texts(session.messages()) == [("user", "hello"), ("assistant", "heard hello")]
        session.undo()
        assert session.messages() == ()
        session.redo()
        assert session.retry().outcome() == Completed()
        edited = session.edit(session.messages()[0].id, "goodbye")
        assert edited.outcome() == Completed()
        fork = session.fork()
        assert roles_and_texts(fork.messages()) == [("user", "goodbye"), ("assistant", "heard goodbye")]
        session.record([message.user("noted")])
        assert session.lineage()[0].reason == "first"
        assert app.search("goodbye").hits
        assert {found.id for found in app.sessions().sessions} == {session.id, fork.id}


def test_a_script_organises_ends_and_deletes(path: Place) -> None:
    with backstay.open_blocking(path, agent=echo) as app:
        session = app.session()
        assert session.rename("a title").title == "a title"
        assert session.pin().pinned
        assert session.archive().archived
        assert session.tag(add=["x"]).tags == ("x",)
        assert app.session(session.id).read().title == "a title"
        assert session.end().state == "ended"
        session.delete()
        with pytest.raises(NotFound):
            session.read()


def test_errors_reach_the_caller_as_they_are(path: Place) -> None:
    latch = Latch()
    with backstay.open_blocking(path, agent=latch.agent) as app:
        session = app.session()
        turn = session.send("hello")
        latch.reached()
        with pytest.raises(SessionBusy):
            session.undo()
        with pytest.raises(SessionBusy):
            session.send("again", if_busy="reject")
        latch.open()
        assert turn.outcome() == Completed()


def test_a_script_steers_queues_and_cancels(path: Place) -> None:
    latch = Latch()
    with backstay.open_blocking(path, agent=latch.agent) as app:
        session = app.session()
        turn = session.send("first")
        latch.reached()
        steer, queued = session.steer("second"), session.send("third")
        assert [waiting.id for waiting in session.waiting()] == [steer.id, queued.id]
        assert isinstance(queued.cancel(), Cancelled)
        assert isinstance(turn.cancel(), Cancelled)
        latch.open()
        assert steer.outcome() == Completed()
        aside = session.send("aside", if_busy="fork")
        assert (aside.outcome(), aside.forked_from) == (Completed(), None)


def test_a_script_approves(path: Place) -> None:
    @tool(approval=True)
    def pay(amount: int) -> str:
        return f"paid {amount}"

    async def agent(turn: AgentTurn) -> AsyncIterator[Body]:
        yield Text(await turn.call(pay, {"amount": 5}))

    with backstay.open_blocking(path, agent=agent) as app:
        turn = app.session().send("pay")
        asked = next(event.body.call.id for event in turn.events() if isinstance(event.body, ToolCalled))
        turn.approve(asked)
        assert turn.outcome() == Completed()
        assert [call.effect for call in app.turn(turn.id).calls()] == ["returned"]


def test_following_can_stop_and_continue_later(path: Place) -> None:
    with backstay.open_blocking(path, agent=echo) as app:
        session = app.session()
        turn = session.send("hello")
        events = list(turn.events())
        for seen in range(len(events)):
            iterator = turn.events()
            assert [next(iterator) for _ in range(seen)] == events[:seen]
            after = events[seen - 1].number if seen else None
            assert events[:seen] + list(turn.events(after=after)) == events
        session.rename("a title")
        assert any(isinstance(event.body, SessionRenamed) for event in take(session.follow(), len(events) + 2))


def take(events: Iterator[Event], count: int) -> list[Event]:
    return [next(events) for _ in range(count)]


def test_a_follower_on_another_thread_sees_what_happens(path: Place) -> None:
    with backstay.open_blocking(path, agent=echo) as app, ThreadPoolExecutor(1) as thread:
        session = app.session()
        following = thread.submit(lambda: list(session.follow()))
        assert session.send("hello").outcome() == Completed()
        session.delete()
        assert isinstance(following.result(PATIENCE)[-1].body, SessionDeleted)


def test_many_threads_may_share_an_app(path: Place) -> None:
    with backstay.open_blocking(path, agent=echo) as app, ThreadPoolExecutor(8) as threads:

        def talk(number: int) -> list[tuple[str, str]]:
            session = app.session()
            session.send(f"{number}").outcome()
            return roles_and_texts(session.messages())

        assert list(threads.map(talk, range(32))) == [
            [("user", f"{number}"), ("assistant", f"heard {number}")] for number in range(32)
        ]


def test_a_blocking_agent_in_a_blocking_app(path: Place) -> None:
    def agent(turn: AgentsTurn) -> Iterator[Body]:
        yield Text(f"{len(turn.messages)} ")
        yield Text(turn.input.text)

    with backstay.open_blocking(path, agent=agent) as app:
        session = app.session()
        assert session.send("hello").outcome() == Completed()
        assert session.messages()[-1].text == "1 hello"


def test_a_blocking_app_works_inside_a_running_loop(path: Place) -> None:
    async def notebook() -> str:
        with backstay.open_blocking(path, agent=echo) as app:
            session = app.session()
            session.send("hello").outcome()
            return session.messages()[-1].text

    assert asyncio.run(notebook()) == "heard hello"


def test_leaving_closes_everything_and_interrupts_visibly(path: Place) -> None:
    before = set(threading.enumerate())
    with backstay.open_blocking(path, agent=Latch().agent, timing=Timing(grace=0)) as app:
        session = app.session(CHAT)
        turn = session.send("hello")
        assert any(isinstance(event.body, TextDelta) for event in turn.events())
    with pytest.raises(StoreUnavailable):
        app.session()
    for handle in (turn.read, session.read, turn.outcome, lambda: next(session.follow())):
        with pytest.raises(StoreUnavailable):
            handle()
    for thread in set(threading.enumerate()) - before:
        thread.join(PATIENCE)
        assert not thread.is_alive()
    with backstay.open_blocking(path) as again:
        assert isinstance(again.turn(turn.id).outcome(), Interrupted)


def test_an_iterator_that_outlives_the_app_ends(path: Place) -> None:
    with backstay.open_blocking(path, agent=echo) as app:
        session = app.session()
        session.send("hello").outcome()
        dropped, asked = session.follow(), session.follow()
        next(dropped)
        next(asked)
    del dropped
    with pytest.raises(StoreUnavailable):
        list(asked)


def test_a_following_thread_ends_when_the_app_closes(path: Place) -> None:
    with ThreadPoolExecutor(1) as thread:
        with backstay.open_blocking(path, agent=echo) as app:
            session = app.session()
            began = threading.Event()

            def follow() -> None:
                for _ in session.follow():
                    began.set()

            following = thread.submit(follow)
            assert began.wait(PATIENCE)
        with pytest.raises(StoreUnavailable):
            following.result(PATIENCE)


def test_threads_that_ask_while_the_app_closes_are_answered_or_refused() -> None:
    async def nothing() -> None:
        pass

    def ask(portal: Portal, began: threading.Barrier) -> None:
        began.wait()
        with suppress(StoreUnavailable):
            while True:
                portal.wait(nothing())

    for _ in range(20):
        portal, began = Portal(), threading.Barrier(5)
        threads = [threading.Thread(target=ask, args=(portal, began), daemon=True) for _ in range(4)]
        for thread in threads:
            thread.start()
        began.wait()
        portal.close()
        for thread in threads:
            thread.join(PATIENCE)
            assert not thread.is_alive()


def test_an_agent_that_ignores_its_cancellation_does_not_keep_the_script(path: Place) -> None:
    releases: list[Callable[[], object]] = []

    async def deaf(turn: AgentTurn) -> AsyncIterator[Body]:
        released = asyncio.Event()
        releases.append(partial(asyncio.get_running_loop().call_soon_threadsafe, released.set))
        yield Text("one ")
        while not released.is_set():
            with suppress(asyncio.CancelledError):
                await released.wait()

    def script() -> None:
        with backstay.open_blocking(path, agent=deaf, timing=Timing(grace=0.2)) as app:
            turn = app.session().send("hello")
            assert any(isinstance(event.body, TextDelta) for event in turn.events())
            assert isinstance(turn.cancel(), Cancelled)
        assert app.abandoned == 1

    with ThreadPoolExecutor(1) as thread:
        running = thread.submit(script)
        try:
            running.result(PATIENCE)
        finally:
            for release in releases:
                release()


def test_an_app_that_cannot_open_raises_the_reason_and_leaves_nothing_behind(tmp_path: Path) -> None:
    before = set(threading.enumerate())
    with pytest.raises(BackstayError), backstay.open_blocking(tmp_path, agent=echo):
        raise AssertionError("it opened")
    with pytest.raises(ConfigError):
        backstay.open_blocking(tmp_path, agent=5)  # type: ignore[arg-type]  # the mistake under test
    for thread in set(threading.enumerate()) - before:
        thread.join(PATIENCE)
        assert not thread.is_alive()


def test_an_exception_of_an_agent_is_an_outcome_and_not_raised_in_the_script(path: Place) -> None:
    async def faulty(turn: AgentTurn) -> AsyncIterator[Body]:
        yield Text("half an ans")
        raise ValueError("no more words")

    with backstay.open_blocking(path, agent=faulty) as app:
        turn = app.session().send("hello")
        assert turn.outcome().reason.startswith("the agent raised ValueError (turn trn_")
        assert isinstance(list(turn.events())[-1].body, TurnEnded)
        assert app.abandoned == 0


def test_ctrl_c_ends_following_cleanly() -> None:
    ended: list[str] = []

    async def slow_to_end() -> AsyncIterator[int]:
        try:
            yield 1
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
            await asyncio.Event().wait()
        finally:
            for _ in range(50):
                await asyncio.sleep(0)
            ended.append("in good order")

    portal = Portal()
    try:
        steps = portal.iterate(slow_to_end())
        assert next(steps) == 1
        with pytest.raises(KeyboardInterrupt):
            next(steps)
        assert ended == ["in good order"]
    finally:
        portal.close()


def test_a_script_can_close_the_live_agents_that_are_not_in_use(path: Path) -> None:
    closed = threading.Event()

    class Kept:
        async def stream(self, turn: AgentTurn) -> AsyncIterator[Body]:
            yield Text("hello")

        async def aclose(self) -> None:
            closed.set()

    with backstay.open_blocking(path, agent=Kept) as app:
        session = app.session()
        for _ in range(2):
            assert session.send("hello").outcome() == Completed()
            # The agent is given back just after the outcome can be read.
            while app.pool.statistics.in_use:
                pass
        assert app.pool.statistics.hits == 1
        assert app.pool.expire() == 0
        assert app.pool.trim() == 1
        assert closed.wait(60)
        assert app.pool.statistics.kept == 0
