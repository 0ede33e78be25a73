"""`backstay chat --json`: input and output as JSON lines."""

import json
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from backstay.model.event import UNSEEN, Cursor
from backstay.model.ids import SessionId
from backstay.model.turn import Cancelled
from backstay.store import open_store
from tests.cli.chat.chat_process import piped, surroundings, with_bot, with_database
from tests.cli.forked_command import PATIENCE
from tests.databases import Place
from tests.server.server_process import COMMAND, serving

# A terminal shows the events of the app: the engine cannot matter.
pytestmark = pytest.mark.engines("sqlite")


@pytest.fixture(params=["database", "server"])
def way(request: pytest.FixtureRequest, tmp_path: Path, place: Place) -> Iterator[tuple[str, ...]]:
    """The options of a chat by each of the two ways, on every engine."""
    with_bot(tmp_path)
    if request.param == "database":
        yield with_database(place)
        return
    with serving(tmp_path, "--db", str(place), "--agent", "bot:agent", "--token-file", "token") as served:
        yield "--server", served.url, "--token", served.token


def lines(*orders: object) -> bytes:
    return b"".join(json.dumps(order).encode() + b"\n" for order in orders)


def events(out: bytes) -> list[dict[str, Any]]:
    """All output lines."""
    return [json.loads(line)["event"] for line in out.decode().split("\n")[:-1]]


def spoken(completed: list[dict[str, Any]]) -> str:
    return "".join(event["body"]["text"] for event in completed if event["body"]["kind"] == "text_delta")


def test_each_input_line_is_a_message_and_each_event_an_output_line(
    tmp_path: Path, place: Place, way: tuple[str, ...]
) -> None:
    said = lines({"text": "one"}, {"text": "two\nlines"}) + b"\n" + lines({"text": "/undo"})

    completed = piped(tmp_path, *way, "--json", said=said)

    assert (completed.returncode, completed.stderr) == (0, b"")
    heard = events(completed.stdout)
    assert spoken(heard) == "You said 'one'.You said 'two\\nlines'.You said '/undo'."
    session = SessionId(heard[0]["session"])
    with open_store(place) as store:
        stored = store.events_after(session, Cursor(fence=UNSEEN, number=heard[0]["number"] - 1), owner="local").events
        words = [message.text for message in store.messages(session, owner="local").messages]
    assert [event["number"] for event in heard] == [event.number for event in stored]
    assert words[::2] == ["one", "two\nlines", "/undo"]
    # Each message was answered before the next was sent.
    kinds = [event["body"]["kind"] for event in heard if event["body"]["kind"] in ("turn_started", "turn_ended")]
    assert kinds == ["turn_started", "turn_ended"] * 3


def test_the_exit_status_is_that_of_the_first_turn_that_did_not_complete(tmp_path: Path, way: tuple[str, ...]) -> None:
    completed = piped(tmp_path, *way, "--json", said=lines({"text": "one"}, {"text": "fail"}, {"text": "three"}))

    assert completed.returncode == 3
    # The traceback of an agent that runs here is on standard error; a server has it in its log.
    assert (b"ValueError" in completed.stderr) == ("--db" in way)
    assert spoken(events(completed.stdout)) == "You said 'one'.You said 'three'."


def test_empty_input_gives_empty_output(tmp_path: Path, place: Place) -> None:
    with_bot(tmp_path)

    completed = piped(tmp_path, *with_database(place), "--json", said=b"\n")

    assert (completed.returncode, completed.stdout, completed.stderr) == (0, b"", b"")


@pytest.mark.parametrize(
    "line",
    [
        b"hello",
        b"{}",
        b'{"text": "x", "session": "y"}',
        b'{"text": ""}',
        b'{"text": "\xff"}',
        b'{"call": "nothing asks", "approved": true}',
        b"[" * 100_000,
    ],
)
def test_an_invalid_line_ends_the_chat_with_a_problem_and_is_not_sent(tmp_path: Path, line: bytes) -> None:
    with_bot(tmp_path)
    path = tmp_path / "chat.db"

    completed = piped(tmp_path, *with_database(path), "--json", said=line + b"\n" + lines({"text": "more"}))

    problem = json.loads(completed.stderr)
    assert (completed.returncode, completed.stdout, problem["exit"]) == (1, b"", 1)
    assert problem["code"] in ("invalid_payload", "nothing_to_do")
    assert problem["title"]
    assert problem["hint"]
    with open_store(path) as store:
        assert store.list(owner="local").sessions[0].turns == 0


def test_an_error_of_the_server_keeps_its_code(tmp_path: Path) -> None:
    with serving(tmp_path, "--db", str(tmp_path / "chat.db"), "--token-file", "token") as served:

        def refused(*options: str) -> dict[str, Any]:
            completed = piped(tmp_path, "--server", served.url, "--json", *options, said=lines({"text": "hello"}))
            assert (completed.returncode, completed.stdout) == (1, b"")
            problem: dict[str, Any] = json.loads(completed.stderr)
            return problem

        known = ("--token", served.token)
        missing = refused(*known, "--session", "ses_01m7jmtwaeesha2x88v4ga0cnf")
        stranger = refused("--token", "bsk_nobody")
        with served.client() as client:
            ended = client.post("/api/sessions", json={}).json()["id"]
            client.post(f"/api/sessions/{ended}/end").raise_for_status()
        over = refused(*known, "--session", ended)

    assert [problem["code"] for problem in (missing, stranger, over)] == [
        "not_found",
        "unauthenticated",
        "session_ended",
    ]
    assert [problem["status"] for problem in (missing, stranger, over)] == [404, 401, 409]


# --- while it runs --------------------------------------------------------------------------------------------------


class Program:
    """A chat whose lines a program reads and writes one by one."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self.process = process

    def say(self, order: object) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(order) + "\n")
        self.process.stdin.flush()

    def until(self, fits: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """The next event of which this is true."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            event: dict[str, Any] = json.loads(line)["event"]
            if fits(event["body"]):
                return event
        raise AssertionError("it ended before")

    def end(self) -> int:
        """Close the input; return the exit status."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        return self.process.wait(PATIENCE)


@contextmanager
def a_program(folder: Path, *options: str) -> Iterator[Program]:
    process = subprocess.Popen(
        [COMMAND, "chat", "--json", *options],
        cwd=folder,
        env=surroundings(folder),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        yield Program(process)
    finally:
        process.kill()
        process.wait(PATIENCE)
        for stream in (process.stdin, process.stdout):
            assert stream is not None
            with suppress(BrokenPipeError):
                stream.close()


@pytest.mark.parametrize("approved", [True, False])
def test_a_program_decides_whether_a_tool_may_run(tmp_path: Path, place: Place, approved: bool) -> None:
    with a_program(tmp_path, "--db", str(place), "--agent", "scripted") as program:
        program.say({"text": "ask Shall I?"})
        asked = program.until(lambda body: body["kind"] == "tool_called")
        program.say({"call": asked["body"]["call"]["id"], "approved": approved})
        decided = program.until(lambda body: body["kind"] == "approval_decided")
        program.until(lambda body: body["kind"] == "turn_ended")
        program.say({"text": "calc 6*7"})
        program.until(lambda body: "42" in body.get("text", ""))

        assert program.end() == 0
    assert decided["body"]["approved"] is approved


def test_ctrl_c_cancels_the_running_turn_and_exits_with_130(tmp_path: Path, place: Place, way: tuple[str, ...]) -> None:
    with a_program(tmp_path, *way) as program:
        program.say({"text": "hang 1"})
        heard = program.until(lambda body: "and now" in body.get("text", ""))
        program.process.send_signal(signal.SIGINT)
        ended = program.until(lambda body: body["kind"] == "turn_ended")

        assert program.end() == 130
    assert ended["body"]["outcome"]["type"] == "cancelled"
    with open_store(place) as store:
        assert isinstance(store.turn(heard["turn"], owner="local").outcome, Cancelled)


def test_a_reader_that_closes_the_pipe_causes_no_error(tmp_path: Path, place: Place) -> None:
    with_bot(tmp_path)
    with a_program(tmp_path, *with_database(place)) as program:
        assert program.process.stdout is not None
        program.process.stdout.close()
        program.say({"text": "count 3"})

        assert program.process.wait(PATIENCE) == 141
