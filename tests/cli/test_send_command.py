"""`backstay send` and related commands: text in, answer out, and an exit status for each outcome."""

from pathlib import Path

import pytest

from backstay import open_store
from backstay.model.turn import Cancelled, Interrupted
from tests.cli.forked_command import PATIENCE
from tests.cli.installed_command import RunCli, interrupt, on_terminal, running, tell_broken
from tests.databases import Place, let_leases_lapse

ECHO = ("--agent", "sample_agents:echo")
ME = "local"

# Verbs are tested on every engine by the contract; most tests of their output need one engine.
pytestmark = pytest.mark.engines("sqlite")
BOTH = pytest.mark.engines("sqlite", "postgres")


def sessions(run_cli: RunCli) -> list[str]:
    return [one["id"] for one in run_cli("list", "--json").json["sessions"]]


def test_the_answer_is_all_there_is_on_standard_output(run_cli: RunCli) -> None:
    answer = run_cli("send", *ECHO, "hello", "you")

    assert answer == (0, "heard hello you\n", "")
    assert len(sessions(run_cli)) == 1


def test_without_an_argument_standard_input_is_sent(run_cli: RunCli) -> None:
    assert run_cli("send", *ECHO, stdin="grüße\nzwei\n".encode()).out == "heard grüße\nzwei\n"
    assert run_cli("send", *ECHO, "-", stdin=b"dash").out == "heard dash\n"


def test_a_tool_that_needs_approval_is_named_with_the_command_that_decides(
    tmp_path: Path, place: Place, run_cli: RunCli
) -> None:
    with running(tmp_path, place, "send", "--agent", "scripted", "ask May I?") as process:
        assert process.stderr is not None
        notice = next(line for line in process.stderr if "waits for approval" in line)
        [session] = sessions(run_cli)
        assert f"`backstay approve {session}`" in notice

        assert run_cli("approve", session, "--no-wait").code == 0
        assert "a person agreed: May I?" in process.communicate(timeout=PATIENCE)[0]


@BOTH
def test_a_conversation_continues_in_the_last_session_or_a_named_one(run_cli: RunCli) -> None:
    run_cli("send", *ECHO, "one")
    run_cli("send", *ECHO, "--last", "two")
    (session,) = sessions(run_cli)
    run_cli("send", *ECHO, "--session", session[:12], "three")

    said = [part["text"] for one in run_cli("show", session, "--json").json["messages"] for part in one["parts"]]
    assert said == ["one", "heard one", "two", "heard two", "three", "heard three"]


@BOTH
def test_an_address_has_one_session_and_a_request_is_answered_once(run_cli: RunCli, tmp_path: Path) -> None:
    to = ("--address", "chat://telegram/dm/42", "--request-id", "update-1")
    first = run_cli("send", *ECHO, *to, "--json", "hello").json
    again = run_cli("send", *ECHO, *to, "--json", "hello").json

    assert (again["turn"], again["text"], again["repeated"]) == (first["turn"], "heard hello", True)
    assert run_cli("send", *ECHO, *to, "something else").code == 1
    assert run_cli("send", *ECHO, "--workspace", str(tmp_path), "hi").code == 0
    assert run_cli("send", *ECHO, "--workspace", ".", "hi").code == 0
    assert len(sessions(run_cli)) == 2
    assert run_cli("end", "chat://telegram/dm/42").code == 0
    assert run_cli("send", *ECHO, *to, "--json", "hello").json["turn"] == first["turn"]


@pytest.mark.parametrize(
    ("arguments", "stdin"),
    [
        ((), b""),
        (("",), b""),
        (("--session", "ses_01m7j8v9xbefa98mt527k3sfdq", "hello"), b""),
        (("--address", "nonsense", "hello"), b""),
        (("--agent", "sample_agents:missing", "hello"), b""),
        (("--agent", "no_such_module:agent", "hello"), b""),
        (("--last", "hello"), b""),
        ((), b"\xff\xfe binary \x00"),
        # Its name is short: the whole of it would stand in the environment of every child.
        pytest.param((), b"x" * 2_000_000, id="too much"),
    ],
)
def test_an_invalid_message_is_rejected_and_creates_nothing(
    run_cli: RunCli, place: Place, arguments: tuple[str, ...], stdin: bytes
) -> None:
    open_store(place).close()
    answer = run_cli("send", *arguments, stdin=stdin)

    assert (answer.code, answer.out) == (1, "")
    assert answer.err.startswith("error: ")
    assert sessions(run_cli) == []


@pytest.mark.parametrize(
    "arguments",
    [
        ("--session", "ses_1", "--last", "hello"),
        ("--scope", "run", "hello"),
        ("--if-busy", "shout", "hello"),
        ("--unknown", "hello"),
    ],
)
def test_wrong_usage_is_reported_and_exits_with_2(run_cli: RunCli, arguments: tuple[str, ...]) -> None:
    answer = run_cli("send", *arguments)

    assert (answer.code, answer.out) == (2, "")
    assert "Error: " in answer.err


def test_a_failed_turn_keeps_its_output_and_exits_with_3(tmp_path: Path, place: Place) -> None:
    answer = tell_broken(tmp_path, place, "send", "--agent", "sample_agents:failing", "hello")

    assert (answer.code, answer.out) == (3, "well\n")
    assert "the agent raised RuntimeError (turn trn_" in answer.err.splitlines()[-1]
    result = tell_broken(tmp_path, place, "send", "--agent", "sample_agents:failing", "--json", "hello")
    assert result.json["outcome"]["type"] == "failed"
    assert "no more words" not in result.out


def test_the_traceback_of_an_agent_that_runs_here_is_on_standard_error_once(tmp_path: Path, place: Place) -> None:
    answer = tell_broken(tmp_path, place, "send", "--agent", "sample_agents:failing", "hello")

    assert answer.err.count("RuntimeError: no more words\n") == 1
    assert "in failing\n" in answer.err


@BOTH
def test_a_turn_that_another_process_cancels_exits_with_4(run_cli: RunCli, place: Place, tmp_path: Path) -> None:
    with running(tmp_path, place, "send", "--agent", "sample_agents:endless", "hello") as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "I am here\n"
        with open_store(place) as store:
            (session,) = store.list(owner=ME).sessions
            assert session.running is not None
            store.cancel(session.running, owner=ME)
        _, err = process.communicate(timeout=PATIENCE)

    assert process.returncode == 4
    assert "cancelled" in err


def test_ctrl_c_cancels_the_turn_and_ends_with_130(run_cli: RunCli, place: Place, tmp_path: Path) -> None:
    with running(tmp_path, place, "send", "--agent", "sample_agents:endless", "hello") as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "I am here\n"
        ended = interrupt(process)

    assert (ended.code, ended.err) == (130, "")
    with open_store(place) as store:
        (session,) = store.list(owner=ME).sessions
        turn = store.messages(session.id, owner=ME).messages[0].turn
        assert turn is not None
        assert isinstance(store.turn(turn, owner=ME).outcome, Cancelled)


@BOTH
def test_a_turn_whose_process_died_is_shown_as_interrupted(run_cli: RunCli, place: Place, tmp_path: Path) -> None:
    to = ("--address", "chat://a/b/c", "--request-id", "1")
    with running(tmp_path, place, "send", "--agent", "sample_agents:endless", *to, "hello") as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "I am here\n"
        process.kill()
        process.wait(60)
    let_leases_lapse(place, process.pid)

    again = run_cli("send", *ECHO, *to, "hello")
    assert (again.code, again.out) == (5, "I am here\n")
    with open_store(place) as store:
        (session,) = store.list(owner=ME).sessions
        turn = store.messages(session.id, owner=ME).messages[0].turn
        assert turn is not None
        assert isinstance(store.turn(turn, owner=ME).outcome, Interrupted)


def test_a_message_sent_during_a_turn_follows_the_if_busy_option(run_cli: RunCli, place: Place, tmp_path: Path) -> None:
    with running(tmp_path, place, "send", "--agent", "sample_agents:endless", "hello") as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "I am here\n"
        (session,) = sessions(run_cli)
        to = ("--session", session)
        assert run_cli("send", *to, *ECHO, "--if-busy", "reject", "no").code == 1
        forked = run_cli("send", *to, *ECHO, "--if-busy", "fork", "--json", "in a fork").json
        assert forked["session"] != session
        with running(tmp_path, place, "send", *to, *ECHO, "later") as waiting:
            while run_cli("show", session, "--json").json["session"]["waiting"] == 0:
                assert waiting.poll() is None
            assert interrupt(process).code == 130
            out, _ = waiting.communicate(timeout=PATIENCE)
            assert (waiting.returncode, out) == (0, "heard later\n")


@pytest.mark.parametrize("agent", ["scripted", "mine=scripted"])
def test_the_scripted_agent_is_one_to_run_here(run_cli: RunCli, agent: str) -> None:
    assert "scripted agent" in run_cli("send", "--agent", agent, "hello").out


def test_an_agent_name_without_an_agent_is_rejected(run_cli: RunCli) -> None:
    refused = run_cli("send", "--agent", "mine=nothing", "hello")

    assert refused.code == 1
    assert "is not an agent" in refused.err


def test_a_script_learns_that_it_waits_for_another_process(place: Place, tmp_path: Path) -> None:
    with running(tmp_path, place, "send", "--agent", "somebody", "--allow-unserved", "hello") as waiting:
        assert waiting.stderr is not None
        assert waiting.stderr.readline() == "'somebody' is not served here: waiting for a process that serves it.\n"
        interrupt(waiting)


@pytest.mark.parametrize("options", [("--no-wait",), (), ("--address", "chat://telegram/dm/42"), ("--workspace", ".")])
def test_an_agent_that_was_never_served_is_refused_and_leaves_no_session(
    run_cli: RunCli, options: tuple[str, ...]
) -> None:
    run_cli("send", *ECHO, "hello")
    refused = run_cli("send", *options, "--agent", "typo", "hello")

    assert refused.code == 1
    assert refused.err.startswith("error: no process serves an agent called 'typo'")
    assert "--allow-unserved" in refused.err
    assert len(run_cli("list", "--json").json["sessions"]) == 1


def test_a_request_without_a_session_is_answered_once(run_cli: RunCli) -> None:
    first = run_cli("send", *ECHO, "--request-id", "new-1", "--json", "hello").json
    again = run_cli("send", *ECHO, "--request-id", "new-1", "--json", "hello").json

    assert (again["turn"], again["text"], again["repeated"]) == (first["turn"], "heard hello", True)
    assert sessions(run_cli) == [first["session"]]


def test_a_turn_sent_with_no_wait_waits_for_a_process_that_serves_its_agent(run_cli: RunCli) -> None:
    accepted = run_cli("send", "--no-wait", "--json", "hello").json
    session = accepted["session"]

    assert (accepted["outcome"], accepted["text"]) == (None, None)
    assert run_cli("list", "--json").json["sessions"][0]["waiting"] == 1
    assert run_cli("send", *ECHO, "elsewhere").out == "heard elsewhere\n"
    assert run_cli("show", session, "--json").json["session"]["waiting"] == 1
    assert run_cli("send", *ECHO, "--session", session, "more").out == "heard more\n"
    said = [part["text"] for one in run_cli("show", session, "--json").json["messages"] for part in one["parts"]]
    assert said == ["hello", "heard hello", "more", "heard more"]


def test_undo_redo_retry_edit_and_fork_work_as_commands(run_cli: RunCli) -> None:
    run_cli("send", *ECHO, "one")
    run_cli("send", *ECHO, "--last", "two")
    (session,) = sessions(run_cli)

    def said() -> list[str]:
        shown = run_cli("show", session, "--json").json["messages"]
        return [part["text"] for one in shown for part in one["parts"]]

    assert run_cli("undo", session).out == f"undone: {session} has 2 messages now\n"
    assert run_cli("redo", session, "--json").json["length"] == 4
    assert run_cli("redo", session).code == 1
    assert run_cli("retry", session, *ECHO).out == "heard two\n"
    assert run_cli("edit", session, *ECHO, "drei").out == "heard drei\n"
    assert said() == ["one", "heard one", "drei", "heard drei"]
    fork = run_cli("fork", session).out.strip()
    assert fork != session
    assert run_cli("show", fork, "--json").json["session"]["source"] == session
    drawn = run_cli("lineage", session)
    assert [line.split("  ")[0] for line in drawn.lines] == [str(n) for n in range(1, len(drawn.lines) + 1)]
    assert sum("← now" in line for line in drawn.lines) == 1
    assert {"undo", "retry", "edit", "first"} == {
        window["reason"] for window in run_cli("lineage", session, "--json").json["windows"]
    }
    for reason in ("began", "after an undo", "for a retry", "with a message edited"):
        assert reason in drawn.out
    assert f"forked from {session}" in run_cli("lineage", fork).out


def test_send_shows_the_session_and_the_tools(tmp_path: Path, place: Place) -> None:
    seen = on_terminal(tmp_path, place, "send", "--agent", "sample_agents:hostile", "hello")

    assert seen.code == 0
    assert "in ses_" in seen.out
    assert "→ look␛[2J" in seen.out


def test_a_session_is_followed_to_its_end_and_from_any_number(run_cli: RunCli, place: Place, tmp_path: Path) -> None:
    run_cli("send", *ECHO, "one")
    (session,) = sessions(run_cli)
    with running(tmp_path, place, "follow", session, "--json") as following:
        assert following.stdout is not None
        assert '"session_created"' in following.stdout.readline()
        run_cli("send", *ECHO, "--last", "two")
        run_cli("delete", "--yes", session)
        out, err = following.communicate(timeout=PATIENCE)

    assert (following.returncode, err) == (0, "")
    assert '"session_deleted"' in out.splitlines()[-1]


def test_follow_once_prints_each_stored_event_once(run_cli: RunCli) -> None:
    run_cli("send", *ECHO, "one", BACKSTAY_TITLES="false")
    (session,) = sessions(run_cli)
    kinds = [line.split("  ")[2] for line in run_cli("follow", session, "--once").lines]

    assert kinds == ["session_created", "turn_started", "text_delta", "turn_ended"]
    assert len(run_cli("follow", session, "--once", "--after", "2").lines) == 2
    feed = run_cli("follow", "--once", "--json", "--after", "0").lines
    assert len(feed) == 4
    assert run_cli("follow", "ses_unknown", "--once").code == 1


def test_following_ends_with_ctrl_c(run_cli: RunCli, place: Place, tmp_path: Path) -> None:
    run_cli("send", *ECHO, "one")
    (session,) = sessions(run_cli)
    with running(tmp_path, place, "follow", session) as following:
        assert following.stdout is not None
        assert "session_created" in following.stdout.readline()
        assert interrupt(following).code == 130


@BOTH
def test_stored_text_is_found(run_cli: RunCli) -> None:
    run_cli("send", *ECHO, "the invoice of may")
    (session,) = sessions(run_cli)

    found = run_cli("search", "invoice")
    assert (found.code, session in found.out, "the invoice of may" in found.out) == (0, True, True)
    assert len(run_cli("search", "invoice", "--json").json["hits"]) == 2
    assert run_cli("search", "invoice", "--session", session, "--limit", "1", "--json").json["hits"] != []
    assert run_cli("search", "nothing").out == ""
    assert run_cli("search", '"').code in (0, 1)
    assert run_cli("search").code == 2


@BOTH
def test_files_are_sent_with_the_message_and_the_agent_reads_them(run_cli: RunCli, tmp_path: Path) -> None:
    (tmp_path / "tea.txt").write_text("green")
    (tmp_path / "cup.bin").write_bytes(b"white")
    files = ("--attach", str(tmp_path / "tea.txt"), "--attach", str(tmp_path / "cup.bin"))

    answer = run_cli("send", "--agent", "sample_agents:opener", *files, "look")
    alone = run_cli("send", "--agent", "sample_agents:opener", *files[:2], stdin=b"")

    assert answer.out == "look[tea.txt text/plain: green][cup.bin application/octet-stream: white]\n"
    assert alone.out == "[tea.txt text/plain: green]\n"


def test_a_file_that_cannot_be_sent_is_refused_and_makes_nothing(run_cli: RunCli, tmp_path: Path) -> None:
    (tmp_path / "large").write_bytes(b"x" * ((32 << 20) + 1))

    assert run_cli("send", *ECHO, "--attach", str(tmp_path / "missing"), "look").code == 2
    assert run_cli("send", *ECHO, "--attach", str(tmp_path), "look").code == 2
    assert run_cli("send", *ECHO, "--attach", str(tmp_path / "large"), "look").code == 1
    assert sessions(run_cli) == []


@pytest.mark.engines("sqlite")
@pytest.mark.parametrize(
    ("source", "shown", "line"),
    [
        ("import os\n\n1 / 0\n", "ZeroDivisionError: division by zero", 'broken.py", line 3, in <module>'),
        ("def agent(turn)\n    pass\n", "SyntaxError", 'broken.py", line 1'),
        ("import not_installed\n", "No module named 'not_installed'", 'broken.py", line 1, in <module>'),
        ("raise SystemExit('no key')\n", "SystemExit: no key", 'broken.py", line 1, in <module>'),
    ],
)
def test_a_broken_agent_module_shows_its_own_traceback_and_none_of_ours(
    run_cli: RunCli, tmp_path: Path, source: str, shown: str, line: str
) -> None:
    (tmp_path / "broken.py").write_text(source)

    answer = run_cli("send", "--agent", "broken:agent", "hello")

    assert (answer.code, answer.out) == (1, "")
    assert shown in answer.err
    assert line in answer.err
    assert "importlib" not in answer.err
    assert "/backstay/" not in answer.err
    assert len(answer.err.splitlines()) < 10


def test_a_session_of_the_command_line_has_its_first_words_as_title(run_cli: RunCli) -> None:
    run_cli("send", *ECHO, "  green   tea\nplease ")

    (session,) = run_cli("list", "--json").json["sessions"]
    assert (session["title"], session["title_by"]) == ("green tea please", "agent")
