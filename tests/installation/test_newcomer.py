"""The first steps of a newcomer: the installed wheel, and the first command of the README."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

import httpx2
import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
PATIENCE = 300


def environment(home: Path) -> dict[str, str]:
    """Nothing of this user's but what reaches the package registry."""
    kept = {name: value for name, value in os.environ.items() if name.startswith(("PIP_", "SSL_", "HTTP", "http"))}
    return kept | {"HOME": str(home), "PATH": "/usr/local/bin:/usr/bin:/bin", "BACKSTAY_PROBE": ""}


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The command of a wheel that was built here and installed with the pins of the lock into an empty environment."""
    folder = tmp_path_factory.mktemp("wheel")
    pip = ("-m", "pip", "--python", folder / "venv/bin/python", "--disable-pip-version-check")
    install: list[str | Path] = [sys.executable, *pip, "install", "-q", "--no-compile"]
    steps: list[list[str | Path]] = [
        [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", folder],
        [sys.executable, "-m", "venv", "--without-pip", folder / "venv"],
        [*install, "--require-hashes", "-r", ROOT / "requirements/runtime.lock"],
    ]
    for step in steps:
        subprocess.run(step, cwd=ROOT, check=True, capture_output=True, timeout=PATIENCE)
    [wheel] = folder.glob("*.whl")
    subprocess.run([*install, "--no-deps", wheel], check=True, timeout=PATIENCE)
    return folder / "venv" / "bin" / "backstay"


@contextmanager
def serving(command: list[str | Path], folder: Path, home: Path) -> Iterator[dict[str, object]]:
    """A command that serves, and its announcement; it is stopped at the end and exits cleanly."""
    process = subprocess.Popen(
        command, cwd=folder, env=environment(home), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    assert process.stdout is not None
    try:
        # `make` prints its command before the output of the command.
        line = next(line for line in process.stdout if line.startswith("{"))
        yield json.loads(line)
        process.terminate()
        process.wait(PATIENCE)
    finally:
        process.kill()
        process.wait(PATIENCE)
        process.stdout.close()


def test_an_installed_wheel_answers_keeps_finds_and_is_sound(installed: Path, tmp_path: Path) -> None:
    def run_in(*arguments: str, said: str | None = None) -> str:
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

    assert "scripted agent" in run_in("send", said="Where is the tea?")
    [session] = json.loads(run_in("list", "--json"))["sessions"]
    assert "Where is the tea?" in run_in("show", session["id"])
    assert session["id"] in run_in("search", "tea")
    assert "Where is the tea?" in run_in("chat", "--session", session["id"], said="And the milk?\n")
    assert "scripted" in run_in("agents")
    run_in("doctor")
    run_in("backup", "copy.db")
    assert json.loads(run_in("list", "--json", "--db", "copy.db"))["sessions"][0]["id"] == session["id"]


def test_an_installed_wheel_serves_the_web_ui_and_its_files(installed: Path, tmp_path: Path) -> None:
    with (
        serving([installed, "serve", "--port", "0", "--json"], tmp_path, tmp_path) as run_in,
        httpx2.Client(base_url=str(run_in["url"]), trust_env=False) as browser,
    ):
        link = subprocess.run(
            [installed, "link"], cwd=tmp_path, env=environment(tmp_path), capture_output=True, text=True, check=True
        )
        code = link.stdout.strip().partition("#")[2]
        signed_in = browser.post("/api/login", json={"code": code}, headers={"origin": str(run_in["url"]).rstrip("/")})
        assert signed_in.is_success, signed_in.text
        page = browser.get("/")
        assert page.headers["content-type"].startswith("text/html")
        scripts = [part.partition('"')[0] for part in page.text.split('src="')[1:]]
        assert scripts
        assert all(browser.get(script).status_code == 200 for script in scripts)


def a_clone(folder: Path) -> Path:
    """A checkout in which no command was run yet, without its history."""
    shutil.copytree(ROOT / "src", folder / "src", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(ROOT / "requirements", folder / "requirements")
    for name in ("Makefile", "pyproject.toml", "hatch_build.py", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, folder)
    return folder


def pinned(lock: str) -> set[str]:
    """The distributions that a lock names for this Python and platform."""
    lines = (ROOT / "requirements" / lock).read_text().splitlines()
    named = (Requirement(line.removesuffix("\\")) for line in lines if "==" in line and not line.startswith("#"))
    return {one.name for one in named if one.marker is None or one.marker.evaluate()}


def distributions(environment: Path) -> set[str]:
    """The distributions of an environment, apart from those that every new environment has."""
    [packages] = environment.glob("lib/*/site-packages")
    found: set[str] = {canonicalize_name(one.name) for one in metadata.distributions(path=[str(packages)])}
    return found - {"pip", "setuptools", "wheel"}


def made(clone: Path, *arguments: str, home: Path) -> str:
    """The output of `make` in a clone, run with this home."""
    done = subprocess.run(
        ["make", *arguments],
        cwd=clone,
        env=environment(home),
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@dataclass(frozen=True)
class Prepared:
    folder: Path
    shown: str


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Prepared:
    """A clone in which `make serve` has installed what it needs, and the output of that."""
    folder = a_clone(tmp_path_factory.mktemp("clone") / "backstay")
    return Prepared(folder, made(folder, ".venv-serve/.installed", home=tmp_path_factory.mktemp("home")))


def test_make_serve_installs_only_the_runtime_once_and_shows_progress(clone: Prepared, tmp_path: Path) -> None:
    expected = pinned("runtime.lock") | pinned("build.lock")

    second = made(clone.folder, "--dry-run", "serve", home=tmp_path).splitlines()

    assert distributions(clone.folder / ".venv-serve") == {"backstay"} | expected
    assert {name for name in expected if f"collecting {name}" not in clone.shown.lower()} == set()
    assert [line for line in second if not line.startswith("make")] == [".venv-serve/bin/backstay serve "]


def test_make_serve_serves_from_a_clone_and_from_a_copy_of_it(clone: Prepared, tmp_path: Path) -> None:
    copy = shutil.copytree(clone.folder, tmp_path / "elsewhere", symlinks=True)
    flags = f"ARGS=--port 0 --json --no-open --db {tmp_path / 'chat.db'}"

    for folder in (clone.folder, copy):
        with serving(["make", "serve", flags], folder, tmp_path) as run_in:
            assert "scripted agent answers" in str(run_in["why"])
            assert httpx2.get(f"{str(run_in['url']).rstrip('/')}/healthz", trust_env=False).json() == {"status": "ok"}

    assert str(copy) in (copy / ".venv-serve/bin/backstay").read_text().splitlines()[0]
