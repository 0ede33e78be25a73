"""Watches leases of other machines on this machine's boot clock, because their clocks cannot be compared with ours.

A lease contains its end on the boot clock of its holder, and its duration. Every renewal moves that end. On the
holder's own machine the end can be compared with the clock. Anywhere else it is only a number that changes: a holder is
gone if this process has seen the same number for as long as the lease lasts. The holder counts from before it wrote the
number, and the watch from after it was read, so the holder always stops first.
"""

import threading
from collections import OrderedDict
from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from backstay.model.ids import SessionId
from backstay.store.engine import Lease, Parameter, Row
from backstay.store.postgres.server_time import ServerTime

# The expiry that a closing holder writes: it does not run its turns any more.
RELEASED = 0
# The duration of a lease that an earlier version took without storing one.
EARLIER_MS = 30_000
# The number of leases that are watched at once. For one that is dropped, the watch starts again.
MOST = 100_000

# A stored sighting: fence, end and boot of the lease, and the time of the sighting.
_StoredLease = tuple[int, int, str, int]


class Sighting(NamedTuple):
    """A lease, and when this process first saw it in this form, on this machine's boot clock."""

    lease: Lease
    at: int


class LeaseWatch:
    """The leases of other machines that this machine has seen. Thread-safe.

    A process that looks only once stores its sightings in the database when it closes. The next process on the same
    boot of the machine continues with them.
    """

    def __init__(self, time: ServerTime) -> None:
        self._time = time
        self._sightings: OrderedDict[SessionId, Sighting] = OrderedDict()
        self._stored: dict[SessionId, _StoredLease] | None = None
        self._lock = threading.Lock()

    @property
    def boot_id(self) -> str:
        """The boot of this machine, on whose clock sightings count."""
        return self._time.boot_id

    def is_here(self, lease: Lease) -> bool:
        """Whether the holder counts on this machine's clock, so that one check shows whether its lease is valid."""
        return lease.until <= RELEASED or lease.boot_id == self._time.boot_id

    def needs_stored(self, lease: Lease) -> bool:
        """Whether this is the first lease of another machine: then the stored sightings must be loaded."""
        return self._stored is None and not self.is_here(lease)

    def recall(self, rows: Sequence[Row]) -> None:
        """Load the sightings of earlier processes on this boot: session, fence, end, boot of the lease, time."""
        with self._lock:
            self._stored = dict(
                msgspec.convert([(row[0], row[1:]) for row in rows], list[tuple[SessionId, _StoredLease]])
            )

    def lapsed(self, lease: Lease) -> bool:
        """Whether the holder is known to have been silent for longer than its lease. The lease was just read."""
        if self.is_here(lease):
            return lease.until <= max(RELEASED, self._time.boot())
        with self._lock:
            now = self._time.boot()
            seen = self._sightings.get(lease.session)
            if seen is None or seen.lease != lease:
                seen = self._sighting_of(lease, now)
        return now - seen.at >= (lease.lasts or EARLIER_MS)

    def to_store(self) -> list[dict[str, Parameter]]:
        """The sightings of this process, as rows for later processes.

        Sorted by session, so that no two writers deadlock.
        """
        with self._lock:
            return [
                {
                    "session": seen.lease.session,
                    "boot_id": self.boot_id,
                    "fence": seen.lease.fence,
                    "lease_until": seen.lease.until,
                    "lease_boot": seen.lease.boot_id,
                    "at": seen.at,
                }
                for _, seen in sorted(self._sightings.items())
            ]

    def _sighting_of(self, lease: Lease, now: int) -> Sighting:
        fence, until, boot, at = (self._stored or {}).get(lease.session, (0, 0, "", now))
        known = (fence, until, boot) == (lease.fence, lease.until, lease.boot_id)
        sighting = self._sightings[lease.session] = Sighting(lease, at if known else now)
        self._sightings.move_to_end(lease.session)
        while len(self._sightings) > MOST:
            self._sightings.popitem(last=False)
        return sighting
