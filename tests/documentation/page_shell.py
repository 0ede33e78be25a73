"""The commands of a page, run one after the other with an empty home, in an empty folder.

A command that serves is started, polled until it answers, and stopped; with `&` behind it, at the end of the page.
"""

import fcntl
import os
import re
import signal
import subprocess
import sysconfig
import threading
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Self

import httpx2

from tests.documentation.code_blocks import ROOT, Command
from tests.postgres_servers.postgres import free_port

PATIENCE = 120.0
# The text that a person types when a command reads standard input.
_TYPED = "hello\n"
_AGENT = """
import backstay


async def agent(turn):
    yield backstay.Text("You said: " + turn.input.text)
"""
_SERVING = re.compile(r"^serving +(\S+)$")
# A signal that reaches the shell, too, does not end it before its command has ended and said how.
_SHELL = "trap : TERM\n"


class PageShell:
    """A shell in a folder. `names` maps the placeholders of a page to their values here, `settings` are variables."""

    def __init__(self, folder: Path, names: Mapping[str, str]) -> None:
        self._folder, self._port, self._left = folder / "here", free_port(), ExitStack()
        self.home, self._log = folder / "home", folder / "server.log"
        self.settings: dict[str, str] = {}
        self.names = {**names, "127.0.0.1:8642": f"127.0.0.1:{self._port}"}
        for made in (self._folder, self.home):
            made.mkdir()
        (self._folder / "mybot.py").write_text(_AGENT)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._left.close()

    def put(self, name: str, text: str) -> None:
        """Write a file of the page. What it names is the reader's own, as in a command."""
        (self._folder / name).write_text(self._meant(text))

    def run(self, command: Command) -> None:
        """Run a command as the page shows it."""
        text = self._meant(command.text)
        if not command.serves:
            self._finish(text, command)
            return
        if command.words[0] == "make":
            self._prepare_environment()
        server = _Server(self._start(text, command), text, self._log)
        self._left.callback(server.kill)
        server.wait_until_it_answers(self._port)
        if command.in_background:
            self._left.callback(server.stop)
        else:
            server.stop()

    def _prepare_environment(self) -> None:
        """Make the environment of `make serve`: only one of the processes that run tests side by side may do that."""
        with (ROOT / "Makefile").open() as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            subprocess.run(
                ["make", ".venv-serve/.installed"], cwd=ROOT, env=self._environment(), check=True, capture_output=True
            )

    def _meant(self, text: str) -> str:
        for called, meant in self.names.items():
            text = text.replace(called, meant)
        return text

    def _finish(self, text: str, command: Command) -> None:
        done = subprocess.run(
            ["sh", "-c", text],
            cwd=self._where(command),
            env=self._environment(),
            input=_TYPED,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
        assert done.returncode == 0, f"{text}\n{done.stdout}{done.stderr}"
        assert "Traceback" not in done.stderr, f"{text}\n{done.stderr}"

    def _start(self, text: str, command: Command) -> "subprocess.Popen[str]":
        in_front = text.partition(" &")[0] if command.in_background else text
        with self._log.open("a") as log:
            return subprocess.Popen(
                ["sh", "-c", _SHELL + in_front],
                cwd=self._where(command),
                env=self._environment(),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                start_new_session=True,
            )

    def _where(self, command: Command) -> Path:
        """The folder of a command: `make` runs in a clone."""
        return ROOT if command.words[0] == "make" else self._folder

    def _environment(self) -> dict[str, str]:
        reaching = {name: value for name, value in os.environ.items() if name.startswith(("PIP_", "SSL_"))}
        return reaching | {
            "HOME": str(self.home),
            "PATH": f"{sysconfig.get_path('scripts')}:/usr/local/bin:/usr/bin:/bin",
            "LANG": "C.UTF-8",
            "PYTHONUNBUFFERED": "1",
            "BACKSTAY_PORT": str(self._port),
            "BACKSTAY_PROBE": "",  # whatever else runs on this machine
            **self.settings,
        }


class _Server:
    def __init__(self, process: "subprocess.Popen[str]", text: str, log: Path) -> None:
        self._process, self._text, self._log = process, text, log

    def wait_until_it_answers(self, port: int) -> None:
        """Wait until it has printed its address, and answers there."""
        assert self._process.stdout is not None
        # A server may wait for something without any output: it is killed then, and its output ends.
        late = threading.Timer(PATIENCE, os.killpg, (self._process.pid, signal.SIGKILL))
        late.start()
        said = next((found for line in self._process.stdout if (found := _SERVING.match(line))), None)
        late.cancel()
        assert said is not None, f"{self._text}: ended with {self._process.wait(PATIENCE)}\n{self._log.read_text()}"
        # It accepts the host name that its clients will use.
        host = httpx2.URL(said[1]).host
        answer = httpx2.get(
            f"http://127.0.0.1:{port}/healthz", headers={"host": host}, timeout=PATIENCE, trust_env=False
        )
        assert answer.json() == {"status": "ok"}, self._text

    def stop(self) -> None:
        """Stop it; it exits cleanly. `make` only reports the signal."""
        os.killpg(self._process.pid, signal.SIGTERM)
        ended = self._process.wait(PATIENCE)
        assert ended == 0 or (self._text.startswith("make ") and ended == 128 + signal.SIGTERM), (self._text, ended)

    def kill(self) -> None:
        """Kill the remaining processes."""
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait(PATIENCE)
        assert self._process.stdout is not None
        self._process.stdout.close()
