"""The stage: where a chat is shown and where a person is heard. In a terminal one types while the answer streams;
from a pipe, line after line is read and answered.
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

from backstay.cli.chat.story import Block


class Line(msgspec.Struct, frozen=True):
    """A person said this; `offered` if they began with what was put before them, and not with an empty line."""

    text: str
    offered: bool = False


# A person pressed Ctrl-C, will say nothing more, or is leaving.
Heard = Line | Literal["interrupt", "end", "leave"]

# Whoever sends these wants us gone, in good order.
_FAREWELLS = (signal.SIGTERM, signal.SIGHUP)


class Stage(Protocol):
    """Shows blocks and hears lines. `paced`: the next line is asked for when the one before is answered."""

    @property
    def paced(self) -> bool: ...

    async def show(self, blocks: Sequence[Block]) -> None:
        """Draw these below what was drawn before."""
        ...

    def refresh(self) -> None:
        """The tail has changed."""
        ...

    async def hear(self) -> Heard:
        """What a person does next."""
        ...

    def go_on(self) -> None:
        """The line that was heard is dealt with."""
        ...

    def put(self, text: str) -> bool:
        """Offer words where a person can change them; False where nobody can."""
        ...


class PipeInput:
    """Lines of standard input, and signals. `errors` says what becomes of bytes that are no text."""

    UNREADABLE = "surrogateescape"

    def __init__(self, errors: str = UNREADABLE) -> None:
        self._errors = errors
        self._heard: asyncio.Queue[Heard] = asyncio.Queue()
        # The next line is read when the one before was dealt with: a long file waits in its pipe, not in our memory.
        self._taken = threading.Semaphore(1)

    @asynccontextmanager
    async def open(self) -> AsyncIterator[Self]:
        """Listen inside the block."""
        loop = asyncio.get_running_loop()
        # A thread that nobody waits for: it may be reading when everything else is over.
        threading.Thread(target=self._read, args=[loop], name="backstay input", daemon=True).start()
        loop.add_signal_handler(signal.SIGINT, self._heard.put_nowait, "interrupt")
        try:
            with farewells(self._heard):
                yield self
        finally:
            loop.remove_signal_handler(signal.SIGINT)

    async def hear(self) -> Heard:
        """What comes next."""
        return await self._heard.get()

    def go_on(self) -> None:
        """The line that was heard is dealt with; the next may come."""
        self._taken.release()

    def _read(self, loop: asyncio.AbstractEventLoop) -> None:
        def hand_over(heard: Heard) -> None:
            loop.call_soon_threadsafe(self._heard.put_nowait, heard)

        with suppress(RuntimeError):  # The loop is closed: nobody listens any more.
            for line in _lines(sys.stdin.fileno()) if sys.stdin else ():
                self._taken.acquire()
                hand_over(Line(line.decode(errors=self._errors).rstrip("\r")))
            hand_over("end")


def _lines(descriptor: int) -> Iterator[bytes]:
    """The lines that are read there, without their ends.

    Not from Python's own buffer: its lock is held while it waits, and an interpreter that ends meanwhile aborts.
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


class PipeStage(PipeInput):
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
        """Nothing is shown before it is finished."""

    def put(self, text: str) -> bool:
        return False


@contextmanager
def farewells(heard: "asyncio.Queue[Heard]") -> Iterator[None]:
    """Inside the block, a signal to end is heard as a person who leaves."""
    loop = asyncio.get_running_loop()
    for number in _FAREWELLS:
        loop.add_signal_handler(number, heard.put_nowait, "leave")
    try:
        yield
    finally:
        for number in _FAREWELLS:
            loop.remove_signal_handler(number)


def is_terminal() -> bool:
    """Whether a person sits at both ends."""
    return (
        sys.stdin is not None
        and sys.stdin.isatty()
        and sys.stdout.isatty()
        and os.environ.get("TERM", "dumb") != "dumb"
    )


def history_file(environment: Mapping[str, str]) -> Path | None:
    """Where the lines a person typed are kept, for them alone; None if there is no such place."""
    chosen = Path(environment.get("XDG_STATE_HOME", ""))
    try:
        folder = (chosen if chosen.is_absolute() else Path.home() / ".local" / "state") / "backstay"
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        path = folder / "chat-history"
        path.touch(0o600)
        return path if os.access(path, os.R_OK | os.W_OK) else None
    except (OSError, RuntimeError):
        return None
