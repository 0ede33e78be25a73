"""A verb on its way through the writer threads."""

from collections.abc import Callable
from concurrent.futures import Future
from typing import Generic, TypeVar

T = TypeVar("T")


class PostgresJob(Generic[T]):
    """A verb that was started and is not waited for."""

    def __init__(self, future: "Future[T]", on_done: Callable[[], None]) -> None:
        self._future, self._on_done = future, on_done
        future.add_done_callback(self._done)

    def claim(self) -> bool:
        """True if it had not run yet; it will never run then."""
        return not self._future.cancelled() and self._future.cancel()

    def result(self) -> T:
        """The result of the verb, or raises its error."""
        return self._future.result()

    def _done(self, future: "Future[T]") -> None:
        if not future.cancelled():
            self._on_done()
