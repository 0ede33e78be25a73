"""`backstay chat` with a server: several clients of one session see the same events, also across restarts."""

import json
import re
import threading
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from backstay.model.addresses.address import Address
from backstay.model.ids import SessionId
from backstay.store import open_store
from tests.cli.chat.chat_process import chatting, piped, with_bot, with_cashier, with_database
from tests.cli.installed_command import run_cli_in
from tests.cli.terminal import Terminal
from tests.databases import Place, let_leases_lapse
from tests.server.api_calls import until
from tests.server.server_process import ServerProcess, serving
from tests.server.stream_reader import Reader

# A terminal shows the events of the app: the engine cannot matter.
pytestmark = pytest.mark.engines("sqlite")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where everything happens, with an agent beside it."""
    return with_bot(tmp_path)


@contextmanager
def a_server(folder: Path, place: Place, *arguments: str) -> Iterator[ServerProcess]:
    with serving(folder, "--db", str(place), "--agent", "bot:agent", "--token-file", "token", *arguments) as served:
        yield served


@contextmanager
def a_chat(folder: Path, served: ServerProcess, *arguments: str) -> Iterator[Terminal]:
    with chatting(folder, "--server", served.url, "--token", served.token, *arguments) as shown:
        yield shown


def session_of(shown: Terminal) -> str:
    return str(re.findall(r"ses_[0-9a-z]{26}", shown.screen.text)[-1])


def numbers(seen: str) -> list[int]:
    return [int(number) for number in re.findall(r"number (\d+)\.", seen)]


# --- in step --------------------------------------------------------------------------------------------------------


def test_a_chat_and_a_raw_stream_of_one_session_see_the_same_events(folder: Path, place: Place) -> None:
    with a_server(folder, place) as served, a_chat(folder, served) as shown, served.client() as client:
        session = session_of(shown)
        with Reader(served.port, served.token, f"sessions={session}") as reader:
            shown.enter("from the terminal")
            heard = reader.until("event", kind="turn_ended")
            client.post(f"/api/sessions/{session}/turns", json={"text": "from elsewhere"}).raise_for_status()
            heard += reader.until("event", kind="turn_ended")
            seen = shown.wait_for("You said 'from elsewhere'.")

    said = "".join(frame.data["body"]["text"] for frame in heard if frame.data["body"]["kind"] == "text_delta")
    assert said == "You said 'from the terminal'.You said 'from elsewhere'."
    assert re.findall(r"^(?:› from|You said).*$", seen, re.MULTILINE) == [
        "› from the terminal",
        "You said 'from the terminal'.",
        "› from elsewhere",
        "You said 'from elsewhere'.",
    ]


def test_a_chat_with_the_database_and_one_with_its_server_stay_in_step(folder: Path, place: Place) -> None:
    with a_server(folder, place) as served, a_chat(folder, served) as there:
        session = session_of(there)
        with chatting(folder, *with_database(place), "--session", session) as here:
            here.enter("count 3")
            there.wait_for("number 2.")
            there.enter("hang 1")
            here.wait_for("and now")
            # A turn of the server is cancelled from the other terminal, and both show it.
            here.control_c()
            there.wait_for("✗ cancelled")
            here.wait_for("✗ cancelled")
            there.enter("/title Tea")
            here.wait_for("title: Tea")

            shown_at = [shown.wait_for("title: Tea") for shown in (here, there)]
    assert [numbers(seen) for seen in shown_at] == [[0, 1, 2, 0], [0, 1, 2, 0]]


def test_ctrl_c_cancels_the_running_turn_of_any_sender_again_and_again(folder: Path, place: Place) -> None:
    with a_server(folder, place) as served, a_chat(folder, served) as shown, served.client() as client:
        shown.enter("hang 1")
        shown.wait_for("and now")
        shown.control_c()
        shown.wait_for("✗ cancelled")
        client.post(f"/api/sessions/{session_of(shown)}/turns", json={"text": "hang 2"}).raise_for_status()
        shown.wait_until(lambda seen: seen.count("and now") == 2 and "Ctrl-C cancels" in seen)
        shown.control_c()

        shown.wait_until(lambda seen: seen.count("✗ cancelled") == 2)
        assert shown.process.poll() is None


# --- the server dies ------------------------------------------------------------------------------------------------


@pytest.mark.engines("sqlite", "postgres")
def test_a_chat_whose_server_is_killed_and_restarted_shows_each_event_once(folder: Path, place: Place) -> None:
    with a_server(folder, place) as first, a_chat(folder, first) as shown:
        session = session_of(shown)
        shown.enter("count 5")
        shown.wait_for("number 4.")
        shown.enter("hang 10")
        shown.wait_for("and now")
        first.kill()
        shown.wait_for("reconnecting")
        # A message that is sent while the server is down is repeated until it is accepted.
        shown.enter("count 3")
        let_leases_lapse(place, first.pid)
        with a_server(folder, place, "--port", str(first.port)) as second, second.client() as client:
            shown.wait_for("✗ interrupted")
            client.post(f"/api/sessions/{session}/turns", json={"text": "from elsewhere"}).raise_for_status()
            shown.wait_for("You said 'from elsewhere'.")
            seen = shown.wait_until(lambda seen: len(numbers(seen)) >= 18 and "Ctrl-C cancels" not in seen)
            page = client.get(f"/api/sessions/{session}/events", params={"limit": 1000}).json()

    assert numbers(seen) == [*range(5), *range(10), *range(3)]
    assert (seen.count("› count 3"), seen.count("› from elsewhere"), seen.count("✗ interrupted")) == (1, 1, 1)
    # The message that was sent while the server was down was accepted once.
    started = [event["body"]["message"]["parts"][0]["text"] for event in page["events"] if _starts(event)]
    assert sorted(started) == ["count 3", "count 5", "from elsewhere", "hang 10"]


def test_a_tool_that_may_have_run_on_a_killed_server_runs_again_if_a_person_allows(folder: Path, place: Place) -> None:
    payments, options = with_cashier(folder), ("--db", str(place), "--agent", "cashier:agent", "--token-file", "token")
    with serving(folder, *options) as first, a_chat(folder, first) as shown:
        shown.enter("pay 5")
        shown.wait_for("⚙ pay")
        until(lambda: payments.exists() and payments.read_text().endswith("\n"), "paid")
        first.kill()
        shown.wait_for("reconnecting")
        let_leases_lapse(place, first.pid)
        with serving(folder, *options, "--port", str(first.port)):
            shown.wait_for("/rerun allows it again")
            shown.enter("/rerun")
            shown.wait_for("pay may run once more")
            shown.wait_for("It is paid.")

    assert len(set(payments.read_text().split())) == 2


def _starts(event: dict[str, Any]) -> bool:
    return bool(event["body"]["kind"] == "turn_started")


def test_a_chat_that_saw_lost_events_reports_it_and_reads_again(folder: Path) -> None:
    path, copy = folder / "chat.db", folder / "copy.db"
    with a_server(folder, path) as first, a_chat(folder, first) as shown:
        session = session_of(shown)
        say(shown, "one")
        assert run_cli_in(folder, path, "backup", str(copy)).code == 0
        shown.enter("count 5")
        shown.wait_until(lambda seen: "number 4." in seen and "Ctrl-C cancels" not in seen)
        first.kill()
        shown.wait_for("reconnecting")
        # The operator goes back to the copy, and something else happens there.
        for end in ("-wal", "-shm"):
            path.with_name(path.name + end).unlink()
        copy.replace(path)
        assert run_cli_in(folder, path, "undo", session).code == 0
        with a_server(folder, path, "--port", str(first.port)):
            shown.wait_for("some of the events shown were lost; reading again")
            shown.wait_for("the last turn was undone")
            say(shown, "three")

    again = shown.screen.text.partition("reading again")[2]
    assert re.findall(r"^(?:› |You said|number|↶).*$", again, re.MULTILINE) == [
        "› one",
        "You said 'one'.",
        "↶ the last turn was undone",
        "› three",
        "You said 'three'.",
    ]
    assert words(path, session) == ["three", "You said 'three'."]


def test_a_stopped_server_closes_the_stream_and_the_chat_reconnects(folder: Path, place: Place) -> None:
    with a_server(folder, place) as first, a_chat(folder, first) as shown:
        shown.enter("one")
        shown.wait_for("You said 'one'.")
        assert first.terminate() == 0
        shown.wait_for("reconnecting")
        with a_server(folder, place, "--port", str(first.port)):
            shown.wait_for("reconnected")
            shown.enter("two")
            seen = shown.wait_for("You said 'two'.")

    assert seen.count("You said 'one'.") == 1


def test_a_chat_without_its_server_can_be_left(folder: Path, place: Place) -> None:
    with a_server(folder, place) as served, a_chat(folder, served) as shown:
        served.kill()
        shown.wait_for("reconnecting")
        shown.enter("is anybody there?")
        shown.wait_for("sending: is anybody there?")
        shown.control_c()
        shown.wait_for("again to exit")
        shown.control_c()

        assert shown.wait_for_end() == 0


def test_a_revoked_token_ends_the_chat_with_an_error(folder: Path, place: Place) -> None:
    with a_server(folder, place) as served, served.client() as client:
        given = client.post("/api/tokens", json={"name": "chat"}).json()
        with chatting(folder, "--server", served.url, "--token", given["secret"]) as shown:
            client.delete(f"/api/tokens/{given['token']['id']}").raise_for_status()
            shown.enter("hello")

            shown.wait_for("a token is required")


# --- commands -------------------------------------------------------------------------------------------------------


@pytest.fixture(params=["database", "server"])
def shown(request: pytest.FixtureRequest, folder: Path, place: Place) -> Iterator[Terminal]:
    """A chat by each of the two ways, on every engine."""
    if request.param == "database":
        with chatting(folder, *with_database(place)) as shown:
            yield shown
    else:
        with a_server(folder, place) as served, a_chat(folder, served) as shown:
            yield shown


def words(place: Place, session: str) -> list[str]:
    with open_store(place) as store:
        return [message.text for message in store.messages(SessionId(session), owner="local").messages]


def say(shown: Terminal, text: str) -> None:
    before = shown.screen.text.count(f"You said {text!r}.")
    shown.enter(text)
    shown.wait_until(lambda seen: seen.count(f"You said {text!r}.") > before and "Ctrl-C cancels" not in seen)


def obey(shown: Terminal, command: str, shown_at: str) -> str:
    """Enter a command, and wait until this text follows."""
    before = shown.screen.text.count(f"› {command}")
    shown.enter(command)
    seen = shown.wait_until(
        lambda seen: seen.count(f"› {command}") > before and shown_at in seen[seen.rindex(f"› {command}") :]
    )
    return seen[seen.rindex(f"› {command}") :]


def test_undo_redo_retry_and_edit_work_in_a_chat(shown: Terminal, place: Place, folder: Path) -> None:
    session = session_of(shown)
    say(shown, "one")
    say(shown, "two")

    obey(shown, "/undo", "was undone")
    assert words(place, session) == ["one", "You said 'one'."]
    obey(shown, "/redo", "was restored")
    assert words(place, session)[2:] == ["two", "You said 'two'."]
    obey(shown, "/retry", "You said 'two'.")
    shown.wait_until(lambda seen: "Ctrl-C cancels" not in seen)
    obey(shown, "/edit three", "You said 'three'.")
    shown.wait_until(lambda seen: "Ctrl-C cancels" not in seen)
    assert words(place, session)[2:] == ["three", "You said 'three'."]

    # The same tree as `backstay lineage` draws.
    tree = run_cli_in(folder, place, "lineage", session).out.split()
    assert obey(shown, "/lineage", "← now").split()[2 : 2 + len(tree)] == tree
    assert "└─" in tree


def test_the_last_message_can_be_edited_where_it_is_typed(shown: Terminal, place: Place) -> None:
    session = session_of(shown)
    say(shown, "helo")
    obey(shown, "/edit", "in place of your last message")
    shown.wait_until(lambda seen: seen.endswith("› helo"))
    shown.type("\x7f")
    shown.enter("lo")
    shown.wait_for("You said 'hello'.")
    say(shown, "more")

    assert words(place, session) == ["hello", "You said 'hello'.", "more", "You said 'more'."]


def test_a_chat_can_switch_to_another_session(shown: Terminal, place: Place, folder: Path) -> None:
    first = session_of(shown)
    say(shown, "apples")

    obey(shown, "/fork", "You said 'apples'.")
    fork = session_of(shown)
    say(shown, "pears")
    obey(shown, "/new Plums", "title: Plums")
    new = session_of(shown)
    say(shown, "plums")
    listed = obey(shown, "/resume", "/resume NUMBER")
    # As everywhere, the first letters of an id are enough.
    obey(shown, f"/resume {first[:-2]}", "You said 'apples'.")

    assert len({first, fork, new}) == 3
    assert words(place, fork) == ["apples", "You said 'apples'.", "pears", "You said 'pears'."]
    assert words(place, new) == ["plums", "You said 'plums'."]
    assert "Plums  ← here" in listed
    assert session_of(shown) == first
    found = obey(shown, "/search plums", "Plums")
    assert "plums" in found
    obey(shown, "/resume 1", "Plums")
    assert session_of(shown) == new
    # The next chat in this directory begins where this one was last.
    with open_store(place) as store:
        resolved = store.resolve(Address.workspace(folder, scope="main"), owner="local").session
    assert resolved.id == new


def test_titles_exports_and_help(shown: Terminal, place: Place, folder: Path) -> None:
    say(shown, "one")
    obey(shown, "/title", "it has no title")
    obey(shown, "/title A cup of tea", "title: A cup of tea")
    obey(shown, "/title", "A cup of tea")
    obey(shown, "/remind day 9:00: Tea?", "day 09:00")
    obey(shown, "/export out.jsonl", "written to out.jsonl")
    obey(shown, "/export out.md", "written to out.md")
    obey(shown, "/export html talk.page", "written to talk.page")
    obey(shown, "/compact", "›")
    assert "/lineage" in obey(shown, "/help", "/quit")
    shown.enter("/quit")

    assert shown.wait_for_end() == 0
    header = json.loads((folder / "out.jsonl").read_text().splitlines()[0])
    assert header["session"]["title"] == "A cup of tea"
    # The same as the output of `backstay export`.
    session = session_of(shown)
    assert (folder / "out.md").read_text() == run_cli_in(folder, place, "export", session, "--format", "markdown").out
    assert (folder / "talk.page").read_text() == run_cli_in(folder, place, "export", session, "--format", "html").out


@pytest.mark.parametrize("body", [b"<html>It works!</html>", b"{}", b"[]", b"\xff"])
def test_a_url_without_a_backstay_server_is_an_error_with_a_message(folder: Path, body: bytes) -> None:
    class Foreign(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.send_response(200)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_GET = do_POST  # noqa: N815  # the name that the library looks for

        def log_message(self, format: str, *args: object) -> None:
            """Say nothing."""

    with HTTPServer(("127.0.0.1", 0), Foreign) as foreign:
        threading.Thread(target=foreign.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{foreign.server_port}"
        shown_at = piped(folder, "--server", url, "--token", "bsk_x", said=b"hello\n")
        foreign.shutdown()

    assert shown_at.returncode == 1
    assert shown_at.stderr.decode().startswith("error: the server sent an invalid response")
    assert "Traceback" not in shown_at.stderr.decode()


def test_from_a_pipe_a_server_answers_line_by_line(folder: Path, place: Place) -> None:
    with a_server(folder, place) as served:
        arguments = ("--server", served.url, "--token-file", "token")
        shown_at = piped(folder, *arguments, said=b"one\n/title Tea\n/undo\n/bogus\nline\xe2\x80\xa8separator\n")

    text = shown_at.stdout.decode()
    assert shown_at.returncode == 0, shown_at.stderr
    order = [text.index(word) for word in ("You said 'one'.", "[title: Tea]", "was undone", "/bogus", "line�separator")]
    assert order == sorted(order)


def test_files_are_sent_with_the_next_message_through_a_server(folder: Path, place: Place) -> None:
    (folder / "tea.txt").write_text("green" * 100_000)
    (folder / "cup.txt").write_text("white")
    refused = b"/attach missing.txt\n/detach\n/attach tea.txt\n/detach\n"
    lines = refused + b"/attach cup.txt\nopen\nopen\n/attach tea.txt\nopen\n"

    with a_server(folder, place) as served:
        done = piped(folder, "--server", served.url, "--token", served.token, said=lines)

    shown = done.stdout.decode()
    assert "missing.txt cannot be read: No such file or directory" in shown
    assert "no file is attached" in shown
    assert re.findall(r"^(.*)All were read\.$", shown, re.MULTILINE) == [
        f"cup.txt: {zlib.crc32(b'white')}. ",
        "",
        f"tea.txt: {zlib.crc32(b'green' * 100_000)}. ",
    ]


def test_with_debug_a_chat_shows_the_traceback_of_the_servers_agent(folder: Path, place: Place) -> None:
    with a_server(folder, place, "--debug") as served, a_chat(folder, served) as shown:
        shown.enter("fail")
        shown.wait_until(lambda seen: "✗ failed" in seen and "ValueError: no" in seen and "bot.py" in seen)
