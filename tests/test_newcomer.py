"""What a person meets who has just heard of Backstay: the installed wheel, and the first command of the README."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx2
import pytest

ROOT = Path(__file__).parents[1]
PATIENCE = 300


def environment(home: Path) -> dict[str, str]:
    """Nothing of this user's but what reaches the package registry."""
    kept = {name: value for name, value in os.environ.items() if name.startswith(("PIP_", "SSL_", "HTTP", "http"))}
    return kept | {"HOME": str(home), "PATH": "/usr/local/bin:/usr/bin:/bin", "BACKSTAY_PROBE": ""}


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The command of a wheel that was built here and installed, with what the lock names, where nothing else is."""
    folder = tmp_path_factory.mktemp("wheel")
    steps: list[list[str | Path]] = [
        [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", folder],
        [sys.executable, "-m", "venv", folder / "venv"],
        [folder / "venv/bin/pip", "install", "-q", "--require-hashes", "-r", ROOT / "requirements/runtime.lock"],
    ]
    for step in steps:
        subprocess.run(step, cwd=ROOT, check=True, capture_output=True, timeout=PATIENCE)
    [wheel] = folder.glob("*.whl")
    subprocess.run([folder / "venv/bin/pip", "install", "-q", "--no-deps", wheel], check=True, timeout=PATIENCE)
    return folder / "venv" / "bin" / "backstay"


@contextmanager
def serving(command: list[str | Path], folder: Path, home: Path) -> Iterator[dict[str, object]]:
    """A command that serves, and what it says of that; asked to end at the end, which it does in good order."""
    process = subprocess.Popen(
        command, cwd=folder, env=environment(home), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    assert process.stdout is not None
    try:
        # `make` says what it runs before that says anything.
        line = next(line for line in process.stdout if line.startswith("{"))
        yield json.loads(line)
        process.terminate()
        process.wait(PATIENCE)
    finally:
        process.kill()
        process.wait(PATIENCE)
        process.stdout.close()


def test_an_installed_wheel_answers_keeps_finds_and_is_sound(installed: Path, tmp_path: Path) -> None:
    def told(*arguments: str, said: str | None = None) -> str:
        done = subprocess.run(
            [installed, *arguments],
            cwd=tmp_path,
            env=environment(tmp_path),
            input=said,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert "scripted agent" in told("send", said="Where is the tea?")
    [session] = json.loads(told("list", "--json"))["sessions"]
    assert "Where is the tea?" in told("show", session["id"])
    assert session["id"] in told("search", "tea")
    assert "Where is the tea?" in told("chat", "--session", session["id"], said="And the milk?\n")
    assert "scripted" in told("agents")
    told("doctor")
    told("backup", "copy.db")
    assert json.loads(told("list", "--json", "--db", "copy.db"))["sessions"][0]["id"] == session["id"]


def test_an_installed_wheel_serves_its_page_and_all_that_belongs_to_it(installed: Path, tmp_path: Path) -> None:
    with (
        serving([installed, "serve", "--port", "0", "--json"], tmp_path, tmp_path) as told,
        httpx2.Client(base_url=str(told["url"]), trust_env=False) as browser,
    ):
        code = str(told["sign_in"]).partition("#")[2]
        signed_in = browser.post("/api/login", json={"code": code}, headers={"origin": str(told["url"]).rstrip("/")})
        assert signed_in.is_success, signed_in.text
        page = browser.get("/")
        assert page.headers["content-type"].startswith("text/html")
        scripts = [part.partition('"')[0] for part in page.text.split('src="')[1:]]
        assert scripts
        assert all(browser.get(script).status_code == 200 for script in scripts)


def test_make_serve_serves_and_says_who_answers(tmp_path: Path) -> None:
    flags = f"ARGS=--port 0 --json --no-open --db {tmp_path / 'chat.db'}"
    with serving(["make", "serve", flags], ROOT, tmp_path) as told:
        assert "scripted agent answers" in str(told["why"])
        assert httpx2.get(f"{str(told['url']).rstrip('/')}/healthz", trust_env=False).json() == {"status": "ok"}
