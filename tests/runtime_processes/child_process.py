"""A child process of a test: it is told what to do, says where it has got to, and is killed, paused or ended."""

import asyncio
import multiprocessing
import os
import signal
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection, wait
from pathlib import Path
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, Self

from tests.crash.worker_processes import PROCESSES
from tests.databases import let_leases_lapse
from tests.runtime_processes.child_pipe import Words

P = ParamSpec("P")

# How long a test waits for what must happen; what works takes a hundredth of it.
PATIENCE = 120.0

# Only the true parent of a process is told when it stops.
OWN = multiprocessing.get_context("spawn")


class Child:
    """A process that runs a program with one end of a line; this is the other end."""

    def __init__(
        self,
        program: "Callable[Concatenate[Connection[Any, Any], P], None]",
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> None:
        self._place = next((given for given in args if isinstance(given, Path | str)), Path())
        self._begin(PROCESSES, program, args, kwargs)

    def _begin(self, context: Any, program: Any, args: Any, kwargs: Any) -> None:  # Any: two kinds of processes
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=program, args=(theirs, *args), kwargs=kwargs, daemon=True)
        self._process.start()
        theirs.close()
        self._heard: list[Words] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.kill()
        self._process.join(PATIENCE)
        self._process.close()
        self._pipe.close()

    @property
    def pid(self) -> int:
        number = self._process.pid
        assert number is not None, "it was started"
        return int(number)

    # --- talking ----------------------------------------------------------------------------------------------------

    def order(self, to: str, *words: Any) -> None:
        """Tell somebody in the child what to do next."""
        self._pipe.send((to, *words))

    def hear(self, *beginning: Any) -> Words:
        """What the child says after these words, once it says them; other reports wait for those who ask for them."""
        while (found := self.said(*beginning)) is None:
            assert self._pipe.poll(PATIENCE), f"it does not say {beginning}, but {self._heard}"
        return found

    def said(self, *beginning: Any) -> Words | None:
        """What the child has said after these words; None if it has not said them yet."""
        while True:
            for place, words in enumerate(self._heard):
                if words[: len(beginning)] == beginning:
                    return self._heard.pop(place)[len(beginning) :]
            if not self._pipe.poll():
                return None
            try:
                self._heard.append(self._pipe.recv())
            except EOFError:
                raise AssertionError(f"it ended before it said {beginning}, after {self._heard}") from None

    def fileno(self) -> int:
        """Readable when the child has said something: several children can be waited for at once."""
        return int(self._pipe.fileno())

    async def heard(self, *beginning: Any) -> Words:
        """The same, while the test's own app goes on."""
        return await asyncio.to_thread(self.hear, *beginning)

    def everything(self) -> list[Words]:
        """All that it still said until it ended."""
        try:
            while self._pipe.poll(PATIENCE):
                self._heard.append(self._pipe.recv())
        except EOFError:
            return self._heard
        raise AssertionError("it neither speaks nor ends")

    # --- signals ----------------------------------------------------------------------------------------------------

    def kill(self) -> None:
        """End it as the kernel does when memory runs out."""
        os.kill(self.pid, signal.SIGKILL)
        assert self.exit_code() == -signal.SIGKILL

    def pass_away(self) -> None:
        """The same; and where only time tells that it is gone, that time passes."""
        self.kill()
        let_leases_lapse(self._place, self.pid)

    def terminate(self) -> None:
        """Ask it to end, as a supervisor does."""
        os.kill(self.pid, signal.SIGTERM)

    def interrupt(self) -> None:
        """Ask it to end, as a person does who presses control and C."""
        os.kill(self.pid, signal.SIGINT)

    def exit_code(self) -> int:
        """How it ended, once it has."""
        self._process.join(PATIENCE)
        code = self._process.exitcode
        assert code is not None, "it does not end"
        return int(code)

    def ends_well(self) -> None:
        """Wait for its end, which is in good order: nothing went wrong on the way that nobody caught."""
        self._heard = self.everything()
        assert self.exit_code() == 0
        assert not [words for words in self._heard if words[0] == "trouble"]


def first_to_say(children: Sequence[Child], *beginning: Any) -> tuple[Child, Words]:
    """Whichever of these children says these words first, and what it says after them."""
    while True:
        for child in children:
            if (found := child.said(*beginning)) is not None:
                return child, found
        assert wait([child.fileno() for child in children], PATIENCE), f"nobody says {beginning}"


class OwnChild(Child):
    """A child that can be paused: slower to start, because it is forked from nobody."""

    def _begin(self, context: Any, program: Any, args: Any, kwargs: Any) -> None:  # Any: two kinds of processes
        super()._begin(OWN, program, args, kwargs)

    def pause(self) -> None:
        """Stop it where it stands; when this returns it has stopped."""
        os.kill(self.pid, signal.SIGSTOP)
        _, status = os.waitpid(self.pid, os.WUNTRACED)
        assert os.WIFSTOPPED(status)

    def go_on(self) -> None:
        """Let it run again. It does not know that it was away."""
        os.kill(self.pid, signal.SIGCONT)
