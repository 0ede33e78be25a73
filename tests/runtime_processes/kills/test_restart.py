"""The next process continues with the accepted inputs and the output of a dead one."""

from pathlib import Path

from backstay import Text, Thought
from backstay.model.event import TextDelta
from backstay.model.turn import Completed, Interrupted
from tests.agents.provider.fake_provider import FakeProvider, stalls_after, words
from tests.runtime_processes.agent_programs import model, scripts
from tests.runtime_processes.app_programs import CHAT, Setting, work
from tests.runtime_processes.child_process import Child
from tests.runtime_processes.turn_in_child import busy, host, said, seen, until_said

HEIR = Setting(on_interrupt="resume")


async def test_steering_not_taken_before_the_process_was_killed_is_answered_by_the_next(tmp_path: Path) -> None:
    path = tmp_path / "chat.db"

    async with busy(path) as remote:
        steering = await remote.session.steer("left!")
        remote.other.kill()
        assert isinstance(await remote.turn.outcome(), Interrupted)
        with Child(work, path) as heir:
            await heir.receive_async("speaking", "left!")
            heir.send_order("left!", "say", "turning left")
            heir.send_order("left!", "end")
            assert await steering.outcome() == Completed()
        assert (await steering.read()).taken_by is None
        assert await said(remote.session) == [
            ("user", "first"),
            ("assistant", "one …"),
            ("user", "left!"),
            ("assistant", "turning left"),
        ]


async def test_a_replacement_whose_process_is_killed_first_is_answered_by_the_next(tmp_path: Path) -> None:
    path = tmp_path / "chat.db"

    async with busy(path) as remote:
        remote.other.send_order("first", "resist")
        await remote.other.receive_async("first", "resists")
        await remote.other.receive_async("first", "did", "say")
        instead = await remote.session.send("instead", if_busy="replace")
        remote.other.kill()
        with Child(work, path) as heir:
            await heir.receive_async("speaking", "instead")
            heir.send_order("instead", "end")
            assert isinstance(await instead.outcome(), Completed)
        assert [text for role, text in await said(remote.session) if role == "user"] == ["first", "instead"]
        assert (await remote.turn.read()).state == "ended"


async def test_a_resumed_agent_reads_its_partial_output(tmp_path: Path) -> None:
    path = tmp_path / "chat.db"

    async with busy(path) as remote:
        remote.other.send_order("first", "think", "hm")
        remote.other.send_order("first", "say", "two ")
        await until_said(remote.turn, "one two ")
        remote.other.kill()
        with Child(work, path, HEIR) as heir:
            await heir.receive_async("speaking", "first")
            heir.send_order("first", "recall")
            (history,) = await heir.receive_async("first", "reads")
            heir.send_order("first", "say", "three")
            heir.send_order("first", "end")
            await heir.receive_async("first", "did", "say")
            heir.terminate()
            heir.ends_well()
        assert history == [
            ("user", (Text("first"),)),
            ("assistant", (Text("one "), Thought("hm"), Text("two "))),
        ]
        assert await said(remote.session) == [
            ("user", "first"),
            ("assistant", "one \ntwo …"),
            ("assistant", "three"),
        ]


async def test_a_stopped_process_disconnects_from_its_provider_and_reports_the_closing(tmp_path: Path) -> None:
    path = tmp_path / "chat.db"

    async with FakeProvider(stalls_after(words("The answer "))) as provider, host(path) as app:
        session = await app.session(CHAT)
        with Child(model, path, provider.base_url, tmp_path / "payments", grace=0.1) as child:
            turn = await session.send("what is it?")
            await until_said(turn, "The answer ")
            child.terminate()
            child.ends_well()
        assert await turn.outcome() == Interrupted("the program was closed")
        assert await said(session) == [("user", "what is it?"), ("assistant", "The answer …")]


async def test_a_script_stopped_by_ctrl_c_closes_its_app_and_raises_it(tmp_path: Path) -> None:
    path = tmp_path / "chat.db"

    async with host(path) as app:
        session = await app.session(CHAT)
        with Child(scripts, path) as child:
            (number,) = await child.receive_async("sent")
            turn = await app.turn(number)
            await seen(turn, TextDelta)
            child.interrupt()
            await child.receive_async("KeyboardInterrupt")
            child.ends_well()
        assert await turn.outcome() == Interrupted("the program was closed")
        assert (await said(session))[-1] == ("assistant", "one …")
