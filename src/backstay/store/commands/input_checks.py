"""Checks of what callers pass to a command.

Checks that need the store's limits or its host take a transaction, and run as part of the verb.
"""

from collections.abc import Collection, Sequence

import msgspec

from backstay.errors import InvalidPayload
from backstay.model.addresses.address import Address
from backstay.model.codec import check_name, check_text
from backstay.model.content import Body
from backstay.model.history.snapshot import SnapshotQuery
from backstay.model.ids import (
    MessageId,
    SessionId,
    TurnId,
    check_message_id,
    check_session_id,
    check_turn_id,
    check_window_id,
)
from backstay.model.session import SessionFilter
from backstay.store.engine import Transaction
from backstay.store.verbs.turns.submission import TurnRequest

PAGE = 1_000


def check_owner(tx: Transaction, owner: str | None) -> str:
    """The same owner, or a refusal: a session must belong to an owner with a name."""
    return check_name("the owner", owner, tx.limits.name_bytes)


def check_address(address: Address) -> Address:
    """The same address, or a refusal of anything else."""
    if not isinstance(address, Address):
        raise InvalidPayload(f"{address!r} is not an address", hint="Use Address.chat, Address.workspace or .parse.")
    return address


def check_target(to: Address | SessionId) -> Address | SessionId:
    """The same address or session id."""
    return to if isinstance(to, Address) else check_session_id(to)


def located(tx: Transaction, request: TurnRequest) -> TurnRequest:
    """The request with a valid owner; an address without a host is one of this machine."""
    check_owner(tx, request.owner)
    if not isinstance(request.to, Address):
        return request
    here = request.to.on(tx.host)
    return request if here is request.to else msgspec.structs.replace(request, to=here)


def check_filter(tx: Transaction, filter: SessionFilter) -> SessionFilter:
    """The same filter. Raises `TooLarge` if one of its texts is too long."""
    for name in ("tag", "family", "place", "agent"):
        if (wanted := getattr(filter, name)) is not None:
            check_text(f"the {name} to filter by", wanted, tx.limits.message_bytes)
    return filter


def check_names(what: str, names: Collection[str]) -> Collection[str]:
    """The same names. A str is rejected, because it would count as a collection of its letters."""
    if isinstance(names, str | bytes) or not isinstance(names, Collection):
        raise InvalidPayload(f"{what} is {names!r}", hint=f"Pass a list of names: [{names!r}].")
    return names


def check_start(start: bool | Collection[str]) -> bool | Collection[str]:
    """The same agents that the sending worker serves: all, none, or those with these names."""
    return start if isinstance(start, bool) else check_names("start", start)


def check_bodies(bodies: Sequence[Body]) -> Sequence[Body]:
    """The same list of bodies."""
    if isinstance(bodies, str | bytes) or not isinstance(bodies, Sequence):
        raise InvalidPayload(f"bodies is {type(bodies).__name__}", hint="Pass a list of bodies.")
    return bodies


def check_kind(what: str, value: object, kind: type) -> None:
    """Raise unless the value is of this type."""
    if not isinstance(value, kind):
        raise InvalidPayload(f"{what} is {value!r}", hint=f"Pass a {kind.__name__}.")


def check_whole(what: str, value: object) -> int:
    """The same whole number."""
    if type(value) is not int:
        raise InvalidPayload(f"{what} is {value!r}", hint="Pass a whole number.")
    return value


def check_limit(limit: int) -> int:
    """The same limit of a page."""
    if not isinstance(limit, int) or not 1 <= limit <= PAGE:
        raise InvalidPayload(f"limit is {limit}", hint=f"Ask for 1 to {PAGE}.")
    return limit


def check_message_or_turn(at: MessageId | TurnId) -> MessageId | TurnId:
    """The same id, of a message or a turn, or `NotFound`."""
    return check_turn_id(at) if isinstance(at, str) and at.startswith("trn_") else check_message_id(at)


def check_query(query: SnapshotQuery) -> SnapshotQuery:
    """The same query, or a refusal: its ids are ids and its numbers numbers."""
    check_kind("query", query, SnapshotQuery)
    if query.before is not None:
        check_whole("before", query.before)
    check_limit(check_whole("last", query.last))
    if query.window is not None:
        check_window_id(query.window)
    if query.around is not None:
        check_message_id(query.around)
    return query


def check_digest(hash: bytes) -> bytes:
    """The same bytes, or a refusal: only a SHA-256 may be compared with one."""
    if not isinstance(hash, bytes) or len(hash) != 32:
        raise InvalidPayload("a token's hash is not 32 bytes", hint="Pass the SHA-256 of the token.")
    return hash
