"""Tools of MCP servers: the SDK's own server in a child process, over its pipes and over HTTP."""

import logging
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import pytest
from mcp.types import ToolAnnotations

import backstay
from backstay.agents import OpenAICompatible, ToolServer, mcp
from backstay.agents.selection.agent_specs import parse_agent_specs
from backstay.agents.tool_servers.remote_tool import MOST_TOOLS, is_idempotent, remote_tools
from backstay.agents.tool_servers.tool_servers import ToolServers
from backstay.config import Settings
from backstay.errors import ConfigError
from backstay.model.content import ToolResult
from backstay.model.turn import Completed, ToolCallRecord
from tests.agents.provider.dialects import DIALECTS, OPENAI, Dialect, Wish
from tests.agents.provider.fake_provider import FakeProvider, Play
from tests.databases import Place
from tests.server.api_calls import until

PROGRAM = Path(__file__).with_name("mcp_program.py")
pytestmark = pytest.mark.engines("sqlite")

each = pytest.mark.parametrize("dialect", DIALECTS, ids=lambda dialect: dialect.name)


@pytest.fixture
def path(place: Place) -> Place:
    return place


def program(folder: Path, **options: Any) -> ToolServer:
    options = {"approval": "allow"} | options
    return mcp([sys.executable, str(PROGRAM), str(folder)], **options)


@contextmanager
def listening(folder: Path, *more: str) -> Iterator[str]:
    """The program as an HTTP server; its URL."""
    command = [sys.executable, str(PROGRAM), str(folder), "http", *more]
    process = subprocess.Popen(command)
    try:
        until((folder / "port").exists, "it listens")
        yield f"http://127.0.0.1:{(folder / 'port').read_text()}/mcp"
    finally:
        process.kill()
        process.wait()
        (folder / "port").unlink(missing_ok=True)


def effects(folder: Path) -> list[str]:
    return (folder / "effects").read_text().splitlines() if (folder / "effects").exists() else []


def running(folder: Path) -> list[int]:
    """The processes of the server that still run."""
    pids = [int(line.split()[1]) for line in effects(folder) if line.startswith("started")]
    return [pid for pid in pids if Path(f"/proc/{pid}").exists() and "Z" not in Path(f"/proc/{pid}/stat").read_text()]


class Answered:
    """What came of a turn: the requests to the model, the results that it read, and the ledger."""

    def __init__(self, results: list[ToolResult], calls: tuple[ToolCallRecord, ...], offered: list[str]) -> None:
        self.results, self.calls, self.offered = results, calls, offered

    @property
    def outputs(self) -> list[Any]:
        return [result.output for result in self.results]


@contextmanager
def reached_over(over: str, folder: Path, **options: Any) -> Iterator[ToolServer]:
    """The program, reached over its pipes or over HTTP, with answers as streams or as JSON."""
    if over == "pipes":
        yield program(folder, **options)
        return
    with listening(folder, *(["json"] if over == "json" else [])) as url:
        yield mcp(url, approval="allow", **options)


@asynccontextmanager
async def asking(
    path: Place, server: ToolServer, *plays: Play, dialect: Dialect = OPENAI, **more: Any
) -> AsyncIterator[tuple[backstay.App, FakeProvider]]:
    async with FakeProvider(*plays) as provider:
        agent = dialect.agent(provider, tools=[server], **more)
        async with backstay.open(path, agent=agent) as app:
            yield app, provider


def steps(dialect: Dialect, *wishes: Wish) -> list[Play]:
    """The model asks for these calls, one after the other, then answers."""
    return [*(dialect.calls("", wish) for wish in wishes), dialect.answers("Done.")]


async def answered(path: Place, server: ToolServer, *wishes: Wish, dialect: Dialect = OPENAI) -> Answered:
    async with asking(path, server, *steps(dialect, *wishes), dialect=dialect) as (app, provider):
        session = await app.session()
        turn = await session.send("go")
        assert await turn.outcome() == Completed()
        parts = [part for message in await session.messages() for part in message.parts]
        names = [name for name in ("add", "pay", "picture", "lie") if f'"{name}"' in provider.requests[0].raw.decode()]
        return Answered([part for part in parts if isinstance(part, ToolResult)], await turn.calls(), names)


# --- declarations -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("target", "options", "message"),
    [
        ("", {}, "not an MCP server"),
        ("npx 'unclosed", {}, "is not valid"),
        ("http://example.org/mcp", {}, "unencrypted"),
        ("https://me:secret@example.org/mcp", {}, "password"),
        ("https://:99999/", {}, "MCP server"),
        ("npx tools", {"token_variable": "TOKEN"}, "token_variable"),
        ("npx tools", {"approval": "perhaps"}, "approval"),
        ("npx tools", {"prefix": "a b"}, "prefix"),
        ("npx tools", {"call_seconds": 0}, "not positive"),
    ],
)
def test_a_declaration_that_is_not_valid_is_refused(target: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        mcp(target, **options)
    assert "secret" not in str(caught.value)


def test_a_token_variable_that_is_not_set_is_refused_when_the_agent_is_made() -> None:
    server = mcp("https://example.org/mcp#NO_SUCH_TOKEN")

    assert (server.url, server.token_variable) == ("https://example.org/mcp", "NO_SUCH_TOKEN")
    with pytest.raises(ConfigError, match="NO_SUCH_TOKEN"):
        OpenAICompatible("http://127.0.0.1:1/v1", "tiny", tools=[server])


@pytest.mark.parametrize(
    ("hints", "idempotent"),
    [
        (None, False),
        (ToolAnnotations(), False),
        (ToolAnnotations(read_only_hint=True), True),
        (ToolAnnotations(idempotent_hint=True), True),
        (ToolAnnotations(destructive_hint=False), False),
        (ToolAnnotations(read_only_hint=True, destructive_hint=True), False),
        (ToolAnnotations(idempotent_hint=True, destructive_hint=True), False),
    ],
)
def test_only_a_tool_that_is_declared_harmless_may_run_twice(hints: ToolAnnotations | None, idempotent: bool) -> None:
    assert is_idempotent(hints) is idempotent


# --- calls ------------------------------------------------------------------------------------------------------------


@each
async def test_a_model_calls_the_tools_of_a_program(path: Place, tmp_path: Path, dialect: Dialect) -> None:
    done = await answered(path, program(tmp_path), Wish("call_0", "add", {"x": 2, "y": 3}), dialect=dialect)

    assert done.offered == ["add", "pay", "picture", "lie"]
    assert done.outputs == [{"result": 5}]
    assert [(call.name, call.effect) for call in done.calls] == [("add", "returned")]
    until(lambda: running(tmp_path) == [], "no process is left")


@pytest.mark.parametrize("form", [(), ("json",)], ids=["stream", "json"])
async def test_a_model_calls_the_tools_of_a_url(path: Place, tmp_path: Path, form: tuple[str, ...]) -> None:
    with listening(tmp_path, *form) as url:
        done = await answered(path, mcp(url, approval="allow"), Wish("call_0", "add", {"x": 2}))

    assert done.outputs == [{"result": 3}]


@pytest.mark.parametrize("dialect", DIALECTS, ids=lambda dialect: dialect.name)
async def test_servers_in_the_settings_serve_the_agent_of_a_url(path: Place, tmp_path: Path, dialect: Dialect) -> None:
    settings = Settings(agent_tools=(f"{sys.executable} {PROGRAM} {tmp_path}",), agent_permission="deny")
    async with FakeProvider(*steps(dialect, Wish("c", "add", {"x": 4}))) as provider:
        url = {
            "openai": provider.base_url,
            "anthropic": "anthropic+" + provider.base_url.removesuffix("/v1"),
            "gemini": "gemini+" + provider.base_url + "beta",
        }[dialect.name]
        agents = parse_agent_specs([f"{url}#tiny"], settings)
        async with backstay.open(path, agents=agents) as app:
            session = await app.session()
            assert await (await session.send("add")).outcome() == Completed()
            parts = [part for message in await session.messages() for part in message.parts]
    assert [part.output for part in parts if isinstance(part, ToolResult)] == [{"result": 5}]
    assert '"pay"' not in provider.requests[0].raw.decode()


async def test_an_image_of_a_result_becomes_a_file(path: Place, tmp_path: Path) -> None:
    async with asking(path, program(tmp_path), *steps(OPENAI, Wish("c", "picture", {}))) as (app, _):
        session = await app.session()
        assert await (await session.send("show me")).outcome() == Completed()
        (result,) = (
            part for message in await session.messages() for part in message.parts if isinstance(part, ToolResult)
        )
        (file,) = result.files
        assert (file.media_type, file.name) == ("image/png", "picture-1.png")
        assert (await session.download(file)).startswith(b"\x89PNG")


async def test_a_call_that_is_not_read_only_waits_for_a_person(path: Place, tmp_path: Path) -> None:
    wishes = Wish("c0", "add", {"x": 1}), Wish("c1", "pay", {"amount": 5})
    async with asking(path, program(tmp_path, approval="ask"), *steps(OPENAI, *wishes)) as (app, _):
        turn = await (await app.session()).send("pay")
        async for event in turn.events():
            if event.body.__struct_config__.tag == "tool_called" and event.body.call.name == "pay":  # type: ignore[union-attr]
                break
        (added, asked) = await turn.calls()
        assert (added.approval, asked.approval, effects(tmp_path)[1:]) == ("none", "asked", [])
        await turn.approve(asked.call)
        assert await turn.outcome() == Completed()
    assert effects(tmp_path)[1:] == ["paid 5"]


async def test_with_deny_only_read_only_tools_are_offered(path: Place, tmp_path: Path) -> None:
    done = await answered(path, program(tmp_path, approval="deny"), Wish("c", "pay", {"amount": 5}))

    assert done.offered == ["add", "picture"]
    assert "there is no tool 'pay'" in str(done.outputs)
    assert effects(tmp_path)[1:] == []


async def test_a_program_gets_no_secret_of_ours(path: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENAI_API_KEY", "BACKSTAY_DB", "PASSED_ON"):
        monkeypatch.setenv(name, "value")
    server = program(tmp_path, env={"GIVEN": "1"}, pass_environment=["PASSED_ON"])

    (output,) = (await answered(path, server, Wish("c", "look", {}))).outputs

    names = output["result"].split()
    assert {"GIVEN", "PASSED_ON", "PATH"} <= set(names)
    assert not {"OPENAI_API_KEY", "BACKSTAY_DB"} & set(names)


async def test_a_token_is_sent_and_never_logged(
    path: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("BOOKS_TOKEN", "the-secret-token")
    caplog.set_level(logging.DEBUG)
    with listening(tmp_path) as url:
        server = mcp(f"{url}#BOOKS_TOKEN", approval="allow")
        await answered(path, server, Wish("c", "add", {"x": 2}))

    assert (tmp_path / "token").read_text() == "Bearer the-secret-token"
    assert "the-secret-token" not in caplog.text + repr(server)


# --- servers that misbehave -------------------------------------------------------------------------------------------


async def test_a_server_that_dies_costs_its_call_and_is_started_again(path: Place, tmp_path: Path) -> None:
    wishes = Wish("c0", "die", {"amount": 5}), Wish("c1", "die", {"amount": 5}), Wish("c2", "add", {"x": 1})
    done = await answered(path, program(tmp_path), *wishes)

    assert [line for line in effects(tmp_path) if line.startswith("died")] == ["died 5"]
    assert done.outputs[-1] == {"result": 2}
    assert [(call.name, call.effect) for call in done.calls] == [("die", "unknown"), ("add", "returned")]
    assert len([line for line in effects(tmp_path) if line.startswith("started")]) == 2
    until(lambda: running(tmp_path) == [], "no process is left")


async def test_a_server_that_was_killed_between_two_turns_is_started_again(path: Place, tmp_path: Path) -> None:
    plays = [*steps(OPENAI, Wish("c", "add", {"x": 1})), *steps(OPENAI, Wish("c", "add", {"x": 2}))]
    async with asking(path, program(tmp_path), *plays) as (app, _):
        session = await app.session()
        assert await (await session.send("one")).outcome() == Completed()
        (pid,) = running(tmp_path)
        os.kill(pid, signal.SIGKILL)
        assert await (await session.send("two")).outcome() == Completed()
        assert "'result': 3" in str(await session.messages())


async def test_a_url_that_was_restarted_is_connected_again(path: Place, tmp_path: Path) -> None:
    with listening(tmp_path) as url:
        port = url.partition("127.0.0.1:")[2].partition("/")[0]
        plays = [*steps(OPENAI, Wish("c", "add", {"x": 1})), OPENAI.answers("Nobody there.")]
        async with asking(path, mcp(url), *plays) as (app, provider):
            session = await app.session()
            assert await (await session.send("one")).outcome() == Completed()
            for pid in running(tmp_path):
                os.kill(pid, signal.SIGKILL)
            assert await (await session.send("two")).outcome() == Completed()
            # The tools of a server that is away are still offered: their calls fail, not the turn.
            assert '"add"' in provider.requests[-1].raw.decode()
    assert port


async def test_only_the_log_names_the_host_of_a_url(
    path: Place, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with listening(tmp_path) as url:
        plays = [*steps(OPENAI, Wish("c0", "add", {"x": 1})), *steps(OPENAI, Wish("c1", "add", {"x": 2}))]
        async with asking(path, mcp(url, approval="allow"), *plays) as (app, _):
            session = await app.session()
            assert await (await session.send("one")).outcome() == Completed()
            for pid in running(tmp_path):
                os.kill(pid, signal.SIGKILL)
            assert await (await session.send("two")).outcome() == Completed()
            said = str(await session.messages())

    host = url.partition("//")[2].partition("/")[0]
    assert "an MCP server cannot be used" in said
    assert host not in said
    assert host in [getattr(record, "server", "") for record in caplog.records]


@pytest.mark.parametrize("over", ["pipes", "http"])
async def test_a_server_that_does_not_answer_costs_its_call(path: Place, tmp_path: Path, over: str) -> None:
    with reached_over(over, tmp_path, call_seconds=1.0) as server:
        done = await answered(path, server, Wish("c0", "hang", {}), Wish("c1", "add", {"x": 1}))

    assert done.outputs[-1] == {"result": 2}
    assert [(call.name, call.effect) for call in done.calls] == [("hang", "unknown"), ("add", "returned")]


@pytest.mark.parametrize("over", ["pipes", "http", "json"])
@pytest.mark.parametrize("size", [20_000, 3_000_000])
async def test_a_result_that_is_too_long_costs_its_call(path: Place, tmp_path: Path, over: str, size: int) -> None:
    with reached_over(over, tmp_path, result_bytes=10_000) as server:
        done = await answered(path, server, Wish("c0", "flood", {"size": size}), Wish("c1", "add", {"x": 1}))

    assert done.results[0].error
    assert len(str(done.outputs[0])) < 1_000
    assert done.outputs[-1] == {"result": 2}


async def test_an_error_of_a_tool_is_read_by_the_model(path: Place, tmp_path: Path) -> None:
    done = await answered(
        path, program(tmp_path), Wish("c0", "fail", {"reason": "no ink"}), Wish("c1", "add", {"x": "?"})
    )

    assert [result.error for result in done.results] == [True, True]
    assert "no ink" in str(done.outputs[0])


NOISE = 'import sys\nfor line in sys.stdin:\n    print(\'{"jsonrpc": "2.0", "id": 0, "result": 7}\', flush=True)\n'
BROKEN: dict[str, list[str]] = {
    "no such program": ["no-such-program-here"],
    "ends at once": [sys.executable, "-c", "raise SystemExit(3)"],
    "not a message": [sys.executable, "-c", "print('hello'); input(); input()"],
    "lies": [sys.executable, "-c", NOISE],
    "silent": [sys.executable, "-c", "import time; time.sleep(1000)"],
    "endless": [sys.executable, "-c", "import sys\nwhile True: sys.stdout.write('x' * 65536)"],
}


@pytest.mark.parametrize("command", BROKEN.values(), ids=BROKEN.keys())
async def test_a_server_that_cannot_be_used_costs_its_tools_and_not_the_turn(path: Place, command: list[str]) -> None:
    server = mcp(command, start_seconds=2.0, result_bytes=100_000)
    async with asking(path, server, OPENAI.answers("I have no tools.")) as (app, provider):
        assert await (await (await app.session()).send("go")).outcome() == Completed()
        assert "tools" not in provider.requests[0].body


CHATTY = """
import json, sys, threading
lock = threading.Lock()
def write(**message):
    with lock: print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)
def chat():
    while True: write(method="notifications/message", params={"level": "info", "data": "x" * 1000})
for line in sys.stdin:
    asked = json.loads(line)
    version, tool = asked.get("params", {}).get("protocolVersion"), {"name": "add", "inputSchema": {"type": "object"}}
    results = {
        "initialize": {"protocolVersion": version, "capabilities": {}, "serverInfo": {"name": "x", "version": "1"}},
        "tools/list": {"tools": [tool]},
        "tools/call": {"content": [{"type": "text", "text": "added"}]},
    }
    if asked.get("method") in results:
        write(id=asked["id"], result=results[asked["method"]])
    if asked.get("method") == "tools/list":
        threading.Thread(target=chat, daemon=True).start()
"""


async def test_a_server_that_never_stops_writing_is_closed_without_a_remark(
    path: Place, caplog: pytest.LogCaptureFixture
) -> None:
    server = mcp([sys.executable, "-c", CHATTY], approval="allow")

    done = await answered(path, server, Wish("c0", "add", {}), Wish("c1", "add", {}))

    assert done.outputs == ["added", "added"]
    assert [record.message for record in caplog.records if record.levelno >= logging.WARNING] == []


async def test_a_url_that_leads_to_another_host_is_not_followed(path: Place, tmp_path: Path) -> None:
    with listening(tmp_path) as url:
        (tmp_path / "elsewhere").write_text(url.replace("127.0.0.1", "localhost"))
        server = mcp(url.replace("/mcp", "/elsewhere"), start_seconds=5.0)
        async with asking(path, server, OPENAI.answers("I have no tools.")) as (app, provider):
            assert await (await (await app.session()).send("go")).outcome() == Completed()
            assert "tools" not in provider.requests[0].body


def offered(count: int, **more: Any) -> list[Any]:
    from mcp.types import Tool  # noqa: PLC0415  # a test of this value only

    return [Tool(name=f"t{number}", input_schema={"type": "object"}, **more) for number in range(count)]


async def _never(name: str, arguments: Any, idempotent: bool) -> object:
    raise AssertionError


def test_the_number_and_size_of_definitions_are_limited() -> None:
    server = mcp("tools", prefix="books.".replace(".", "_"), approval="allow")
    long = offered(1)[0].model_copy(update={"name": "long", "input_schema": {"type": "object", "x": "y" * 100_000}})
    list_schema = offered(1)[0].model_copy(update={"name": "array", "input_schema": {"type": "array"}})
    dotted = offered(1)[0].model_copy(update={"name": "a.b/c", "description": "d" * 10_000})

    found = remote_tools(server, [long, list_schema, dotted, dotted, *offered(500)], _never)
    otherwise = remote_tools(server, [*reversed(offered(500)), dotted, long], _never)

    assert len(found) == MOST_TOOLS
    # The prompt begins with the definitions: a server that lists them in another order does not change it.
    assert [one.tool.name for one in otherwise] == [one.tool.name for one in found]
    assert [one.tool.name for one in found[:2]] == ["books_a_b_c", "books_t0"]
    assert len(found[0].tool.description) < 5_000


# --- ownership --------------------------------------------------------------------------------------------------------


async def test_one_connection_serves_all_turns_and_ends_with_the_app(path: Place, tmp_path: Path) -> None:
    plays = [*steps(OPENAI, Wish("c", "pid", {})), *steps(OPENAI, Wish("c", "pid", {}))]
    async with asking(path, program(tmp_path), *plays) as (app, _):
        for _turn in range(2):
            assert await (await (await app.session()).send("who are you?")).outcome() == Completed()
        assert len(running(tmp_path)) == 1
    assert len(effects(tmp_path)) == 1
    until(lambda: running(tmp_path) == [], "no process is left")


async def test_closing_servers_that_were_never_used_starts_nothing(tmp_path: Path) -> None:
    await ToolServers([program(tmp_path)]).aclose()

    assert effects(tmp_path) == []


def test_a_program_ends_when_our_process_is_killed(tmp_path: Path) -> None:
    script = (
        "import asyncio, sys\n"
        "from backstay.agents import mcp\n"
        "from backstay.agents.tool_servers.tool_servers import ToolServers\n"
        "async def main():\n"
        f"    await ToolServers([mcp({[sys.executable, str(PROGRAM), str(tmp_path)]!r})]).tools()\n"
        "    print('open', flush=True)\n"
        "    await asyncio.Event().wait()\n"
        "asyncio.run(main())\n"
    )
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE) as ours:
        assert ours.stdout is not None
        assert ours.stdout.readline() == b"open\n"
        assert len(running(tmp_path)) == 1
        ours.kill()
    until(lambda: running(tmp_path) == [], "no process is left")
