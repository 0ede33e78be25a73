"""Web Push: devices belong to an owner, choices to a session, and the key of the store is made once."""

import pytest

from backstay.errors import InvalidPayload, NotFound, QuotaExceeded, TooLarge
from backstay.model.gateways.push_subscription import PushChoice, PushSubscription
from backstay.store import Store
from backstay.store.commands.gateways import push_commands
from backstay.store.verbs.gateways.push import MOST_DEVICES
from tests.contract.base import ContractBase
from tests.contract.builders import ME, STRANGER, new_session


class PushContract(ContractBase):
    """The devices that get notifications."""

    def test_a_device_is_stored_once_and_gets_its_new_keys(self, store: Store) -> None:
        first = _subscribed(store, "https://push.example/1")
        again = _subscribed(store, "https://push.example/1", secret="another", text=True)
        second = _subscribed(store, "https://push.example/2")

        assert (again.number, again.secret, again.text) == (first.number, "another", True)
        assert store.run(push_commands.push_subscriptions(owner=ME)) == (again, second)
        assert store.run(push_commands.push_subscriptions(owner=STRANGER)) == ()
        assert store.run(push_commands.push_owners()) == (ME,)

    def test_a_device_that_is_removed_leaves_no_number_to_another(self, store: Store) -> None:
        first = _subscribed(store, "https://push.example/1")
        second = _subscribed(store, "https://push.example/2")
        with pytest.raises(NotFound):
            store.run(push_commands.unsubscribe_push(first.number, owner=STRANGER))

        assert store.run(push_commands.unsubscribe_push(first.number, owner=ME)) == first

        third = _subscribed(store, "https://push.example/3")
        assert first.number < second.number < third.number
        with pytest.raises(NotFound):
            store.run(push_commands.unsubscribe_push(first.number, owner=ME))

    def test_an_owner_has_a_limited_number_of_devices(self, store: Store) -> None:
        for number in range(MOST_DEVICES):
            _subscribed(store, f"https://push.example/{number}")

        with pytest.raises(QuotaExceeded):
            _subscribed(store, "https://push.example/more")
        _subscribed(store, "https://push.example/0")

    def test_devices_are_told_what_was_chosen_for_the_session(self, store: Store) -> None:
        session, other = new_session(store), new_session(store)
        quiet = PushChoice(done=False, needs_you=True)

        assert store.run(push_commands.choose_push(session, quiet, owner=ME)) == quiet

        assert store.run(push_commands.push_choice(session, owner=ME)) == quiet
        assert store.run(push_commands.push_choice(other, owner=ME)) == PushChoice()
        with pytest.raises(NotFound):
            store.run(push_commands.choose_push(session, PushChoice(), owner=STRANGER))
        store.delete(session, owner=ME)
        with pytest.raises(NotFound):
            store.run(push_commands.push_choice(session, owner=ME))

    def test_the_key_of_the_store_is_made_once(self, store: Store, other: Store) -> None:
        assert store.run(push_commands.keep_push_key("first")) == "first"
        assert other.run(push_commands.keep_push_key("second")) == "first"

    def test_an_endpoint_is_an_address(self, store: Store) -> None:
        for endpoint in ("", "file:///etc/passwd", "https://x/" + "y" * 3_000):
            with pytest.raises((InvalidPayload, TooLarge)):
                _subscribed(store, endpoint)


def _subscribed(store: Store, endpoint: str, *, secret: str = "s3cret", text: bool = False) -> PushSubscription:
    return store.run(
        push_commands.subscribe_push(endpoint, owner=ME, public_key="key", secret=secret, name="phone", text=text)
    )
