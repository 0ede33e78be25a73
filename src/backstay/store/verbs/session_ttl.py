"""The time to live of a session: how long it may be idle, and how old it may become."""

from backstay.errors import InvalidPayload
from backstay.model.session import Ttl
from backstay.store.session_row import LockedRow


def set_ttl(session_row: LockedRow, ttl: Ttl) -> None:
    """Set when the session expires; both times replace the present ones."""
    idle, absolute = _milliseconds(ttl)
    session_row.idle_ttl = idle
    session_row.expires_by = None if absolute is None else session_row.created_at + absolute


def _milliseconds(ttl: Ttl | None) -> tuple[int | None, int | None]:
    if ttl is None:
        return None, None
    if not isinstance(ttl, Ttl):
        raise InvalidPayload(f"a time to live is {ttl!r}", hint="Pass Ttl(idle=…, absolute=…).")
    return _positive("idle", ttl.idle), _positive("absolute", ttl.absolute)


def _positive(what: str, seconds: float | None) -> int | None:
    if seconds is None:
        return None
    if not isinstance(seconds, int | float) or not 0 < seconds < 1e11:
        raise InvalidPayload(f"the {what} time to live is {seconds} seconds", hint="Give a positive number, or None.")
    return max(1, round(seconds * 1000))
