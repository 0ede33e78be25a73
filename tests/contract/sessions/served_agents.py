"""Agents that processes serve: a message for a name that was never served is rejected."""

import pytest

from backstay.errors import NotFound, Rejected, RequestMismatch, UnknownAgent
from backstay.model.content import Text
from backstay.model.turn import COMPACTOR, Completed
from backstay.store import Store
from tests.contract.base import ContractBase
from tests.contract.builders import ME, enqueue, new_session, refused, room, run, start


class ServedAgentContract(ContractBase):
    """Which names of agents a store accepts."""

    def test_a_name_that_was_never_served_is_refused_with_the_nearest_one(self, store: Store) -> None:
        session = new_session(store)
        store.register_agents(["reviewer", "writer"])
        with refused(store, session, UnknownAgent):
            store.submit(session, "hello", owner=ME, agent="reviewr", allow_unserved=False)
        with pytest.raises(UnknownAgent, match=r"'reviewr'.*Did you mean 'reviewer'"):
            store.submit(session, "hello", owner=ME, agent="reviewr", allow_unserved=False)

    def test_before_any_agent_was_served_every_name_is_accepted(self, store: Store) -> None:
        accepted = store.submit(room(), "hello", owner=ME, agent="starting", allow_unserved=False)
        assert accepted.turn.state == "waiting"

    def test_an_address_with_an_unserved_agent_makes_no_session(self, store: Store) -> None:
        store.register_agents(["reviewer"])
        with pytest.raises(UnknownAgent):
            store.submit(room(), "hello", owner=ME, agent="typo", allow_unserved=False)
        with pytest.raises(NotFound):
            store.at(room(), owner=ME)

    def test_a_served_agent_is_known_to_every_handle_permanently(self, store: Store, other: Store) -> None:
        store.register_agents(["reviewer"])
        store.close()
        accepted = other.submit(room(), "hello", owner=ME, agent="reviewer", allow_unserved=False)
        assert accepted.turn.state == "waiting"

    def test_claiming_for_an_agent_registers_it(self, store: Store, other: Store) -> None:
        assert store.claim(["reviewer"]) is None
        other.submit(room(), "hello", owner=ME, agent="reviewer", allow_unserved=False)
        opened = store.claim(["reviewer"])
        assert opened is not None

    def test_a_claim_can_leave_out_owners_that_run_enough(self, store: Store) -> None:
        for owner in ('greedy "one"', "modest"):
            store.submit(room(), "hello", owner=owner)
        assert not store.has_work(["default"], except_owners=['greedy "one"', "modest"])
        opened = store.claim(["default"], except_owners=['greedy "one"'])
        assert opened is not None
        assert opened.owner == "modest"
        assert store.claim(["default"], except_owners=['greedy "one"']) is None
        assert store.has_work(["default"])

    def test_registering_known_agents_writes_nothing(self, store: Store) -> None:
        store.register_agents(["reviewer", "writer"])
        before = store.version()
        store.register_agents(["writer"])
        assert store.version() == before

    @pytest.mark.parametrize("name", ["", COMPACTOR, "x" * 2_000, 5], ids=["empty", "reserved", "long", "number"])
    def test_an_invalid_agent_name_is_not_registered(self, store: Store, name: str) -> None:
        with pytest.raises(Rejected):
            store.register_agents([name])

    def test_the_agent_that_the_sender_serves_needs_no_registration(self, store: Store) -> None:
        session = new_session(store)
        for served in (True, ["reviewer"]):
            accepted = store.submit(session, "hello", owner=ME, agent="reviewer", start=served, allow_unserved=False)
            assert accepted.opened is not None
            store.finish(accepted.opened, Completed())

    def test_names_to_start_start_no_other_agent(self, store: Store) -> None:
        session = new_session(store)
        accepted = store.submit(session, "hello", owner=ME, agent="writer", start=["reviewer"])
        assert accepted.opened is None
        assert accepted.turn.state == "waiting"

    def test_a_repeated_request_needs_no_agent_that_is_served(self, store: Store) -> None:
        first = store.submit(room(), "hello", owner=ME, agent="later", request_id="m-1")
        again = store.submit(room(), "hello", owner=ME, agent="later", request_id="m-1", allow_unserved=False)
        assert again.repeated
        assert again.turn.id == first.turn.id
        with pytest.raises(RequestMismatch):
            store.submit(room(), "other", owner=ME, agent="later", request_id="m-1", allow_unserved=False)

    def test_retry_and_edit_refuse_a_name_that_was_never_served(self, store: Store) -> None:
        session = new_session(store)
        store.register_agents(["default"])
        run(store, session)
        asked = store.messages(session, owner=ME).messages[0].id
        with refused(store, session, UnknownAgent):
            store.retry(session, owner=ME, agent="typo", allow_unserved=False)
        with refused(store, session, UnknownAgent):
            store.edit(session, asked, "instead", owner=ME, agent="typo", allow_unserved=False)
        assert store.retry(session, owner=ME, agent="typo").turn.agent == "typo"

    def test_retry_by_the_agent_that_answered_before_is_always_accepted(self, store: Store) -> None:
        session = new_session(store)
        run(store, session)
        assert store.retry(session, owner=ME, allow_unserved=False).turn.agent == "default"

    def test_without_a_name_the_sessions_own_agent_answers(self, store: Store) -> None:
        session = new_session(store)
        assert store.submit(session, "one", owner=ME, agent=None).turn.agent == "default"
        second = new_session(store)
        proof = start(store, second, agent="reviewer")
        enqueue(store, second, agent="writer")
        steered = store.submit(second, "shorter", owner=ME, agent=None, if_busy="steer").turn
        assert steered.agent == "reviewer"
        store.finish(proof, Completed(), bodies=[Text("done")])
