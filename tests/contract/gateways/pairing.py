"""Pairing: people are let in by a code that only they received, and that its owner confirmed in time."""

import pytest

from backstay.errors import LeaseLost, NotFound
from backstay.model.gateways.gateway import GatewayPerson, OpenGateway, PollerHealth
from backstay.store import Store
from backstay.store.commands import gateway_commands
from backstay.store.commands.gateways import pairing_commands
from backstay.testing.manual_clock import ManualClock
from tests.contract.base import LEASE, ContractBase
from tests.contract.builders import ME, STRANGER
from tests.contract.gateways.received_messages import BOT, opened


class PairingContract(ContractBase):
    """Codes, and people who were let in."""

    def test_a_person_is_let_in_by_the_code_that_they_received(self, store: Store, clock: ManualClock) -> None:
        proof = opened(store)
        given = code_for(store, proof, "42", "ABCD2345")
        assert given is not None
        assert (given.person, given.name, given.paired_at) == ("42", "Ann", None)
        assert people(store) == [given]

        paired = store.run(pairing_commands.confirm_code(BOT, " abcd-2345", owner=ME))

        assert (paired.person, paired.code, paired.paired_at) == ("42", None, clock.now())
        assert people(store) == [paired]
        assert code_for(store, proof, "42") is None, "who was let in needs no code"

    def test_a_code_is_confirmed_by_its_owner_in_time_and_once(self, store: Store, clock: ManualClock) -> None:
        proof = opened(store)
        code_for(store, proof, "42", "ABCD2345")

        for owner, code in ((STRANGER, "ABCD2345"), (ME, "WRONG"), (ME, "")):
            with pytest.raises(NotFound):
                store.run(pairing_commands.confirm_code(BOT, code, owner=owner))
        clock.advance(600)
        with pytest.raises(NotFound):
            store.run(pairing_commands.confirm_code(BOT, "ABCD2345", owner=ME))
        assert people(store) == []
        again = code_for(store, proof, "42", "NEWCODE1")
        assert again is not None
        assert again.code == "NEWCODE1", "an expired code is not given again"
        store.run(pairing_commands.confirm_code(BOT, "NEWCODE1", owner=ME))
        with pytest.raises(NotFound):
            store.run(pairing_commands.confirm_code(BOT, "NEWCODE1", owner=ME))

    def test_a_person_keeps_the_code_and_few_people_have_one(self, store: Store) -> None:
        proof = opened(store)

        given = [code_for(store, proof, str(person), f"CODE{person}") for person in range(7)]

        assert [one is not None for one in given] == [True] * 5 + [False] * 2
        assert code_for(store, proof, "3", "ANOTHER") == given[3]
        assert len(people(store)) == 5

    def test_no_code_is_given_once_somebody_was_let_in_unless_invited(self, store: Store, clock: ManualClock) -> None:
        proof = opened(store)
        code_for(store, proof, "42", "FIRST")
        store.run(pairing_commands.confirm_code(BOT, "FIRST", owner=ME))
        assert code_for(store, proof, "43") is None

        store.run(pairing_commands.invite(BOT, owner=ME, seconds=10))
        assert code_for(store, proof, "43", "SECOND") is not None
        store.run(pairing_commands.confirm_code(BOT, "SECOND", owner=ME))
        assert code_for(store, proof, "44") is None, "one confirmed code ends the invitation"
        store.run(pairing_commands.invite(BOT, owner=ME, seconds=10))
        clock.advance(10)
        assert code_for(store, proof, "45") is None

    def test_a_removed_person_is_a_stranger(self, store: Store) -> None:
        proof = opened(store)
        code_for(store, proof, "42", "FIRST")
        store.run(pairing_commands.confirm_code(BOT, "FIRST", owner=ME))

        with pytest.raises(NotFound):
            store.run(pairing_commands.remove_person(BOT, "42", owner=STRANGER))
        assert store.run(pairing_commands.remove_person(BOT, "42", owner=ME)).person == "42"
        assert people(store) == []
        with pytest.raises(NotFound):
            store.run(pairing_commands.remove_person(BOT, "42", owner=ME))

    def test_only_the_poller_gives_codes(self, store: Store, other: Store, clock: ManualClock) -> None:
        slow = opened(store)
        clock.advance(LEASE + 1)
        opened(other)

        with pytest.raises(LeaseLost):
            code_for(store, slow, "42")

    def test_a_poller_stores_what_it_saw_of_the_platform(self, store: Store, clock: ManualClock) -> None:
        proof = opened(store)
        store.run(gateway_commands.renew_gateway(proof, PollerHealth(answered=True)))
        seen = clock.now()
        clock.advance(1)
        store.run(gateway_commands.renew_gateway(proof, PollerHealth(problem="another program polls")))

        (found,) = store.run(gateway_commands.gateways(owner=ME))
        assert (found.answered_at, found.problem, found.is_polled) == (seen, "another program polls", True)
        store.run(gateway_commands.close_gateway(proof))
        (found,) = store.run(gateway_commands.gateways(owner=ME))
        assert not found.is_polled


def code_for(store: Store, proof: OpenGateway, person: str, code: str = "UNUSED") -> GatewayPerson | None:
    """Give a person a code."""
    return store.run(pairing_commands.give_code(proof, person, "Ann", code))


def people(store: Store) -> list[GatewayPerson]:
    """Who was let in, and who has a code."""
    return list(store.run(pairing_commands.gateway_people(BOT, owner=ME)))
