"""`backstay send` and its kin: text in, answer out, and an exit status that tells how it ended."""

from pathlib import Path

import pytest

from backstay import open_store
from backstay.model.turn import Cancelled, Interrupted
from tests.cli.forked_command import PATIENCE
from tests.cli.installed_command import Tell, interrupt, on_terminal, running, tell_broken
from tests.databases import Place, let_leases_lapse

ECHO = ("--agent", "sample_agents:echo")
ME = "local"

# Verbs of a store that every engine keeps, and what is written about them: most facts need one engine.
pytestmark = pytest.mark.engines("sqlite")
BOTH = pytest.mark.engines("sqlite", "postgres")


def sessions(told: Tell) -> list[str]:
    return [one["id"] for one in told("list", "--json").json["sessions"]]


def test_the_answer_is_all_there_is_on_standard_output(told: Tell) -> None:
    answer = told("send", *ECHO, "hello", "you")

    assert answer == (0, "heard hello you\n", "")
    assert len(sessions(told)) == 1


def test_without_an_argument_standard_input_is_said(told: Tell) -> None:
    assert told("send", *ECHO, stdin="grüße\nzwei\n".encode()).out == "heard grüße\nzwei\n"
    assert told("send", *ECHO, "-", stdin=b"dash").out == "heard dash\n"


@BOTH
def test_a_conversation_goes_on_in_the_last_session_or_a_named_one(told: Tell) -> None:
    told("send", *ECHO, "one")
    told("send", *ECHO, "--last", "two")
    (session,) = sessions(told)
    told("send", *ECHO, "--session", session[:12], "three")

    said = [part["text"] for one in told("show", session, "--json").json["messages"] for part in one["parts"]]
    assert said == ["one", "heard one", "two", "heard two", "three", "heard three"]


@BOTH
def test_an_address_has_one_session_and_a_request_is_answered_once(told: Tell, tmp_path: Path) -> None:
    to = ("--address", "chat://telegram/dm/42", "--request-id", "update-1")
    first = told("send", *ECHO, *to, "--json", "hello").json
    again = told("send", *ECHO, *to, "--json", "hello").json

    assert (again["turn"], again["text"], again["repeated"]) == (first["turn"], "heard hello", True)
    assert told("send", *ECHO, *to, "something else").code == 1
    assert told("send", *ECHO, "--workspace", str(tmp_path), "hi").code == 0
    assert told("send", *ECHO, "--workspace", ".", "hi").code == 0
    assert len(sessions(told)) == 2
    assert told("end", "chat://telegram/dm/42").code == 0
    assert told("send", *ECHO, *to, "--json", "hello").json["turn"] == first["turn"]


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
def test_what_cannot_be_sent_is_refused_and_makes_nothing(
    told: Tell, place: Place, arguments: tuple[str, ...], stdin: bytes
) -> None:
    open_store(place).close()
    answer = told("send", *arguments, stdin=stdin)

    assert (answer.code, answer.out) == (1, "")
    assert answer.err.startswith("error: ")
    assert sessions(told) == []


@pytest.mark.parametrize(
    "arguments",
    [
        ("--session", "ses_1", "--last", "hello"),
        ("--scope", "run", "hello"),
        ("--request-id", "1", "hello"),
        ("--if-busy", "shout", "hello"),
        ("--unknown", "hello"),
    ],
)
def test_wrong_usage_says_so_and_ends_with_two(told: Tell, arguments: tuple[str, ...]) -> None:
    answer = told("send", *arguments)

    assert (answer.code, answer.out) == (2, "")
    assert "Error: " in answer.err


def test_a_turn_that_fails_keeps_what_was_said_and_ends_with_three(tmp_path: Path, place: Place) -> None:
    answer = tell_broken(tmp_path, place, "send", "--agent", "sample_agents:failing", "hello")

    assert (answer.code, answer.out) == (3, "well\n")
    assert "the agent raised RuntimeError (turn trn_" in answer.err.splitlines()[-1]
    told = tell_broken(tmp_path, place, "send", "--agent", "sample_agents:failing", "--json", "hello")
    assert told.json["outcome"]["type"] == "failed"
    assert "no more words" not in told.out


def test_the_traceback_of_an_agent_that_runs_here_is_on_standard_error_once(tmp_path: Path, place: Place) -> None:
    answer = tell_broken(tmp_path, place, "send", "--agent", "sample_agents:failing", "hello")

    assert answer.err.count("RuntimeError: no more words\n") == 1
    assert "in failing\n" in answer.err


@BOTH
def test_a_turn_that_somebody_else_cancels_ends_with_four(told: Tell, place: Place, tmp_path: Path) -> None:
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


def test_ctrl_c_cancels_the_turn_and_ends_with_130(told: Tell, place: Place, tmp_path: Path) -> None:
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
def test_a_turn_whose_process_died_is_told_as_interrupted(told: Tell, place: Place, tmp_path: Path) -> None:
    to = ("--address", "chat://a/b/c", "--request-id", "1")
    with running(tmp_path, place, "send", "--agent", "sample_agents:endless", *to, "hello") as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "I am here\n"
        process.kill()
        process.wait(60)
    let_leases_lapse(place, process.pid)

    again = told("send", *ECHO, *to, "hello")
    assert (again.code, again.out) == (5, "I am here\n")
    with open_store(place) as store:
        (session,) = store.list(owner=ME).sessions
        turn = store.messages(session.id, owner=ME).messages[0].turn
        assert turn is not None
        assert isinstance(store.turn(turn, owner=ME).outcome, Interrupted)


def test_what_is_sent_while_a_turn_runs_waits_or_does_what_was_asked(told: Tell, place: Place, tmp_path: Path) -> None:
    with running(tmp_path, place, "send", "--agent", "sample_agents:endless", "hello") as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "I am here\n"
        (session,) = sessions(told)
        to = ("--session", session)
        assert told("send", *to, *ECHO, "--if-busy", "reject", "no").code == 1
        forked = told("send", *to, *ECHO, "--if-busy", "fork", "--json", "in a fork").json
        assert forked["session"] != session
        with running(tmp_path, place, "send", *to, *ECHO, "later") as waiting:
            while told("show", session, "--json").json["session"]["waiting"] == 0:
                assert waiting.poll() is None
            assert interrupt(process).code == 130
            out, _ = waiting.communicate(timeout=PATIENCE)
            assert (waiting.returncode, out) == (0, "heard later\n")


@pytest.mark.parametrize("agent", ["scripted", "mine=scripted"])
def test_the_scripted_agent_is_one_to_run_here(told: Tell, agent: str) -> None:
    assert "scripted agent" in told("send", "--agent", agent, "hello").out


def test_a_name_for_what_is_no_agent_is_refused(told: Tell) -> None:
    refused = told("send", "--agent", "mine=nothing", "hello")

    assert refused.code == 1
    assert "is not an agent" in refused.err


def test_a_script_that_waits_for_another_process_to_answer_is_told_so(place: Place, tmp_path: Path) -> None:
    with running(tmp_path, place, "send", "--agent", "somebody", "--allow-unserved", "hello") as waiting:
        assert waiting.stderr is not None
        assert waiting.stderr.readline() == "'somebody' is not served here: waiting for a process that serves it.\n"
        interrupt(waiting)


def test_an_agent_that_was_never_served_is_refused_and_leaves_no_session(told: Tell) -> None:
    told("send", *ECHO, "hello")
    refused = told("send", "--no-wait", "--agent", "typo", "hello")

    assert refused.code == 1
    assert "no process serves an agent called 'typo'" in refused.err
    assert "allow_unserved" in refused.err
    assert len(told("list", "--json").json["sessions"]) == 1


def test_what_is_not_waited_for_waits_for_whoever_serves_the_agent(told: Tell) -> None:
    accepted = told("send", "--no-wait", "--json", "hello").json
    session = accepted["session"]

    assert (accepted["outcome"], accepted["text"]) == (None, None)
    assert told("list", "--json").json["sessions"][0]["waiting"] == 1
    assert told("send", *ECHO, "elsewhere").out == "heard elsewhere\n"
    assert told("show", session, "--json").json["session"]["waiting"] == 1
    assert told("send", *ECHO, "--session", session, "more").out == "heard more\n"
    said = [part["text"] for one in told("show", session, "--json").json["messages"] for part in one["parts"]]
    assert said == ["hello", "heard hello", "more", "heard more"]


def test_undo_redo_retry_edit_and_fork_change_ones_mind(told: Tell) -> None:
    told("send", *ECHO, "one")
    told("send", *ECHO, "--last", "two")
    (session,) = sessions(told)

    def said() -> list[str]:
        shown = told("show", session, "--json").json["messages"]
        return [part["text"] for one in shown for part in one["parts"]]

    assert told("undo", session).out == f"undone: {session} has 2 messages now\n"
    assert told("redo", session, "--json").json["length"] == 4
    assert told("redo", session).code == 1
    assert told("retry", session, *ECHO).out == "heard two\n"
    assert told("edit", session, *ECHO, "drei").out == "heard drei\n"
    assert said() == ["one", "heard one", "drei", "heard drei"]
    fork = told("fork", session).out.strip()
    assert fork != session
    assert told("show", fork, "--json").json["session"]["source"] == session
    drawn = told("lineage", session)
    assert [line.split("  ")[0] for line in drawn.lines] == [str(n) for n in range(1, len(drawn.lines) + 1)]
    assert sum("← now" in line for line in drawn.lines) == 1
    assert {"undo", "retry", "edit", "first"} == {
        window["reason"] for window in told("lineage", session, "--json").json["windows"]
    }
    for reason in ("began", "after an undo", "for a retry", "with a message edited"):
        assert reason in drawn.out
    assert f"forked from {session}" in told("lineage", fork).out


def test_a_person_is_told_which_session_it_is_and_what_tools_do(tmp_path: Path, place: Place) -> None:
    seen = on_terminal(tmp_path, place, "send", "--agent", "sample_agents:hostile", "hello")

    assert seen.code == 0
    assert "in ses_" in seen.out
    assert "→ look␛[2J" in seen.out


def test_a_story_is_followed_to_its_end_and_from_any_number(told: Tell, place: Place, tmp_path: Path) -> None:
    told("send", *ECHO, "one")
    (session,) = sessions(told)
    with running(tmp_path, place, "follow", session, "--json") as following:
        assert following.stdout is not None
        assert '"session_created"' in following.stdout.readline()
        told("send", *ECHO, "--last", "two")
        told("delete", "--yes", session)
        out, err = following.communicate(timeout=PATIENCE)

    assert (following.returncode, err) == (0, "")
    assert '"session_deleted"' in out.splitlines()[-1]


def test_what_is_there_is_written_once(told: Tell) -> None:
    told("send", *ECHO, "one")
    (session,) = sessions(told)
    kinds = [line.split("  ")[2] for line in told("follow", session, "--once").lines]

    assert kinds == ["session_created", "turn_started", "text_delta", "turn_ended"]
    assert len(told("follow", session, "--once", "--after", "2").lines) == 2
    feed = told("follow", "--once", "--json", "--after", "0").lines
    assert len(feed) == 4
    assert told("follow", "ses_unknown", "--once").code == 1


def test_following_ends_with_ctrl_c(told: Tell, place: Place, tmp_path: Path) -> None:
    told("send", *ECHO, "one")
    (session,) = sessions(told)
    with running(tmp_path, place, "follow", session) as following:
        assert following.stdout is not None
        assert "session_created" in following.stdout.readline()
        assert interrupt(following).code == 130


@BOTH
def test_what_was_said_is_found(told: Tell) -> None:
    told("send", *ECHO, "the invoice of may")
    (session,) = sessions(told)

    found = told("search", "invoice")
    assert (found.code, session in found.out, "the invoice of may" in found.out) == (0, True, True)
    assert len(told("search", "invoice", "--json").json["hits"]) == 2
    assert told("search", "invoice", "--session", session, "--limit", "1", "--json").json["hits"] != []
    assert told("search", "nothing").out == ""
    assert told("search", '"').code in (0, 1)
    assert told("search").code == 2
