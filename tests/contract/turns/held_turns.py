"""Held turns: an imported document starts no agent and takes no address before a person decides."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from backstay.errors import NotFound, SessionEnded
from backstay.model import message
from backstay.model.content import Text
from backstay.model.documents.document import Export, Imported
from backstay.model.event import TurnHeld, TurnReleased
from backstay.model.turn import Cancelled, Completed, Inbox, Interrupted
from backstay.store import Store, open_store
from backstay.testing.manual_clock import ManualClock
from tests.contract.base import ContractBase
from tests.contract.builders import (
    AGENT,
    ME,
    STRANGER,
    enqueue,
    events_of,
    look,
    new_session,
    room,
    run,
    say,
    start,
    texts,
)


class HoldContract(ContractBase):
    """A waiting turn of a document waits for a person, and its addresses are taken only when asked for."""

    @pytest.fixture
    def origin(self, tmp_path: Path, clock: ManualClock) -> Iterator[Store]:
        """The store from which documents come."""
        with open_store(tmp_path / "origin.db", clock=clock) as store:
            yield store

    def test_an_imported_waiting_turn_is_held_and_no_worker_claims_it(self, store: Store, origin: Store) -> None:
        imported = _imported(store, origin, "one", "two")
        session = imported.session

        assert (session.waiting, session.held) == (2, 2)
        assert store.list(owner=ME).sessions[0].held == 2
        assert imported.held == tuple(turn.id for turn in store.waiting(session.id, owner=ME))
        assert all(turn.held for turn in store.waiting(session.id, owner=ME))
        assert store.turn(imported.held[0], owner=ME).held
        assert not store.has_work([AGENT])
        assert store.claim([AGENT]) is None
        assert store.load().waiting == 0
        assert [event.turn for event in events_of(store, session.id) if isinstance(event.body, TurnHeld)] == [
            *imported.held
        ]

    def test_a_released_turn_starts_in_its_place(self, store: Store, origin: Store) -> None:
        imported = _imported(store, origin, "one", "two", "three")
        one, two, three = imported.held

        assert not store.release(two, owner=ME).held
        released = store.session(imported.session.id, owner=ME)
        assert (released.waiting, released.held, released.revision) == (3, 2, imported.session.revision + 1)
        assert events_of(store, released.id)[-1].body == TurnReleased()
        assert store.has_work([AGENT])
        store.release(one, owner=ME)

        assert _answered(store, imported) == ["one", "two"]
        assert [turn.id for turn in store.waiting(released.id, owner=ME)] == [three]

    def test_releasing_a_turn_that_is_not_held_changes_nothing(self, store: Store, origin: Store) -> None:
        imported = _imported(store, origin, "one")
        (turn,) = imported.held
        store.release(turn, owner=ME)
        before = look(store, imported.session.id, [turn])

        assert store.release(turn, owner=ME) == store.turn(turn, owner=ME)

        assert look(store, imported.session.id, [turn]) == before
        ended = run(store, new_session(store), "hello", "hi").turn
        assert store.release(ended.id, owner=ME) == store.turn(ended.id, owner=ME)

    def test_another_owners_held_turn_is_not_found(self, store: Store, origin: Store) -> None:
        (turn,) = _imported(store, origin, "one").held

        with pytest.raises(NotFound):
            store.release(turn, owner=STRANGER)
        assert store.turn(turn, owner=ME).held

    def test_a_held_turn_can_be_edited_and_withdrawn(self, store: Store, origin: Store) -> None:
        imported = _imported(store, origin, "one", "two")
        one, two = imported.held

        assert store.edit_waiting(one, "one, but better", owner=ME).held
        assert store.withdraw(two, owner=ME).outcome == Cancelled("withdrawn")
        store.release(one, owner=ME)

        assert _answered(store, imported) == ["one, but better"]
        after = store.session(imported.session.id, owner=ME)
        assert (after.waiting, after.held) == (0, 0)

    def test_an_input_to_a_session_with_held_turns_is_answered(self, store: Store, origin: Store) -> None:
        imported = _imported(store, origin, "held")
        session = imported.session.id

        first = start(store, session, "sent now")
        queued = enqueue(store, session, "sent later")
        assert store.renew(first).inbox == Inbox(cancel=False, steering=0, waiting=1)
        following = store.finish(first, Completed(), bodies=[Text("yes")], agents=[AGENT]).opened

        assert following is not None
        assert following.id == queued.id
        assert store.finish(following, Completed(), bodies=[Text("yes")], agents=[AGENT]).opened is None
        store.record(session, [message.user("from elsewhere")], owner=ME)
        assert texts(store, session)[-1] == "from elsewhere"
        assert store.session(session, owner=ME).held == 1

    def test_held_steering_reaches_no_running_turn_before_it_is_released(self, store: Store, origin: Store) -> None:
        session = new_session(origin)
        start(origin, session)
        origin.submit(session, "hurry", owner=ME, if_busy="steer")
        imported = _travel(origin.export(session, owner=ME), store)
        proof = start(store, session, "and now?")

        assert store.checkpoint(proof, [Text("well")], take_steering=True).steering == ()
        proof = store.renew(proof).open
        store.release(imported.held[0], owner=ME)

        assert store.renew(proof).inbox.steering == 1
        taken = store.checkpoint(store.renew(proof).open, [Text(" then")], take_steering=True).steering
        assert [one.turn for one in taken] == list(imported.held)

    def test_held_messages_go_in_when_they_are_released(self, store: Store, origin: Store) -> None:
        session = new_session(origin)
        start(origin, session)
        origin.record(session, [message.user("said elsewhere")], owner=ME)
        imported = _travel(origin.export(session, owner=ME), store)
        assert "said elsewhere" not in texts(store, session)

        store.release(imported.held[0], owner=ME)

        assert texts(store, session)[-1] == "said elsewhere"
        assert store.session(session, owner=ME).waiting == 0

    def test_an_imported_interruption_is_not_resumed_by_itself(
        self, store: Store, origin: Store, clock: ManualClock
    ) -> None:
        ran, stopped = start(origin, new_session(origin)), start(origin, new_session(origin))
        say(origin, ran, Text("half an "))
        origin.finish(say(origin, stopped, Text("half")), Interrupted("it was stopped"))
        for proof in (ran, stopped):
            _travel(origin.export(proof.session, owner=ME), store)
            assert isinstance(store.turn(proof.id, owner=ME).outcome, Interrupted)

        assert store.interrupted([AGENT]) == ()
        assert store.resume(ran.id, owner=ME).id != ran.id

    def test_ending_or_deleting_a_session_ends_its_held_turns(self, store: Store, origin: Store) -> None:
        ended, deleted = _imported(store, origin, "one"), _imported(store, origin, "two")

        store.end(ended.session.id, owner=ME)
        store.delete(deleted.session.id, owner=ME)

        assert isinstance(store.turn(ended.held[0], owner=ME).outcome, Cancelled)
        assert store.session(ended.session.id, owner=ME).held == 0
        assert store.release(ended.held[0], owner=ME).state == "ended"
        with pytest.raises(SessionEnded):
            store.submit(ended.session.id, "hello", owner=ME)

    def test_held_turns_stay_held_in_the_next_export(self, store: Store, origin: Store, tmp_path: Path) -> None:
        imported = _imported(store, origin, "one")
        document = store.export(imported.session.id, owner=ME)

        with open_store(tmp_path / "third.db") as third:
            again = _travel(document, third)

            assert again.held == imported.held
            assert third.export(again.session.id, owner=ME) == document

    # --- addresses --------------------------------------------------------------------------------------------------

    def test_the_addresses_of_a_document_are_dropped_unless_asked_for(self, store: Store, origin: Store) -> None:
        theirs = origin.resolve(room(), owner=ME).session
        document = origin.export(theirs.id, owner=ME)

        imported = store.import_session(document, owner=ME)

        assert (imported.addresses, imported.elsewhere) == ((), ())
        assert imported.dropped == origin.addresses(theirs.id, owner=ME)
        assert (imported.session.place, imported.session.family) == (None, None)
        assert store.addresses(imported.session.id, owner=ME) == ()
        assert store.resolve(room(), owner=ME).session.id != imported.session.id

    def test_the_addresses_of_a_document_are_taken_when_asked_for(self, store: Store, origin: Store) -> None:
        document = origin.export(origin.resolve(room(), owner=ME).session.id, owner=ME)

        imported = store.import_session(document, owner=ME, addresses=True)

        assert (imported.dropped, len(imported.addresses)) == ((), 1)
        assert store.resolve(room(), owner=ME).session.id == imported.session.id

    def test_a_request_id_in_a_document_does_not_match_a_request_to_an_address(
        self, store: Store, origin: Store
    ) -> None:
        theirs = origin.submit(room(), "hello", owner=ME, request_id="r1")

        store.import_session(origin.export(theirs.session.id, owner=ME), owner=ME)

        mine = store.submit(room(), "hello", owner=ME, request_id="r1")
        assert not mine.repeated
        assert mine.turn.id != theirs.turn.id


def _travel(document: Export, store: Store) -> Imported:
    return store.import_session(Export.from_json(document.to_json()), owner=ME)


def _imported(store: Store, origin: Store, *waiting: str) -> Imported:
    """A session that was imported with these inputs waiting in it."""
    session = new_session(origin)
    run(origin, session, "hello", "hi")
    for words in waiting:
        enqueue(origin, session, words)
    return _travel(origin.export(session, owner=ME), store)


def _answered(store: Store, imported: Imported) -> list[str]:
    """The inputs that a worker gets, one after the other."""
    heard: list[str] = []
    while (claimed := store.claim([AGENT], session=imported.session.id, owner=ME)) is not None:
        heard.append(claimed.input.text)
        store.finish(claimed, Completed(), bodies=[Text("yes")])
    return heard
