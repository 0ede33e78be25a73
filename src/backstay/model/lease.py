"""A lease: the right to write a session for a while, and who has it."""

import msgspec

from backstay.model.ids import SessionId, WorkerId


class Lease(msgspec.Struct, frozen=True, kw_only=True):
    """Who holds a session. The fence gives safety; the time only says when others may stop waiting."""

    session: SessionId
    holder: WorkerId
    fence: int
    until: int
    boot_id: str
