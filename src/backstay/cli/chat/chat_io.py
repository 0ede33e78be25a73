"""The input and output of a chat. In a terminal, people can type while the answer streams; from a pipe, lines are read
and answered one after the other.
"""

import asyncio
import os
import signal
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Literal, Protocol, Self

import msgspec

from backstay.cli.chat.blocks import Block


class TypedLine(msgspec.Struct, frozen=True):
    """A line of input; `offered` if it started as a message that was offered for editing."""

    text: str
    offered: bool = False


# A line, Ctrl-C, the end of the input, or a request to exit.
UserInput = TypedLine | Literal["interrupt", "end", "exit"]

# These signals ask the process to exit in an orderly way.
_EXIT_SIGNALS = (signal.SIGTERM, signal.SIGHUP)


class ChatIO(Protocol):
    """Shows blocks and reads lines. `paced`: the next line is read after the answer to the one before."""

    @property
    def paced(self) -> bool: ...

    async def show(self, blocks: Sequence[Block]) -> None:
        """Draw these below the earlier blocks."""
        ...

    def refresh(self) -> None:
        """Draw the tail again, because it has changed."""
        ...

    async def read_input(self) -> UserInput:
        """Return the next input."""
        ...

    def resume(self) -> None:
        """Report that the last line has been executed."""
        ...

    def put(self, text: str) -> bool:
        """Offer a text for editing; False if this input has no editor."""
        ...


class PipeInput:
    """Lines of standard input, and signals. `errors` is the handler for bytes that are not valid UTF-8."""

    UNREADABLE = "surrogateescape"

    def __init__(self, errors: str = UNREADABLE) -> None:
        self._errors = errors
        self._inputs: asyncio.Queue[UserInput] = asyncio.Queue()
        # The next line is read after the one before was executed: a long file stays in its pipe, not in our memory.
        self._taken = threading.Semaphore(1)

    @asynccontextmanager
    async def open(self) -> AsyncIterator[Self]:
        """Read input inside the block."""
        loop = asyncio.get_running_loop()
        # A daemon thread: it may still be blocked in a read when the chat ends.
        threading.Thread(target=self._read, args=[loop], name="backstay input", daemon=True).start()
        loop.add_signal_handler(signal.SIGINT, self._inputs.put_nowait, "interrupt")
        try:
            with exit_signals(self._inputs):
                yield self
        finally:
            loop.remove_signal_handler(signal.SIGINT)

    async def read_input(self) -> UserInput:
        """Return the next input."""
        return await self._inputs.get()

    def resume(self) -> None:
        """Report that the last line has been executed, so that the next can be read."""
        self._taken.release()

    def _read(self, loop: asyncio.AbstractEventLoop) -> None:
        def hand_over(user_input: UserInput) -> None:
            loop.call_soon_threadsafe(self._inputs.put_nowait, user_input)

        with suppress(RuntimeError):  # The loop is closed: the chat has ended.
            for line in _lines(sys.stdin.fileno()) if sys.stdin else ():
                self._taken.acquire()
                hand_over(TypedLine(line.decode(errors=self._errors).rstrip("\r")))
            hand_over("end")


def _lines(descriptor: int) -> Iterator[bytes]:
    """Yield the lines of a file descriptor, without their line ends.

    Not through Python's buffered reader: its lock is held while it waits, and an interpreter that exits then aborts.
    """
    begun: list[bytes] = []
    while piece := os.read(descriptor, 65_536):
        *whole, rest = piece.split(b"\n")
        for line in whole:
            yield b"".join([*begun, line])
            begun.clear()
        begun.append(rest)
    if last := b"".join(begun):
        yield last


class PipeIO(PipeInput):
    """Reads lines from standard input, writes finished blocks as plain text to standard output."""

    paced = True

    def __init__(self, spell: Callable[[Block], str]) -> None:
        super().__init__(errors="replace")
        self._spell = spell

    async def show(self, blocks: Sequence[Block]) -> None:
        for block in blocks:
            sys.stdout.write(self._spell(block) + "\n")
        if blocks:
            sys.stdout.flush()

    def refresh(self) -> None:
        """Do nothing: only finished blocks are written."""

    def put(self, text: str) -> bool:
        return False


@contextmanager
def exit_signals(user_input: "asyncio.Queue[UserInput]") -> Iterator[None]:
    """Inside the block, SIGTERM and SIGHUP are treated as a request to exit."""
    loop = asyncio.get_running_loop()
    for number in _EXIT_SIGNALS:
        loop.add_signal_handler(number, user_input.put_nowait, "exit")
    try:
        yield
    finally:
        for number in _EXIT_SIGNALS:
            loop.remove_signal_handler(number)


def is_terminal() -> bool:
    """Whether a person uses both standard input and standard output."""
    return (
        sys.stdin is not None
        and sys.stdin.isatty()
        and sys.stdout.isatty()
        and os.environ.get("TERM", "dumb") != "dumb"
    )


def history_file(environment: Mapping[str, str]) -> Path | None:
    """Return the file of the input history, private to the user; None if it cannot be used."""
    chosen = Path(environment.get("XDG_STATE_HOME", ""))
    try:
        folder = (chosen if chosen.is_absolute() else Path.home() / ".local" / "state") / "backstay"
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        path = folder / "chat-history"
        path.touch(0o600)
        return path if os.access(path, os.R_OK | os.W_OK) else None
    except (OSError, RuntimeError):
        return None
