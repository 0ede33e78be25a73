"""The version of the store: a number that changes with every commit that changes something, and with nothing else."""

from hashlib import blake2b
from typing import NamedTuple

from backstay.store.postgres.protocol.pipeline import Pipeline

# A snapshot changes at the moment at which a commit becomes visible, but also when a transaction is undone or changes
# nothing. The marks of the writers change with their commits only. So they are read only if the snapshot has changed.
_VERSION = b"""
SELECT CAST(pg_current_snapshot() AS text),
    (SELECT concat_ws(' ', count(*), sum(hashtextextended(writer, number))) FROM commits)
WHERE CAST(pg_current_snapshot() AS text) <> $1
"""


class _Read(NamedTuple):
    """A version, its snapshot, and when a connection had last been lost before it was read."""

    version: int
    snapshot: str
    disconnected_at: int


class VersionReader:
    """Reads the version in one round trip."""

    def __init__(self) -> None:
        self._last = _Read(0, "", 0)

    def read(self, pipeline: Pipeline, disconnected_at: int) -> int:
        """The version now.

        Args:
            pipeline: A pipeline outside of a transaction.
            disconnected_at: When a connection was last lost. A server that crashed may give the ids of lost
                transactions to others, but it has cut every connection.
        """
        last = self._last
        known = last.snapshot if last.disconnected_at == disconnected_at else ""
        rows = pipeline.rows(_VERSION, (known,))
        if not rows:
            return last.version
        ((snapshot, marks),) = rows
        version = int.from_bytes(blake2b(f"{marks} {disconnected_at}".encode(), digest_size=7).digest())
        self._last = _Read(version, str(snapshot), disconnected_at)
        return version
