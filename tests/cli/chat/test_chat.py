"""`backstay chat` with a database: messages are stored and shown, and no text controls the terminal."""

import json
import re
import shlex
import signal
import stat
import subprocess
import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from backstay.cli.chat.slash_commands import ParsedCommand, parse
from backstay.errors import InvalidPayload
from backstay.model.ids import SessionId
from backstay.model.turn import Cancelled, Completed, Interrupted
from backstay.store import Store, open_store
from tests.cli.chat.chat_process import chatting, piped, surroundings, with_bot, with_cashier, with_database
from tests.cli.forked_command import PATIENCE
from tests.cli.terminal import Terminal
from tests.databases import Place
from tests.server.api_calls import until
from tests.server.server_process import COMMAND

# A terminal shows the events of the app: the engine cannot matter.
pytestmark = pytest.mark.engines("sqlite")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The current directory of the user, with an agent in it."""
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


# --- messages -------------------------------------------------------------------------------------------------------


@pytest.mark.engines("sqlite", "postgres")
def test_a_message_is_answered_and_stored(shown: Terminal, place: Place) -> None:
    shown.enter("hello")
    shown.wait_until(lambda seen: "You said 'hello'." in seen and is_idle(seen))

    with open_store(place) as store:
        messages = store.messages(session_of(shown), owner="local").messages
    assert [message.text for message in messages] == ["hello", "You said 'hello'."]


def test_ctrl_c_once_cancels_the_turn_and_the_chat_continues(shown: Terminal, place: Place) -> None:
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
def test_a_terminated_chat_ends_its_turn_and_restores_the_terminal(shown: Terminal, place: Place, number: int) -> None:
    shown.enter("hang 1")
    shown.wait_for("and now")
    shown.process.send_signal(number)

    assert shown.wait_for_end() == 0
    assert shown.echoes
    with open_store(place) as store:
        [turn] = turns_of(store, session_of(shown))
        assert store.turn(turn, owner="local").state == "ended"


def test_ctrl_d_leaves_at_once_and_keeps_the_screen(shown: Terminal, place: Place) -> None:
    shown.enter("hello")
    shown.wait_until(lambda seen: "You said 'hello'." in seen and is_idle(seen))
    shown.enter("hang 2")
    shown.wait_for("and now")
    shown.type("\x04")
    assert shown.wait_for_end() == 0

    seen = shown.screen.text
    assert [seen.count(text) for text in ("You said 'hello'.", "number 1.", "and now", "Continue with:")] == [1] * 4
    assert "Ctrl-C cancels" not in seen
    assert shown.echoes
    with open_store(place) as store:
        outcome = store.turn(turns_of(store, session_of(shown))[-1], owner="local").outcome
    assert isinstance(outcome, Interrupted)


def test_the_command_that_continues_a_chat_repeats_its_options(folder: Path, place: Place) -> None:
    options = [*with_database(place), "--to", "default", "--owner", "anna b"]
    with chatting(folder, *options) as shown:
        session = session_of(shown)
        shown.type("\x04")
        shown.wait_for_end()
        printed = shown.screen.text.split("Continue with: ")[1]

    # The terminal wraps the line, so only what is not blank can be compared.
    expected = shlex.join(["backstay", "chat", "--session", session, *options])
    assert "".join(printed.split()) == "".join(expected.split())


def test_yes_while_a_tool_asks_explains_how_to_approve(folder: Path, place: Place) -> None:
    with chatting(folder, "--db", str(place), "--agent", "scripted") as shown:
        shown.enter('ask tool note {"text":"x"}')
        shown.wait_for("/approve")
        shown.enter("Yes!")
        shown.wait_for("was not sent")
        shown.enter("/deny")
        shown.wait_until(is_idle)

    with open_store(place) as store:
        messages = store.messages(session_of(shown), owner="local").messages
    assert "Yes!" not in [message.text for message in messages]


def test_ctrl_c_clears_the_typed_text_before_it_leaves(shown: Terminal) -> None:
    shown.type("never mind")
    shown.wait_for("never mind")
    shown.control_c()
    shown.wait_until(lambda seen: "never mind" not in seen)
    shown.enter("hello")

    shown.wait_for("You said 'hello'.")


def test_a_message_sent_during_a_turn_waits_for_its_end(shown: Terminal) -> None:
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


def test_a_failure_is_shown_and_the_chat_continues(shown: Terminal) -> None:
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


def test_a_command_may_be_followed_by_any_space() -> None:
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


def test_the_input_history_is_kept_and_private_to_the_user(folder: Path, place: Place) -> None:
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


def test_a_chat_continues_the_last_session_of_its_directory(folder: Path, place: Place) -> None:
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
    completed = piped(folder, *with_database(place), "--address", address, said=b"hello\n").stdout.decode()
    session = re.findall(r"ses_\w+", completed)[0]

    again = piped(folder, *with_database(place), "--session", session, said=b"again\n").stdout.decode()

    silent = piped(folder, *with_database(place), "--session", session[:-2], said=b"").stdout.decode()

    assert re.findall(r"^› (.*)$", again, re.MULTILINE) == ["hello", "again"]
    assert re.findall(r"^› (.*)$", silent, re.MULTILINE) == ["hello", "again"]


def test_a_name_that_fits_several_sessions_lists_them(folder: Path, place: Place) -> None:
    for words in (b"one\n", b"two\n"):
        piped(folder, *with_database(place), "--new", said=words)

    completed = piped(folder, *with_database(place), said=b"/resume ses_\n").stdout.decode().splitlines()

    assert "['ses_' matches several sessions:" in completed
    assert sum(line.startswith("  ses_") for line in completed) == 2


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--session", "ses_01kb000000000000000000000x"], "error: "),
        (["--session", "nonsense"], "error: there is no session whose id begins or ends with 'nonsense'"),
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
def test_invalid_arguments_are_an_error_without_a_traceback(folder: Path, arguments: list[str], complaint: str) -> None:
    completed = piped(folder, "--db", str(folder / "chat.db"), *arguments, said=b"hello\n")

    assert completed.returncode in (1, 2)
    assert complaint in completed.stderr.decode()
    assert "Traceback" not in completed.stderr.decode()


# --- from a pipe ----------------------------------------------------------------------------------------------------


def test_from_a_pipe_each_line_is_answered_before_the_next(folder: Path, place: Place) -> None:
    completed = piped(folder, *with_database(place), said=b"one\n\ntwo\r\n/title Tea\nthree")

    lines = completed.stdout.decode().splitlines()
    assert completed.returncode == 0
    assert [line for line in lines if line.startswith(("›", "You", "[title"))] == [
        "› one",
        "You said 'one'.",
        "› two",
        "You said 'two'.",
        "[title: Tea]",
        "› three",
        "You said 'three'.",
    ]
    assert b"\x1b" not in completed.stdout


def test_an_invalid_line_of_a_pipe_is_reported_and_the_rest_is_answered(folder: Path, place: Place) -> None:
    nonsense = (
        b"/bogus\n/steer\n/undo now\n/undo\n/redo\n/retry\n/edit\n/resume 99\n/resume \xff\n/deny\n//slash\n\xff\xfe\n"
    )

    completed = piped(folder, *with_database(place), said=nonsense + b"hello\n")

    lines = completed.stdout.decode().splitlines()
    assert completed.returncode == 0
    assert completed.stderr == b""
    assert "[there is no command /bogus (/help lists the commands; // starts a message with a slash.)]" in lines
    assert [line for line in lines if line.startswith("You said")] == [
        "You said '/slash'.",
        "You said '��'.",
        "You said 'hello'.",
    ]


def test_a_very_long_line_is_accepted_or_refused_and_never_lost_in_silence(folder: Path, place: Place) -> None:
    completed = piped(folder, *with_database(place), said=b"x" * 3_000_000 + b"\nhello\n")

    assert completed.returncode == 0
    assert "You said 'hello'." in completed.stdout.decode()


def test_a_tool_that_asks_can_be_answered_from_a_pipe(folder: Path, place: Place) -> None:
    completed = piped(folder, "--db", str(place), "--agent", "scripted", said=b"ask Shall I?\n/approve\n/title Done\n")

    text = completed.stdout.decode()
    assert '[confirm needs approval to run with {"question":"Shall I?"}]' in text
    assert "✓ confirm" in text
    assert text.index("✓ confirm") < text.index("[title: Done]")


def test_a_compaction_without_effect_is_reported(folder: Path, place: Place) -> None:
    completed = piped(folder, *with_database(place), said=b"hello\n/compact\n")

    assert "[there is nothing to summarise yet]" in completed.stdout.decode().splitlines()


def test_a_reminder_is_a_schedule_of_the_session(folder: Path, place: Place) -> None:
    said = b"hello\n/remind day 9:00 UTC: Stand up: now!\n/remind day 9:00\n/remind often: tea?\n"
    completed = piped(folder, *with_database(place), said=said)

    with open_store(place) as store:
        (made,) = store.schedules(owner="local")
        (session,) = store.list(owner="local").sessions
    assert (made.when, made.text, made.to) == ("day 09:00 UTC", "Stand up: now!", session.id)
    text = completed.stdout.decode()
    assert f"`backstay schedules` manages {made.id}" in text
    assert "the time and the text are not separated" in text
    assert "'often' is not a time of a schedule" in text


def test_a_chat_that_is_left_while_its_pipe_is_open_exits_cleanly(folder: Path, place: Place) -> None:
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


# --- stored text does not control the terminal ----------------------------------------------------------------------


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


# --- interrupted turns ----------------------------------------------------------------------------------------------


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
        shown.wait_for("no tool call needs this decision")
        shown.enter("/continue")
        shown.wait_for("the last turn was not interrupted")
        shown.enter("pay 5")
        shown.wait_for("⚙ pay")
        until(lambda: payments.exists() and payments.read_text().endswith("\n"), "paid")
        shown.process.kill()
        shown.process.wait()

    with chatting(folder, *options) as shown:
        shown.wait_for('pay may have run with {"amount":5}: /rerun allows it again')
        shown.enter("/rerun")
        shown.wait_for("pay may run once more")
        shown.wait_for("It is paid.")
        shown.enter("/rerun")
        shown.wait_for("no tool call needs this decision")

    assert len(set(payments.read_text().split())) == 2


def test_an_approval_continues_a_turn_whose_process_was_killed(folder: Path, tmp_path: Path) -> None:
    options = ("--db", str(tmp_path / "chat.db"), "--agent", "scripted")
    with chatting(folder, *options) as shown:
        shown.enter("ask May I?")
        shown.wait_for("/approve or /deny")
        shown.process.kill()
        shown.process.wait()

    with chatting(folder, *options) as shown:
        shown.wait_for("it waits for your approval")
        shown.wait_for("/approve or /deny")
        shown.enter("/approve")
        shown.wait_for("a person agreed: May I?")


def test_a_turn_continues_without_the_tool_that_may_have_run(folder: Path, tmp_path: Path) -> None:
    payments, options = with_cashier(folder), ("--db", str(tmp_path / "chat.db"), "--agent", "cashier:agent")
    with chatting(folder, *options) as shown:
        shown.enter("pay 5")
        shown.wait_for("⚙ pay")
        until(lambda: payments.exists() and payments.read_text().endswith("\n"), "paid")
        shown.process.kill()
        shown.process.wait()

    with chatting(folder, *options) as shown:
        shown.wait_for("/rerun allows it again")
        shown.enter("/continue")
        shown.wait_for("✗ failed: pay was interrupted before it returned a result")
    assert len(payments.read_text().split()) == 1


# --- exports --------------------------------------------------------------------------------------------------------


def test_an_export_is_a_whole_session_and_overwrites_nothing(folder: Path, place: Place) -> None:
    completed = piped(
        folder,
        *with_database(place),
        said=b"hello\n/export a.json\n/export a.json\n/export no/such/b.json\n/export Markdown\n",
    )

    header = json.loads((folder / "a.json").read_text().splitlines()[0])
    session = header["session"]["id"]
    assert (folder / f"{session}.md").read_text().startswith(f"# {session}\n")
    assert "a.json already exists" in completed.stdout.decode()
    assert "b.json cannot be written: No such file" in completed.stdout.decode()
    assert stat.S_IMODE((folder / "a.json").stat().st_mode) == 0o600


def test_an_export_neither_overwrites_a_file_nor_follows_a_link(folder: Path, place: Place) -> None:
    victim = folder / "victim"
    victim.write_text("untouched")
    (folder / ".a.json.part").symlink_to(victim)
    (folder / "b.json").symlink_to(folder / "elsewhere")
    completed = piped(folder, *with_database(place), said=b"hello\n/export a.json\n/export b.json\n")

    assert victim.read_text() == "untouched"
    assert json.loads((folder / "a.json").read_text().splitlines()[0])["session"]
    assert not (folder / "a.json").is_symlink()
    assert "b.json already exists" in completed.stdout.decode()
    assert not (folder / "elsewhere").exists()
    assert sorted(one.name for one in folder.glob(".*.part")) == [".a.json.part"]


def test_files_are_sent_with_the_next_message(folder: Path, place: Place) -> None:
    (folder / "tea.txt").write_text("green" * 100_000)
    (folder / "cup.txt").write_text("white")
    refused = b"/attach missing.txt\n/detach\n/attach tea.txt\n/detach\n"
    lines = refused + b"/attach cup.txt\nopen\nopen\n/attach tea.txt\nopen\n"

    done = piped(folder, *with_database(place), said=lines)

    shown = done.stdout.decode()
    assert "missing.txt cannot be read: No such file or directory" in shown
    assert "no file is attached" in shown
    assert re.findall(r"^(.*)All were read\.$", shown, re.MULTILINE) == [
        f"cup.txt: {zlib.crc32(b'white')}. ",
        "",
        f"tea.txt: {zlib.crc32(b'green' * 100_000)}. ",
    ]
