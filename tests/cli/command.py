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

from tests.databases import Place

COMMAND = Path(sysconfig.get_path("scripts"), "backstay")
# How long a test waits for what must happen; what works takes a hundredth of it.
PATIENCE = 120.0


class Told(NamedTuple):
    """What a command wrote, and how it ended."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:  # Any: whatever the command answers
        return json.loads(self.out)

    @property
    def lines(self) -> list[str]:
        return self.out.splitlines()


Tell = Callable[..., Told]


def environment(folder: Path, place: Place | None, **more: str) -> dict[str, str]:
    """A person with an empty home, nothing of ours in their environment, and the agents of these tests at hand."""
    plain = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("BACKSTAY_", "XDG_", "OPENAI_", "_BACKSTAY")) and name not in ("NO_COLOR", "COLUMNS")
    }
    own = {"HOME": str(folder), "TZ": "UTC", "LANG": "C.UTF-8", "PYTHONPATH": str(Path(__file__).parent)}
    return plain | own | ({} if place is None else {"BACKSTAY_DB": str(place)}) | more


def tell(folder: Path, place: Place | None, *arguments: str, stdin: bytes | None = None, **more: str) -> Told:
    """Run the command to its end."""
    done = subprocess.run(
        [str(COMMAND), *arguments],
        cwd=folder,
        env=environment(folder, place, **more),
        input=stdin or b"",
        capture_output=True,
        timeout=PATIENCE,
        check=False,
    )
    told = Told(done.returncode, done.stdout.decode(), done.stderr.decode())
    assert "Traceback" not in told.err, told.err
    return told


@contextmanager
def running(folder: Path, place: Place, *arguments: str) -> "Iterator[subprocess.Popen[str]]":
    """The command while it runs; killed at the end if it still does."""
    process = subprocess.Popen(
        [str(COMMAND), *arguments],
        cwd=folder,
        env=environment(folder, place, PYTHONUNBUFFERED="1"),
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


def on_terminal(folder: Path, place: Place | None, *arguments: str, typed: bytes = b"", **more: str) -> Told:
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
    return Told(os.waitstatus_to_exitcode(status), drawn.decode().replace("\r\n", "\n"), "")


def interrupt(process: "subprocess.Popen[str]") -> Told:
    """Press Ctrl-C, and see how it ends."""
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=PATIENCE)
    assert "Traceback" not in err, err
    return Told(process.returncode, out, err)
