"""Commands for Web Push: the devices of an owner, what they are told about a session, and the key of the store."""

from urllib.parse import urlsplit

from backstay.errors import InvalidPayload
from backstay.model.codec import check_name, check_text
from backstay.model.gateways.push_subscription import PushChoice, PushSubscription
from backstay.model.ids import SessionId, check_session_id
from backstay.store.commands.command import Read, Write
from backstay.store.commands.input_checks import check_owner, check_whole
from backstay.store.verbs.gateways import push

_LONGEST_ENDPOINT, _LONGEST_KEY = 2_048, 256


def subscribe_push(
    endpoint: str, *, owner: str, public_key: str, secret: str, name: str, text: bool = False
) -> Write[PushSubscription]:
    """Store a device that gets notifications. One that is known gets the new keys.

    Args:
        endpoint: The address at the push service.
        owner: The owner whose sessions it is told about.
        public_key: The browser's public key, as base64url.
        secret: The secret that the browser made with it, as base64url.
        name: What people call the device.
        text: Whether notifications contain what the agent wrote.

    Returns:
        The device, with its number.

    Raises:
        QuotaExceeded: The owner has too many devices.
        InvalidPayload: An argument is not valid.
    """
    check_text("the endpoint", endpoint, _LONGEST_ENDPOINT)
    if urlsplit(endpoint).scheme not in ("https", "http"):
        raise InvalidPayload(f"{endpoint[:80]!r} is not an endpoint", hint="Pass the URL of the push service.")
    check_name("the public key", public_key, _LONGEST_KEY)
    check_name("the secret", secret, _LONGEST_KEY)
    return Write(
        name="subscribe_push",
        owner=owner,
        wakes=False,
        verb=lambda tx: push.subscribe(
            tx,
            PushSubscription(
                owner=check_owner(tx, owner),
                number=0,
                endpoint=endpoint,
                public_key=public_key,
                secret=secret,
                name=check_name("the name of a device", name, tx.limits.name_bytes),
                text=text,
                created_at=tx.now,
            ),
        ),
    )


def unsubscribe_push(number: int, *, owner: str) -> Write[PushSubscription]:
    """Remove a device: it gets nothing more.

    Args:
        number: The number of the device.
        owner: Its owner.

    Returns:
        The device.

    Raises:
        NotFound: The owner has no such device.
    """
    which = check_whole("number", number)
    return Write(name="unsubscribe_push", owner=owner, wakes=False, verb=lambda tx: push.unsubscribe(tx, owner, which))


def push_subscriptions(*, owner: str) -> Read[tuple[PushSubscription, ...]]:
    """Read the devices of an owner.

    Args:
        owner: The owner.

    Returns:
        The devices, oldest first.
    """
    return Read(name="push_subscriptions", owner=owner, snapshot=False, verb=lambda tx: push.of_owner(tx, owner))


def push_owners() -> Read[tuple[str, ...]]:
    """Read which owners have devices.

    Returns:
        The owners.
    """
    return Read(name="push_owners", owner=None, snapshot=False, verb=push.owners)


def choose_push(session: SessionId, choice: PushChoice, *, owner: str) -> Write[PushChoice]:
    """Set what the devices of the owner are told about a session.

    Args:
        session: The session.
        choice: What they are told.
        owner: The owner of the session.

    Returns:
        The choice.

    Raises:
        NotFound: The owner has no such session.
    """
    where = check_session_id(session)
    return Write(name="choose_push", owner=owner, wakes=False, verb=lambda tx: push.choose(tx, where, owner, choice))


def push_choice(session: SessionId, *, owner: str) -> Read[PushChoice]:
    """Read what the devices of the owner are told about a session.

    Args:
        session: The session.
        owner: The owner of the session.

    Returns:
        The choice; everything, if nobody has chosen.

    Raises:
        NotFound: The owner has no such session.
    """
    where = check_session_id(session)
    return Read(name="push_choice", owner=owner, verb=lambda tx: push.choice(tx, where, owner))


def keep_push_key(private_key: str) -> Write[str]:
    """Store the key that names this store to the push services, unless it has one.

    Args:
        private_key: A new key, as base64url.

    Returns:
        The key of the store.
    """
    check_name("the key", private_key, _LONGEST_KEY)
    return Write(name="keep_push_key", owner=None, wakes=False, verb=lambda tx: push.keep_key(tx, private_key))
