"""An agent runs in a process of its own and is killed there: its turn is interrupted, and continues elsewhere."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import backstay
from backstay import Completed, Interrupted, TurnInfo, open_store
from backstay.errors import ConfigError
from backstay.events import TextDelta
from backstay.testing import AgentProcess, ModelHold, ScriptedModel, events_until, finish_turn
from tests.databases import Place
from tests.testing.sample_agents import MODEL_URL, PAYMENTS, Companion, cashier

CASHIER = "tests.testing.sample_agents:cashier"


def payments(folder: Path) -> list[str]:
    file = folder / "payments"
    return file.read_text().split() if file.exists() else []


def process(folder: Path, **options: object) -> AgentProcess:
    env = {PAYMENTS: str(folder / "payments")}
    return AgentProcess(folder / "chat.db", cashier, env=env, **options)  # type: ignore[arg-type]  # passed on


@pytest.mark.parametrize("agent", [CASHIER, cashier])
async def test_a_process_answers_the_turns_of_the_test(agent: str, tmp_path: Path) -> None:
    async with backstay.open(tmp_path / "chat.db") as app, AgentProcess(tmp_path / "chat.db", agent) as child:
        session = await app.session()
        run = await finish_turn(session, await session.send("pay 5"))

        assert (run.outcome, run.text, child.killed) == (Completed(), "paid 5", False)
        child.stop()
        assert await child.ended() == 0


async def test_a_process_that_is_killed_in_the_middle_leaves_its_output_and_the_turn_resumes(tmp_path: Path) -> None:
    path, hold = tmp_path / "chat.db", ModelHold()
    with ScriptedModel(["one ", hold, "two"], "and three") as model:
        child = AgentProcess(path, "tests.testing.sample_agents:talker", env={MODEL_URL: model.openai_url})
        async with backstay.open(path) as app:
            session = await app.session()
            with child:
                turn = await session.send("count")
                await events_until(turn, TextDelta)
                child.kill()
                assert child.killed
                cut = await finish_turn(session, turn)
        agent = backstay.agents.OpenAICompatible(model.openai_url, "tiny")
        async with backstay.open(path, agent=agent) as app:
            again = await finish_turn(app.handle(turn.session), await (await app.turn(turn.id)).resume())

    assert isinstance(cut.outcome, Interrupted)
    assert (cut.text, cut.messages[-1].partial) == ("one ", True)
    assert (again.outcome, again.text) == (Completed(), "and three")


@pytest.mark.parametrize(
    ("point", "paid", "said"),
    [("kill_before_tool", 0, "I may have paid already."), ("kill_after_tool", 1, "I may have paid already.")],
)
async def test_a_process_dies_at_a_tool_and_the_agent_that_resumes_does_not_repeat_it(
    point: str, paid: int, said: str, tmp_path: Path
) -> None:
    async with backstay.open(tmp_path / "chat.db") as app:
        session = await app.session()
        with process(tmp_path, **{point: "pay"}) as child:
            turn = await session.send("pay 5")
            assert await child.ended() == -signal.SIGKILL
            cut = await finish_turn(session, turn)
        assert isinstance(cut.outcome, Interrupted)
        assert [call.effect for call in cut.calls] == ["unknown"]
        assert len(payments(tmp_path)) == paid

        with process(tmp_path, on_interrupt="resume"):
            run = await finish_turn(session, await continued(app, cut.info))

    assert (run.outcome, run.text) == (Completed(), said)
    assert len(payments(tmp_path)) == paid


async def test_an_agent_survives_a_kill_after_each_of_its_writes(tmp_path: Path) -> None:
    """The sweep that the how-to shows: whatever write is the last one, nothing is paid twice, and the turn ends."""
    deaths, killed = 0, True
    while killed:
        folder = tmp_path / str(deaths)
        folder.mkdir()
        async with backstay.open(folder / "chat.db") as app:
            session = await app.session()
            with process(folder, kill_after_writes=deaths + 1) as child:
                turn = await session.send("pay 5")
                run = await finish_turn(session, turn)
                if isinstance(run.outcome, Interrupted):
                    assert await child.ended() == -signal.SIGKILL
            killed = child.killed
            deaths += killed
            if isinstance(run.outcome, Interrupted):
                with process(folder, on_interrupt="resume"):
                    run = await finish_turn(session, await continued(app, run.info))
        assert run.outcome == Completed()
        assert len(payments(folder)) <= 1
    assert deaths >= 3


async def continued(app: backstay.App, cut: TurnInfo) -> backstay.Turn:
    """The turn that goes on, once a process has resumed the one that was cut off."""
    while (following := (await (await app.turn(cut.id)).read()).continued_by) is None:
        async for event in app.handle(cut.session).follow():
            if event.turn not in (None, cut.id):
                break
    return await app.turn(following)


async def test_a_killed_process_is_noticed_on_every_engine(place: Place) -> None:
    hold = ModelHold()
    with ScriptedModel(["one ", hold]) as model:
        options = {MODEL_URL: model.openai_url}
        async with backstay.open(place, lease_seconds=1.0) as app:
            session = await app.session()
            with AgentProcess(place, "tests.testing.sample_agents:talker", lease_seconds=1.0, env=options) as child:
                turn = await session.send("count")
                await hold.reached()
                child.kill()
                assert isinstance((await finish_turn(session, turn)).outcome, Interrupted)


def test_a_process_ends_with_the_process_of_the_test(tmp_path: Path) -> None:
    program = "; ".join(
        [
            "import sys",
            "from backstay.testing import AgentProcess",
            f"child = AgentProcess({str(tmp_path / 'chat.db')!r}, {CASHIER!r})",
            "child.__enter__()",
            "print(child.pid, flush=True)",
            "sys.stdin.read()",
        ]
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    with subprocess.Popen(
        [sys.executable, "-c", program],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment,
    ) as parent:
        assert parent.stdout is not None
        assert parent.stderr is not None
        assert int(parent.stdout.readline()) != parent.pid
        parent.kill()

        parent.stderr.read()  # returns when the agent's process, too, has closed its standard error


def test_a_process_works_in_a_blocking_test(tmp_path: Path) -> None:
    with AgentProcess(tmp_path / "chat.db", Companion), backstay.open_blocking(tmp_path / "chat.db") as app:
        session = app.session()
        assert session.send("hello").outcome() == Completed()
        assert session.messages()[-1].text == "turn 1"


async def test_a_process_can_be_started_without_blocking_the_event_loop(tmp_path: Path) -> None:
    async with AgentProcess(tmp_path / "chat.db", CASHIER) as child:
        assert child.pid > 0
    assert await child.ended() == 0


def test_an_agent_that_cannot_be_loaded_is_an_error_of_the_test(tmp_path: Path) -> None:
    with (
        pytest.raises(ConfigError, match="no_such:agent' cannot be loaded"),
        AgentProcess(tmp_path / "chat.db", "tests.testing.no_such:agent"),
    ):
        pass
    with open_store(tmp_path / "chat.db") as store:
        assert store.list(owner="local").sessions == ()


def test_an_agent_that_another_process_cannot_import_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="another process cannot import"):
        AgentProcess(tmp_path / "chat.db", lambda turn: iter(()))


def test_a_process_that_was_not_started_says_so(tmp_path: Path) -> None:
    child = AgentProcess(tmp_path / "chat.db", CASHIER)
    with pytest.raises(ConfigError, match="was not started"):
        child.kill()
