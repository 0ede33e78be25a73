"""The installed package: the cost of imports, the files of the wheel, the output of the command."""

import json
import os
import stat
import subprocess
import sys
import sysconfig
import zipfile
from importlib.metadata import version
from pathlib import Path

import pytest

import backstay
from backstay.runtime.app import App, open_app
from tests.server.server_process import serving

PROJECT = Path(__file__).parents[1]
COMMAND = Path(sysconfig.get_path("scripts"), "backstay")

# Prints the effects of an action on its process: the loaded modules, and system calls other than reads.
WITNESS = """
import json, os, sys

def writes(path, mode, flags):
    return bool(set(mode or "") & set("wax+")) or bool(flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT))

def watch(event, args):
    if event.startswith("socket.") or event in {"os.mkdir", "os.rename", "subprocess.Popen"}:
        deeds.append(f"{event} {args}")
    elif event == "open" and writes(*args):
        deeds.append(f"open {args}")

deeds = []
sys.addaudithook(watch)
{act}
print(json.dumps({"modules": sorted(sys.modules), "deeds": deeds}))
"""
IMPORT = "import backstay, backstay.model, backstay.store"

FOREIGN = {
    "aiosqlite",
    "anyio",
    "click",
    "fastapi",
    "httpx",
    "httpx2",
    "mcp",
    "openai",
    "prompt_toolkit",
    "psycopg",
    "psycopg_pool",
    "pydantic",
    "rich",
    "sqlite3",
    "starlette",
    "telegram",
    "uvicorn",
}


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """An empty home directory, without other files of this user."""
    home = tmp_path / "home"
    home.mkdir()
    return home


def run(*command: str | Path, home: Path, **settings: str) -> subprocess.CompletedProcess[str]:
    private = {name: value for name, value in os.environ.items() if not name.startswith(("BACKSTAY_", "XDG_"))}
    return subprocess.run(
        command,
        cwd=home.parent,
        env=private | {"HOME": str(home)} | settings,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def witnessed(act: str, kind: str, home: Path) -> list[str]:
    # -B: Python's own bytecode cache is not the act's deed.
    child = run(sys.executable, "-B", "-c", WITNESS.replace("{act}", act), home=home)
    assert child.returncode == 0, child.stderr
    seen: dict[str, list[str]] = json.loads(child.stdout)
    return seen[kind]


def test_importing_backstay_loads_no_web_terminal_or_foreign_database_library(home: Path) -> None:
    loaded = set(witnessed(IMPORT, "modules", home))

    assert "backstay.store" in loaded
    assert loaded & (FOREIGN | {"backstay.cli", "backstay.testing"}) == set()


def test_a_name_of_the_library_is_loaded_when_it_is_first_used(home: Path) -> None:
    alone = set(witnessed("import backstay", "modules", home))
    kept = set(witnessed("import backstay; backstay.open_store", "modules", home))
    ran = set(witnessed("from backstay import open as opened", "modules", home))

    heavy = {"asyncio", "backstay.runtime.app"}
    assert alone & (heavy | {"msgspec", "backstay.store"}) == set()
    assert (kept & heavy, "backstay.store" in kept) == (set(), True)
    assert ran & heavy == heavy


def test_a_store_alone_loads_no_loop_socket_archive_or_transfer(home: Path) -> None:
    act = (
        "import backstay\n"
        "with backstay.open_store('chat.db') as store:\n"
        "    chat = backstay.Address.chat('telegram', 'dm', chat='42')\n"
        "    store.submit(store.resolve(chat, owner='me').session.id, 'hello', owner='me')"
    )
    loaded = set(witnessed(act, "modules", home))

    needless = {"asyncio", "importlib.resources", "random", "secrets", "socket", "tempfile", "zipfile"}
    assert "backstay.store.sqlite.engine" in loaded
    assert loaded & (FOREIGN | needless | {"backstay.runtime", "backstay.store.transfer", "backstay.server"}) == set()


def test_every_name_of_the_library_is_there_and_no_other() -> None:
    named = {name: getattr(backstay, name) for name in backstay.__all__}

    assert named["App"] is App
    assert backstay.open is open_app
    assert "open" not in backstay.__all__  # a star import must not replace the builtin
    assert set(backstay.__all__) | {"errors", "model", "runtime", "store"} <= set(dir(backstay))
    assert [room.__name__ for room in (backstay.errors, backstay.runtime)] == ["backstay.errors", "backstay.runtime"]
    with pytest.raises(AttributeError, match="no attribute 'opne'"):
        getattr(backstay, "opne")  # noqa: B009  # a type checker would refuse it, as it should


def test_importing_backstay_opens_no_socket_and_writes_no_file(home: Path) -> None:
    assert witnessed(IMPORT, "deeds", home) == []
    assert list(home.iterdir()) == []


@pytest.mark.parametrize(
    "act",
    [
        "import socket; socket.socket().close()",
        "open('x', 'w').close()",
        "os.close(os.open('x', os.O_WRONLY | os.O_CREAT))",
        "os.mkdir('x')",
    ],
)
def test_the_audit_of_side_effects_sees_each_act(act: str, home: Path) -> None:
    assert len(witnessed(act, "deeds", home)) == 1


def test_the_wheel_holds_every_file_of_the_package_and_no_other(tmp_path: Path, home: Path) -> None:
    package = PROJECT / "src" / "backstay"
    written = {path.relative_to(package.parent).as_posix() for path in package.rglob("*.*") if path.suffix != ".pyc"}

    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", tmp_path],
        cwd=PROJECT,
        capture_output=True,
        check=True,
    )

    [wheel] = tmp_path.glob("*.whl")
    packed = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    assert packed == written
    assert "backstay/py.typed" in packed
    assert any(name.endswith(".sql") for name in packed)


def test_the_command_prints_the_installed_version(home: Path) -> None:
    assert run(COMMAND, "--version", home=home).stdout == f"backstay {version('backstay')}\n"


def test_help_shows_how_to_serve_a_database_file(home: Path) -> None:
    assert "backstay serve --db ./chat.db" in run(COMMAND, "serve", "--help", home=home).stdout


def test_serve_prints_its_database_and_address(home: Path) -> None:
    with serving(home, "--db", "chat.db") as served:
        assert served.announced["store"]["url"].endswith("chat.db")
        assert served.announced["store"]["sessions"] == 0
        with served.client() as client:
            assert client.get("/api/me").json()["owner"] == "local"


def test_serve_keeps_sessions_in_a_private_directory_of_the_users_data(home: Path) -> None:
    with serving(home):
        kept = home / ".local" / "share" / "backstay"
        assert (kept / "backstay.db").is_file()
        assert stat.S_IMODE(kept.stat().st_mode) == 0o700


def test_serve_follows_the_users_choice_of_data_directory(home: Path, tmp_path: Path) -> None:
    with serving(home, environment={"XDG_DATA_HOME": str(tmp_path / "data")}):
        assert (tmp_path / "data" / "backstay" / "backstay.db").is_file()
        assert [path.name for path in home.iterdir()] == ["server.log"]


def test_an_expected_error_is_a_message_and_a_hint(home: Path, tmp_path: Path) -> None:
    (tmp_path / "note").write_text("not a directory")

    announced = run(COMMAND, "serve", "--db", "note/chat.db", home=home)

    assert announced.returncode == 1
    assert announced.stdout == ""
    assert announced.stderr.startswith("error: ")
    assert "note is not a directory\nhint: " in announced.stderr


def test_a_foreign_file_is_rejected_with_a_message_and_left_alone(home: Path, tmp_path: Path) -> None:
    (tmp_path / "letter.db").write_text("Dear reader, this was never a database." * 100)
    before = (tmp_path / "letter.db").read_bytes()

    announced = run(COMMAND, "serve", "--db", "letter.db", home=home)

    assert announced.returncode == 1
    assert announced.stderr.startswith("error: ")
    assert "Traceback" not in announced.stderr
    assert (tmp_path / "letter.db").read_bytes() == before
