"""The child: a program of others in a process group of its own. It ends when it is closed, and when we end."""

import asyncio
import contextlib
import logging
import os
import shutil
import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from backstay.errors import AgentFailed

log = logging.getLogger("backstay.agents.acp")

LEASH = Path(__file__).with_name("leash.py")
# The longest line that a program may write: tools send whole files in one.
LINE_BYTES = 16 << 20
# How long a program may take to end once nobody speaks to it any more, and then once it was told to.
_FAREWELL, _END = 1.0, 2.5
_LINES_LOGGED, _LINE_LOGGED, _LINE_TOLD = 1_000, 500, 300
_SECRETS = ("PGPASSWORD",)


def surroundings(environment: Mapping[str, str], more: Mapping[str, str]) -> dict[str, str]:
    """The environment of a child: ours, without what opens the server or the store, and what was given for it."""
    ours = {
        name: value
        for name, value in environment.items()
        if not name.startswith(("BACKSTAY_", "_BACKSTAY")) and name not in _SECRETS
    }
    return ours | dict(more)


def find_program(command: Sequence[str], environment: Mapping[str, str]) -> str | None:
    """The absolute path of the program that a command would run, if there is one."""
    found = shutil.which(command[0], path=environment.get("PATH", os.defpath))
    return None if found is None else str(Path(found).absolute())


class Child:
    """A running program. `name` is what it is called in front of people."""

    def __init__(self, name: str, process: asyncio.subprocess.Process, lifeline: int) -> None:
        if process.stdin is None or process.stdout is None or process.stderr is None:
            raise AgentFailed(f"{name} was started without pipes")
        self.name, self.pid = name, process.pid
        self.stdin, self.stdout = process.stdin, process.stdout
        self._process, self._lifeline = process, lifeline
        self._last_line, self._lines = "", 0
        self._hearing = asyncio.create_task(self._hear(process.stderr), name=f"stderr of {name}")
        self._missing = asyncio.create_task(self._miss(), name=f"end of {name}")

    @classmethod
    async def start(cls, command: Sequence[str], cwd: str, environment: Mapping[str, str]) -> "Child":
        """Start the program in this directory; `AgentFailed` if that cannot be."""
        name = Path(command[0]).name
        ours, theirs = os.pipe()[::-1]
        try:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-I", "-S", str(LEASH), str(theirs), *command),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                cwd=cwd,
                env=dict(environment),
                pass_fds=(theirs,),
                start_new_session=True,
                limit=LINE_BYTES,
            )
        except BaseException as error:
            os.close(ours)
            if isinstance(error, OSError | ValueError):
                raise AgentFailed(f"{name} could not be started in {cwd}: {error}") from error
            raise
        finally:
            os.close(theirs)
        return cls(name, process, ours)

    @property
    def ended(self) -> bool:
        """Whether it has ended, by itself or not."""
        return self._process.returncode is not None

    async def gone(self) -> None:
        """Wait for its end."""
        await asyncio.shield(self._missing)

    async def fate(self) -> str:
        """What became of it, in words, with the last that it wrote on standard error. Waits a moment for its end."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_END):
                await asyncio.shield(self._missing)
                await asyncio.shield(self._hearing)
        how = "closed its output" if self._process.returncode is None else _ending(self._process.returncode)
        return f"{how}; its last words were: {self._last_line}" if self._last_line else how

    async def close(self) -> None:
        """End it and wait until it is gone: nobody speaks to it, then it is told, then it is killed."""
        try:
            self.stdin.close()
            if not await self._gone(_FAREWELL):
                self._let_go()
                await self._gone(_END)
        finally:
            self._let_go()
            if not self.ended:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(self.pid, signal.SIGKILL)
        await self._gone(_END)
        self._hearing.cancel()
        await asyncio.wait({self._hearing})
        # Nothing else closes pipes that nobody reads to their end, or that something it started keeps open.
        self._process._transport.close()  # type: ignore[attr-defined]  # noqa: SLF001  # there is no other way to it
        await asyncio.sleep(0)

    def _let_go(self) -> None:
        """Let go of the lifeline, once."""
        if self._lifeline >= 0:
            os.close(self._lifeline)
            self._lifeline = -1

    async def _gone(self, seconds: float) -> bool:
        await asyncio.wait({self._missing}, timeout=seconds)
        return self._missing.done()

    async def _miss(self) -> None:
        """Notice its end."""
        await self._process.wait()
        self._let_go()

    async def _hear(self, stderr: asyncio.StreamReader) -> None:
        """Log what it writes on standard error, some of it, and remember the last line."""
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
        self._last_line = text[:_LINE_TOLD]
        self._lines += 1
        if self._lines <= _LINES_LOGGED:
            log.debug("agent wrote on standard error", extra={"agent": self.name, "line": text[:_LINE_LOGGED]})


def shown(text: str) -> str:
    """A line of a stranger, as it may stand in a sentence of ours."""
    return "".join(letter if letter.isprintable() else " " for letter in text).strip()


def _ending(status: int) -> str:
    number = -status if status < 0 else status - 128
    try:
        return f"ended with exit status {status} ({signal.Signals(number).name})"
    except ValueError:
        return f"ended with exit status {status}"
