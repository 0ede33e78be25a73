"""What was accepted or said before a process died is where the next one goes on from."""

from pathlib import Path

from backstay import Text, Thought
from backstay.model.event import TextDelta
from backstay.model.turn import Completed, Interrupted
from tests.agents.provider import FakeProvider, stalls_after, words
from tests.runtime_processes.child import Child
from tests.runtime_processes.models import model, scripts
from tests.runtime_processes.programs import CHAT, Setting, work
from tests.runtime_processes.stage import busy, host, play, said, seen, until_said

HEIR = Setting(on_interrupt="resume")


def test_steering_that_nobody_had_taken_when_the_process_was_killed_is_answered_by_the_next(desk: Path) -> None:
    path = desk / "chat.db"

    async def story() -> None:
        async with busy(path) as stage:
            steering = await stage.session.steer("left!")
            stage.other.kill()
            assert isinstance(await stage.turn.outcome(), Interrupted)
            with Child(work, path) as heir:
                await heir.heard("speaking", "left!")
                heir.order("left!", "say", "turning left")
                heir.order("left!", "end")
                assert await steering.outcome() == Completed()
            assert (await steering.read()).taken_by is None
            assert await said(stage.session) == [
                ("user", "first"),
                ("assistant", "one …"),
                ("user", "left!"),
                ("assistant", "turning left"),
            ]

    play(story())


def test_a_replacement_whose_process_is_killed_before_it_runs_is_answered_by_the_next(desk: Path) -> None:
    path = desk / "chat.db"

    async def story() -> None:
        async with busy(path) as stage:
            stage.other.order("first", "resist")
            await stage.other.heard("first", "did", "say")
            instead = await stage.session.send("instead", if_busy="replace")
            stage.other.kill()
            with Child(work, path) as heir:
                await heir.heard("speaking", "instead")
                heir.order("instead", "end")
                assert isinstance(await instead.outcome(), Completed)
            assert [text for role, text in await said(stage.session) if role == "user"] == ["first", "instead"]
            assert (await stage.turn.read()).state == "ended"

    play(story())


def test_a_resumed_agent_reads_what_it_had_said_before_it_was_cut_off(desk: Path) -> None:
    path = desk / "chat.db"

    async def story() -> None:
        async with busy(path) as stage:
            stage.other.order("first", "think", "hm")
            stage.other.order("first", "say", "two ")
            await until_said(stage.turn, "one two ")
            stage.other.kill()
            with Child(work, path, HEIR) as heir:
                await heir.heard("speaking", "first")
                heir.order("first", "recall")
                (history,) = await heir.heard("first", "reads")
                heir.order("first", "say", "three")
                heir.order("first", "end")
                await heir.heard("first", "did", "say")
                heir.terminate()
                heir.ends_well()
            assert history == [
                ("user", (Text("first"),)),
                ("assistant", (Text("one "), Thought("hm"), Text("two "))),
            ]
            assert await said(stage.session) == [
                ("user", "first"),
                ("assistant", "one \ntwo …"),
                ("assistant", "three"),
            ]

    play(story())


def test_a_process_that_is_told_to_end_hangs_up_on_its_provider_and_says_that_it_was_closed(desk: Path) -> None:
    path = desk / "chat.db"

    async def story() -> None:
        async with FakeProvider(stalls_after(words("The answer "))) as provider, host(path) as app:
            session = await app.session(CHAT)
            with Child(model, path, provider.base_url, desk / "payments", grace=0.1) as child:
                turn = await session.send("what is it?")
                await until_said(turn, "The answer ")
                child.terminate()
                child.ends_well()
            assert await turn.outcome() == Interrupted("the program was closed")
            assert await said(session) == [("user", "what is it?"), ("assistant", "The answer …")]

    play(story())


def test_a_script_that_is_interrupted_by_a_person_closes_its_app_and_says_so(desk: Path) -> None:
    path = desk / "chat.db"

    async def story() -> None:
        async with host(path) as app:
            session = await app.session(CHAT)
            with Child(scripts, path) as child:
                (number,) = await child.heard("sent")
                turn = await app.turn(number)
                await seen(turn, TextDelta)
                child.interrupt()
                await child.heard("KeyboardInterrupt")
                child.ends_well()
            assert await turn.outcome() == Interrupted("the program was closed")
            assert (await said(session))[-1] == ("assistant", "one …")

    play(story())
