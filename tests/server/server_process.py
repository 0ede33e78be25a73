"""A server in a process of its own, as an operator starts it."""

import json
import os
import signal
import sysconfig
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2

from tests.cli.forked_command import PATIENCE, ForkedCommand, fork_server

COMMAND = Path(sysconfig.get_path("scripts"), "backstay")

# With it, agents of the tests can be named.
HERE = {"PYTHONPATH": str(Path(__file__).parents[2])}


def agent_options(*agents: str) -> tuple[str, ...]:
    """The flags that name these agents."""
    return tuple(word for agent in agents for word in ("--agent", agent))


class ServerProcess:
    """A running `backstay serve`, its first output, and ways to end it."""

    def __init__(self, process: ForkedCommand, announced: dict[str, Any], folder: Path) -> None:
        self._process, self.announced, self._folder = process, announced, folder

    @property
    def url(self) -> str:
        return str(self.announced["url"]).rstrip("/")

    @property
    def port(self) -> int:
        return int(self.url.rpartition(":")[2])

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def token(self) -> str:
        return Path(self._folder, self.announced["token_file"]).read_text().strip()

    def client(self, token: str | None = None, **more: Any) -> httpx2.Client:
        """A client with a token."""
        headers = {"authorization": f"Bearer {token or self.token}"}
        return httpx2.Client(
            base_url=self.url, headers=headers, timeout=PATIENCE, trust_env=False, verify=False, **more
        )

    def kill(self) -> None:
        """Kill it with SIGKILL, as the kernel does when memory runs out."""
        self._process.kill()
        self._process.wait(PATIENCE)

    def terminate(self) -> int:
        """Send SIGTERM, as a service manager does; returns the exit status."""
        self._process.send_signal(signal.SIGTERM)
        return self._process.wait(PATIENCE)

    def log(self) -> list[dict[str, Any]]:
        """What it wrote to its log, once it has ended."""
        lines = (self._folder / "server.log").read_text().splitlines()
        return [json.loads(line) for line in lines]


@contextmanager
def serve_process(
    folder: Path, *arguments: str, environment: Mapping[str, str] | None = None
) -> Iterator[ForkedCommand]:
    """`backstay serve` in a folder, on a free port unless another one is named; killed at the end if it still runs."""
    plain = {name: value for name, value in os.environ.items() if not name.startswith(("BACKSTAY_", "XDG_"))}
    own = {"HOME": str(folder), "BACKSTAY_AGENT": "scripted", "BACKSTAY_TITLES": "false"}
    command = ["serve", "--port", "0", "--json", *arguments]
    ours, theirs = os.pipe()
    with os.fdopen(ours) as stdout:
        with (
            (folder / "server.log").open("a") as log,
            Path(os.devnull).open() as nothing,
            os.fdopen(theirs, "w") as output,
        ):
            streams = (nothing.fileno(), output.fileno(), log.fileno())
            surroundings = plain | own | dict(environment or {})
            process = fork_server().start(command, folder, surroundings, streams, stdout=stdout)
        try:
            yield process
        finally:
            process.kill()
            process.wait(PATIENCE)


@contextmanager
def serving(folder: Path, *arguments: str, environment: Mapping[str, str] | None = None) -> Iterator[ServerProcess]:
    """A server in a folder, once it has printed its address; killed at the end if it still runs."""
    with serve_process(folder, *arguments, environment=environment) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line, (folder / "server.log").read_text()
        yield ServerProcess(process, json.loads(line), folder)
