"""Conventions of all commands: help, messages instead of tracebacks, quiet pipes, harmless output."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from click import Context

from backstay import Address, BackstayError, open_store
from backstay.cli.main import commands
from backstay.cli.output.exit_status import Exit
from backstay.model import message
from backstay.model.content import Text, ToolCall, ToolResult
from backstay.server.http.problems import problem_of
from reference.cli import verbs
from tests.cli.installed_command import COMMAND, RunCli, environment, on_terminal, run_cli_in
from tests.cli.operator.database_damage import ME, a_store
from tests.cli.sample_agents import ESCAPES
from tests.databases import Place

REFERENCE = Path(__file__).parents[2] / "docs" / "reference" / "cli.md"
CHAT = "chat://telegram/dm/42"
# All characters that can control a terminal or mislead a reader.
HARMFUL = set(map(chr, [*range(0x09), 0x0B, 0x0C, *range(0x0E, 0x20), *range(0x7F, 0xA0), 0x202E]))


@pytest.fixture
def hostile(file: Path) -> str:
    """A session with control characters in every text."""
    with open_store(file) as store:
        address = Address.chat("matrix", "group", chat=ESCAPES.replace(" ", ""))
        session = store.resolve(address, owner=ME).session.id
        store.record(
            session,
            [
                message.user(ESCAPES),
                message.assistant([Text(ESCAPES), ToolCall("1", ESCAPES, {ESCAPES: ESCAPES})]),
                message.tool([ToolResult("1", ESCAPES, error=True)]),
            ],
            owner=ME,
        )
        store.rename(session, ESCAPES, owner=ME)
        store.tag(session, owner=ME, add=[ESCAPES])
        store.add_token(owner=ME, name=ESCAPES, hash=bytes(32))
    return session


@pytest.mark.parametrize(
    "command",
    [
        ("list",),
        ("show", "{}"),
        ("show", "{}", "--whole"),
        ("follow", "{}", "--once"),
        ("follow", "--once", "--after", "0"),
        ("search", "red"),
        ("lineage", "{}"),
        ("pin", "{}"),
        ("rename", "{}", "x\x1b[31m"),
        ("export", "{}"),
        ("export", "{}", "--format", "markdown"),
        ("export", "{}", "--format", "html"),
        ("tokens", "list"),
        ("delete", "{}"),
        ("show", "\x1b[31mnonsense"),
        ("doctor", "--quick"),
    ],
    ids=" ".join,
)
def test_stored_text_does_not_control_a_terminal(run_cli_file: RunCli, hostile: str, command: tuple[str, ...]) -> None:
    for arguments in (command, (*command, "--json")):
        answer = run_cli_file(*(word.format(hostile) for word in arguments))

        assert not HARMFUL & set(answer.out), arguments
        assert not HARMFUL & set(answer.err), arguments


def test_json_output_is_exact(run_cli_file: RunCli, hostile: str) -> None:
    shown = run_cli_file("show", hostile, "--json").json

    assert shown["session"]["title"] == ESCAPES
    assert shown["messages"][0]["parts"] == [{"type": "text", "text": ESCAPES}]


def test_on_a_terminal_only_our_own_colours_are_drawn(tmp_path: Path, file: Path, hostile: str) -> None:
    for command in (("list",), ("show", hostile), ("search", "red")):
        drawn = on_terminal(tmp_path, file, *command).out
        assert not HARMFUL & set(re.sub(r"\x1b\[[0-9;]*m", "", drawn)), command
        plain = on_terminal(tmp_path, file, *command, NO_COLOR="1").out
        assert "\x1b" not in plain, command


def test_every_command_has_help_with_examples_and_an_answer_for_machines(run_cli_file: RunCli) -> None:
    for name, command in verbs().items():
        assert command.help, name
        assert "Examples:" in (command.epilog or ""), name
        options = {option for one in command.params for option in one.opts}
        assert "--json" in options, name
    for name in ("", "send", "doctor", "tokens", "tokens add"):
        shown = run_cli_file(*name.split(), "--help")
        assert (shown.code, shown.err) == (0, "")
        assert "Examples:" in shown.out
        # The description of a command is not cut, also in the list of all commands.
        assert not [line for line in shown.out.splitlines()[1:] if line.endswith("...")]


def test_the_list_of_commands_has_the_first_sentence_of_each(run_cli_file: RunCli) -> None:
    listed = run_cli_file("--help", COLUMNS="200").out

    for name in commands.list_commands(Context(commands)):
        command = commands.get_command(Context(commands), name)
        assert command is not None
        assert f" {name} {command.get_short_help_str(limit=300)}" in " ".join(listed.split())


def loaded_by(file: Path, *arguments: str) -> set[str]:
    """The modules that a command loads."""
    program = (
        "import sys; from backstay.cli import main\ntry: main.main()\nfinally: print(*sys.modules, file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments], env=environment(file.parent, file), capture_output=True, check=True
    )
    return set(done.stderr.decode().split())


def test_help_loads_nothing_that_the_list_of_sessions_does_not_need(file: Path) -> None:
    a_store(file, sessions=1)

    assert {
        name for name in loaded_by(file, "--help") - loaded_by(file, "list") if name.startswith("backstay")
    } == set()


def test_the_reference_names_every_exit_status() -> None:
    statuses = {int(code) for code in re.findall(r"^\| (\d+) \|", REFERENCE.read_text(), re.MULTILINE)}

    assert statuses == {int(status) for status in Exit}


@pytest.mark.parametrize(
    "arguments", [("nonsense",), ("list", "--limit", "0"), ("show",), ("export", "x", "--format", "pdf")]
)
def test_wrong_usage_exits_with_2(run_cli_file: RunCli, arguments: tuple[str, ...]) -> None:
    answer = run_cli_file(*arguments)

    assert (answer.code, answer.out) == (2, "")


@pytest.mark.parametrize(
    ("arguments", "code", "exit"),
    [
        (("nonsense",), "usage", 2),
        (("list", "--limit", "0"), "usage", 2),
        (("tokens", "revoke"), "usage", 2),
        (("rename", "x\udcff"), "usage", 2),
        (("list",), "store_unavailable", 1),
        (("show", "x", "--config", "no-such-file"), "config_error", 1),
        (("import", "no-such-file"), "invalid_payload", 1),
        (("send", "--address", "nonsense", "hello"), "invalid_address", 1),
    ],
)
def test_with_json_an_error_is_one_object_on_standard_error(
    run_cli_file: RunCli, file: Path, arguments: tuple[str, ...], code: str, exit: int
) -> None:
    answer = run_cli_file(*arguments, "--json")

    problem = json.loads(answer.err)
    assert (answer.code, answer.out, problem["exit"], problem["code"]) == (exit, "", exit, code)
    assert problem["title"]
    assert "hint" in problem
    assert not file.exists()


def test_unknown_variables_with_our_prefix_are_named_with_the_nearest_setting(run_cli_file: RunCli) -> None:
    unknown = {"BACKSTAY_PROT": "9000", "BACKSTAY_SERVICE_HOST": "10.0.0.1", "BACKSTAY_TOKEN": "x"}
    shown, as_json = run_cli_file("config", **unknown), run_cli_file("config", "--json", **unknown)

    assert shown.code == 0
    assert shown.err.splitlines() == [
        "warning: BACKSTAY_PROT is not a setting; did you mean BACKSTAY_PORT?",
        "warning: BACKSTAY_SERVICE_HOST is not a setting",
    ]
    assert (as_json.err, as_json.json["unknown"]) == ("", ["BACKSTAY_PROT", "BACKSTAY_SERVICE_HOST"])


def test_an_error_has_the_same_text_as_json_as_text_and_over_http(run_cli_file: RunCli, file: Path) -> None:
    session, *_ = a_store(file, sessions=1)
    with open_store(file) as store:
        store.end(session, owner=ME)
        with pytest.raises(BackstayError) as refused:
            store.rename(session, "Tea", owner=ME)
    problem = msgspec.to_builtins(problem_of(refused.value))

    for_machines = run_cli_file("rename", session, "Tea", "--json")
    for_people = run_cli_file("rename", session, "Tea")

    assert json.loads(for_machines.err) == problem | {"exit": 1}
    assert for_people.err == f"error: {problem['title']}\nhint: {problem['hint']}\n"


# Runs many commands in one process, as `main` would each: starting is what takes time. Serving has no end.
ALL = """
import contextlib, io, json, sys
from backstay.cli.main import main

for arguments in json.load(sys.stdin):
    sys.argv = ["backstay", *arguments, "--json"]
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            main()
        except SystemExit as ended:
            code = ended.code
    print(json.dumps([code, out.getvalue(), err.getvalue()]))
"""


def test_with_json_every_command_writes_json_and_nothing_else(tmp_path: Path, file: Path) -> None:
    first, second, *_ = a_store(file, sessions=2)
    commands = [
        ["agents"], ["list"], ["show", first], ["follow", first, "--once"], ["search", "hello"], ["lineage", first],
        ["waiting", first], ["at", "2090-01-01 9:00", "--address", CHAT, "tea?"], ["schedules", "show", "sch_"],
        ["schedules", "pause", "sch_"], ["schedules", "resume", "sch_"], ["schedules", "run", "sch_"],
        ["schedules", "delete", "sch_"], ["every", "day 9:00", "tea?"], ["schedules", "list"],
        ["undo", first], ["redo", first], ["fork", first], ["rename", first, "Tea"], ["pin", first], ["unpin", first],
        ["archive", first], ["unarchive", first], ["tag", first, "x"], ["export", first, "-o", "a.json"],
        ["export", first], ["export", first, "--format", "markdown"], ["export", first, "--format", "html"],
        ["import", "a.json"], ["release", first], ["end", second], ["delete", second, "--yes"], ["backup", "copy.db"],
        ["vacuum"], ["vacuum", "--apply"], ["retain", "--closed-for", "1"], ["retain", "--fold-after", "0", "--apply"],
        ["migrate"], ["restore", "copy.db", "--db", "new.db"],
        ["move", "copy.db", "elsewhere.db"], ["doctor"], ["doctor", "--rescue", "saved"],
        ["tokens", "add", "robot"], ["tokens", "list"], ["webhooks", "list"], ["webhooks", "secret"], ["link"],
        ["completion", "bash"], ["config"], ["gateway", "list"],
        ["send", "--session", first, "hello"], ["retry", first], ["edit", first, "other"], ["chat", "--session", first],
    ]  # fmt: skip
    done = subprocess.run(
        [sys.executable, "-c", ALL],
        cwd=tmp_path,
        env=environment(tmp_path, file, BACKSTAY_AGENT="scripted"),
        input=json.dumps(commands),
        capture_output=True,
        text=True,
        check=True,
    )

    answers = [json.loads(line) for line in done.stdout.splitlines()]
    for command, (code, out, err) in zip(commands, answers, strict=True):
        assert (code, err) == (0, ""), command
        values = [json.loads(line) for line in out.splitlines()]
        assert all(isinstance(value, dict) for value in values), command
        assert len(values) == 1 or command[0] in ("follow", "chat", "export"), command
    grouped = ("tokens", "schedules", "webhooks", "gateway")
    shown = {" ".join(command[:2]) if command[0] in grouped else command[0] for command in commands}
    # The others need a turn that runs or was cut off, or a question: see the tests of these commands.
    others = {"serve", "tokens revoke", "approve", "cancel", "compact", "deny", "resume", "schedules skip"}
    others |= {"webhooks failed", "webhooks retry", "webhooks test"}
    others |= {f"gateway {verb}" for verb in ("telegram", "doctor", "pair", "invite", "remove")}
    assert set(verbs()) == shown | others


def test_reading_commands_do_not_create_a_store(run_cli_file: RunCli, file: Path) -> None:
    for command in (
        ["list"],
        ["show", "x"],
        ["search", "x"],
        ["follow"],
        ["undo", "x"],
        ["tokens", "list"],
        ["migrate"],
    ):
        answer = run_cli_file(*command)
        assert (answer.code, "there is no store" in answer.err) == (1, True), command
    assert not file.parent.exists()


def test_an_unreachable_server_is_an_error_with_a_message(tmp_path: Path) -> None:
    answer = run_cli_in(tmp_path, "postgresql://nobody@127.0.0.1:1/nothing?connect_timeout=2", "list")

    assert (answer.code, answer.err.startswith("error: ")) == (1, True)


def test_a_closed_output_pipe_causes_no_error(tmp_path: Path, file: Path) -> None:
    a_store(file, sessions=1, turns=4)
    with open_store(file) as store:
        session = store.list(owner=ME).sessions[0].id
        for _ in range(20):
            store.record(session, [message.user("x" * 20_000)], owner=ME)
    process = subprocess.Popen(
        [str(COMMAND), "show", session],
        env=environment(tmp_path, file),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.readline()
    process.stdout.close()

    assert process.stderr.read() == b""
    assert process.wait(60) == 141
    process.stderr.close()


@pytest.mark.parametrize("arguments", [["list"], ["list", "--json"], ["--help"], ["chat"]])
def test_unwritable_output_is_an_error_with_a_message(tmp_path: Path, file: Path, arguments: list[str]) -> None:
    a_store(file, sessions=1)
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            [COMMAND, *arguments],
            cwd=tmp_path,
            env=environment(tmp_path, file, BACKSTAY_AGENT="scripted"),
            stdin=subprocess.DEVNULL,
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )

    assert done.returncode == 1
    assert "standard output cannot be written: No space left on device" in done.stderr
    assert len(done.stderr.splitlines()) == (1 if "--json" in arguments else 2)


@pytest.mark.parametrize(
    ("command", "code"), [("list", 0), ("show no-such-session", 1), ("doctor --quick", 0), ("send", 1)]
)
def test_a_command_works_without_any_stream(tmp_path: Path, file: Path, command: str, code: int) -> None:
    a_store(file, sessions=1)

    def run_closed(closed: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            ["sh", "-c", f"exec {COMMAND} {command} {closed}"],
            env=environment(tmp_path, file),
            capture_output=True,
            text=True,
            check=False,
        )

    assert run_closed("<&- >&- 2>&-").returncode == code
    without_output = run_closed("<&- >&-")
    assert (without_output.returncode, "Traceback" in without_output.stderr) == (code, False)


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_shell_gets_its_script(tmp_path: Path, shell: str) -> None:
    script = run_cli_in(tmp_path, None, "completion", shell)

    assert (script.code, "_BACKSTAY_COMPLETE" in script.out) == (0, True)


def test_a_shell_completes_commands_and_session_ids(tmp_path: Path, place: Place) -> None:
    sessions = a_store(place, sessions=2)

    def completed(words: str) -> list[str]:
        result = run_cli_in(
            tmp_path,
            place,
            _BACKSTAY_COMPLETE="bash_complete",
            COMP_WORDS=words,
            COMP_CWORD=str(len(words.split(" ")) - 1),
        )
        return [line.split(",")[1] for line in result.lines if line]

    assert "doctor" in completed("backstay do")
    assert set(completed("backstay show ses_")) == set(sessions)
    assert completed(f"backstay show {sessions[0][:-1]}") == [sessions[0]]
    assert completed("backstay show --db /no/such/file ses_") == []


def test_a_list_loads_nothing_heavy(tmp_path: Path, file: Path) -> None:
    a_store(file, sessions=1)
    observer = (
        "import sys, json; sys.argv = ['backstay', 'list']\n"
        "from backstay.cli.main import main\n"
        "try: main()\n"
        "except SystemExit: print(json.dumps(sorted(sys.modules)), file=sys.stderr)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", observer],
        env=environment(tmp_path, file) | {"PATH": os.environ["PATH"]},
        capture_output=True,
        text=True,
        check=True,
    )
    modules = set(json.loads(done.stderr))
    loaded = {name.partition(".")[0] for name in modules}

    assert not loaded & {"starlette", "uvicorn", "httpx", "httpx2", "h11", "rich", "psycopg", "prompt_toolkit", "anyio"}
    assert not modules & {
        "asyncio",
        "backstay.runtime",
        "backstay.agents",
        "backstay.cli.commands.send_command",
        "backstay.cli.operator.doctor",
    }
