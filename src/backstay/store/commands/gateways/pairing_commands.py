"""Commands of pairing: people are let in by a code that a gateway gave them."""

from backstay.errors import InvalidPayload, NotFound, TooLarge
from backstay.model.codec import check_name, check_text
from backstay.model.gateways.gateway import GatewayInfo, GatewayPerson, OpenGateway
from backstay.store.commands.command import Read, Write
from backstay.store.commands.input_checks import check_kind
from backstay.store.engine import Transaction
from backstay.store.verbs.gateways import pairing

# A code is typed from one screen into another.
_CODE_SECONDS = 600.0
_INVITATION_SECONDS = 900.0
_MOST_NAME_BYTES = 1 << 10


def gateway_people(gateway: str, *, owner: str) -> Read[tuple[GatewayPerson, ...]]:
    """Read the people who were admitted by a code, and those who have one.

    Args:
        gateway: The name of the gateway.
        owner: Its owner.

    Returns:
        The people, by id.
    """
    return Read(name="gateway_people", owner=owner, snapshot=False, verb=lambda tx: pairing.people(tx, owner, gateway))


def give_code(
    gateway: OpenGateway, person: str, name: str, code: str, *, seconds: float = _CODE_SECONDS
) -> Write[GatewayPerson | None]:
    """Give a code to a person who may not write to the gateway yet. A person who has one keeps it.

    Codes are given before the first person is admitted, and after an invitation; to five people at once.

    Args:
        gateway: The proof.
        person: The platform's id of the person.
        name: The name that the person has on the platform.
        code: A new code that cannot be guessed.
        seconds: How long it is valid.

    Returns:
        The person with the code; None if no code is given.

    Raises:
        LeaseLost: Another worker polls.
        InvalidPayload: An argument is not valid.
        TooLarge: A name is too long.
    """
    check_kind("gateway", gateway, OpenGateway)
    check_text("the name of a person", name, _MOST_NAME_BYTES)
    return Write(
        name="give_code",
        owner=gateway.owner,
        read_first=True,
        wakes=False,
        verb=lambda tx: pairing.give_code(
            tx,
            gateway,
            GatewayPerson(
                person=check_name("the person", person, tx.limits.name_bytes),
                name=name,
                code=check_name("the code", code, tx.limits.name_bytes),
                code_until=tx.now + round(seconds * 1000),
                paired_at=None,
            ),
        ),
    )


def confirm_code(gateway: str, code: str, *, owner: str) -> Write[GatewayPerson]:
    """Let the person in who was given a code. This ends an invitation.

    Args:
        gateway: The name of the gateway.
        code: The code, as the person received it.
        owner: The owner of the gateway.

    Returns:
        The person.

    Raises:
        NotFound: The owner has no such gateway, or it gave no person this code, or the code has expired.
        QuotaExceeded: Too many people were let in.
    """
    return Write(
        name="confirm_code",
        owner=owner,
        wakes=False,
        verb=lambda tx: pairing.confirm_code(
            tx, owner, _named(tx, gateway), "".join(filter(str.isalnum, code)).upper()
        ),
    )


def invite(gateway: str, *, owner: str, seconds: float = _INVITATION_SECONDS) -> Write[GatewayInfo]:
    """Let the gateway give codes for a while, although a person was admitted already.

    Args:
        gateway: The name of the gateway.
        owner: Its owner.
        seconds: For how long. It ends with the first confirmed code.

    Returns:
        The gateway.

    Raises:
        NotFound: The owner has no such gateway.
    """
    return Write(
        name="invite",
        owner=owner,
        wakes=False,
        verb=lambda tx: pairing.invite(tx, owner, _named(tx, gateway), round(seconds * 1000)),
    )


def remove_person(gateway: str, person: str, *, owner: str) -> Write[GatewayPerson]:
    """Revoke the admission of a person, or a code.

    Args:
        gateway: The name of the gateway.
        person: The platform's id of the person.
        owner: The owner of the gateway.

    Returns:
        The person.

    Raises:
        NotFound: The owner has no such gateway, or it has not let the person in.
    """
    return Write(
        name="remove_person",
        owner=owner,
        wakes=False,
        verb=lambda tx: pairing.remove_person(tx, owner, _named(tx, gateway), _named(tx, person)),
    )


def _named(tx: Transaction, name: str) -> str:
    """The name, which a stored gateway or person can have. No other name can be found."""
    try:
        return check_name("the name", name, tx.limits.name_bytes)
    except (InvalidPayload, TooLarge) as error:
        raise NotFound("there is no such gateway or person", hint="`backstay gateway` lists them.") from error
