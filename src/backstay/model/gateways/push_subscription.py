"""Devices that get notifications by Web Push."""

import msgspec


class PushSubscription(msgspec.Struct, frozen=True, kw_only=True):
    """A browser that gets notifications.

    Attributes:
        owner: The owner whose sessions it is told about.
        number: Its number, unique for the owner, and never used again.
        endpoint: The address at the push service of its maker.
        public_key: The browser's public key, as base64url.
        secret: The secret that the browser made with it, as base64url.
        name: What people call it.
        text: Whether notifications contain what the agent wrote.
        created_at: When it was added, in milliseconds since 1970 (UTC).
    """

    owner: str
    number: int
    endpoint: str
    public_key: str
    secret: str
    name: str
    text: bool
    created_at: int


class PushChoice(msgspec.Struct, frozen=True, kw_only=True):
    """Which notifications the devices of the owner get about a session.

    Attributes:
        done: When a turn has ended.
        needs_you: When a person is needed.
    """

    done: bool = True
    needs_you: bool = True
