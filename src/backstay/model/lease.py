"""A lease: the right to write a session for a limited time, and its holder."""

import msgspec

from backstay.model.ids import SessionId, WorkerId


class Lease(msgspec.Struct, frozen=True, kw_only=True):
    """The lease of a session. The fence gives safety; the time only limits how long others wait.

    Attributes:
        session: the session.
        holder: the worker that has the lease.
        fence: the fence under which it writes.
        until: when it expires, on the boot clock of the holder's machine.
        boot_id: identifies that machine and its boot.
        lasts: milliseconds from each renewal; 0 for a lease taken by an earlier version.
    """

    session: SessionId
    holder: WorkerId
    fence: int
    until: int
    boot_id: str
    lasts: int = 0
