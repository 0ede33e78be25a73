"""People who are let in by a code.

A code is only ever given to a person who has written to the gateway, and confirmed by one who may write to the store.
"""

from backstay.errors import NotFound, QuotaExceeded
from backstay.model.gateways.gateway import GatewayInfo, GatewayPerson, OpenGateway
from backstay.store.engine import Transaction
from backstay.store.rows import Rows
from backstay.store.verbs.gateways import gateway_row

# So many people may have a code at once: strangers cannot fill the store.
MOST_CODES = 5
MOST_PEOPLE = 1_000

_PEOPLE = Rows("gateway_people", GatewayPerson)


def people(tx: Transaction, owner: str, gateway: str) -> tuple[GatewayPerson, ...]:
    """People who were let in, and those with a code that has not expired."""
    found = _PEOPLE.all(tx, owner=owner, gateway=gateway)
    return tuple(one for one in found if one.code_until is None or one.code_until > tx.now)


def give_code(tx: Transaction, proof: OpenGateway, wanted: GatewayPerson) -> GatewayPerson | None:
    """Give a person a code, or the one they have. None: no codes are given now, or the person was let in."""
    row = gateway_row.lock(tx, proof)
    known = people(tx, proof.owner, proof.name)
    before = next((one for one in known if one.person == wanted.person), None)
    if before is not None:
        return before if before.code is not None else None
    is_open = row.pairing_until is not None and row.pairing_until > tx.now
    if not is_open and any(one.paired_at is not None for one in known):
        return None
    if sum(one.code is not None for one in known) >= MOST_CODES or any(one.code == wanted.code for one in known):
        return None
    tx.run("delete_old_codes", owner=proof.owner, gateway=proof.name, now=tx.now)
    return _write(tx, proof.owner, proof.name, wanted)


def confirm_code(tx: Transaction, owner: str, gateway: str, code: str) -> GatewayPerson:
    """Let the person in who was given this code."""
    row = gateway_row.named(tx, owner, gateway)
    known = people(tx, owner, gateway)
    found = next((one for one in known if one.code == code), None)
    if found is None:
        raise NotFound(
            f"{gateway} has not given this code, or it has expired",
            hint="Write to the bot again: it answers with a code.",
        )
    if len(known) > MOST_PEOPLE:
        raise QuotaExceeded(f"{gateway} has {MOST_PEOPLE} people", hint="Remove some, or use an allow-list.")
    row.pairing_until = None
    gateway_row.write(tx, row)
    paired = GatewayPerson(person=found.person, name=found.name, code=None, code_until=None, paired_at=tx.now)
    return _write(tx, owner, gateway, paired)


def invite(tx: Transaction, owner: str, gateway: str, lasts: int) -> GatewayInfo:
    """Give codes for a while, although a person was admitted already."""
    row = gateway_row.named(tx, owner, gateway)
    row.pairing_until = tx.now + lasts
    gateway_row.write(tx, row)
    return row.value(tx)


def remove_person(tx: Transaction, owner: str, gateway: str, person: str) -> GatewayPerson:
    """Revoke the admission of a person."""
    gateway_row.named(tx, owner, gateway)
    found = next((one for one in people(tx, owner, gateway) if one.person == person), None)
    if found is None:
        raise NotFound(f"{person!r} was not let in by {gateway}", hint="`backstay gateway` lists people.")
    tx.run("delete_gateway_person", owner=owner, gateway=gateway, person=person)
    return found


def _write(tx: Transaction, owner: str, gateway: str, one: GatewayPerson) -> GatewayPerson:
    tx.run(
        "write_gateway_person",
        owner=owner,
        gateway=gateway,
        person=one.person,
        name=one.name,
        code=one.code,
        code_until=one.code_until,
        paired_at=one.paired_at,
    )
    return one
