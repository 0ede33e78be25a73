"""A person runs a bot with the command line, or with a server: it answers, says how it is, and hides its token."""

import re
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.cli.installed_command import CommandResult, run_cli_in, running
from tests.gateways.fake_telegram import TOKEN, FakeTelegram, fake_telegram

pytestmark = pytest.mark.engines("sqlite")

BOT = {
    "BACKSTAY_TELEGRAM_TOKEN": TOKEN,
    "BACKSTAY_GATEWAYS_TELEGRAM_ALLOW_USERS": "42",
    "BACKSTAY_AGENT": "scripted",
    "BACKSTAY_LOG_LEVEL": "debug",
}


@pytest.fixture
def telegram() -> Iterator[FakeTelegram]:
    with fake_telegram() as fake:
        yield fake


@pytest.fixture
def db(tmp_path: Path) -> Path:
    return tmp_path / "chat.db"


@contextmanager
def bot(tmp_path: Path, db: Path, telegram: FakeTelegram, *words: str) -> "Iterator[subprocess.Popen[str]]":
    """A process with a bot. Whatever it writes, and its arguments, do not have the token."""
    server = {"BACKSTAY_GATEWAYS_TELEGRAM_SERVER": telegram.url}
    with running(tmp_path, db, *words, **BOT, **server) as process:
        arguments = Path(f"/proc/{process.pid}/cmdline")
        yield process
        assert not arguments.exists() or TOKEN.encode() not in arguments.read_bytes()
        process.kill()
        out, err = process.communicate()
        assert TOKEN not in out + err


def backstay(tmp_path: Path, db: Path, telegram: FakeTelegram, *words: str) -> CommandResult:
    """Run a command to its end; it does not show the token."""
    result = run_cli_in(tmp_path, db, *words, stdin=None, **BOT, BACKSTAY_GATEWAYS_TELEGRAM_SERVER=telegram.url)
    assert TOKEN not in result.out + result.err
    return result


def wait_for_texts(telegram: FakeTelegram, count: int) -> list[str]:
    """Wait until the person sees so many messages of the bot."""
    telegram.wait_for(lambda: len(telegram.texts()) >= count)
    return telegram.texts()


COMMANDS = [("gateway", "telegram"), ("serve", "--port", "0"), ("serve", "--port", "0", "--workers", "2")]


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_a_killed_bot_answers_what_was_written_meanwhile(
    tmp_path: Path, db: Path, telegram: FakeTelegram, words: tuple[str, ...]
) -> None:
    telegram.write("the first")
    with bot(tmp_path, db, telegram, *words) as process:
        assert "the first" in wait_for_texts(telegram, 1)[0]
        process.send_signal(signal.SIGKILL)
        process.wait()
    telegram.write("the second")

    with bot(tmp_path, db, telegram, *words):
        telegram.wait_for(lambda: any("the second" in text for text in telegram.texts()))
    assert len(backstay(tmp_path, db, telegram, "list", "--json").json["sessions"]) == 1


def test_a_stopped_bot_gives_up_its_lease(tmp_path: Path, db: Path, telegram: FakeTelegram) -> None:
    telegram.write("the first")
    with bot(tmp_path, db, telegram, "gateway", "telegram", "--log-level", "info") as process:
        wait_for_texts(telegram, 1)
        (running_one,) = backstay(tmp_path, db, telegram, "gateway", "list", "--json").json["gateways"]
        assert running_one["state"] in ("starting", "polling")
        assert running_one["received_at"] is not None
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
        assert process.stderr is not None
        assert "HTTP Request" not in process.stderr.read(), "a stranger could fill the log"

    (gateway,) = backstay(tmp_path, db, telegram, "gateway", "list", "--json").json["gateways"]
    assert (gateway["name"], gateway["state"], gateway["poller"]) == ("telegram/7", "stopped", None)


def test_a_person_is_let_in_and_removed_again(
    tmp_path: Path, db: Path, telegram: FakeTelegram, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(BOT, "BACKSTAY_GATEWAYS_TELEGRAM_ALLOW_USERS", "")
    with bot(tmp_path, db, telegram, "gateway", "telegram"):
        telegram.write("hello")
        (offer,) = wait_for_texts(telegram, 1)
        command = re.search(r"backstay (gateway pair \S{9})", offer)
        assert command is not None

        done = backstay(tmp_path, db, telegram, *command[1].split())
        assert done.lines == ["Ann (42) may write to telegram/7 now"]
        assert "Ann" in backstay(tmp_path, db, telegram, "gateway").out
        telegram.write("the first")
        assert "the first" in wait_for_texts(telegram, 2)[1]
        assert backstay(tmp_path, db, telegram, "gateway", "invite").code == 0
        assert backstay(tmp_path, db, telegram, "gateway", "remove", "42").code == 0
        assert backstay(tmp_path, db, telegram, "gateway", "remove", "42").code == 1
        assert backstay(tmp_path, db, telegram, "gateway", "pair", "AAAA-AAAA").code == 1


def test_the_doctor_finds_and_removes_a_webhook(tmp_path: Path, db: Path, telegram: FakeTelegram) -> None:
    telegram.webhook = "https://elsewhere.example/hook"
    telegram.write("waits")

    found = backstay(tmp_path, db, telegram, "gateway", "doctor")
    assert found.code == 6
    assert "webhook" in found.out
    assert "--fix" in found.out
    fixed = backstay(tmp_path, db, telegram, "gateway", "doctor", "--fix", "--json")
    assert (fixed.code, fixed.json["sound"], telegram.webhook) == (0, True, "")
    assert telegram.waiting == 1, "the doctor receives nothing and drops nothing"


def test_the_doctor_names_a_wrong_token_and_an_open_file(tmp_path: Path, db: Path, telegram: FakeTelegram) -> None:
    file = tmp_path / "token"
    file.write_text("7:wrong-token\n")
    wrong = backstay(tmp_path, db, telegram, "gateway", "doctor", "--token-file", str(file))
    assert wrong.code == 6
    assert "does not accept the token" in wrong.out
    assert "wrong-token" not in wrong.out
    file.write_text(f"{TOKEN}\n")
    file.chmod(0o644)
    readable = backstay(tmp_path, db, telegram, "gateway", "doctor", "--token-file", str(file))
    assert (readable.code, "chmod 600" in readable.out) == (6, True)


@pytest.mark.parametrize("words", [("gateway", "telegram"), ("serve", "--port", "0")], ids=" ".join)
@pytest.mark.parametrize("content", ["", "not a token", "7:short", "7:with space inside"])
def test_a_file_without_a_token_is_refused_and_not_shown(
    tmp_path: Path, db: Path, telegram: FakeTelegram, words: tuple[str, ...], content: str
) -> None:
    file = tmp_path / "token"
    file.write_text(content)
    refused = run_cli_in(
        tmp_path, db, *words, stdin=None, BACKSTAY_AGENT="scripted", BACKSTAY_GATEWAYS_TELEGRAM_TOKEN_FILE=str(file)
    )
    assert refused.code == 1
    assert "does not contain the token" in refused.err
    assert not content or content not in refused.err


def test_a_refused_token_ends_the_command_but_not_a_server(tmp_path: Path, db: Path, telegram: FakeTelegram) -> None:
    wrong = {"BACKSTAY_TELEGRAM_TOKEN": "7:wrong-token"}
    server = {"BACKSTAY_GATEWAYS_TELEGRAM_SERVER": telegram.url, "BACKSTAY_AGENT": "scripted"}
    refused = run_cli_in(tmp_path, db, "gateway", "telegram", stdin=None, **wrong, **server)
    assert refused.code == 1
    assert "does not accept the token" in refused.err
    assert "wrong-token" not in refused.err
    with running(tmp_path, db, "serve", "--port", "0", "--log-format", "text", **wrong, **server) as process:
        assert process.stderr is not None
        line = next(line for line in process.stderr if "does not accept" in line)
        assert "wrong-token" not in line
        assert process.poll() is None


def test_no_command_takes_or_shows_the_token(tmp_path: Path, db: Path, telegram: FakeTelegram) -> None:
    assert backstay(tmp_path, db, telegram, "config").code == 0
    assert backstay(tmp_path, db, telegram, "config", "--json").code == 0
    assert run_cli_in(tmp_path, db, "gateway", "telegram", "--token", "x").code == 2
    assert backstay(tmp_path, db, telegram, "gateway").out == ""
