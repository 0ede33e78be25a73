"""A verb on its way through the threads that write."""

from collections.abc import Callable
from concurrent.futures import Future
from typing import Generic, TypeVar

T = TypeVar("T")


class Job(Generic[T]):
    """A verb that was begun and not waited for."""

    def __init__(self, future: "Future[T]", on_done: Callable[[], None]) -> None:
        self._future, self._on_done = future, on_done
        future.add_done_callback(self._done)

    def claim(self) -> bool:
        """True if it had not run yet and now never will."""
        return not self._future.cancelled() and self._future.cancel()

    def result(self) -> T:
        """What the verb returned, or raised."""
        return self._future.result()

    def _done(self, future: "Future[T]") -> None:
        if not future.cancelled():
            self._on_done()
