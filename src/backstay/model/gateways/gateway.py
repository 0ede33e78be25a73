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
    """

    owner: str
    name: str
    cursor: str
    received_at: int | None
    holder: WorkerId | None
    fence: int
    created_at: int


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
