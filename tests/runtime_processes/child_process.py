"""A child process of a test: it follows orders, reports its progress, and is killed, paused or ended."""

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

# How long a test waits for an event; a working program needs a hundredth of it.
PATIENCE = 120.0

# Only the true parent of a process is notified when it stops.
OWN = multiprocessing.get_context("spawn")


class Child:
    """A process that runs a program with one end of a pipe; this is the other end."""

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
        self._reports: list[Words] = []

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

    # --- messages ---------------------------------------------------------------------------------------------------

    def send_order(self, to: str, *words: Any) -> None:
        """Send the next order to a receiver in the child."""
        self._pipe.send((to, *words))

    def receive(self, *beginning: Any) -> Words:
        """Wait for a report that begins with these words, and return the rest; other reports stay queued."""
        while (found := self.received(*beginning)) is None:
            assert self._pipe.poll(PATIENCE), f"it does not say {beginning}, but {self._reports}"
        return found

    def received(self, *beginning: Any) -> Words | None:
        """The rest of a report that begins with these words; None if there is none yet."""
        while True:
            for place, words in enumerate(self._reports):
                if words[: len(beginning)] == beginning:
                    return self._reports.pop(place)[len(beginning) :]
            if not self._pipe.poll():
                return None
            try:
                self._reports.append(self._pipe.recv())
            except EOFError:
                raise AssertionError(f"it ended before it said {beginning}, after {self._reports}") from None

    def fileno(self) -> int:
        """Readable when there is a report: several children can be waited for at once."""
        return int(self._pipe.fileno())

    async def receive_async(self, *beginning: Any) -> Words:
        """The same, while the test's own app continues to run."""
        return await asyncio.to_thread(self.receive, *beginning)

    def everything(self) -> list[Words]:
        """All remaining reports until its end."""
        try:
            while self._pipe.poll(PATIENCE):
                self._reports.append(self._pipe.recv())
        except EOFError:
            return self._reports
        raise AssertionError("it neither speaks nor ends")

    # --- signals ----------------------------------------------------------------------------------------------------

    def kill(self) -> None:
        """Kill it with SIGKILL, as the kernel does when memory runs out."""
        os.kill(self.pid, signal.SIGKILL)
        assert self.exit_code() == -signal.SIGKILL

    def pass_away(self) -> None:
        """The same; where only the lease time shows that it is dead, the time is advanced, too."""
        self.kill()
        let_leases_lapse(self._place, self.pid)

    def terminate(self) -> None:
        """Send SIGTERM, as a supervisor does."""
        os.kill(self.pid, signal.SIGTERM)

    def interrupt(self) -> None:
        """Send SIGINT, as Ctrl-C does."""
        os.kill(self.pid, signal.SIGINT)

    def exit_code(self) -> int:
        """Wait for its end; return its exit code."""
        self._process.join(PATIENCE)
        code = self._process.exitcode
        assert code is not None, "it does not end"
        return int(code)

    def ends_well(self) -> None:
        """Wait for its clean exit, without uncaught errors."""
        self._reports = self.everything()
        assert self.exit_code() == 0
        assert not [words for words in self._reports if words[0] == "trouble"]


def first_to_say(children: Sequence[Child], *beginning: Any) -> tuple[Child, Words]:
    """The first of these children that sends a report with these words, and the rest of the report."""
    while True:
        for child in children:
            if (found := child.received(*beginning)) is not None:
                return child, found
        assert wait([child.fileno() for child in children], PATIENCE), f"nobody says {beginning}"


class OwnChild(Child):
    """A child that can be paused: slower to start, because it is not forked."""

    def _begin(self, context: Any, program: Any, args: Any, kwargs: Any) -> None:  # Any: two kinds of processes
        super()._begin(OWN, program, args, kwargs)

    def pause(self) -> None:
        """Stop it with SIGSTOP; it has stopped when this returns."""
        os.kill(self.pid, signal.SIGSTOP)
        _, status = os.waitpid(self.pid, os.WUNTRACED)
        assert os.WIFSTOPPED(status)

    def go_on(self) -> None:
        """Let it run again. It does not notice the pause."""
        os.kill(self.pid, signal.SIGCONT)
