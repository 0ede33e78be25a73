"""The documentation is executed: its examples run, what it shows is true of the program, its links lead somewhere."""

import configparser
import re
import shlex
import signal
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from psycopg.sql import SQL, Identifier

from backstay import Address, open_store
from backstay.config import Settings
from backstay.model import message
from reference import PAGES as REFERENCE
from reference.cli import verbs
from tests.documentation.code_blocks import PAGES, ROOT, Block, Command, blocks, named
from tests.documentation.page_shell import PageShell
from tests.postgres_servers.postgres import Postgres

_DATABASE = re.compile(r"environ\[\"(\w+_URL)\"\]")
_LINK = re.compile(r"\]\(([^)#:]+)(?:#[^)]*)?\)")
_SPOKEN = re.compile(r"`(backstay(?: [^`]*)?)`")
_DIRECTIVE = re.compile(r"^ *(\w+) ([^;{]+)[;{ ]*$", re.MULTILINE)

# What a test below looks at without running it: a picture; or a file, of a program of others, or of ours.
_LOOKED_AT = {"text": "", "nginx": ""}
_FILES = {"backstay.service", "backstay.toml", "postgresql.conf"}
# All that is on no account run. Whoever adds to this could not run it otherwise.
NOT_RUN = {
    ("README.md", "make test"),
    ("CONTRIBUTING.md", "make test"),
    ("CONTRIBUTING.md", "make check"),
    ("CONTRIBUTING.md", "make test TESTS=tests/test_package.py"),
    ("CONTRIBUTING.md", "make test TESTS=tests 'ARGS=-x -k wheel'"),
    ("docs/quickstart.md", "pip install backstay"),
    ("docs/howto/deploy.md", "nginx"),
    ("docs/howto/agents.md", "pip install 'backstay[acp]'"),
    ("docs/howto/agents.md", "backstay chat --agent acp:gemini"),
    ("docs/howto/agents.md", "backstay send --workspace . --agent 'acp:/opt/agent --flag' '…'"),
    ("docs/howto/agents.md", "backstay serve --agent acp:claude --agent-directory '~/project'"),
}


def pages_with(language: str) -> list[Path]:
    return [page for page in PAGES if any(block.language == language for block in blocks(page))]


# --- what is run ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("page", pages_with("python"), ids=named)
def test_every_example_of_a_page_runs_from_top_to_bottom(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    monkeypatch.chdir(tmp_path)
    for url in _DATABASE.findall(page.read_text()):
        monkeypatch.setenv(url, request.getfixturevalue("new_database")())
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("BACKSTAY_AGENT", "scripted")  # whatever else is found on this machine
    space: dict[str, object] = {"__name__": "__main__"}

    for example in blocks(page):
        if example.language == "python":
            code = compile("\n" * example.line + example.text, named(page), "exec")
            exec(code, space)  # the documentation is ours

    assert "__builtins__" in space


@pytest.mark.parametrize("page", pages_with("sh"), ids=named)
def test_every_command_of_a_page_does_what_it_is_there_for(
    page: Path, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    names = {"/var/lib/backstay": str(tmp_path)}
    if "postgresql://localhost/backstay" in page.read_text():
        names["postgresql://localhost/backstay"] = request.getfixturevalue("new_database")()
    with PageShell(tmp_path, names) as shell:
        # Whoever reads how to do something has done something before.
        if page.parent.name == "howto":
            shell.names["ses_01kb…"] = a_conversation(shell.home)
        for block in blocks(page):
            if block.language == "toml":
                shell.put(block.file, block.text)
            if block.language == "sh":
                for command in filter(block.runs, block.commands):
                    shell.run(command)


def a_conversation(home: Path) -> str:
    with open_store(home / ".local" / "share" / "backstay" / "backstay.db") as store:
        session = store.resolve(Address.chat("telegram", "dm", chat="42"), owner="local").session.id
        store.record(session, [message.user("keep this"), message.assistant("I will.")], owner="local")
    return session


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_every_block_is_run_or_looked_at_or_says_why_not(page: Path) -> None:
    for block in blocks(page):
        is_run = block.language in ("python", "sh") and not block.file
        is_seen = _LOOKED_AT.get(block.language) == block.file or block.file in _FILES

        assert is_run or is_seen, f"{block.place}: nobody knows what to do with {block.language!r} {block.file!r}"
        assert block.language == "sh" or not block.left_out, f"{block.place}: the mark names commands"
        spelled = {shlex.join(command.words) for command in block.commands} if block.language == "sh" else set()
        assert set(block.left_out) <= spelled, f"{block.place}: the mark names what is not there"


def test_what_is_not_run_is_known() -> None:
    assert {(named(block.page), one) for page in PAGES for block in blocks(page) for one in left_out(block)} == NOT_RUN


def left_out(block: Block) -> Iterator[str]:
    if block.language == "sh":
        yield from (shlex.join(command.words) for command in block.commands if not block.runs(command))
    elif block.mark is not None:
        yield block.language


@pytest.mark.parametrize("words", sorted(words for _, words in NOT_RUN if words.startswith("make ")))
def test_what_make_is_not_asked_to_do_it_could_do(words: str) -> None:
    planned = subprocess.run([*shlex.split(words), "--dry-run"], cwd=ROOT, capture_output=True, text=True, check=False)

    assert planned.returncode == 0, planned.stderr


def test_pictures_show_no_commands() -> None:
    pictures = [block for page in PAGES for block in blocks(page) if block.language == "text"]

    hidden = [
        one.place for one in pictures if re.search(r"^ *(\$ |backstay |make |curl |pip )", one.text, re.MULTILINE)
    ]

    assert hidden == []


# --- what is looked at ----------------------------------------------------------------------------------------------


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
    # What is known to systemd, of which there is none here to ask.
    known = {"ExecStart", "Environment", "StateDirectory", "User", "Restart", "KillSignal", "TimeoutStopSec"}
    assert set(service) <= known
    assert service["Restart"] in ("always", "on-failure")
    assert float(service["TimeoutStopSec"]) > Settings().grace_seconds
    assert dict(unit["Install"]) == {"WantedBy": "multi-user.target"}


def test_a_file_of_a_page_names_places_of_its_reader_only(tmp_path: Path) -> None:
    with PageShell(tmp_path, {"/var/lib/backstay": str(tmp_path)}) as shell:
        shell.put("backstay.toml", the_file("backstay.toml"))

    [written] = tmp_path.glob("*/backstay.toml")
    assert tomllib.loads(written.read_text())["db"] == f"{tmp_path}/backstay.db"


def test_the_file_of_settings_that_is_shown_has_settings_only() -> None:
    assert set(tomllib.loads(the_file("backstay.toml"))) <= set(Settings.__struct_fields__)


def test_the_settings_that_are_shown_to_postgresql_are_settings_of_it(postgres: Postgres) -> None:
    shown = configparser.ConfigParser(inline_comment_prefixes="#")
    shown.read_string(f"[all]\n{the_file('postgresql.conf')}")

    with psycopg.connect(postgres.url(), autocommit=True) as connection:
        for name, value in shown["all"].items():
            # Not in force before somebody reloads: a server that is shared is not changed.
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


# --- what is mentioned ----------------------------------------------------------------------------------------------


def mentions() -> Iterator[tuple[str, str]]:
    """Every command that a page or a help text names in passing, and where."""
    for page in PAGES:
        if page.name != "CHANGELOG.md":  # which tells of what was
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
    assert command or name in ("", "COMMAND", "tokens", "--help")
    known = {option for one in (command.params if command else []) for option in [*one.opts, *one.secondary_opts]}
    assert options <= known | {"--help"}


def _words(mention: str) -> list[str]:
    """As a shell would read it, up to where its output goes to another; a part of a quotation is read as it stands."""
    alone = re.split(r"[|>&]", mention)[0]
    return shlex.split(alone) if alone.count("'") % 2 == alone.count('"') % 2 == 0 else alone.split()


# --- the reference, links and tests ---------------------------------------------------------------------------------


@pytest.mark.parametrize("name", REFERENCE)
def test_the_reference_says_what_the_program_declares(name: str) -> None:
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
