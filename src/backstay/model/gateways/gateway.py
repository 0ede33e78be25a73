"""A gateway: an account on a chat platform."""

import msgspec

from backstay.model.ids import WorkerId


class GatewayInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A gateway, as it is stored.

    Attributes:
        owner: The owner of its sessions.
        name: The platform and the account, such as `telegram/123456`.
        cursor: The position in the platform's list of messages.
        received_at: When it last received a message, in milliseconds since 1970 (UTC); None: never.
        holder: The worker that polls the platform; None if the last one stopped properly.
        fence: Grows with every new poller.
        created_at: When it was first opened.
        is_polled: Whether the holder's lease has not run out.
        answered_at: When the platform last answered a request for messages; None: never.
        problem: Why the platform gives no messages; empty: it does.
        pairing_until: The end of an invitation, during which codes are given although a person was admitted already;
            None: there is none.
    """

    owner: str
    name: str
    cursor: str
    received_at: int | None
    holder: WorkerId | None
    fence: int
    created_at: int
    is_polled: bool
    answered_at: int | None
    problem: str
    pairing_until: int | None


class OpenGateway(msgspec.Struct, frozen=True, kw_only=True):
    """The proof that a worker is the poller of a gateway. Every write for the gateway takes it.

    Attributes:
        owner: The owner of its sessions.
        name: The platform and the account.
        holder: The worker.
        fence: The fence under which it writes.
        cursor: The position in the platform's list of messages when the gateway was opened.
        feed: The position in the owner's feed up to which deliveries are marked as due.
        lease_until: When the lease expires, on the boot clock of the holder's machine.
        lasts: The duration of the lease from each renewal, in milliseconds.
    """

    owner: str
    name: str
    holder: WorkerId
    fence: int
    cursor: str
    feed: int
    lease_until: int
    lasts: int


class PollerHealth(msgspec.Struct, frozen=True, kw_only=True):
    """What a poller has seen of the platform since it last renewed its lease.

    Attributes:
        answered: Whether the platform answered a request for messages.
        problem: Why it does not; empty: it does.
    """

    answered: bool = False
    problem: str = ""


class GatewayPerson(msgspec.Struct, frozen=True, kw_only=True):
    """A person who was let in by a code, or was given one.

    Attributes:
        person: The platform's id of the person.
        name: The name that the person had on the platform.
        code: The code that was given and is not confirmed; None once the person was let in.
        code_until: When the code expires, in milliseconds since 1970 (UTC).
        paired_at: When the person was let in; None: not yet.
    """

    person: str
    name: str
    code: str | None
    code_until: int | None
    paired_at: int | None
