"""`backstay serve` and `backstay`: one line names the agent, and a browser is opened for a local user."""

import json
import os
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

import httpx2
import pytest

from tests.cli.installed_command import run_cli_in
from tests.cli.terminal import Terminal, terminal
from tests.server.agents import AGENTS
from tests.server.api_calls import answered, new_session, read, text_of, until
from tests.server.running_server import run_server
from tests.server.server_process import COMMAND, HERE, serving

PATIENCE = 120.0
SECRET = "sk-nobody-may-see-this"


def surroundings(home: Path, **more: str) -> dict[str, str]:
    """An environment without named or installed agents, except those of the test."""
    return {"HOME": str(home), "PATH": "/usr/bin:/bin", "BACKSTAY_PROBE": ""} | more


def run(home: Path, *arguments: str, **more: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [COMMAND, *arguments],
        cwd=home,
        env=surroundings(home, **more),
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )


def stop(shown: Terminal, *, after: str = "") -> None:
    """Press Ctrl-C once it serves, and once this can be read."""
    found = re.search(r"serving +(\S+)", shown.wait_for("workers"))
    assert found
    assert httpx2.get(f"{found[1]}healthz", trust_env=False, timeout=PATIENCE).status_code == 200
    shown.wait_for(after)
    shown.control_c()
    assert shown.wait_for_end() == 0


@pytest.fixture
def ollama() -> Iterator[str]:
    """A process that serves a list of models on a free port; its address."""
    program = (
        "import http.server\n"
        "class Models(http.server.BaseHTTPRequestHandler):\n"
        "    def do_GET(self):\n"
        '        body = b\'{"data": [{"id": "llama3.2"}]}\'\n'
        "        self.send_response(200)\n"
        "        self.send_header('content-length', str(len(body)))\n"
        "        self.end_headers()\n"
        "        self.wfile.write(body)\n"
        "    def log_message(self, *about): pass\n"
        "server = http.server.HTTPServer(('127.0.0.1', 0), Models)\n"
        "print(server.server_port, flush=True)\n"
        "server.serve_forever()\n"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        yield f"http://127.0.0.1:{process.stdout.readline().strip()}/v1"
        process.kill()


# --- who answers ----------------------------------------------------------------------------------------------------


def test_agents_lists_every_choice_and_the_findings(tmp_path: Path, ollama: str) -> None:
    probe = f"Ollama={ollama}"
    result = run(tmp_path, "agents", BACKSTAY_PROBE=probe, BACKSTAY_PROBE_SECONDS="30", OPENROUTER_API_KEY=SECRET)
    selection = json.loads(run(tmp_path, "agents", "--json", BACKSTAY_PROBE=probe, BACKSTAY_PROBE_SECONDS="30").stdout)

    assert "openrouter/auto of OpenRouter answers" in result.stdout
    assert f"Ollama at {ollama}: llama3.2" in result.stdout
    assert SECRET not in result.stdout + result.stderr
    assert selection["agent"] == [f"{ollama}#llama3.2"]
    assert [choice["name"] for choice in selection["choices"] if choice["chosen"]] == ["local"]


def test_agents_offers_an_installed_agent_and_does_not_run_it(tmp_path: Path) -> None:
    (tmp_path / "hermes-acp").write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\n")
    (tmp_path / "hermes-acp").chmod(0o700)

    result = run(tmp_path, "agents", PATH=f"{tmp_path}:/usr/bin:/bin")

    assert "hermes-acp" in result.stdout
    assert "never started automatically" in result.stdout
    assert result.stdout.startswith("The scripted agent answers")
    assert not (tmp_path / "ran").exists()


def test_an_invalid_provider_location_is_an_error_with_a_message(tmp_path: Path) -> None:
    result = run(tmp_path, "agents", BACKSTAY_PROBE="nonsense")

    assert result.returncode == 1
    assert result.stderr.startswith("error: 'nonsense' is not the address of a model server")


def test_serve_names_the_agent_and_the_reason_in_one_line_without_the_key(tmp_path: Path) -> None:
    environment = surroundings(tmp_path, OPENAI_API_KEY=SECRET, OPENAI_MODEL="gpt-x", BACKSTAY_AGENT="")
    with terminal([COMMAND, "serve", "--port", "0", "--db", "chat.db"], cwd=tmp_path, environment=environment) as shown:
        shown.wait_for("sign in")
        first = shown.wait_for("workers").splitlines()[0]

        assert first == "gpt-x of OpenAI answers: OPENAI_API_KEY is set."
        assert SECRET.encode() not in shown.raw
        stop(shown)


def test_the_log_is_for_people_on_a_terminal_and_for_programs_anywhere_else(tmp_path: Path) -> None:
    environment = surroundings(tmp_path)
    with terminal([COMMAND, "serve", "--port", "0", "--db", "chat.db"], cwd=tmp_path, environment=environment) as shown:
        stop(shown, after="info    request operation=")
    with serving(tmp_path, "--db", "chat.db") as served, served.client() as client:
        assert client.get("/healthz").status_code == 200
        until(lambda: "request" in [line["event"] for line in served.log()], "the request is in the log")
        assert served.terminate() == 0

    assert b'"event"' not in shown.raw


def test_the_log_of_a_server_has_the_traceback_of_an_agents_exception(tmp_path: Path) -> None:
    agent = ("--agent", "default=tests.cli.sample_agents:failing")
    with serving(tmp_path, "--db", "chat.db", *agent, environment=HERE) as served, served.client() as client:
        session = new_session(client)
        turn = answered(client, session, "hello")
        ended = client.get(f"/api/turns/{turn}").json()["outcome"]
        assert served.terminate() == 0

    assert ended == {
        "type": "failed",
        "reason": f"the agent raised RuntimeError (turn {turn}; the log has the traceback)",
        "code": "agent_raised",
    }
    (line,) = [line for line in served.log() if "no more words" in line.get("error", "")]
    assert (line["level"], line["session"], line["turn"], line["agent"]) == ("error", session, turn, "default")
    assert "Traceback" in line["error"]


def test_every_worker_has_the_agent_that_was_found(tmp_path: Path, ollama: str) -> None:
    environment = {"BACKSTAY_PROBE": f"Ollama={ollama}", "BACKSTAY_PROBE_SECONDS": "30", "BACKSTAY_AGENT": ""}
    with serving(tmp_path, "--db", "chat.db", "--workers", "2", environment=environment) as served:
        assert served.announced["why"] == f"llama3.2 answers: Ollama serves it at {ollama}."
        with served.client() as client:
            assert f"Ollama serves it at {ollama}" in client.get("/api/about").text


@pytest.mark.parametrize("arguments", [["--json"], [], ["--json", "--open"]], ids=["json", "lines", "with a browser"])
def test_a_link_that_signs_in_is_shown_on_a_terminal_only(
    tmp_path: Path, browser: socket.socket, arguments: list[str]
) -> None:
    command = [str(COMMAND), "serve", "--port", "0", "--db", "chat.db", *arguments]
    environment = surroundings(tmp_path, BROWSER=str(tmp_path / "browser"), BACKSTAY_AGENT="scripted")
    with subprocess.Popen(
        command, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as piped:
        assert piped.stdout is not None
        if "--open" in arguments:
            assert "/login#bsk_" in visited(browser)
        shown = next(line for line in piped.stdout if "127.0.0.1" in line)
        piped.terminate()
        shown += piped.stdout.read()
    with terminal(command[:-1] if "--open" in arguments else command, cwd=tmp_path, environment=environment) as seen:
        on_a_terminal = seen.wait_for("workers")
        seen.control_c()

    assert "bsk_" not in shown
    assert "bsk_" in on_a_terminal
    assert "backstay link" in shown or "--json" in arguments


# --- opening the web UI ---------------------------------------------------------------------------------------------


@pytest.fixture
def browser(tmp_path: Path) -> Iterator[socket.socket]:
    """A browser that sends its URL to this socket; it is `browser` in the test's folder."""
    with socket.create_server(("127.0.0.1", 0)) as result:
        result.settimeout(PATIENCE)
        port = result.getsockname()[1]
        program = tmp_path / "browser"
        program.write_text(
            f"#!{sys.executable}\nimport socket, sys\n"
            f"with socket.create_connection(('127.0.0.1', {port})) as line: line.sendall(sys.argv[1].encode())\n"
        )
        program.chmod(0o700)
        yield result


def visited(result: socket.socket) -> str:
    line, _ = result.accept()
    with line:
        line.settimeout(PATIENCE)
        return b"".join(iter(lambda: line.recv(4_096), b"")).decode()


@pytest.mark.parametrize("command", [[], ["serve"]], ids=["backstay", "backstay serve"])
def test_the_browser_is_opened_with_a_sign_in_link(tmp_path: Path, browser: socket.socket, command: list[str]) -> None:
    environment = surroundings(
        tmp_path, DISPLAY=":9", BROWSER=str(tmp_path / "browser"), BACKSTAY_PORT="0", BACKSTAY_DB="chat.db"
    )
    with terminal([COMMAND, *command], cwd=tmp_path, environment=environment, columns=200) as shown:
        page = visited(browser)

        assert "/login#bsk_" in page
        assert shown.wait_for("workers").startswith("The scripted agent answers: ")
        url, _, code = page.partition("login#")
        with httpx2.Client(base_url=url, trust_env=False, verify=False, timeout=PATIENCE) as client:
            assert client.post("/api/login", json={"code": code}).status_code == 204
            assert client.get("/").status_code == 200


@pytest.mark.parametrize(
    ("arguments", "more"),
    [(["--no-open"], {"DISPLAY": ":9"}), ([], {})],
    ids=["no-open", "no display"],
)
def test_no_browser_is_opened_without_a_display_or_with_no_open(
    tmp_path: Path, browser: socket.socket, arguments: list[str], more: dict[str, str]
) -> None:
    environment = surroundings(tmp_path, BROWSER=str(tmp_path / "browser"), **more)
    command = [str(COMMAND), "serve", "--port", "0", "--db", "chat.db", *arguments]
    with terminal(command, cwd=tmp_path, environment=environment) as shown:
        stop(shown)

    browser.setblocking(False)
    with pytest.raises(BlockingIOError):
        browser.accept()


def test_no_browser_is_opened_from_a_script(tmp_path: Path, browser: socket.socket) -> None:
    more = {"DISPLAY": ":9", "BROWSER": str(tmp_path / "browser")}
    with serving(tmp_path, "--db", "chat.db", environment=os.environ | more) as served:
        with served.client() as client:
            assert client.get("/readyz").status_code == 200
        assert served.terminate() == 0

    browser.setblocking(False)
    with pytest.raises(BlockingIOError):
        browser.accept()


# --- the page -------------------------------------------------------------------------------------------------------


class Links(HTMLParser):
    """The references of a page, and whether it has executable content."""

    def __init__(self) -> None:
        super().__init__()
        self.links: list[str] = []
        self.scripts = 0

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.links += [value for name, value in attributes if name in ("href", "src") and value]
        self.scripts += tag == "script" or any(name.startswith("on") or name == "style" for name, _ in attributes)


def test_an_unauthenticated_visitor_sees_only_how_to_sign_in(tmp_path: Path) -> None:
    with run_server(tmp_path / "chat.db", AGENTS) as server, server.client_with(None) as stranger:
        answer = stranger.get("/")

        assert answer.status_code == 401
        assert answer.headers["content-type"] == "text/html; charset=utf-8"
        assert "backstay link" in answer.text
        assert not any(name in answer.text for name in [*AGENTS, "SQLite", "/api/"])
        page = Links()
        page.feed(answer.text)
        assert page.scripts == 0
        assert {link: stranger.get(link).status_code for link in page.links} == {"/static/sign_in.css": 200}


@pytest.mark.parametrize(
    "more",
    [
        ["--host", "0.0.0.0", "--allowed-host", "chat.example.org"],
        ["--https"],
        ["--allowed-host", "chat.example.org"],
        ["--allowed-host", "localhost", "--allowed-host", "chat.example.org:443"],
    ],
)
def test_debug_is_refused_on_a_server_that_others_can_reach(tmp_path: Path, more: list[str]) -> None:
    refused = run_cli_in(tmp_path, tmp_path / "chat.db", "serve", "--debug", *more)

    assert (refused.code, "debug is on" in refused.err) == (1, True)
    assert not (tmp_path / "chat.db").exists()


BOT = "from backstay import Text\n\nasync def agent(turn):\n    yield Text({!r})\n"


def test_a_server_with_reload_answers_with_the_agent_as_it_was_last_written(tmp_path: Path) -> None:
    bot = tmp_path / "bot.py"
    bot.write_text(BOT.format("one"))
    options = ("--db", str(tmp_path / "chat.db"), "--agent", "bot:agent", "--reload")
    with serving(tmp_path, *options) as served, served.client() as client:

        def answer() -> str:
            try:
                session = new_session(client)
                answered(client, session, "hello")
                return text_of(read(client, session)[-1])
            except (httpx2.HTTPError, AssertionError):
                return "cut off by a restart"

        assert answer() == "one"
        bot.write_text(BOT.format("two"))
        until(lambda: answer() == "two", "the agent was loaded again")
        bot.write_text("this is not Python")
        until(lambda: "worker cannot serve" in (tmp_path / "server.log").read_text(), "it could not be loaded")
        bot.write_text(BOT.format("three"))
        until(lambda: answer() == "three", "the agent was loaded again")
        assert served.terminate() == 0
