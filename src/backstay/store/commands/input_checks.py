"""Checks of the arguments of commands.

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
    """Return the owner; raise unless it is a valid name."""
    return check_name("the owner", owner, tx.limits.name_bytes)


def check_address(address: Address) -> Address:
    """Return the address; raise `InvalidPayload` for any other value."""
    if not isinstance(address, Address):
        raise InvalidPayload(f"{address!r} is not an address", hint="Use Address.chat, Address.workspace or .parse.")
    return address


def check_target(to: Address | SessionId) -> Address | SessionId:
    """Return the address or session id; raise if it is neither."""
    return to if isinstance(to, Address) else check_session_id(to)


def located(tx: Transaction, request: TurnRequest) -> TurnRequest:
    """Return the request after a check of its owner. An address without a host gets the host of this machine."""
    check_owner(tx, request.owner)
    if not isinstance(request.to, Address):
        return request
    here = request.to.on(tx.host)
    return request if here is request.to else msgspec.structs.replace(request, to=here)


def check_filter(tx: Transaction, filter: SessionFilter) -> SessionFilter:
    """Return the filter; raise `TooLarge` if one of its texts is too long."""
    for name in ("tag", "family", "place", "agent"):
        if (wanted := getattr(filter, name)) is not None:
            check_text(f"the {name} to filter by", wanted, tx.limits.message_bytes)
    return filter


def check_names(what: str, names: Collection[str]) -> Collection[str]:
    """Return the names. A str is rejected, because it would count as a collection of its letters."""
    if isinstance(names, str | bytes) or not isinstance(names, Collection):
        raise InvalidPayload(f"{what} is {names!r}", hint=f"Pass a list of names: [{names!r}].")
    return names


def check_start(start: bool | Collection[str]) -> bool | Collection[str]:
    """Return the agents that the sending worker serves: all, none, or those with these names."""
    return start if isinstance(start, bool) else check_names("start", start)


def check_bodies(bodies: Sequence[Body]) -> Sequence[Body]:
    """Return the list of bodies; raise `InvalidPayload` for any other value."""
    if isinstance(bodies, str | bytes) or not isinstance(bodies, Sequence):
        raise InvalidPayload(f"bodies is {type(bodies).__name__}", hint="Pass a list of bodies.")
    return bodies


def check_kind(what: str, value: object, kind: type) -> None:
    """Raise unless the value is of this type."""
    if not isinstance(value, kind):
        raise InvalidPayload(f"{what} is {value!r}", hint=f"Pass a {kind.__name__}.")


def check_whole(what: str, value: object) -> int:
    """Return the whole number; raise `InvalidPayload` for any other value."""
    if type(value) is not int:
        raise InvalidPayload(f"{what} is {value!r}", hint="Pass a whole number.")
    return value


def check_limit(limit: int) -> int:
    """Return the limit of a page; raise `InvalidPayload` if it is out of range."""
    if not isinstance(limit, int) or not 1 <= limit <= PAGE:
        raise InvalidPayload(f"limit is {limit}", hint=f"Ask for 1 to {PAGE}.")
    return limit


def check_message_or_turn(at: MessageId | TurnId) -> MessageId | TurnId:
    """Return the id of a message or a turn; raise `NotFound` if it is not one."""
    return check_turn_id(at) if isinstance(at, str) and at.startswith("trn_") else check_message_id(at)


def check_query(query: SnapshotQuery) -> SnapshotQuery:
    """Return the query; raise if one of its fields is not valid."""
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
    """Return the hash; raise `InvalidPayload` unless it has the length of a SHA-256."""
    if not isinstance(hash, bytes) or len(hash) != 32:
        raise InvalidPayload("a token's hash is not 32 bytes", hint="Pass the SHA-256 of the token.")
    return hash
