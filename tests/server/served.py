"""A server in a process of its own, as an operator starts it."""

import json
import os
import signal
import subprocess
import sysconfig
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2

COMMAND = Path(sysconfig.get_path("scripts"), "backstay")

# How long a test waits for what must happen; what works takes a hundredth of it.
PATIENCE = 120.0

# With it, agents of the tests can be named.
HERE = {"PYTHONPATH": str(Path(__file__).parents[2])}


def cast(*agents: str) -> tuple[str, ...]:
    """The flags that name these agents."""
    return tuple(word for agent in agents for word in ("--agent", agent))


class Served:
    """A running `backstay serve`, what it said when it started, and ways to end it."""

    def __init__(self, process: "subprocess.Popen[str]", told: dict[str, Any], folder: Path) -> None:
        self._process, self.told, self._folder = process, told, folder

    @property
    def url(self) -> str:
        return str(self.told["url"]).rstrip("/")

    @property
    def port(self) -> int:
        return int(self.url.rpartition(":")[2])

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def token(self) -> str:
        return Path(self._folder, self.told["token_file"]).read_text().strip()

    def client(self, token: str | None = None, **more: Any) -> httpx2.Client:
        """A client that says who it is."""
        headers = {"authorization": f"Bearer {token or self.token}"}
        return httpx2.Client(base_url=self.url, headers=headers, timeout=PATIENCE, trust_env=False, **more)

    def kill(self) -> None:
        """End it as the kernel does when memory runs out."""
        self._process.kill()
        self._process.wait(PATIENCE)

    def terminate(self) -> int:
        """Ask it to end, as a supervisor of services does; how it ended."""
        self._process.send_signal(signal.SIGTERM)
        return self._process.wait(PATIENCE)

    def log(self) -> list[dict[str, Any]]:
        """What it wrote to its log, once it has ended."""
        lines = (self._folder / "server.log").read_text().splitlines()
        return [json.loads(line) for line in lines]


@contextmanager
def serving(folder: Path, *arguments: str, environment: Mapping[str, str] | None = None) -> Iterator[Served]:
    """`backstay serve` in a folder, on a free port; killed at the end if it still runs."""
    plain = {name: value for name, value in os.environ.items() if not name.startswith(("BACKSTAY_", "XDG_"))}
    command = [str(COMMAND), "serve", "--port", "0", "--json", *arguments]
    with (folder / "server.log").open("a") as log:
        process = subprocess.Popen(
            command,
            cwd=folder,
            env=plain
            | {"HOME": str(folder), "BACKSTAY_AGENT": "scripted", "BACKSTAY_TITLES": "false"}
            | dict(environment or {}),
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line, (folder / "server.log").read_text()
        yield Served(process, json.loads(line), folder)
    finally:
        process.kill()
        process.wait(PATIENCE)
        assert process.stdout is not None
        process.stdout.close()
