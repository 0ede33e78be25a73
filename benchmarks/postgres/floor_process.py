"""The floor on PostgreSQL as a process: asyncpg in an environment of its own, which is made from the package index."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, NamedTuple

from backstay.store.postgres.conninfo import CONNECTIONS
from benchmarks.peers.catalog import Peer
from benchmarks.peers.environments import InstallFailed, python_of

ASYNCPG = Peer(
    key="asyncpg", title="asyncpg", adapter="", environment="asyncpg", package="asyncpg", about="The driver."
)
PROGRAM = Path(__file__).with_name("asyncpg_floor.py")


class Spent(NamedTuple):
    """Seconds, and processor seconds of the client."""

    seconds: float
    client: float


class Floor:
    """A number of clients that record turns on request."""

    def __init__(self, asked: IO[str], answered: IO[str]) -> None:
        self._asked, self._answered = asked, answered

    def record(self, turns: int) -> Spent:
        """Have each client record this number of turns, concurrently."""
        print(turns, file=self._asked, flush=True)
        return Spent(*map(float, self._answered.readline().split()))


@contextmanager
def floor(url: str, clients: int) -> Iterator[Floor | None]:
    """Clients on a database of their own, with as many connections as a store has; None without the package index."""
    try:
        python = python_of(ASYNCPG, lambda said: print(said, file=sys.stderr))
    except InstallFailed as error:
        print(f"asyncpg is left out: {error}", file=sys.stderr)
        yield None
        return
    command = [str(python), str(PROGRAM), url, str(clients), str(min(clients, CONNECTIONS))]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        if process.stdin is None or process.stdout is None:
            raise RuntimeError("the process has no pipes")
        yield Floor(process.stdin, process.stdout)
        process.stdin.close()
