"""`backstay chat` with a database: what is said is stored, what is stored is shown, and nothing steers the terminal."""

import json
import re
import signal
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from backstay.cli.chat.slash_commands import ParsedCommand, parse
from backstay.errors import InvalidPayload
from backstay.model.ids import SessionId
from backstay.model.turn import Cancelled, Completed
from backstay.store import Store, open_store
from tests.cli.chat_process import chatting, piped, surroundings, with_bot, with_cashier, with_database
from tests.cli.forked_command import PATIENCE
from tests.cli.terminal import Terminal
from tests.databases import Place
from tests.server.server_process import COMMAND

# A terminal shows what the app tells it: the engine cannot matter to it.
pytestmark = pytest.mark.engines("sqlite")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where the person stands, with an agent beside them."""
    return with_bot(tmp_path)


def session_of(shown: Terminal) -> SessionId:
    """The session that was opened last."""
    return SessionId(re.findall(r"ses_[0-9a-z]{26}", shown.screen.text)[-1])


@pytest.fixture
def shown(folder: Path, place: Place) -> Iterator[Terminal]:
    """A chat with a database, on every engine."""
    with chatting(folder, *with_database(place)) as shown:
        yield shown


def is_idle(seen: str) -> bool:
    return "Ctrl-C cancels" not in seen


# --- talking --------------------------------------------------------------------------------------------------------


@pytest.mark.engines("sqlite", "postgres")
def test_what_is_said_is_answered_and_stored(shown: Terminal, place: Place) -> None:
    shown.enter("hello")
    shown.wait_until(lambda seen: "You said 'hello'." in seen and is_idle(seen))

    with open_store(place) as store:
        messages = store.messages(session_of(shown), owner="local").messages
    assert [message.text for message in messages] == ["hello", "You said 'hello'."]


def test_ctrl_c_once_cancels_the_turn_and_the_chat_goes_on(shown: Terminal, place: Place) -> None:
    shown.enter("hang 1")
    shown.wait_for("and now")
    shown.control_c()
    shown.wait_for("✗ cancelled")
    shown.enter("still there?")
    shown.wait_until(lambda seen: "You said 'still there?'." in seen and is_idle(seen))

    with open_store(place) as store:
        first, second = (store.turn(turn, owner="local") for turn in turns_of(store, session_of(shown)))
    assert isinstance(first.outcome, Cancelled)
    assert isinstance(second.outcome, Completed)


def turns_of(store: Store, session: SessionId) -> list:  # type: ignore[type-arg]  # of turn ids
    messages = store.messages(session, owner="local").messages
    return list(dict.fromkeys(message.turn for message in messages))


def test_ctrl_c_twice_leaves_and_the_turn_is_ended(shown: Terminal, place: Place) -> None:
    shown.enter("hang 1")
    shown.wait_for("and now")
    shown.control_c()
    shown.control_c()

    assert shown.wait_for_end() == 0
    with open_store(place) as store:
        [turn] = turns_of(store, session_of(shown))
        assert store.turn(turn, owner="local").state == "ended"


def test_ctrl_c_twice_leaves_where_nothing_runs(shown: Terminal) -> None:
    shown.control_c()
    shown.wait_for("again to exit")
    shown.control_c()

    assert shown.wait_for_end() == 0
    assert "Continue with: backstay chat --session ses_" in shown.screen.text


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_chat_that_is_told_to_end_ends_its_turn_and_leaves_the_terminal_as_it_was(
    shown: Terminal, place: Place, number: int
) -> None:
    shown.enter("hang 1")
    shown.wait_for("and now")
    shown.process.send_signal(number)

    assert shown.wait_for_end() == 0
    assert shown.echoes
    with open_store(place) as store:
        [turn] = turns_of(store, session_of(shown))
        assert store.turn(turn, owner="local").state == "ended"


def test_ctrl_c_takes_back_what_was_typed_before_it_leaves(shown: Terminal) -> None:
    shown.type("never mind")
    shown.wait_for("never mind")
    shown.control_c()
    shown.wait_until(lambda seen: "never mind" not in seen)
    shown.enter("hello")

    shown.wait_for("You said 'hello'.")


def test_what_is_said_while_a_turn_runs_waits_for_its_end(shown: Terminal) -> None:
    shown.enter("hang 1")
    shown.wait_for("and now")
    shown.enter("afterwards")
    shown.wait_for("afterwards  (waiting)")
    shown.control_c()

    seen = shown.wait_for("You said 'afterwards'.")
    assert seen.index("✗ cancelled") < seen.index("› afterwards")
    assert "(waiting)" not in seen


def test_steering_reaches_the_turn_that_runs(shown: Terminal) -> None:
    shown.enter("hang 1")
    shown.wait_for("and now")
    shown.enter("/steer left, please")

    seen = shown.wait_for("Heard: left, please.")
    assert "› left, please  (steering)" in seen


def test_finished_blocks_are_drawn_once_and_the_tail_never_twice(folder: Path, place: Place) -> None:
    with chatting(folder, *with_database(place), rows=12) as shown:
        shown.enter("count 200")
        seen = shown.wait_until(lambda seen: "number 199." in seen and is_idle(seen))

    assert re.findall(r"number (\d+)\.", seen) == [str(number) for number in range(200)]


def test_a_failure_is_told_and_the_chat_goes_on(shown: Terminal) -> None:
    shown.enter("fail")
    traceback, failure = "ValueError: no ␛[2Jluck", "✗ failed: the agent raised ValueError (turn trn_"
    seen = shown.wait_until(lambda seen: traceback in seen and failure in seen)
    assert seen.count(traceback) == 1
    assert "Traceback (most recent call last)" in seen
    shown.enter("hello")
    shown.wait_for("You said 'hello'.")


def test_a_tool_that_asks_waits_for_the_persons_word(folder: Path, place: Place) -> None:
    with chatting(folder, "--db", str(place), "--agent", "scripted") as shown:
        shown.enter("/approve")
        shown.wait_for("no tool call needs approval")
        shown.enter("ask Shall I?")
        shown.wait_for("needs approval: /approve or /deny")
        shown.enter("/approve")
        assert re.search(r"✓ confirm .*Shall I.*\d+ ms", shown.wait_for("✓ confirm"))
        shown.enter("ask And now?")
        shown.wait_for("needs approval: /approve or /deny")
        shown.enter("/deny")
        assert re.search(r"✗ confirm .*And now", shown.wait_for("✗ confirm"))  # It never ran, so it took no time.


def test_several_lines_can_be_written_and_pasted(shown: Terminal) -> None:
    shown.type("one\x1b\rtwo")
    shown.enter("")
    shown.wait_for(r"You said 'one\ntwo'.")
    shown.type("\x1b[200~three\nfour\x1b[201~")
    shown.enter("")

    shown.wait_for(r"You said 'three\nfour'.")


def test_a_command_is_one_whatever_space_follows_it() -> None:
    assert parse("/edit\nthese words\nand these") == ParsedCommand("edit", "these words\nand these")
    assert parse("/title\tTea") == ParsedCommand("title", "Tea")
    for words in ("/", "/ new idea"):
        with pytest.raises(InvalidPayload, match="there is no command"):
            parse(words)


def test_an_edit_replaces_the_offered_text_and_an_abandoned_edit_replaces_nothing(
    shown: Terminal, place: Place
) -> None:
    shown.enter("tea")
    shown.wait_for("You said 'tea'.")
    shown.enter("/edit")
    shown.wait_until(lambda seen: "Enter sends this" in seen and seen.endswith("› tea"))
    shown.enter(" and milk")
    shown.wait_for("You said 'tea and milk'.")
    shown.enter("/edit")
    shown.wait_until(lambda seen: seen.count("Enter sends this") == 2 and seen.endswith("› tea and milk"))
    shown.control_c()
    shown.wait_until(lambda seen: seen.endswith("›"))
    shown.enter("sugar")
    shown.wait_until(lambda seen: "You said 'sugar'." in seen and is_idle(seen))

    with open_store(place) as store:
        messages = store.messages(session_of(shown), owner="local").messages
    assert [message.text for message in messages if message.role == "user"] == ["tea and milk", "sugar"]


def test_what_was_typed_is_remembered_for_the_next_time_and_for_this_user_alone(folder: Path, place: Place) -> None:
    with chatting(folder, *with_database(place)) as shown:
        shown.enter("remember me")
        shown.wait_for("You said 'remember me'.")
        shown.enter("/quit")
        assert shown.wait_for_end() == 0

    with chatting(folder, *with_database(place), "--new") as shown:
        shown.type("\x1b[A\x1b[A")
        shown.wait_for("› remember me")
        shown.enter("")
        shown.wait_for("You said 'remember me'.")
    assert stat.S_IMODE((folder / ".local/state/backstay/chat-history").stat().st_mode) == 0o600


# --- which session --------------------------------------------------------------------------------------------------


def test_a_chat_goes_on_where_the_last_one_in_this_directory_was(folder: Path, place: Place) -> None:
    elsewhere = folder / "elsewhere"
    elsewhere.mkdir()
    with_bot(elsewhere)
    piped(folder, *with_database(place), said=b"first\n")
    piped(folder, *with_database(place), "--new", said=b"second\n")

    again = piped(folder, *with_database(place), said=b"third\n").stdout.decode()
    other = piped(elsewhere, *with_database(place), said=b"fourth\n").stdout.decode()
    named = piped(elsewhere, *with_database(place), "--workspace", str(folder), said=b"fifth\n").stdout.decode()
    from_here = piped(elsewhere, *with_database(place), "--workspace", "..", said=b"sixth\n").stdout.decode()

    assert re.findall(r"^› (.*)$", again, re.MULTILINE) == ["second", "third"]
    assert re.findall(r"^› (.*)$", other, re.MULTILINE) == ["fourth"]
    assert re.findall(r"^› (.*)$", named, re.MULTILINE) == ["second", "third", "fifth"]
    assert re.findall(r"^› (.*)$", from_here, re.MULTILINE) == ["second", "third", "fifth", "sixth"]


def test_a_session_is_named_by_address_or_id_or_its_first_letters(folder: Path, place: Place) -> None:
    address = "chat://telegram/dm/42"
    told = piped(folder, *with_database(place), "--address", address, said=b"hello\n").stdout.decode()
    session = re.findall(r"ses_\w+", told)[0]

    again = piped(folder, *with_database(place), "--session", session, said=b"again\n").stdout.decode()

    silent = piped(folder, *with_database(place), "--session", session[:-2], said=b"").stdout.decode()

    assert re.findall(r"^› (.*)$", again, re.MULTILINE) == ["hello", "again"]
    assert re.findall(r"^› (.*)$", silent, re.MULTILINE) == ["hello", "again"]


def test_a_name_that_fits_several_sessions_lists_them(folder: Path, place: Place) -> None:
    for words in (b"one\n", b"two\n"):
        piped(folder, *with_database(place), "--new", said=words)

    told = piped(folder, *with_database(place), said=b"/resume ses_\n").stdout.decode().splitlines()

    assert "['ses_' matches several sessions:" in told
    assert sum(line.startswith("  ses_") for line in told) == 2


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--session", "ses_01kb000000000000000000000x"], "error: "),
        (["--session", "nonsense"], "error: there is no session with the id or prefix 'nonsense'"),
        (["--address", "nonsense"], "error: "),
        (["--agent", "nobody:here"], "error: "),
        (["--to", "nobody"], "error: no agent is called 'nobody'"),
        (["--session", "a", "--workspace", "b"], "exclude each other"),
        (["--session", "a", "--new"], "exclude each other"),
        (["--server", "nonsense"], "error: --server is not"),
        (["--server", "http://127.0.0.1:1"], "error: there is no token"),
        (["--server", "http://127.0.0.1:1", "--token", "x"], "error: the server cannot be reached"),
        (["--server", "http://127.0.0.1:1", "--token", "x"], "Check that a server runs at http://127.0.0.1:1"),
    ],
)
def test_what_makes_no_sense_is_a_sentence(folder: Path, arguments: list[str], complaint: str) -> None:
    told = piped(folder, "--db", str(folder / "chat.db"), *arguments, said=b"hello\n")

    assert told.returncode in (1, 2)
    assert complaint in told.stderr.decode()
    assert "Traceback" not in told.stderr.decode()


# --- from a pipe ----------------------------------------------------------------------------------------------------


def test_from_a_pipe_each_line_is_answered_before_the_next(folder: Path, place: Place) -> None:
    told = piped(folder, *with_database(place), said=b"one\n\ntwo\r\n/title Tea\nthree")

    lines = told.stdout.decode().splitlines()
    assert told.returncode == 0
    assert [line for line in lines if line.startswith(("›", "You", "[title"))] == [
        "› one",
        "You said 'one'.",
        "› two",
        "You said 'two'.",
        "[title: Tea]",
        "› three",
        "You said 'three'.",
    ]
    assert b"\x1b" not in told.stdout


def test_nonsense_from_a_pipe_is_complained_about_and_the_rest_is_answered(folder: Path, place: Place) -> None:
    nonsense = (
        b"/bogus\n/steer\n/undo now\n/undo\n/redo\n/retry\n/edit\n/resume 99\n/resume \xff\n/deny\n//slash\n\xff\xfe\n"
    )

    told = piped(folder, *with_database(place), said=nonsense + b"hello\n")

    lines = told.stdout.decode().splitlines()
    assert told.returncode == 0
    assert told.stderr == b""
    assert "[there is no command /bogus (/help lists the commands; // starts a message with a slash.)]" in lines
    assert [line for line in lines if line.startswith("You said")] == [
        "You said '/slash'.",
        "You said '��'.",
        "You said 'hello'.",
    ]


def test_a_very_long_line_is_accepted_or_refused_and_never_lost_in_silence(folder: Path, place: Place) -> None:
    told = piped(folder, *with_database(place), said=b"x" * 3_000_000 + b"\nhello\n")

    assert told.returncode == 0
    assert "You said 'hello'." in told.stdout.decode()


def test_a_tool_that_asks_can_be_answered_from_a_pipe(folder: Path, place: Place) -> None:
    told = piped(folder, "--db", str(place), "--agent", "scripted", said=b"ask Shall I?\n/approve\n/title Done\n")

    text = told.stdout.decode()
    assert '[confirm needs approval to run with {"question":"Shall I?"}]' in text
    assert "✓ confirm" in text
    assert text.index("✓ confirm") < text.index("[title: Done]")


def test_a_compaction_that_leaves_nothing_behind_says_so(folder: Path, place: Place) -> None:
    told = piped(folder, *with_database(place), said=b"hello\n/compact\n")

    assert "[there is nothing to summarise yet]" in told.stdout.decode().splitlines()


def test_a_chat_that_is_left_while_its_pipe_is_open_ends_in_good_order(folder: Path, place: Place) -> None:
    process = subprocess.Popen(
        [COMMAND, "chat", *with_database(place)],
        cwd=folder,
        env=surroundings(folder),
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )
    assert process.stdin is not None
    assert process.stderr is not None
    process.stdin.write(b"hello\n/quit\n")
    process.stdin.flush()

    assert (process.wait(PATIENCE), process.stderr.read()) == (0, b"")
    process.stdin.close()
    process.stderr.close()


# --- what is stored steers no terminal ------------------------------------------------------------------------------


def test_control_characters_are_shown_as_pictures(shown: Terminal, place: Place) -> None:
    shown.enter("evil")
    seen = shown.wait_until(lambda seen: "<b>tag</b>" in seen and is_idle(seen))
    with open_store(place) as store:
        store.rename(session_of(shown), "\x1b]0;owned\x07", owner="local")
    shown.wait_for("title: ␛]0;owned␇")

    assert "before␛[2J␛]0;owned␇�2Jafter�" in seen
    assert b"\x1b]0;owned" not in shown.raw
    assert b"\x1b[2J" not in shown.raw
    assert b"\x9b2J" not in shown.raw


# --- what was cut off -----------------------------------------------------------------------------------------------


def test_a_turn_whose_process_died_is_marked_when_the_session_is_opened_again(folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "chat.db"
    with chatting(folder, *with_database(path)) as shown:
        shown.enter("hang 3")
        shown.wait_for("and now")
        shown.process.kill()
        shown.process.wait()

    with chatting(folder, *with_database(path)) as shown:
        seen = shown.wait_for("✗ interrupted")

    assert re.findall(r"number (\d)\.", seen) == ["0", "1", "2"]
    assert "the partial answer is kept" in seen


def test_a_person_lets_a_tool_that_may_have_run_run_again(folder: Path, tmp_path: Path) -> None:
    payments, options = with_cashier(folder), ("--db", str(tmp_path / "chat.db"), "--agent", "cashier:agent")
    with chatting(folder, *options) as shown:
        shown.enter("/rerun")
        shown.wait_for("no tool waits for this decision")
        shown.enter("/continue")
        shown.wait_for("the last turn was not interrupted")
        shown.enter("pay 5")
        shown.wait_until(lambda _: payments.exists() and payments.read_text().endswith("\n"))
        shown.process.kill()
        shown.process.wait()

    with chatting(folder, *options) as shown:
        shown.wait_for('pay may have run with {"amount":5}: /rerun allows it again')
        shown.enter("/rerun")
        shown.wait_for("pay may run once more when /continue resumes the turn")
        assert len(payments.read_text().split()) == 1
        shown.enter("/continue")
        shown.wait_for("It is paid.")
        shown.enter("/rerun")
        shown.wait_for("no tool waits for this decision")

    assert len(set(payments.read_text().split())) == 2


def test_a_turn_goes_on_without_the_tool_that_may_have_run(folder: Path, tmp_path: Path) -> None:
    payments, options = with_cashier(folder), ("--db", str(tmp_path / "chat.db"), "--agent", "cashier:agent")
    with chatting(folder, *options) as shown:
        shown.enter("pay 5")
        shown.wait_until(lambda _: payments.exists() and payments.read_text().endswith("\n"))
        shown.process.kill()
        shown.process.wait()

    with chatting(folder, *options) as shown:
        shown.wait_for("/rerun allows it again")
        shown.enter("/continue")
        shown.wait_for("✗ failed: pay was cut off before its result was known")
    assert len(payments.read_text().split()) == 1


# --- exports --------------------------------------------------------------------------------------------------------


def test_an_export_is_a_whole_session_and_overwrites_nothing(folder: Path, place: Place) -> None:
    told = piped(
        folder,
        *with_database(place),
        said=b"hello\n/export a.json\n/export a.json\n/export no/such/b.json\n/export Markdown\n",
    )

    header = json.loads((folder / "a.json").read_text().splitlines()[0])
    session = header["session"]["id"]
    assert (folder / f"{session}.md").read_text().startswith(f"# {session}\n")
    assert "a.json already exists" in told.stdout.decode()
    assert "b.json cannot be written: No such file" in told.stdout.decode()
    assert stat.S_IMODE((folder / "a.json").stat().st_mode) == 0o600


def test_an_export_writes_into_no_file_and_through_no_link_that_lies_in_wait(folder: Path, place: Place) -> None:
    victim = folder / "victim"
    victim.write_text("untouched")
    (folder / ".a.json.part").symlink_to(victim)
    (folder / "b.json").symlink_to(folder / "elsewhere")
    told = piped(folder, *with_database(place), said=b"hello\n/export a.json\n/export b.json\n")

    assert victim.read_text() == "untouched"
    assert json.loads((folder / "a.json").read_text().splitlines()[0])["session"]
    assert not (folder / "a.json").is_symlink()
    assert "b.json already exists" in told.stdout.decode()
    assert not (folder / "elsewhere").exists()
    assert sorted(one.name for one in folder.glob(".*.part")) == [".a.json.part"]
