"""A lease: the right to write a session for a limited time, and its holder."""

import msgspec

from backstay.model.ids import SessionId, WorkerId


class Lease(msgspec.Struct, frozen=True, kw_only=True):
    """The lease of a session. The fence gives safety; the time only limits how long others wait.

    Attributes:
        session: The session.
        holder: The worker that has the lease.
        fence: The fence under which it writes.
        until: When it expires, on the boot clock of the holder's machine.
        boot_id: Identifies that machine and its boot.
        lasts: Milliseconds from each renewal; 0 for a lease taken by an earlier version.
    """

    session: SessionId
    holder: WorkerId
    fence: int
    until: int
    boot_id: str
    lasts: int = 0
