"""An external program in a process group of its own. It ends when it is closed, and when our process ends."""

import asyncio
import contextlib
import logging
import os
import shutil
import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from backstay.agents.programs.directory import Directory, open_directory
from backstay.agents.roots import AgentRoots
from backstay.errors import AgentFailed

log = logging.getLogger("backstay.agents.programs")

LEASH = Path(__file__).with_name("leash.py")
# The longest line that a program may write: tools send whole files in one line.
LINE_BYTES = 16 << 20
# How long a program may take to exit after its input is closed, and then after SIGTERM.
_CLOSE_SECONDS, _KILL_SECONDS = 1.0, 2.5
_LINES_LOGGED, _LINE_LOGGED, _LINE_QUOTED = 1_000, 500, 300


def find_program(command: Sequence[str], environment: Mapping[str, str]) -> str | None:
    """Return the absolute path of the program that a command would run, or None."""
    found = shutil.which(command[0], path=environment.get("PATH", os.defpath))
    return None if found is None else str(Path(found).absolute())


class Child:
    """A running program. `name` is its name in messages; `directory` is where it was started."""

    def __init__(self, name: str, directory: str, process: asyncio.subprocess.Process, lifeline: int) -> None:
        if process.stdin is None or process.stdout is None or process.stderr is None:
            raise AgentFailed(f"{name} was started without pipes")
        self.name, self.directory, self.pid = name, directory, process.pid
        self.stdin, self.stdout = process.stdin, process.stdout
        self._process, self._lifeline = process, lifeline
        self._last_line, self._lines = "", 0
        self._reading_stderr = asyncio.create_task(self._read_stderr(process.stderr), name=f"stderr of {name}")
        self._exit = asyncio.create_task(self._wait_for_exit(), name=f"end of {name}")

    @classmethod
    async def start(
        cls, command: Sequence[str], cwd: str, environment: Mapping[str, str], roots: AgentRoots
    ) -> "Child":
        """Start the program in this directory; raise `AgentFailed` if it is outside the roots or the start fails."""
        name = Path(command[0]).name
        async with open_directory(cwd, roots) as directory:
            return cls(name, directory.path, *await cls._spawn(name, command, directory, environment))

    @staticmethod
    async def _spawn(
        name: str, command: Sequence[str], directory: Directory, environment: Mapping[str, str]
    ) -> tuple[asyncio.subprocess.Process, int]:
        """Start the process; return it and our end of its lifeline."""
        parent_end, child_end = os.pipe()[::-1]
        try:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-I", "-S", str(LEASH), str(child_end), str(directory.fd), *command),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                env=dict(environment),
                pass_fds=(child_end, directory.fd),
                start_new_session=True,
                limit=LINE_BYTES,
            )
        except BaseException as error:
            os.close(parent_end)
            if isinstance(error, OSError | ValueError):
                raise AgentFailed(f"{name} could not be started in {directory.path}: {error}") from error
            raise
        finally:
            os.close(child_end)
        return process, parent_end

    @property
    def ended(self) -> bool:
        """Whether the process has ended."""
        return self._process.returncode is not None

    async def gone(self) -> None:
        """Wait until the process has ended."""
        await asyncio.shield(self._exit)

    async def exit_summary(self) -> str:
        """Describe how the process ended, with its last line on standard error. Waits a moment for the end."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_KILL_SECONDS):
                await asyncio.shield(self._exit)
                await asyncio.shield(self._reading_stderr)
        how = "closed its output" if self._process.returncode is None else _ending(self._process.returncode)
        return f"{how}; its last line on standard error was: {self._last_line}" if self._last_line else how

    async def close(self) -> None:
        """End the process and wait for it: close its input, then release the lifeline (SIGTERM), then SIGKILL."""
        try:
            self.stdin.close()
            if not await self._has_exited(_CLOSE_SECONDS):
                self._release_lifeline()
                await self._has_exited(_KILL_SECONDS)
        finally:
            self._release_lifeline()
            if not self.ended:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(self.pid, signal.SIGKILL)
        await self._has_exited(_KILL_SECONDS)
        self._reading_stderr.cancel()
        await asyncio.gather(self._reading_stderr, return_exceptions=True)
        # Closes pipes that were not read to their end, or that a grandchild keeps open.
        self._process._transport.close()  # type: ignore[attr-defined]  # noqa: SLF001  # there is no public way
        await asyncio.sleep(0)

    def _release_lifeline(self) -> None:
        """Close our end of the lifeline, once."""
        if self._lifeline >= 0:
            os.close(self._lifeline)
            self._lifeline = -1

    async def _has_exited(self, seconds: float) -> bool:
        await asyncio.wait({self._exit}, timeout=seconds)
        return self._exit.done()

    async def _wait_for_exit(self) -> None:
        """Wait for the end of the process."""
        await self._process.wait()
        self._release_lifeline()

    async def _read_stderr(self, stderr: asyncio.StreamReader) -> None:
        """Log the first lines of standard error, and keep the last line."""
        begun = b""
        while piece := await stderr.read(65_536):
            *lines, begun = (begun + piece).split(b"\n")
            for line in lines:
                self._note(line)
            begun = begun[:65_536]
        self._note(begun)

    def _note(self, line: bytes) -> None:
        text = shown(line.decode(errors="replace"))
        if not text:
            return
        self._last_line = text[:_LINE_QUOTED]
        self._lines += 1
        if self._lines <= _LINES_LOGGED:
            log.debug("agent wrote on standard error", extra={"agent": self.name, "line": text[:_LINE_LOGGED]})


def shown(text: str) -> str:
    """Make a line of the program safe to quote in a message."""
    return "".join(letter if letter.isprintable() else " " for letter in text).strip()


def _ending(status: int) -> str:
    number = -status if status < 0 else status - 128
    try:
        return f"ended with exit status {status} ({signal.Signals(number).name})"
    except ValueError:
        return f"ended with exit status {status}"
