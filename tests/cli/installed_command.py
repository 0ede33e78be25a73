"""The installed command, run as a person or a script runs it: in a process of its own."""

import json
import os
import pty
import select
import signal
import subprocess
import sysconfig
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from tests.cli.forked_command import PATIENCE, fork_server
from tests.databases import Place

COMMAND = Path(sysconfig.get_path("scripts"), "backstay")


class CommandResult(NamedTuple):
    """The output and the exit status of a command."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:  # Any: the JSON that the command prints
        return json.loads(self.out)

    @property
    def lines(self) -> list[str]:
        return self.out.splitlines()


RunCli = Callable[..., CommandResult]


def environment(folder: Path, place: Place | None, **more: str) -> dict[str, str]:
    """The environment of a user with an empty home, without our variables, and with the agents of these tests."""
    plain = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("BACKSTAY_", "XDG_", "OPENAI_", "_BACKSTAY")) and name not in ("NO_COLOR", "COLUMNS")
    }
    own = {"HOME": str(folder), "TZ": "UTC", "LANG": "C.UTF-8", "PYTHONPATH": str(Path(__file__).parent)}
    return plain | own | ({} if place is None else {"BACKSTAY_DB": str(place)}) | more


def run_cli_in(
    folder: Path, place: Place | None, *arguments: str, stdin: bytes | None = None, **more: str
) -> CommandResult:
    """Run the command to its end; it prints no traceback."""
    result = tell_broken(folder, place, *arguments, stdin=stdin, **more)
    assert "Traceback" not in result.err, result.err
    return result


def tell_broken(
    folder: Path, place: Place | None, *arguments: str, stdin: bytes | None = None, **more: str
) -> CommandResult:
    """Run a command whose agent may raise to its end; the agent's traceback is printed."""
    done = fork_server().run(arguments, folder, environment(folder, place, **more), stdin or b"")
    return CommandResult(done.code, done.out.decode(), done.err.decode())


@contextmanager
def running(folder: Path, place: Place | None, *arguments: str, **more: str) -> "Iterator[subprocess.Popen[str]]":
    """The command while it runs; killed at the end if it still does."""
    process = subprocess.Popen(
        [str(COMMAND), *arguments],
        cwd=folder,
        env=environment(folder, place, PYTHONUNBUFFERED="1", **more),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def on_terminal(folder: Path, place: Place | None, *arguments: str, typed: bytes = b"", **more: str) -> CommandResult:
    """Run the command on a terminal of its own, 100 columns wide; what both streams drew is in `out`."""
    child, terminal = pty.fork()
    if not child:
        os.chdir(folder)
        os.execve(COMMAND, [str(COMMAND), *arguments], environment(folder, place, COLUMNS="100", **more))
    drawn = b""
    try:
        os.write(terminal, typed)
        while True:
            ready, _, _ = select.select([terminal], [], [], PATIENCE)
            assert ready, drawn
            drawn += os.read(terminal, 65_536)
    except OSError:
        pass  # The other side is closed: the command has ended.
    finally:
        os.close(terminal)
        _, status = os.waitpid(child, 0)
    return CommandResult(os.waitstatus_to_exitcode(status), drawn.decode().replace("\r\n", "\n"), "")


def interrupt(process: "subprocess.Popen[str]") -> CommandResult:
    """Press Ctrl-C, and see how it ends."""
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=PATIENCE)
    assert "Traceback" not in err, err
    return CommandResult(process.returncode, out, err)
