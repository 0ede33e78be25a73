"""ACP agents named at the command line: found, started when named, ended with the command."""

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from backstay import open_store
from backstay.model.event import TurnEnded
from backstay.model.turn import Interrupted
from tests.agents.acp.test_acp import PROGRAM, alive
from tests.cli.installed_command import RunCli, environment, running
from tests.databases import Place, let_leases_lapse
from tests.runtime.controlled_agents import play, until

# A terminal shows the events of the app: the engine cannot matter.
pytestmark = pytest.mark.engines("sqlite")

LINE = f"acp:{shlex.join(PROGRAM)}"
ME = "local"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    return folder


@pytest.fixture
def installed(tmp_path: Path) -> str:
    """A PATH on which hermes-acp is installed."""
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "hermes-acp").write_text(f'#!/bin/sh\nexec {shlex.join(PROGRAM)} "$@"\n')
    (folder / "hermes-acp").chmod(0o700)
    return f"{folder}:{os.environ['PATH']}"


def test_a_command_line_answers_in_the_directory_that_it_is_asked_about(run_cli: RunCli, project: Path) -> None:
    answer = run_cli("send", "--workspace", str(project), "--agent", LINE, "tell where")

    assert answer.code == 0
    assert f'"process": "{project}"' in answer.out


def test_a_command_works_under_the_directory_that_was_named_or_the_current_one(
    run_cli_file: RunCli, project: Path, tmp_path: Path
) -> None:
    other = tmp_path / "other"
    other.mkdir()
    made = run_cli_file("send", "--workspace", str(project), "--agent", LINE, "--json", "say hello").json["session"]
    from_above = run_cli_file("send", "--session", made, "--agent", LINE, "tell where", HOME=str(other))
    rooted = run_cli_file("send", "--workspace", str(project), "--agent", LINE, "x", BACKSTAY_AGENT_ROOTS=str(other))
    missing = run_cli_file("send", "--workspace", str(project / "missing"), "--agent", LINE, "say hello")

    assert f'"process": "{project}"' in from_above.out
    assert (rooted.code, missing.code) == (3, 3)
    assert "outside the directories in which this agent may work" in rooted.err
    assert "is not a directory here" in missing.err


def test_the_tools_of_an_acp_agent_are_shown_beside_the_answer(run_cli: RunCli, project: Path) -> None:
    answer = run_cli("send", "--workspace", str(project), "--agent", f"mine={LINE}", "--json", "use a tool")
    story = run_cli("show", answer.json["session"])

    assert (answer.code, answer.json["text"]) == (0, "done ")
    assert "→ edit" in story.out
    assert "← written" in story.out


def test_an_installed_one_is_offered_with_the_line_to_type_and_answers_to_its_name(
    run_cli_file: RunCli, project: Path, installed: str
) -> None:
    offered = run_cli_file("agents", PATH=installed, BACKSTAY_PROBE="")
    answer = run_cli_file("send", "--workspace", str(project), "--agent", "acp:hermes", "say hello", PATH=installed)

    assert "backstay chat --agent acp:hermes" in offered.lines[-1]
    assert "Hermes is installed: use it with --agent acp:hermes" in offered.lines[0]
    assert (answer.code, answer.out) == (0, "hello \n")


def test_an_acp_agent_can_be_named_in_the_environment_and_in_a_file(
    run_cli_file: RunCli, project: Path, tmp_path: Path
) -> None:
    named = run_cli_file("send", "tell where", BACKSTAY_AGENT=LINE, BACKSTAY_AGENT_DIRECTORY=str(project))
    (tmp_path / "config.toml").write_text(
        f"agent = [{LINE!r}]\nagent_directory = {str(project)!r}\nagent_permission = 'allow'\n"
    )
    filed = run_cli_file("send", "ask first", BACKSTAY_CONFIG=str(tmp_path / "config.toml"))

    assert f'"process": "{project}"' in named.out
    assert (filed.code, filed.out) == (0, "yes \n")


def test_a_chat_keeps_one_agent_process_for_all_messages(run_cli_file: RunCli, project: Path) -> None:
    chat = ("chat", "--workspace", str(project), "--agent", LINE)
    said = run_cli_file(*chat, stdin=b"say hello\ntell the prompt\n")

    assert said.code == 0
    assert '"prompts": [["say hello"], ["tell the prompt"]]' in said.out.replace("\n", " ")


@pytest.mark.parametrize(
    ("agent", "reason"),
    [
        ("acp:goose", "Goose is not installed: there is no goose on the PATH"),
        ("acp:/no/such/agent --flag", "the program '/no/such/agent' was not found"),
        ("acp:", "has no command"),
        ("acp:agent 'unclosed", "cannot be read"),
    ],
)
def test_an_acp_agent_that_cannot_start_is_an_error_and_creates_nothing(
    run_cli_file: RunCli, file: Path, agent: str, reason: str
) -> None:
    answer = run_cli_file("send", "--agent", agent, "hello", PATH="/nowhere")

    assert (answer.code, answer.out) == (1, "")
    assert reason in answer.err
    assert not file.exists()


def test_a_session_without_a_directory_is_not_answered_and_gets_a_hint(run_cli_file: RunCli) -> None:
    answer = run_cli_file("send", "--agent", LINE, "say hello")

    assert answer.code == 3
    assert "Send with --workspace DIR" in answer.err


def test_without_the_extra_it_says_what_to_install(tmp_path: Path) -> None:
    program = "import sys; sys.modules['acp'] = None; from backstay.cli.main import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", program, "send", "--agent", LINE, "hello"],
        env=environment(tmp_path, tmp_path / "chat.db"),
        capture_output=True,
        text=True,
        check=False,
        timeout=90,
    )

    assert (done.returncode, done.stdout) == (1, "")
    assert "pip install 'backstay[acp]'" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_killed_command_leaves_no_program_and_its_calls_may_have_run(
    run_cli: RunCli, place: Place, tmp_path: Path, project: Path
) -> None:
    with running(tmp_path, place, "send", "--workspace", str(project), "--agent", LINE, "be deaf") as command:
        assert command.stdout is not None
        pid = int(command.stdout.readline())
        assert alive(pid)
        command.kill()
        command.wait()

    async def gone() -> None:
        await until(lambda: not alive(pid))

    play(gone())
    let_leases_lapse(place, command.pid)
    (session,) = run_cli("list", "--json").json["sessions"]
    with open_store(place) as store:
        events = store.events_after(session["id"], owner=ME).events
        (ended,) = [event.body for event in events if isinstance(event.body, TurnEnded)]
    assert isinstance(ended.outcome, Interrupted)
    assert ended.may_have_run == ("acp-1",)
