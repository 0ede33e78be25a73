"""A job: one verb on its way through the writer, and its waiting caller."""

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

import apsw

T = TypeVar("T")


class SqliteJob(Generic[T]):
    """A verb that the writer will run, then its result. Claimed once: by the writer, or by a caller that gives up."""

    __slots__ = ("_claim", "_done", "_on_done", "_value", "durable", "error", "exclusive", "work")

    def __init__(
        self,
        work: Callable[[apsw.Connection], T],
        *,
        durable: bool = True,
        exclusive: bool = False,
        on_done: Callable[[], None] | None = None,
    ) -> None:
        self.work = work
        self._on_done = on_done
        self.durable = durable
        self.exclusive = exclusive
        self.error: BaseException | None = None
        self._claim = threading.Lock()
        self._done = threading.Lock()
        self._done.acquire()

    def claim(self) -> bool:
        """True for the first caller: the writer that will run the job, or the thread that stops waiting for it."""
        return self._claim.acquire(blocking=False)

    def attempt(self, connection: apsw.Connection) -> None:
        """Run the verb inside the open transaction; the writer handles its exceptions."""
        self._value = self.work(connection)

    def deliver(self) -> None:
        """Wake the caller: the result is durable, or the error final."""
        self._done.release()
        if self._on_done is not None:
            self._on_done()

    def wait(self, seconds: float) -> bool:
        """Wait for the result; False if it did not come in time. The job is then withdrawn and will never run."""
        # A job that the writer has claimed is being committed: only its end shows the result.
        return self._done.acquire(timeout=seconds) or (not self.claim() and self._done.acquire())

    def result(self) -> T:
        """The result of the verb, or raises its error."""
        if self.error is not None:
            raise self.error
        return self._value
