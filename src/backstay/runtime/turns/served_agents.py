"""The agents that an app serves, as a collection that is empty once the app is closing."""

import asyncio
from collections.abc import Collection, Iterator


class ServedAgents(Collection[str]):
    """The names of the agents that may start a turn here now.

    The store checks it inside the transaction that starts a turn, after it has read the session row. So a turn that
    could start only because closing ended the previous one is never started. Thread-safe.
    """

    def __init__(self, names: Collection[str], closing: asyncio.Event) -> None:
        self._names, self._closing = frozenset(names), closing

    def __contains__(self, name: object) -> bool:
        return name in self._names and not self._closing.is_set()

    def __iter__(self) -> Iterator[str]:
        return iter(() if self._closing.is_set() else self._names)

    def __len__(self) -> int:
        return 0 if self._closing.is_set() else len(self._names)
