"""The documentation is executed: examples run, displayed facts match the program, links lead to files."""

import configparser
import re
import runpy
import shlex
import shutil
import signal
import subprocess
import sys
import tomllib
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing
from pathlib import Path

import psycopg
import pytest
from psycopg.sql import SQL, Identifier

import backstay
from backstay import Address, open_store
from backstay.config import Settings, choose
from backstay.model import message
from reference import PAGES as REFERENCE
from reference.cli import verbs
from tests.cli.installed_command import COMMAND
from tests.documentation.code_blocks import PAGES, ROOT, Block, Command, blocks, named
from tests.documentation.page_shell import PageShell
from tests.documentation.telegram_reader import telegram_reader
from tests.postgres_servers.postgres import Postgres

_DATABASE = re.compile(r"environ\[\"(\w+_URL)\"\]")
_LINK = re.compile(r"\]\(([^)#:]+)(?:#[^)]*)?\)")
_SPOKEN = re.compile(r"`(backstay(?: [^`]*)?)`")
_DIRECTIVE = re.compile(r"^ *(\w+) ([^;{]+)[;{ ]*$", re.MULTILINE)

# Blocks that a test below checks without running them: pictures, and files of other programs or of ours.
_LOOKED_AT = {"text": "", "nginx": ""}
_FILES = {"backstay.service", "backstay.toml", "hooks.toml", "postgresql.conf", "push.toml", "telegram.toml"}
# All blocks that are never run. Add one only if it cannot be run.
NOT_RUN = {
    ("README.md", "make test"),
    ("CONTRIBUTING.md", "make test"),
    ("CONTRIBUTING.md", "make check"),
    ("CONTRIBUTING.md", "make test TESTS=tests/test_package.py"),
    ("CONTRIBUTING.md", "make test TESTS=tests 'ARGS=-x -k wheel'"),
    ("docs/quickstart.md", "pip install backstay"),
    ("docs/howto/deploy.md", "nginx"),
    ("docs/howto/deploy.md", "podman build -t backstay ."),
    ("docs/howto/deploy.md", "podman compose up --detach"),
    ("docs/howto/deploy.md", "podman compose exec server backstay link"),
    ("docs/howto/deploy.md", "pip install ."),
    ("docs/howto/deploy.md", "pipx install ."),
    ("docs/howto/deploy.md", "uv tool install ."),
    ("docs/howto/agents.md", "pip install 'backstay[acp]'"),
    ("docs/howto/agents.md", "pip install 'backstay[mcp]'"),
    ("docs/howto/notifications.md", "pip install 'backstay[push]'"),
    ("docs/howto/agents.md", "backstay chat --agent acp:gemini"),
    ("docs/howto/agents.md", "backstay send --workspace . --agent 'acp:/opt/agent --flag' '…'"),
    ("docs/howto/telegram.md", "pip install 'backstay[telegram]'"),
    ("docs/howto/telegram.md", "backstay gateway telegram --token-file bot-token --allow-user 123456789"),
    ("docs/howto/agents.md", "backstay serve --agent acp:claude --agent-directory '~/project'"),
}


def pages_with(language: str) -> list[Path]:
    return [page for page in PAGES if any(block.language == language and not block.file for block in blocks(page))]


def program_files(page: Path) -> dict[str, str]:
    """The Python files of a page. Blocks with the same name are one file."""
    files: dict[str, str] = {}
    for block in blocks(page):
        if block.language == "python" and block.file:
            files[block.file] = files.get(block.file, "") + block.text
    return files


# Files of the other pages would stand beside nothing that runs.
RUN = {*pages_with("python"), *pages_with("sh")}


# --- executed blocks ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("page", pages_with("python"), ids=named)
def test_every_example_of_a_page_runs_from_top_to_bottom(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    monkeypatch.chdir(tmp_path)
    for url in _DATABASE.findall(page.read_text()):
        monkeypatch.setenv(url, request.getfixturevalue("new_database")())
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("BACKSTAY_AGENT", "scripted")  # other agents on this machine are not found
    space: dict[str, object] = {"__name__": "__main__"}
    for name, text in program_files(page).items():
        (tmp_path / name).write_text(text)

    for example in blocks(page):
        if example.language == "python" and not example.file:
            code = compile("\n" * example.line + example.text, named(page), "exec")
            exec(code, space)  # the documentation is ours

    assert "__builtins__" in space


@pytest.mark.parametrize("page", pages_with("sh"), ids=named)
def test_each_command_of_a_page_succeeds(page: Path, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    names = {"/var/lib/backstay": str(tmp_path)}
    if "postgresql://localhost/backstay" in page.read_text():
        names["postgresql://localhost/backstay"] = request.getfixturevalue("new_database")()
    with PageShell(tmp_path, names) as shell, telegram_reader(page, shell) as reader:
        # Readers of a how-to already have a session.
        if page.parent.name == "howto":
            shell.names["ses_01kb…"] = a_conversation(shell.home)
        for name, text in program_files(page).items():
            shell.put(name, text)
        for block in blocks(page):
            if block.language == "toml":
                shell.put(block.file, block.text)
            if block.language == "sh":
                for command in filter(block.runs, block.commands):
                    if reader is not None:
                        reader.read(command)
                    shell.run(command)
        if reader is not None:
            reader.finish()


def a_conversation(home: Path) -> str:
    with open_store(home / ".local" / "share" / "backstay" / "backstay.db") as store:
        session = store.resolve(Address.chat("telegram", "dm", chat="42"), owner="local").session.id
        store.record(session, [message.user("keep this"), message.assistant("I will.")], owner="local")
    return session


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_each_code_block_is_run_or_checked_or_has_a_reason(page: Path) -> None:
    for block in blocks(page):
        is_run = block.language in ("python", "sh") and not block.file
        is_placed = block.language == "python" and block.file.endswith(".py") and page in RUN
        is_seen = _LOOKED_AT.get(block.language) == block.file or block.file in _FILES or is_placed

        assert is_run or is_seen, f"{block.place}: nobody knows what to do with {block.language!r} {block.file!r}"
        assert block.language == "sh" or not block.left_out, f"{block.place}: the mark names commands"
        spelled = {shlex.join(command.words) for command in block.commands} if block.language == "sh" else set()
        assert set(block.left_out) <= spelled, f"{block.place}: the mark names what is not there"


def test_blocks_that_are_not_run_are_listed() -> None:
    assert {(named(block.page), one) for page in PAGES for block in blocks(page) for one in left_out(block)} == NOT_RUN


def left_out(block: Block) -> Iterator[str]:
    if block.language == "sh":
        yield from (shlex.join(command.words) for command in block.commands if not block.runs(command))
    elif block.mark is not None:
        yield block.language


@pytest.mark.parametrize("words", sorted(words for _, words in NOT_RUN if words.startswith("make ")))
def test_make_targets_that_are_not_run_exist(words: str) -> None:
    planned = subprocess.run([*shlex.split(words), "--dry-run"], cwd=ROOT, capture_output=True, text=True, check=False)

    assert planned.returncode == 0, planned.stderr


def test_pictures_show_no_commands() -> None:
    pictures = [block for page in PAGES for block in blocks(page) if block.language == "text"]

    hidden = [
        one.place for one in pictures if re.search(r"^ *(\$ |backstay |make |curl |pip )", one.text, re.MULTILINE)
    ]

    assert hidden == []


# --- checked blocks -------------------------------------------------------------------------------------------------


def the_file(name: str) -> str:
    [text] = [block.text for page in PAGES for block in blocks(page) if block.file == name]
    return text


def test_the_service_that_is_shown_serves_and_stops(tmp_path: Path) -> None:
    unit = configparser.ConfigParser(interpolation=None)
    unit.optionxform = str  # type: ignore[assignment,method-assign]  # as its documentation says
    unit.read_string(the_file("backstay.service"))
    service = unit["Service"]

    names = {"/usr/local/bin/backstay": "backstay", f"/var/lib/{service['StateDirectory']}": str(tmp_path)}
    with PageShell(tmp_path, names) as shell:
        shell.run(Command(f"{service['Environment']} {service['ExecStart']}"))

    assert signal.Signals[service["KillSignal"]] is signal.SIGTERM
    assert service["Restart"] in ("always", "on-failure")
    assert float(service["TimeoutStopSec"]) > Settings().grace_seconds
    assert dict(unit["Install"]) == {"WantedBy": "multi-user.target"}


def test_the_service_that_is_shown_is_valid_and_hardened(tmp_path: Path) -> None:
    path = tmp_path / "backstay.service"
    path.write_text(the_file("backstay.service").replace("/usr/local/bin/backstay", str(COMMAND)))
    analyser = shutil.which("systemd-analyze")
    checks = [["verify", "--man=no"], ["security", "--offline=yes", "--threshold=30"]] if analyser else []

    for check in checks:
        done = subprocess.run([str(analyser), *check, str(path)], capture_output=True, text=True, check=False)
        assert (done.returncode, "Unknown" in done.stderr) == (0, False), done.stdout + done.stderr
    hardened = {"NoNewPrivileges=yes", "ProtectSystem=strict", "ProtectHome=yes", "PrivateTmp=yes", "DynamicUser=yes"}
    assert hardened <= set(path.read_text().splitlines())


def test_a_file_of_a_page_names_only_paths_of_its_reader(tmp_path: Path) -> None:
    with PageShell(tmp_path, {"/var/lib/backstay": str(tmp_path)}) as shell:
        shell.put("backstay.toml", the_file("backstay.toml"))

    [written] = tmp_path.glob("*/backstay.toml")
    assert tomllib.loads(written.read_text())["db"] == f"{tmp_path}/backstay.db"


@pytest.mark.parametrize("name", ["backstay.toml", "telegram.toml"])
def test_the_file_of_settings_that_is_shown_has_settings_only(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text(the_file(name))
    assert choose({"db": "x.db"}, {}, file=tmp_path / name).file is not None


async def test_the_stream_that_is_shown_sends_heartbeats_and_continues(tmp_path: Path) -> None:
    (tmp_path / "chats.py").write_text(program_files(ROOT / "docs" / "howto" / "embed.md")["chats.py"])
    shown = runpy.run_path(str(tmp_path / "chats.py"))

    async with backstay.open(tmp_path / "chat.db", agent=shown["agent"]) as app:
        session = await app.session()
        await (await session.send("hello")).outcome()
        seen = await until_idle(shown["frames"](session, None, heartbeat=0.01))
        rest = await until_idle(shown["frames"](session, seen[1].splitlines()[0].removeprefix("id: "), heartbeat=0.01))
        lost = [frame async for frame in shown["frames"](session, "7.7000")]
        await session.delete()
        end = [frame async for frame in shown["frames"](session, None)]

    assert len(seen) > 3
    assert rest == seen[2:]
    assert [frame.splitlines()[0] for frame in lost] == ["event: reload"]
    assert "session_deleted" in end[-1]


async def until_idle(frames: AsyncGenerator[str, None]) -> list[str]:
    """The events up to the first heartbeat after the end of a turn."""
    found: list[str] = []
    async with aclosing(frames):
        async for frame in frames:
            if frame.startswith("id: "):
                found.append(frame)
            elif found and "turn_ended" in found[-1]:
                break
    return found


def test_the_settings_that_are_shown_to_postgresql_are_settings_of_it(postgres: Postgres) -> None:
    shown = configparser.ConfigParser(inline_comment_prefixes="#")
    shown.read_string(f"[all]\n{the_file('postgresql.conf')}")

    with psycopg.connect(postgres.url(), autocommit=True) as connection:
        for name, value in shown["all"].items():
            # Not in force before a reload: a shared server is not changed.
            connection.execute(SQL("ALTER SYSTEM SET {} = {}").format(Identifier(name), value.strip("'")))
            connection.execute(SQL("ALTER SYSTEM RESET {}").format(Identifier(name)))


def test_the_proxy_that_is_shown_leads_to_the_server_and_is_patient() -> None:
    [text] = [block.text for page in PAGES for block in blocks(page) if block.language == "nginx"]
    told = dict(_DIRECTIVE.findall(text))

    settings = Settings()
    assert told["proxy_pass"] == f"http://{settings.host}:{settings.port}"
    assert told["proxy_buffering"] == "off"
    assert float(told["proxy_read_timeout"].removesuffix("s")) > settings.heartbeat_seconds
    known = "location proxy_pass proxy_set_header proxy_http_version proxy_buffering proxy_read_timeout"
    assert set(told) <= set(known.split())


# --- mentioned commands ---------------------------------------------------------------------------------------------


def mentions() -> Iterator[tuple[str, str]]:
    """Every command that a page or a help text names in passing, and where."""
    for page in PAGES:
        if page.name != "CHANGELOG.md":  # the changelog mentions former commands
            yield from ((named(page), " ".join(said.split())) for said in _SPOKEN.findall(page.read_text()))
    for name, command in verbs().items():
        examples = re.findall(r"^ +(?:.*\| |[A-Z_]+=\S* )?(backstay .*)$", command.epilog or "", re.MULTILINE)
        yield from ((f"backstay {name} --help", example) for example in examples)


@pytest.mark.parametrize(("where", "mention"), sorted(set(mentions())), ids=lambda text: text)
def test_every_command_that_is_mentioned_exists_with_its_options(where: str, mention: str) -> None:
    words = _words(mention)[1:]
    name = " ".join(words[:2]) if " ".join(words[:2]) in verbs() else (words or [""])[0]
    options = {word.partition("=")[0] for word in words if word.startswith("-") and word != "-"}

    command = verbs().get(name)
    assert command or name in ("", "COMMAND", "tokens", "gateway", "--help")
    known = {option for one in (command.params if command else []) for option in [*one.opts, *one.secondary_opts]}
    assert options <= known | {"--help"}


def _words(mention: str) -> list[str]:
    """As a shell would read it, up to where its output goes to another; a part of a quotation is read as it stands."""
    alone = re.split(r"[|>&]", mention)[0]
    return shlex.split(alone) if alone.count("'") % 2 == alone.count('"') % 2 == 0 else alone.split()


# --- the reference, links and tests ---------------------------------------------------------------------------------


@pytest.mark.parametrize("name", REFERENCE)
def test_the_reference_matches_the_declarations(name: str) -> None:
    assert (ROOT / "docs" / "reference" / name).read_text() == REFERENCE[name](), "run: make reference"


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_every_link_of_a_page_leads_to_a_file(page: Path) -> None:
    broken = [link for link in _LINK.findall(page.read_text()) if not (page.parent / link).exists()]

    assert broken == []


def test_every_test_named_by_the_guarantees_exists(request: pytest.FixtureRequest) -> None:
    named_tests = set(re.findall(r"`(test_\w+)`", (ROOT / "docs/guarantees.md").read_text()))
    # A run of every test has them all at hand; one of a few tests has to look for the others.
    missing = named_tests - {item.name.partition("[")[0] for item in request.session.items}

    assert not missing or missing - _all_tests() == set()


def _all_tests() -> set[str]:
    collected = subprocess.run(
        [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider", "tests"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    ).stdout
    return set(re.findall(r"::(test_\w+)", collected))
