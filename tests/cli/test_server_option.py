"""Every command about sessions works on a server as it does on a database."""

import json
import socket
import socketserver
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import httpx2
import pytest

from backstay import open_store
from backstay.cli.main import commands
from backstay.model import message
from tests.cli.forked_command import PATIENCE
from tests.cli.installed_command import CommandResult, run_cli_in, running
from tests.server.agents import AGENTS
from tests.server.running_server import RunningServer, run_server

pytestmark = pytest.mark.engines("sqlite")

# For the operator of a database or of a server, on its machine.
OF_A_DATABASE = {
    "serve",
    "agents",
    "backup",
    "restore",
    "vacuum",
    "retain",
    "migrate",
    "move",
    "doctor",
    "webhooks",
    "gateway",
    "completion",
    "config",
}
# Each command with its arguments, and a part of its output. {} is a session with two turns, {copy} a document of it.
COMMANDS: dict[str, tuple[tuple[str, ...], str]] = {
    "chat": (("--session", "{}"), ""),
    "send": (("--session", "{}", "hello"), "hello"),
    "list": ((), "{}"),
    "show": (("{}", "--last", "1"), "re: two"),
    "follow": (("{}", "--once"), "turn_recorded"),
    "search": (("two",), "two"),
    "lineage": (("{}",), "began"),
    "waiting": (("{asking}",), "`backstay approve {asking}`"),
    "cancel": (("{busy}",), "cancelled"),
    "compact": (("{}", "--keep", "100000"), "was not compacted"),
    "resume": (("{}",), "was not interrupted"),
    "approve": (("{asking}",), "launched to the moon"),
    "deny": (("{asking}", "--no-wait"), "trn_"),
    "undo": (("{}",), "2 messages now"),
    "redo": (("{undone}",), "4 messages now"),
    "retry": (("{busy}", "--no-wait"), "cannot retry while"),
    "edit": (("{}", "--no-wait", "--agent", "default", "three"), "{}"),
    "fork": (("{}",), "ses_"),
    "rename": (("{}", "Plans"), "Plans"),
    "pin": (("{}",), "pinned {}"),
    "unpin": (("{}",), "unpinned {}"),
    "archive": (("{}",), "archived {}"),
    "unarchive": (("{}",), "unarchived {}"),
    "tag": (("{}", "work"), "tagged {}"),
    "end": (("{}",), "ended {}"),
    "delete": (("{}", "--yes"), "deleted {}"),
    "export": (("{}", "--format", "markdown"), "re: two"),
    "import": (("{copy}",), "ses_"),
    "release": (("{}",), ""),
    "at": (("2090-01-01 9:00", "--session", "{}", "tea?"), "sch_"),
    "every": (("day 9:00 UTC", "--session", "{}", "--json", "tea?"), '"to":"{}"'),
    "tokens": (("list",), "NAME"),
    "link": ((), "/login#"),
    "schedules": (("list", "--json"), '{"schedules":[]}'),
}
FAILING = {"compact", "resume", "retry"}


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """One server for the table; each command has sessions of its own."""
    with run_server(tmp_path_factory.mktemp("server") / "chat.db", AGENTS) as server:
        yield server


def far(folder: Path, server: RunningServer, *arguments: str) -> CommandResult:
    """Run a command with this server and no database in reach."""
    return run_cli_in(folder, None, *arguments, "--server", server.url, BACKSTAY_TOKEN=server.token(), stdin=b"")


def prepared(server: RunningServer, folder: Path, words: str) -> dict[str, str]:
    """The sessions that the arguments of a command name."""
    names: dict[str, str] = {}
    with server.client() as client, open_store(server.place) as store:
        one = store.create(owner=server.owner).id
        for text in ("one", "two"):
            store.record(one, [message.user(text), message.assistant(f"re: {text}")], owner=server.owner)
        names[""] = one
        if "{undone}" in words:
            store.undo(one, owner=server.owner)
            names["undone"] = one
        for name, agent in (("busy", "patient"), ("asking", "careful")):
            if f"{{{name}}}" in words:
                made = client.post("/api/sessions", json={}).json()["id"]
                turn = client.post(f"/api/sessions/{made}/turns", json={"text": "go", "agent": agent}).json()["id"]
                kind = "tool_called" if name == "asking" else "text_delta"
                _wait_for(client, made, kind, turn)
                names[name] = made
    if "{copy}" in words:
        with (folder / "copy.jsonl").open("wb") as file, open_store(server.place) as store:
            store.export_to(one, file, owner=server.owner)
        names["copy"] = str(folder / "copy.jsonl")
    return names


def _wait_for(client: object, session: str, kind: str, turn: str) -> None:
    """Follow the session until the turn has an event of this kind."""
    assert isinstance(client, httpx2.Client)
    with client.stream("GET", "/api/events", params={"sessions": session}) as response:
        for line in response.iter_lines():
            if line.startswith("data: ") and json.loads(line[6:]).get("body", {}).get("kind") == kind:
                return


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_does_the_same_on_a_server(shared: RunningServer, tmp_path: Path, command: str) -> None:
    server = shared.for_somebody_new()
    arguments, expected = COMMANDS[command]
    names = prepared(server, tmp_path, " ".join(arguments))

    def filled(text: str) -> str:
        for name, value in names.items():
            text = text.replace(f"{{{name}}}", value)
        return text

    answer = far(tmp_path, server, command, *map(filled, arguments))

    assert answer.code == (1 if command in FAILING else 0), answer.err
    assert filled(expected) in answer.out + answer.err
    if {"busy", "asking"} & names.keys() and command != "cancel":
        for name in ("busy", "asking"):
            if name in names:
                far(tmp_path, server, "end", names[name])


def test_every_command_works_on_a_server_or_is_for_the_operator_of_a_database() -> None:
    assert set(COMMANDS) | OF_A_DATABASE == set(commands.list_commands(None))  # type: ignore[arg-type]  # not used
    assert set(COMMANDS) & OF_A_DATABASE == set()


def test_a_server_is_not_combined_with_a_database_or_an_owner(shared: RunningServer, tmp_path: Path) -> None:
    for option in (("--db", "x.db"), ("--owner", "me")):
        answer = far(tmp_path, shared, "list", *option)
        assert (answer.code, "--server excludes" in answer.err) == (2, True)


@pytest.mark.parametrize("shorten", [lambda _: "last", lambda _: "1", lambda session: session[-8:]])
def test_a_session_of_a_server_has_the_short_names_too(
    shared: RunningServer, tmp_path: Path, shorten: Callable[[str], str]
) -> None:
    server = shared.for_somebody_new()
    session = prepared(server, tmp_path, "")[""]

    for command in (("show", shorten(session)), ("chat", "--session", shorten(session))):
        answer = far(tmp_path, server, *command, "--json")
        assert answer.code == 0, answer.err
    assert far(tmp_path, server, "show", shorten(session), "--json").json["session"]["id"] == session
    assert far(tmp_path, server, "show", "zzzzzzzz").code == 1


def test_tokens_of_a_server_are_created_listed_and_revoked_for_the_owner_of_a_token(
    shared: RunningServer, tmp_path: Path
) -> None:
    server = shared.for_somebody_new()
    owner = server.owner

    made = far(tmp_path, server, "tokens", "add", "robot", "--read-only", "--expires-in", "1h", "--json").json
    listed = far(tmp_path, server, "tokens", "list", "--json").json["tokens"]
    assert (made["token"]["owner"], made["token"]["access"]) == (server.owner, "read")
    assert made["token"] in listed
    assert {token["owner"] for token in listed} == {server.owner}
    stranger = server.for_somebody_new()
    assert far(tmp_path, stranger, "tokens", "revoke", made["token"]["id"]).code == 1
    server.owner = owner
    header = {"authorization": f"Bearer {made['secret']}"}
    assert httpx2.get(f"{server.url}/api/me", headers=header).status_code == 200

    assert far(tmp_path, server, "tokens", "revoke", "robot").code == 0
    assert httpx2.get(f"{server.url}/api/me", headers=header).status_code == 401
    assert far(tmp_path, server, "tokens", "list", "--owner", "anna").code == 2


def test_show_prints_turns_outcomes_and_calls_that_may_have_run(shared: RunningServer, tmp_path: Path) -> None:
    server = shared.for_somebody_new()
    asking = prepared(server, tmp_path, "{asking}")["asking"]
    shown = far(tmp_path, server, "show", asking, "--json").json
    assert [turn["state"] for turn in shown["turns"]] == ["running"]
    assert "waits for approval" in far(tmp_path, server, "show", asking).out
    assert far(tmp_path, server, "cancel", asking).code == 0
    after = far(tmp_path, server, "show", asking, "--json").json
    assert [turn["outcome"]["type"] for turn in after["turns"]] == ["cancelled"]
    ended = far(tmp_path, server, "show", asking).out
    assert "The last turn was cancelled" in ended
    assert "waits for approval" not in ended

    failed = far(tmp_path, server, "send", "--agent", "scripted", "--json", "fail no luck").json["session"]
    assert "The last turn failed: " in far(tmp_path, server, "show", failed).out


class Holder(socketserver.ThreadingTCPServer):
    """A proxy before this port. It holds requests that would start a turn, and says so."""

    daemon_threads = True

    def __init__(self, port: int) -> None:
        self.port, self.held = port, threading.Event()
        super().__init__(("127.0.0.1", 0), HeldConnection)


class HeldConnection(socketserver.BaseRequestHandler):
    """One connection of a client; its bytes go to the server until one of them would start a turn."""

    server: Holder

    def handle(self) -> None:
        with socket.create_connection(("127.0.0.1", self.server.port)) as upwards:
            threading.Thread(target=_copy, args=(upwards, self.request), daemon=True).start()
            while data := self.request.recv(65_536):
                if b"/turns" in data.split(b"\r\n", 1)[0]:
                    self.server.held.set()
                    continue
                upwards.sendall(data)


def _copy(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(65_536):
            target.sendall(data)


def test_a_sender_that_is_killed_before_its_message_arrives_leaves_no_session(
    shared: RunningServer, tmp_path: Path
) -> None:
    server = shared.for_somebody_new()
    with Holder(server.port) as proxy:
        serving = threading.Thread(target=proxy.serve_forever, daemon=True)
        serving.start()
        arguments = ("send", "hello", "--server", f"http://127.0.0.1:{proxy.server_address[1]}")
        with running(tmp_path, None, *arguments, BACKSTAY_TOKEN=server.token()) as process:
            assert proxy.held.wait(PATIENCE)
            process.kill()
            process.wait(PATIENCE)
        proxy.shutdown()
        serving.join(PATIENCE)

    with server.client() as client:
        assert client.get("/api/sessions").json()["sessions"] == []
