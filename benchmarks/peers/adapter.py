"""The interface that every peer is driven through. Standard library only."""

from collections.abc import Sequence
from pathlib import Path
from typing import Literal, NoReturn

from benchmarks.peers.workload.content import Said


class Unsupported(Exception):
    """The peer does not offer this operation; the text is the reason, as one sentence."""


class Adapter:
    """One peer, opened on a directory. Sessions are named by the caller.

    A method that a peer does not override is shown as "—". Methods of a peer with a blocking interface never suspend,
    so a thread can run them to their end.
    """

    # How 64 callers reach the peer at once: as tasks of one event loop, as threads, one after the other, or in groups.
    callers: Literal["tasks", "threads", "one", "group"] = "threads"
    # Reasons for operations that are missing, by method name.
    missing: dict[str, str] = {}  # noqa: RUF012  # a constant of each class

    def __init__(self, variant: str) -> None:
        self.variant = variant

    async def open(self, directory: Path) -> None:
        """Open the store in the directory; create it if it is not there."""
        raise NotImplementedError

    async def close(self) -> None:
        """Close the store."""

    async def create(self, name: str) -> None:
        """Create an empty session."""
        raise NotImplementedError

    async def record(self, name: str, turn: Sequence[Said]) -> None:
        """Store one turn. When this returns, the peer has acknowledged the turn."""
        raise NotImplementedError

    async def load(self, name: str) -> list[str]:
        """Read the texts of all messages, oldest first."""
        raise NotImplementedError

    async def seed(self, name: str, turns: Sequence[Sequence[Said]]) -> None:
        """Create a session with a history; not timed."""
        await self.create(name)
        for turn in turns:
            await self.record(name, turn)

    async def record_group(self, names: Sequence[str], turns: Sequence[Sequence[Said]]) -> None:
        """Store one turn of each session together, if `callers` is "group"."""
        self._lacks("record_group")

    async def refresh(self, name: str) -> None:
        """After a rejected write: forget cached state of the session."""

    async def create_and_record(self, name: str, turn: Sequence[Said]) -> None:
        """Create a session and store its first turn."""
        await self.create(name)
        await self.record(name, turn)

    async def last(self, name: str, count: int) -> list[str]:
        """Read the texts of the last messages, oldest first."""
        return self._lacks("last")

    async def resolve(self, name: str) -> object:
        """Find the session that an address or a name leads to."""
        return self._lacks("resolve")

    async def newest(self, count: int) -> int:
        """List the newest sessions; how many were listed."""
        return self._lacks("newest")

    async def fork(self, name: str, new: str) -> None:
        """Branch a session with its whole history."""
        self._lacks("fork")

    async def undo(self, name: str) -> None:
        """Take the last turn back."""
        self._lacks("undo")

    async def begin_turn(self, name: str) -> None:
        """Start a turn whose output is stored step by step; not timed."""

    async def delta(self, name: str, text: str) -> None:
        """Store a piece of streamed text of the running turn."""
        self._lacks("delta")

    async def tool_step(self, name: str, call: str, result: str) -> None:
        """Store a tool call, then its result, as two durable writes: the tool runs between them."""
        self._lacks("tool_step")

    async def end_turn(self, name: str) -> None:
        """End the turn that `begin_turn` started; not timed."""

    def _lacks(self, operation: str) -> NoReturn:
        raise Unsupported(self.missing.get(operation, f"It has no operation for this ({operation})."))
