"""Web Push: the devices of an owner, what they are told about a session, and the key of the store."""

from typing import NamedTuple

from backstay.errors import CorruptRecord, NotFound, QuotaExceeded
from backstay.model.gateways.push_subscription import PushChoice, PushSubscription
from backstay.model.ids import SessionId
from backstay.store.engine import Transaction
from backstay.store.rows import Rows, value, values
from backstay.store.session_row import find, lock_session

# An owner has so many devices at most.
MOST_DEVICES = 20


class _SubscriptionRow(NamedTuple):
    """The row of a device."""

    owner: str
    number: int
    endpoint: str
    public_key: str
    secret: str
    name: str
    text: int
    created_at: int

    def value(self) -> PushSubscription:
        """The device as a caller sees it."""
        return PushSubscription(**self._asdict() | {"text": self.text == 1})


class _ChoiceRow(NamedTuple):
    """The row of a choice."""

    done: int
    needs_you: int


_OF_OWNER = Rows("push_subscriptions_of", _SubscriptionRow)
_AT = Rows("push_subscription_at", _SubscriptionRow)
_CHOICE = Rows("push_choice", _ChoiceRow)


def subscribe(tx: Transaction, new: PushSubscription) -> PushSubscription:
    """Store a device. One that is known keeps its number, and gets the new keys."""
    known = _AT.one(tx, owner=new.owner, endpoint=new.endpoint)
    others = _OF_OWNER.all(tx, owner=new.owner)
    if known is None and len(others) >= MOST_DEVICES:
        raise QuotaExceeded(
            f"{new.owner!r} has {MOST_DEVICES} devices already", hint="Remove one of them in the settings."
        )
    # A number of a device that was removed is never given to another one: it may stand in receipts.
    number = max(tx.now, *(one.number + 1 for one in others), 1) if known is None else known.number
    fields: dict[str, str | int] = {
        "public_key": new.public_key,
        "secret": new.secret,
        "name": new.name,
        "text": int(new.text),
    }
    if known is None:
        tx.run("add_push_subscription", owner=new.owner, number=number, endpoint=new.endpoint, now=tx.now, **fields)
    else:
        tx.run("set_push_subscription", owner=new.owner, number=number, **fields)
    found = _AT.one(tx, owner=new.owner, endpoint=new.endpoint)
    if found is None:
        raise CorruptRecord(new.endpoint, "was not stored")
    return found.value()


def unsubscribe(tx: Transaction, owner: str, number: int) -> PushSubscription:
    """Remove a device."""
    found = next((one for one in of_owner(tx, owner) if one.number == number), None)
    if found is None:
        raise NotFound(f"no device {number} of {owner!r}")
    tx.run("drop_push_subscription", owner=owner, number=number)
    return found


def of_owner(tx: Transaction, owner: str) -> tuple[PushSubscription, ...]:
    """The devices of an owner, oldest first."""
    return tuple(row.value() for row in _OF_OWNER.all(tx, owner=owner))


def owners(tx: Transaction) -> tuple[str, ...]:
    """The owners that have devices."""
    return tuple(values(tx, "push_owners"))


def choose(tx: Transaction, session: SessionId, owner: str, choice: PushChoice) -> PushChoice:
    """Set what devices are told about a session."""
    with lock_session(tx, session, owner):
        tx.run("set_push_choice", session=session, done=int(choice.done), needs_you=int(choice.needs_you))
    return choice


def choice(tx: Transaction, session: SessionId, owner: str) -> PushChoice:
    """What devices are told about a session."""
    find(tx, session, owner)
    row = _CHOICE.one(tx, session=session)
    return PushChoice() if row is None else PushChoice(done=row.done == 1, needs_you=row.needs_you == 1)


def keep_key(tx: Transaction, private_key: str) -> str:
    """The key of the store; this one if it has none yet."""
    tx.run("add_push_key", private_key=private_key)
    return str(value(tx, "push_key"))
