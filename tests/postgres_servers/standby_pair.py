"""A primary and a standby that has every committed transaction, and the failover between them."""

import os
import signal
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from types import TracebackType
from typing import Self
from urllib.parse import urlencode

from tests.postgres_servers.postgres import HOST, USER, Home, Postgres

# A commit is answered when the standby has it on its disk. Both are set up alike, so that the standby, once promoted,
# acknowledges nothing either before it has a standby of its own.
SYNCHRONOUS = {"cluster_name": "standby", "synchronous_standby_names": "FIRST 1 (standby)", "wal_keep_size": "256MB"}


class StandbyPair:
    """Two servers on two fixed ports, either of which may be the primary."""

    def __init__(self, home: Home, *, settings: Mapping[str, str] | None = None) -> None:
        self._home = home
        self._settings = {**SYNCHRONOUS, **(settings or {})}
        self.primary = Postgres(home, settings=self._settings)
        self.standby = self._follow(self.primary, port=0)
        self._ports = (self.primary.port, self.standby.port)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.primary.close()
        self.standby.close()

    def url(self, database: str, **parameters: str) -> str:
        """Both hosts; a client takes the one that can be written."""
        hosts = ",".join(f"{HOST}:{port}" for port in self._ports)
        query = urlencode({"target_session_attrs": "read-write", **parameters})
        return f"postgresql://{USER}@{hosts}/{database}?{query}"

    def lose_primary(self) -> None:
        """Kill the primary permanently; some of its processes may still answer for a moment."""
        self.primary.kill()

    def promote(self) -> None:
        """The standby becomes the primary, and a new standby takes the place of the one that was lost."""
        lost, self.primary = self.primary, self.standby
        lost.close()
        self.primary.query("SELECT pg_promote(true, 60)")
        self.standby = self._follow(self.primary, port=lost.port)

    @contextmanager
    def losing_primary(self) -> Iterator[None]:
        """Inside the block nothing reaches the standby any more, and the primary waits for it; then it is lost."""
        [(sender,)] = self.primary.query("SELECT pid FROM pg_stat_replication WHERE application_name = 'standby'")
        os.kill(sender, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(self.primary.pid, signal.SIGKILL)
            os.kill(sender, signal.SIGKILL)
            self.lose_primary()

    def losing_unsynced(self) -> AbstractContextManager[None]:
        """Inside the block only commits that wait for the disk reach it and the standby; then the primary is lost."""
        return self.primary.losing_unsynced()

    def waiting_for_standby(self) -> list[int]:
        """The processes of the primary that have committed and wait until the standby has it too."""
        return [pid for (pid,) in self.primary.query("SELECT pid FROM pg_stat_activity WHERE wait_event = 'SyncRep'")]

    def _follow(self, primary: Postgres, port: int) -> Postgres:
        """A new standby; returns when the primary waits for it before it answers."""
        data = self._home.folder() / "data"
        source = f"--host={HOST} --port={primary.port} --username={USER} --pgdata={data}"
        self._home.run("pg_basebackup", *source.split(), *"--write-recovery-conf --checkpoint=fast --no-sync".split())
        standby = Postgres(self._home, data=data, settings=self._settings, port=port)
        # A writing transaction is answered only when the standby has it.
        primary.query("SELECT pg_logical_emit_message(true, 'backstay', 'is anybody there?')")
        return standby
