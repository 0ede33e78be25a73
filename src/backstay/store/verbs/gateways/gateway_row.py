"""The row of a gateway: it guards the gateway as a session row guards a session.

Every write for a gateway locks this row first, and proves that its worker is still the poller. Session rows are locked
after it, never before.
"""

import msgspec

from backstay.errors import InvalidPayload, LeaseLost, NotFound
from backstay.model.gateways.gateway import GatewayInfo, OpenGateway, PollerHealth
from backstay.model.ids import SessionId, WorkerId
from backstay.store.engine import Lease, Transaction
from backstay.store.rows import Rows
from backstay.store.verbs.owner_totals import require_room


class GatewayRow(msgspec.Struct):
    """The row of a gateway, as it was read."""

    owner: str
    name: str
    cursor: str
    feed: int
    received_at: int | None
    fence: int
    holder: WorkerId | None
    lease_until: int | None
    lease_boot: str | None
    lease_ms: int | None
    created_at: int
    answered_at: int | None
    problem: str
    pairing_until: int | None

    def lease(self) -> Lease | None:
        """The lease of the poller."""
        if self.holder is None or self.lease_until is None or self.lease_boot is None:
            return None
        return Lease(
            # Machines watch leases by the name of what they guard. No session id has a colon.
            session=SessionId(f"gateway:{self.owner}:{self.name}"),
            holder=self.holder,
            fence=self.fence,
            until=self.lease_until,
            boot_id=self.lease_boot,
            lasts=self.lease_ms or 0,
        )

    def value(self, tx: Transaction) -> GatewayInfo:
        """The gateway as a caller sees it."""
        lease = self.lease()
        return GatewayInfo(
            owner=self.owner,
            name=self.name,
            cursor=self.cursor,
            received_at=self.received_at,
            holder=self.holder,
            fence=self.fence,
            created_at=self.created_at,
            is_polled=lease is not None and not tx.lapsed(lease),
            answered_at=self.answered_at,
            problem=self.problem,
            pairing_until=self.pairing_until,
        )

    def proof(self) -> OpenGateway:
        """The proof of the poller."""
        return OpenGateway(
            owner=self.owner,
            name=self.name,
            holder=self.holder or WorkerId(""),
            fence=self.fence,
            cursor=self.cursor,
            feed=self.feed,
            lease_until=self.lease_until or 0,
            lasts=self.lease_ms or 0,
        )


_ROW = Rows("gateway_row", GatewayRow)
_OF_OWNER = Rows("gateways_of", GatewayRow)


def open_gateway(tx: Transaction, owner: str, name: str) -> OpenGateway | None:
    """Make this worker the poller, unless another one is alive. Parts that the last one was sending are in doubt."""
    row = _ROW.one(tx, owner=owner, name=name)
    if row is None:
        require_room(tx, owner)
        tx.run("add_gateway", owner=owner, name=name, now=tx.now)
        row = _ROW.one(tx, owner=owner, name=name)
    if row is None:
        raise InvalidPayload(f"gateway {name!r} cannot be stored")
    lease = row.lease()
    if lease is not None and not tx.lapsed(lease):
        return None
    found, row.fence = row.fence, row.fence + 1
    row.holder, row.lease_ms = tx.worker, tx.lease_ms
    row.lease_until, row.lease_boot = tx.lease()
    write(tx, row, found_fence=found)
    tx.run("doubt_receipts", owner=owner, gateway=name)
    tx.run("doubt_notices", owner=owner, gateway=name)
    return row.proof()


def renew(tx: Transaction, proof: OpenGateway, health: PollerHealth) -> OpenGateway:
    """Renew the lease of the poller, and store the health of the platform."""
    row = lock(tx, proof)
    row.problem = health.problem
    if health.answered:
        row.answered_at = tx.now
    row.lease_until, row.lease_boot = tx.lease()
    write(tx, row)
    return row.proof()


def close(tx: Transaction, proof: OpenGateway) -> GatewayInfo:
    """Give up the lease: another worker may poll at once."""
    row = lock(tx, proof)
    row.holder = row.lease_until = row.lease_boot = row.lease_ms = None
    write(tx, row)
    return row.value(tx)


def named(tx: Transaction, owner: str, name: str) -> GatewayRow:
    """Lock the row for a person, who needs no proof."""
    row = _ROW.one(tx, owner=owner, name=name)
    if row is None:
        raise NotFound(f"there is no gateway {name!r}", hint="`backstay gateway` lists them.")
    return row


def lock(tx: Transaction, proof: OpenGateway) -> GatewayRow:
    """Lock the row for its poller. Raises `LeaseLost` if another worker polls."""
    row = _ROW.one(tx, owner=proof.owner, name=proof.name)
    if row is None or row.holder != proof.holder or row.fence != proof.fence:
        fence = "none" if row is None else row.fence
        raise LeaseLost(f"{proof.holder} no longer polls {proof.name}: fence {proof.fence} is behind {fence}")
    return row


def lock_any(tx: Transaction, owner: str, name: str) -> None:
    """Lock the row for a caller other than its poller: the poller waits until this write is done."""
    if _ROW.one(tx, owner=owner, name=name) is None:
        raise NotFound(f"no gateway {name!r} of {owner!r}")


def write(tx: Transaction, row: GatewayRow, *, found_fence: int | None = None) -> None:
    """Write a locked row."""
    tx.run_guarded(
        "write_gateway",
        owner=row.owner,
        name=row.name,
        cursor=row.cursor,
        feed=row.feed,
        received_at=row.received_at,
        fence=row.fence,
        holder=row.holder,
        lease_until=row.lease_until,
        lease_boot=row.lease_boot,
        lease_ms=row.lease_ms,
        answered_at=row.answered_at,
        problem=row.problem,
        pairing_until=row.pairing_until,
        found_fence=row.fence if found_fence is None else found_fence,
    )


def of_owner(tx: Transaction, owner: str) -> tuple[GatewayInfo, ...]:
    """The gateways of an owner."""
    return tuple(row.value(tx) for row in _OF_OWNER.all(tx, owner=owner))
