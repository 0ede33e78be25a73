"""Retry and edit: the same position of the conversation again, with the same or other content."""

import pytest

from backstay.errors import (
    InvalidPayload,
    NotFound,
    NothingToDo,
    RequestMismatch,
    RevisionMismatch,
    SessionBusy,
    SessionEnded,
)
from backstay.model import message
from backstay.model.content import Text
from backstay.model.event import WindowOpened
from backstay.model.turn import Completed, OpenTurn
from backstay.store import Store
from tests.contract.base import ContractBase
from tests.contract.builders import (
    ME,
    STRANGER,
    bodies_of,
    enqueue,
    look,
    new_session,
    run,
    said_in,
    start,
    talk,
    texts,
)
from tests.contract.history.rotation import compact


class RetryContract(ContractBase):
    """Both open a window from before the turn and submit there; the first answer stays in the lineage."""

    # --- retry ------------------------------------------------------------------------------------------------------

    def test_retry_starts_the_last_input_again_from_before_its_turn(self, store: Store) -> None:
        session = new_session(store)
        talk(store, session)
        run(store, session, "and now?", "a poor answer")

        proof = _opened(store.retry(session, owner=ME, start=True).opened)

        assert texts(store, session) == ["question 1", "answer 1", "and now?"]
        assert proof.input.text == "and now?"
        store.finish(proof, Completed(), bodies=[Text("a better answer")])
        assert texts(store, session)[-1] == "a better answer"

    def test_the_first_answer_stays_in_the_lineage(self, store: Store) -> None:
        session = new_session(store)
        run(store, session, "and now?", "a poor answer")
        first, said = store.session(session, owner=ME).window, said_in(store, session)

        store.retry(session, owner=ME, start=True)

        window = store.session(session, owner=ME).window
        assert store.messages(session, owner=ME, window=first).messages == said
        assert [(entry.id, entry.parent, entry.reason) for entry in store.lineage(session, owner=ME)] == [
            (first, None, "first"),
            (window, first, "retry"),
        ]

    def test_the_input_that_is_tried_again_is_a_message_of_its_own(self, store: Store) -> None:
        session = new_session(store)
        run(store, session)
        first = said_in(store, session)[0]

        store.retry(session, owner=ME, start=True)

        again = said_in(store, session)[0]
        assert again.parts == first.parts
        assert (again.id, again.turn) != (first.id, first.turn)

    def test_retry_without_start_waits_where_a_worker_can_claim_it(self, store: Store, other: Store) -> None:
        session = new_session(store)
        talk(store, session)
        run(store, session, "and now?")

        accepted = store.retry(session, owner=ME)
        waited = texts(store, session)
        claimed = other.claim(["default"])

        assert accepted.turn.state == "waiting"
        assert waited == ["question 1", "answer 1"]
        assert claimed is not None
        assert claimed.id == accepted.turn.id
        assert texts(store, session) == ["question 1", "answer 1", "and now?"]

    def test_retry_inherits_the_agent(self, store: Store) -> None:
        session = new_session(store)
        store.finish(start(store, session, agent="poet"), Completed())

        assert store.retry(session, owner=ME).turn.agent == "poet"

    def test_retry_can_name_another_agent(self, store: Store) -> None:
        session = new_session(store)
        store.finish(start(store, session, agent="poet"), Completed())

        assert store.retry(session, owner=ME, agent="critic").turn.agent == "critic"

    def test_a_recorded_turn_is_tried_again_only_by_an_agent_that_is_named(self, store: Store) -> None:
        session = new_session(store)
        talk(store, session)
        before = look(store, session)

        with pytest.raises(InvalidPayload):
            store.retry(session, owner=ME)

        assert look(store, session) == before
        assert store.retry(session, owner=ME, agent="poet").turn.agent == "poet"

    def test_a_turn_without_an_input_cannot_be_tried_again(self, store: Store) -> None:
        session = new_session(store)
        store.record(session, [message.assistant("good morning")], owner=ME)

        with pytest.raises(NothingToDo):
            store.retry(session, owner=ME, agent="poet")

    def test_a_new_session_has_nothing_to_retry(self, store: Store) -> None:
        with pytest.raises(NothingToDo):
            store.retry(new_session(store), owner=ME, agent="poet")

    def test_retry_is_refused_while_a_turn_runs(self, store: Store) -> None:
        session = new_session(store)
        run(store, session)
        start(store, session)
        before = look(store, session)

        with pytest.raises(SessionBusy):
            store.retry(session, owner=ME)

        assert look(store, session) == before

    def test_retry_is_refused_while_a_turn_waits(self, store: Store) -> None:
        session = new_session(store)
        run(store, session)
        enqueue(store, session)

        with pytest.raises(SessionBusy):
            store.retry(session, owner=ME)

    def test_retry_is_refused_once_the_session_has_ended(self, store: Store) -> None:
        session = new_session(store)
        run(store, session)
        store.end(session, owner=ME)

        with pytest.raises(SessionEnded):
            store.retry(session, owner=ME)

    def test_retry_reaches_behind_a_compaction(self, store: Store) -> None:
        session = new_session(store)
        talk(store, session)
        run(store, session, "and now?")
        compact(store, session, keep_from=4)

        store.retry(session, owner=ME, start=True)

        assert texts(store, session) == ["question 1", "answer 1", "and now?"]

    def test_a_repeated_retry_is_the_same_turn(self, store: Store) -> None:
        session = new_session(store)
        run(store, session)
        first = store.retry(session, owner=ME, request_id="r1", start=True)
        before = look(store, session)

        second = store.retry(session, owner=ME, request_id="r1", start=True)

        assert (second.turn.id, second.repeated, second.opened) == (first.turn.id, True, None)
        assert look(store, session) == before

    def test_retry_of_a_session_that_changed_since_the_caller_looked_is_refused(self, store: Store) -> None:
        session = new_session(store)
        run(store, session)
        seen = store.revision(session, owner=ME)
        store.rename(session, "new name", owner=ME)

        with pytest.raises(RevisionMismatch):
            store.retry(session, owner=ME, expect_revision=seen)

    def test_a_retry_is_undone_like_any_turn(self, store: Store) -> None:
        session = new_session(store)
        talk(store, session)
        run(store, session, "and now?", "a poor answer")
        store.finish(_opened(store.retry(session, owner=ME, start=True).opened), Completed(), bodies=[Text("better")])

        store.undo(session, owner=ME)

        assert texts(store, session) == ["question 1", "answer 1"]

    # --- edit -------------------------------------------------------------------------------------------------------

    def test_edit_submits_other_content_in_place_of_a_message(self, store: Store) -> None:
        session = new_session(store)
        talk(store, session)
        run(store, session, "What is tou?", "I do not know.")

        store.edit(session, said_in(store, session)[2].id, "What is tau?", owner=ME, start=True)

        assert texts(store, session) == ["question 1", "answer 1", "What is tau?"]

    def test_edit_of_an_earlier_message_leaves_out_all_that_followed(self, store: Store) -> None:
        session = new_session(store)
        for number in range(4):
            run(store, session, f"q{number}", f"a{number}")

        store.edit(session, said_in(store, session)[2].id, "another", owner=ME, start=True)

        assert texts(store, session) == ["q0", "a0", "another"]

    def test_edit_of_the_first_message_begins_from_nothing(self, store: Store) -> None:
        session = new_session(store)
        run(store, session)

        store.edit(session, said_in(store, session)[0].id, "hi there", owner=ME, start=True)

        assert texts(store, session) == ["hi there"]

    def test_edit_opens_a_window_with_an_event(self, store: Store) -> None:
        session = new_session(store)
        run(store, session)
        first = store.session(session, owner=ME)

        store.edit(session, said_in(store, session)[0].id, "hi there", owner=ME)

        after = store.session(session, owner=ME)
        assert WindowOpened(after.window, first.window, "edit", 0) in bodies_of(store, session)
        assert after.context > first.context
        assert after.revision > first.revision

    def test_edit_of_a_compacted_message_goes_back_before_the_compaction(self, store: Store) -> None:
        session = new_session(store)
        for number in range(3):
            run(store, session, f"q{number}", f"a{number}")
        second = said_in(store, session)[2].id
        compact(store, session, keep_from=6)

        store.edit(session, second, "another", owner=ME, start=True)

        assert texts(store, session) == ["q0", "a0", "another"]

    def test_edit_of_a_steering_input_begins_before_the_turn_that_took_it(self, store: Store) -> None:
        session = new_session(store)
        proof = start(store, session, "count")
        store.submit(session, "faster", owner=ME, if_busy="steer")
        taken = store.checkpoint(proof, [Text("one")], take_steering=True)
        store.finish(taken.open, Completed())
        steering = said_in(store, session)[2]

        store.edit(session, steering.id, "slower", owner=ME, start=True)

        assert steering.text == "faster"
        assert texts(store, session) == ["slower"]

    def test_a_message_of_another_session_cannot_be_edited_here(self, store: Store) -> None:
        session, elsewhere = new_session(store), new_session(store)
        run(store, session)
        run(store, elsewhere)
        before = look(store, session)

        with pytest.raises(NotFound):
            store.edit(session, said_in(store, elsewhere)[0].id, "mine now", owner=ME)

        assert look(store, session) == before

    def test_a_message_of_another_owner_cannot_be_edited(self, store: Store) -> None:
        session, theirs = new_session(store), new_session(store, owner=STRANGER)
        run(store, session)
        talk(store, theirs, owner=STRANGER)
        message_id = said_in(store, theirs, owner=STRANGER)[0].id

        with pytest.raises(NotFound):
            store.edit(session, message_id, "mine now", owner=ME)
        with pytest.raises(NotFound):
            store.edit(theirs, message_id, "mine now", owner=ME)

    def test_a_message_that_was_undone_cannot_be_edited(self, store: Store) -> None:
        session = new_session(store)
        run(store, session)
        undone = said_in(store, session)[0].id
        store.undo(session, owner=ME)

        with pytest.raises(NotFound):
            store.edit(session, undone, "too late", owner=ME)

    def test_messages_of_an_agent_cannot_be_edited(self, store: Store) -> None:
        session = new_session(store)
        run(store, session)
        before = look(store, session)

        with pytest.raises(InvalidPayload):
            store.edit(session, said_in(store, session)[1].id, "I said this", owner=ME)

        assert look(store, session) == before

    def test_a_summary_cannot_be_edited(self, store: Store) -> None:
        session = new_session(store)
        talk(store, session, 2)
        compact(store, session, keep_from=2)
        before = look(store, session)

        with pytest.raises(InvalidPayload):
            store.edit(session, said_in(store, session)[0].id, "it went otherwise", owner=ME, agent="poet")

        assert look(store, session) == before

    def test_edit_inherits_the_agent_of_the_turn(self, store: Store) -> None:
        session = new_session(store)
        store.finish(start(store, session, agent="poet"), Completed())
        run(store, session)

        assert store.edit(session, said_in(store, session)[0].id, "a sonnet", owner=ME).turn.agent == "poet"

    def test_edit_is_refused_while_a_turn_runs(self, store: Store) -> None:
        session = new_session(store)
        run(store, session)
        first = said_in(store, session)[0].id
        start(store, session)

        with pytest.raises(SessionBusy):
            store.edit(session, first, "wait", owner=ME)

    def test_a_repeated_edit_is_the_same_turn(self, store: Store) -> None:
        session = new_session(store)
        run(store, session)
        edited = said_in(store, session)[0].id
        first = store.edit(session, edited, "hi there", owner=ME, request_id="e1")
        before = look(store, session)

        second = store.edit(session, edited, "hi there", owner=ME, request_id="e1")

        assert (second.turn.id, second.repeated) == (first.turn.id, True)
        assert look(store, session) == before

    def test_an_edit_is_not_repeated_with_other_content(self, store: Store) -> None:
        session = new_session(store)
        run(store, session)
        edited = said_in(store, session)[0].id
        store.edit(session, edited, "hi there", owner=ME, request_id="e1")

        with pytest.raises(RequestMismatch):
            store.edit(session, edited, "something else", owner=ME, request_id="e1")

    def test_edit_of_a_session_that_changed_since_the_caller_looked_is_refused(self, store: Store) -> None:
        session = new_session(store)
        run(store, session)
        seen = store.revision(session, owner=ME)
        store.rename(session, "new name", owner=ME)

        with pytest.raises(RevisionMismatch):
            store.edit(session, said_in(store, session)[0].id, "hi", owner=ME, expect_revision=seen)


def _opened(proof: OpenTurn | None) -> OpenTurn:
    assert proof is not None, "nobody speaks here, so the turn starts"
    return proof
