"""A terminal: a child process on a pty, and what a person would see on its screen and above it.

The screen understands what our libraries draw with: cursor movements, erasing, colours (which it forgets), and the
question where the cursor is, which it answers as terminals do.
"""

import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from fcntl import ioctl
from pathlib import Path

from tests.cli.forked_command import PATIENCE, ForkedCommand, fork_server

_TERMINAL = {"TERM": "xterm-256color", "LANG": "C.UTF-8"}

# Makes the pty the program's own terminal, so that Ctrl-C is a signal where the program has not asked for it as a key.
_OWN_TERMINAL = "import fcntl,os,sys,termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); os.execv(sys.argv[1], sys.argv[1:])"

_SEQUENCE = re.compile(
    r"\x1b\[([0-9;?>=<]*)([ -/]*)([@-~])|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|\x1b[()][0-9A-Za-z]|\x1b[78=>DEHMc]"
)
_UNFINISHED = re.compile(r"\x1b(?:\[[0-9;?>=<]*[ -/]*|\][^\x07\x1b]*|[()])?\Z")


class Screen:
    """Lines of text, a cursor, and what has scrolled away above."""

    def __init__(self, rows: int, columns: int) -> None:
        self.rows, self.columns = rows, columns
        self.above: list[str] = []
        self._lines = [[" "] * columns for _ in range(rows)]
        self._row = self._column = 0
        self._rest = ""
        self._wraps = True
        self.answers: list[bytes] = []

    @property
    def lines(self) -> list[str]:
        """The lines of the screen."""
        return ["".join(line).rstrip() for line in self._lines]

    @property
    def text(self) -> str:
        """The whole text, including the lines that have scrolled away."""
        return "\n".join([*self.above, *self.lines]).rstrip()

    def write(self, text: str) -> None:
        """Draw what the child wrote."""
        text = self._rest + text
        cut = _UNFINISHED.search(text)
        self._rest = text[cut.start() :] if cut else ""
        text = text[: cut.start()] if cut else text
        at = 0
        while at < len(text):
            found = _SEQUENCE.match(text, at)
            if found:
                self._obey(found)
                at = found.end()
            else:
                self._put(text[at])
                at += 1

    def _put(self, letter: str) -> None:
        match letter:
            case "\r":
                self._column = 0
            case "\n":
                self._down()
            case "\b":
                self._column = max(0, self._column - 1)
            case "\t":
                self._column = min(self.columns - 1, (self._column // 8 + 1) * 8)
            case _ if letter >= " ":
                if self._column >= self.columns:
                    if self._wraps:
                        self._column = 0
                        self._down()
                    else:
                        self._column = self.columns - 1
                self._lines[self._row][self._column] = letter
                self._column += 1

    def _down(self) -> None:
        if self._row == self.rows - 1:
            self.above.append("".join(self._lines.pop(0)).rstrip())
            self._lines.append([" "] * self.columns)
        else:
            self._row += 1

    def _obey(self, found: "re.Match[str]") -> None:
        parameters, order = found[1], found[3]
        if order is None or found[2]:
            return
        if parameters == "?7":
            self._wraps = order == "h"
        elif order in "ABCDGH" and not parameters.startswith("?"):
            self._move(order, parameters)
        elif order == "J":
            self._erase_screen(_number(parameters))
        elif order == "K":
            self._erase_line(_number(parameters))
        elif order == "n" and parameters == "6":
            self.answers.append(f"\x1b[{self._row + 1};{self._here + 1}R".encode())

    @property
    def _here(self) -> int:
        """The cursor's column; after the last one it still stands on it."""
        return min(self._column, self.columns - 1)

    def _move(self, order: str, parameters: str) -> None:
        count = max(1, _number(parameters))
        match order:
            case "A":
                self._row = max(0, self._row - count)
            case "B":
                self._row = min(self.rows - 1, self._row + count)
            case "C":
                self._column = min(self.columns - 1, self._column + count)
            case "D":
                self._column = max(0, self._here - count)
            case "G":
                self._column = count - 1
            case _:
                row, _, column = parameters.partition(";")
                self._row, self._column = max(1, _number(row)) - 1, max(1, _number(column)) - 1

    def _erase_line(self, what: int) -> None:
        start, end = {0: (self._here, self.columns), 1: (0, self._here + 1)}.get(what, (0, self.columns))
        self._lines[self._row][start:end] = [" "] * (end - start)

    def _erase_screen(self, what: int) -> None:
        if what == 0:
            self._erase_line(0)
            for row in range(self._row + 1, self.rows):
                self._lines[row] = [" "] * self.columns
        else:
            self._lines = [[" "] * self.columns for _ in range(self.rows)]


def _number(text: str) -> int:
    digits = text.lstrip("?>=<").partition(";")[0]
    return int(digits) if digits.isdigit() else 0


class Terminal:
    """A child process whose input and output are a terminal."""

    def __init__(
        self, process: "subprocess.Popen[bytes] | ForkedCommand", master: int, rows: int, columns: int
    ) -> None:
        self.process, self._master = process, master
        self.screen = Screen(rows, columns)
        self.raw = b""

    def type(self, text: str) -> None:
        """Press these keys."""
        os.write(self._master, text.encode())

    def enter(self, line: str) -> None:
        """Type a line and press Enter."""
        self.type(f"{line}\r")

    def control_c(self) -> None:
        """Press Ctrl-C."""
        self.type("\x03")

    @property
    def echoes(self) -> bool:
        """Whether typed keys are echoed, as they are unless a program has switched it off."""
        return bool(termios.tcgetattr(self._master)[3] & termios.ECHO)

    def wait_until(self, seen: Callable[[str], object]) -> str:
        """Wait until this holds for the whole text, and return the text."""
        end = time.monotonic() + PATIENCE
        while not seen(self.screen.text):
            if not self._read(end - time.monotonic()):
                raise AssertionError(f"not seen before the end:\n{self.screen.text}")
        return self.screen.text

    def wait_for(self, text: str) -> str:
        """Until this can be read."""
        return self.wait_until(lambda seen: text in seen)

    def wait_for_end(self) -> int:
        """Until the child has ended; how."""
        end = time.monotonic() + PATIENCE
        while self._read(end - time.monotonic()):
            pass
        return self.process.wait(PATIENCE)

    def _read(self, seconds: float) -> bool:
        """Read what comes next; False when nothing more comes."""
        ready, _, _ = select.select([self._master], [], [], max(0.0, seconds))
        if not ready:
            raise AssertionError(f"nothing more came:\n{self.screen.text}")
        try:
            piece = os.read(self._master, 65_536)
        except OSError:
            piece = b""
        self.raw += piece
        self.screen.write(piece.decode(errors="replace"))
        for answer in self.screen.answers:
            os.write(self._master, answer)
        self.screen.answers.clear()
        return bool(piece)


@contextmanager
def terminal(
    command: Sequence[str | Path],
    *,
    cwd: Path,
    environment: Mapping[str, str],
    rows: int = 40,
    columns: int = 100,
) -> Iterator[Terminal]:
    """The command on a terminal of its own; killed at the end if it still runs."""
    with _pty(rows, columns) as (master, slave):
        process = subprocess.Popen(
            [sys.executable, "-c", _OWN_TERMINAL, *map(str, command)],
            cwd=cwd,
            env={**_TERMINAL, **environment},
            stdin=slave,
            stdout=slave,
            stderr=slave,
            start_new_session=True,
        )
        with _shown(process, master, slave, rows, columns) as shown:
            yield shown


@contextmanager
def forked_terminal(
    arguments: Sequence[str], *, cwd: Path, environment: Mapping[str, str], rows: int = 40, columns: int = 100
) -> Iterator[Terminal]:
    """`backstay` with these arguments on a terminal of its own, without the time that it takes to load it."""
    with _pty(rows, columns) as (master, slave):
        streams = (slave, slave, slave)
        process = fork_server().start(arguments, cwd, {**_TERMINAL, **environment}, streams, terminal=True)
        with _shown(process, master, slave, rows, columns) as shown:
            yield shown


@contextmanager
def _pty(rows: int, columns: int) -> Iterator[tuple[int, int]]:
    master, slave = pty.openpty()
    ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
    try:
        yield master, slave
    finally:
        os.close(master)


@contextmanager
def _shown(
    process: "subprocess.Popen[bytes] | ForkedCommand", master: int, slave: int, rows: int, columns: int
) -> Iterator[Terminal]:
    """Its output until the end: then no other process has the terminal open."""
    os.close(slave)
    try:
        yield Terminal(process, master, rows, columns)
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGKILL)
        process.wait(PATIENCE)
