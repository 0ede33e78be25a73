"""Totals per owner: the number of sessions and stored bytes, and whether the owner may store more.

They change in the transaction that stores, mostly at the end of a `SessionScope`. A transaction changes the totals
after it has locked its session row, and those of one session only: so on PostgreSQL two transactions never wait for
each other's totals in a circle.
"""

from typing import NamedTuple

from backstay.errors import QuotaExceeded
from backstay.model.ids import SessionId
from backstay.model.operations.store_info import OwnerUsage
from backstay.store.engine import Transaction
from backstay.store.rows import Rows
from backstay.store.session_row import BLOCK, SessionRow, add_to_totals, blocks_of


class _Totals(NamedTuple):
    """The stored amounts of an owner: sessions, blocks of text, bytes of attachments."""

    sessions: int
    blocks: int
    attachments: int


_TOTALS = Rows("totals_of", _Totals)


def usage(tx: Transaction, owner: str) -> OwnerUsage:
    """The sessions and bytes that the owner stores."""
    totals = _TOTALS.one(tx, owner=owner) or _Totals(0, 0, 0)
    return OwnerUsage(sessions=totals.sessions, stored_bytes=totals.blocks * BLOCK + totals.attachments)


def add_session(tx: Transaction, owner: str, session: SessionId, text_bytes: int) -> None:
    """Count an imported session. Raises `QuotaExceeded` if the owner may have no more."""
    require_session(tx, owner)
    add_to_totals(tx, owner, session, sessions=1, blocks=blocks_of(text_bytes))


def require_session(tx: Transaction, owner: str) -> None:
    """Raise `QuotaExceeded` if the owner may have no more sessions."""
    most = tx.limits.sessions_per_owner
    if most is not None and usage(tx, owner).sessions >= most:
        raise QuotaExceeded(
            f"{owner} already has {most:,} sessions", hint="Delete sessions, or ask for a higher limit."
        )


def remove_session(tx: Transaction, owner: str, session: SessionId, text_bytes: int) -> None:
    """Stop counting a session and its text."""
    add_to_totals(tx, owner, session, sessions=-1, blocks=-blocks_of(text_bytes))


def require_room(tx: Transaction, owner: str, adding: int = 0) -> None:
    """Raise `QuotaExceeded` if the owner stores as many bytes as it may, or would with the added ones.

    Only inputs are checked: the answers of agents are always stored.
    """
    most = tx.limits.stored_bytes_per_owner
    if most is None:
        return
    stored = usage(tx, owner).stored_bytes
    if stored >= most or stored + adding > most:
        more = f", this takes {adding:,} more," if adding else ""
        raise QuotaExceeded(
            f"{owner} stores {stored:,} bytes{more} and may store {most:,}",
            hint="Delete sessions or attachments, or ask for a higher limit.",
        )


def require_text(tx: Transaction, session_row: SessionRow, size: int, *, fork: bool = False) -> None:
    """Raise `QuotaExceeded` if the owner may not store so much more text in this session, or in a new fork of it."""
    if not size:
        return
    before = 0 if fork else session_row.text_bytes
    require_room(tx, session_row.owner, adding=max(0, blocks_of(before + size) - blocks_of(before)) * BLOCK)
