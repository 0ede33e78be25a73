"""Metadata: notes of programs on sessions, forgotten turns, and omitted messages."""

import pytest

from backstay.errors import Conflict, InvalidPayload, NotFound, RequestMismatch, SessionBusy, TooLarge
from backstay.model import event, message
from backstay.model.content import Text, Thought, ToolCall, ToolResult
from backstay.model.documents.document import Export
from backstay.model.ids import MessageId, message_of
from backstay.model.session import SessionPatch
from backstay.model.turn import Completed
from backstay.store import Store
from tests.contract.base import ContractBase, OpenAnother
from tests.contract.builders import (
    ME,
    STRANGER,
    bodies_of,
    enqueue,
    look,
    new_session,
    refused,
    room,
    run,
    said_in,
    say,
    start,
    talk,
    texts,
)


class NoteContract(ContractBase):
    """Facts about metadata, forgotten turns, and messages that are left out."""

    # --- metadata ---------------------------------------------------------------------------------------------------

    def test_a_session_is_made_with_metadata(self, store: Store) -> None:
        made = store.create(owner=ME, metadata={"topic": "tea", "b": ""})

        assert made.metadata == {"topic": "tea", "b": ""}
        assert store.session(made.id, owner=ME) == made

    def test_metadata_is_replaced_as_a_whole_with_an_event(self, store: Store) -> None:
        session = store.create(owner=ME, metadata={"topic": "tea"}).id

        filed = store.update(session, SessionPatch(metadata={"colour": "green"}), owner=ME)

        assert filed.metadata == {"colour": "green"}
        assert bodies_of(store, session)[-1] == event.SessionAnnotated({"colour": "green"})

    def test_the_same_metadata_again_writes_nothing(self, store: Store) -> None:
        before = store.create(owner=ME, metadata={"a": "1", "b": "2"})

        assert store.update(before.id, SessionPatch(metadata={"b": "2", "a": "1"}), owner=ME) == before

    @pytest.mark.parametrize(
        "metadata",
        [{"": "x"}, {"a": 1}, {"a": "\0"}, {"a": "\ud800"}, "text"],
        ids=["empty", "1", "nul", "lone", "text"],
    )
    def test_metadata_that_is_not_text_is_rejected(self, store: Store, metadata: dict[str, str]) -> None:
        session = new_session(store)
        with refused(store, session, InvalidPayload):
            store.update(session, SessionPatch(metadata=metadata), owner=ME)

    @pytest.mark.parametrize(
        "metadata", [{str(n): "" for n in range(17)}, {"n" * 257: ""}, {"a": "x" * 2_049}], ids=["many", "name", "long"]
    )
    def test_too_much_metadata_is_refused(self, store: Store, metadata: dict[str, str]) -> None:
        session = new_session(store)
        with refused(store, session, TooLarge):
            store.update(session, SessionPatch(metadata=metadata), owner=ME)

    def test_a_fork_begins_without_metadata(self, store: Store) -> None:
        session = store.create(owner=ME, metadata={"topic": "tea"}).id
        talk(store, session)

        assert store.fork(session, owner=ME).metadata == {}

    # --- forgotten turns --------------------------------------------------------------------------------------------

    def test_a_forgotten_turn_keeps_its_messages(self, store: Store) -> None:
        session = new_session(store)
        turn = run(store, session, "a question", "an answer").turn.id
        before = store.session(session, owner=ME)

        assert store.forget(turn, owner=ME).forgotten

        assert store.turn(turn, owner=ME).forgotten
        assert store.session(session, owner=ME) == before
        assert texts(store, session) == ["a question", "an answer"]

    def test_forgetting_a_turn_twice_changes_nothing(self, store: Store) -> None:
        turn = run(store, new_session(store)).turn.id

        assert store.forget(turn, owner=ME) == store.forget(turn, owner=ME)

    def test_a_turn_that_has_not_ended_is_not_forgotten(self, store: Store) -> None:
        session = new_session(store)
        opened = start(store, session)
        waiting = enqueue(store, session)

        for turn in (opened.id, waiting.id):
            with refused(store, session, Conflict):
                store.forget(turn, owner=ME)

    def test_a_turn_of_another_owner_cannot_be_forgotten(self, store: Store) -> None:
        session = new_session(store)
        turn = run(store, session).turn.id

        with refused(store, session, NotFound):
            store.forget(turn, owner=STRANGER)

    # --- the turn of a request --------------------------------------------------------------------------------------

    def test_the_turn_of_a_request_is_found_by_the_request_id(self, store: Store) -> None:
        here = store.submit(new_session(store), "hello", owner=ME, request_id="r").turn
        there = store.submit(room(), "hello", owner=ME, request_id="t").turn

        assert store.requested("r", owner=ME) == here
        assert store.requested("t", owner=ME) == there
        assert store.requested("r", owner=STRANGER) is None
        assert store.requested("s", owner=ME) is None

    def test_a_request_is_still_found_when_its_address_leads_elsewhere(self, store: Store) -> None:
        first = store.submit(room(), "hello", owner=ME, request_id="r").turn
        store.point(room(), new_session(store), owner=ME)

        assert store.requested("r", owner=ME) == first
        with pytest.raises(RequestMismatch):
            store.submit(room(), "other", owner=ME, request_id="r")

    # --- the ids of a turn's messages are known in advance ----------------------------------------------------------

    def test_the_ids_of_a_turns_messages_are_derived_from_the_turn(self, store: Store) -> None:
        session = new_session(store)
        opened = say(store, start(store, session), Text("one"), ToolCall("c", "look"))
        ended = store.finish(opened, Completed(), bodies=[ToolResult("c", 1), Text("two")])

        assert [added.id for added in ended.messages] == [message_of(ended.turn.id, place) for place in range(3)]
        assert said_in(store, session)[1:] == ended.messages

    def test_a_copy_has_ids_that_follow_from_its_own_turns(self, store: Store) -> None:
        session = new_session(store)
        run(store, session)
        talk(store, session)

        copy = store.import_session(store.export(session, owner=ME), owner=ME)

        assert copy.copied
        said = said_in(store, copy.session.id)
        turn = said[1].turn
        assert turn is not None
        assert said[1].id == message_of(turn, 0)

    # --- leaving out ------------------------------------------------------------------------------------------------

    @pytest.mark.parametrize("place", range(6))
    def test_a_message_that_is_left_out_is_read_no_more_and_the_others_are(self, store: Store, place: int) -> None:
        session = new_session(store)
        talk(store, session, 3)
        words, said = texts(store, session), said_in(store, session)

        moved = store.omit(session, said[place].id, owner=ME)

        words.pop(place)
        assert texts(store, session) == words
        assert (moved.length, moved.window.reason) == (5, "edit")
        assert [one.id for one in said_in(store, session)] == [one.id for one in said if one != said[place]]
        talk(store, session)
        assert texts(store, session)[:5] == words
        assert store.session(session, owner=ME).length == 7

    def test_messages_are_left_out_until_none_is_left(self, store: Store) -> None:
        session = new_session(store)
        talk(store, session, 4)
        order = [3, 0, 4, 1, 1, 0, 1, 0]
        words = texts(store, session)

        for place in order:
            store.omit(session, said_in(store, session)[place].id, owner=ME)
            words.pop(place)
            assert texts(store, session) == words

        assert store.session(session, owner=ME).preview is None

    def test_an_omission_is_an_event_and_the_message_stays_in_the_lineage(self, store: Store) -> None:
        session = new_session(store)
        talk(store, session, 2)
        before = store.session(session, owner=ME)
        store.omit(session, said_in(store, session)[1].id, owner=ME)

        after = store.session(session, owner=ME)
        assert bodies_of(store, session)[-1] == event.WindowOpened(after.window, before.window, "edit", 3)
        assert after.context > before.context
        assert len(store.messages(session, owner=ME, window=before.window).messages) == 4

    @pytest.mark.parametrize("follows", [True, False])
    def test_some_parts_of_a_message_can_stay(self, store: Store, follows: bool) -> None:
        session = new_session(store)
        run(store, session, "hello", [Thought("hm"), Text("an answer")])
        if follows:
            talk(store, session)
        before = said_in(store, session)

        store.omit(session, before[1].id, owner=ME, keep=[1])

        after = said_in(store, session)
        assert after[1].parts == (Text("an answer"),)
        assert (after[1].role, after[1].turn) == (before[1].role, before[1].turn)
        assert [one.id for one in after if one != after[1]] == [one.id for one in before if one != before[1]]
        talk(store, session)
        assert len(said_in(store, session)) == len(before) + 2

    @pytest.mark.parametrize("keep", [[0, 1], [2], [-1]])
    def test_parts_that_are_not_there_or_all_of_them_cannot_be_kept(self, store: Store, keep: list[int]) -> None:
        session = new_session(store)
        run(store, session, "hello", [Thought("hm"), Text("an answer")])
        with refused(store, session, InvalidPayload):
            store.omit(session, said_in(store, session)[1].id, owner=ME, keep=keep)

    def test_nothing_is_left_out_while_a_turn_runs_or_waits(self, store: Store) -> None:
        session = new_session(store)
        talk(store, session)
        first = said_in(store, session)[0].id
        opened = start(store, session)
        with refused(store, session, SessionBusy):
            store.omit(session, first, owner=ME)
        store.finish(opened, Completed())
        enqueue(store, session)
        with refused(store, session, SessionBusy):
            store.omit(session, first, owner=ME)

    def test_a_missing_message_cannot_be_omitted(self, store: Store) -> None:
        session, other = new_session(store), new_session(store)
        talk(store, session)
        talk(store, other)
        first = said_in(store, session)[0].id
        store.omit(session, first, owner=ME)
        for name in (first, said_in(store, other)[0].id, MessageId("msg_nonsense")):
            with refused(store, session, NotFound):
                store.omit(session, name, owner=ME)
        with refused(store, session, NotFound):
            store.omit(session, said_in(store, session)[0].id, owner=STRANGER)

    def test_a_summarised_message_cannot_be_omitted(self, store: Store) -> None:
        session = new_session(store)
        talk(store, session, 2)
        first = said_in(store, session)[0].id
        here = store.session(session, owner=ME)
        store.rotate(session, [message.summary("once")], owner=ME, parent=here.window, keep_from=2)
        for name in (first, said_in(store, session)[0].id):
            with refused(store, session, Conflict):
                store.omit(session, name, owner=ME)
        store.omit(session, said_in(store, session)[1].id, owner=ME)
        assert texts(store, session) == ["once", "answer 2"]

    def test_a_message_omitted_in_a_fork_is_still_read_by_its_source(self, store: Store) -> None:
        session = new_session(store)
        run(store, session, "hello", [Thought("hm"), Text("an answer")])
        fork = store.fork(session, owner=ME).id
        before = look(store, session)

        store.omit(fork, said_in(store, fork)[1].id, owner=ME, keep=[1])
        store.omit(fork, said_in(store, fork)[0].id, owner=ME)

        assert texts(store, fork) == ["an answer"]
        assert look(store, session) == before

    def test_a_message_is_found_where_the_session_reads_it(self, store: Store) -> None:
        session = new_session(store)
        talk(store, session, 3)
        said = said_in(store, session)
        store.omit(session, said[1].id, owner=ME)
        here = store.session(session, owner=ME)
        store.rotate(session, [message.summary("once")], owner=ME, parent=here.window, keep_from=2)

        for one in said_in(store, session):
            assert store.message_position(session, one.id, owner=ME) == one.position
        for gone in said[:3]:
            with pytest.raises(NotFound):
                store.message_position(session, gone.id, owner=ME)
        with pytest.raises(NotFound):
            store.message_position(session, said[5].id, owner=STRANGER)

    def test_a_message_is_read_with_the_rest_of_its_turn_wherever_it_was_written(self, store: Store) -> None:
        session = new_session(store)
        talk(store, session, 2)
        said = said_in(store, session)
        fork = store.fork(session, owner=ME).id
        store.undo(session, owner=ME)

        for number, one in enumerate(said):
            rest = store.rest_of_turn(one.id, owner=ME)
            assert [message.id for message in rest] == [
                message.id for message in said[number:] if message.turn == one.turn
            ]
        assert store.rest_of_turn(said_in(store, fork)[0].id, owner=ME, limit=1) == said[:1]
        with pytest.raises(NotFound):
            store.rest_of_turn(said[0].id, owner=STRANGER)
        with pytest.raises(NotFound):
            store.rest_of_turn(MessageId("msg_01hzx0000070000000000000ab"), owner=ME)
        store.delete(session, owner=ME)
        store.delete(fork, owner=ME)
        with pytest.raises(NotFound):
            store.rest_of_turn(said[0].id, owner=ME)

    def test_search_finds_the_remaining_messages_and_not_the_omitted_one(self, store: Store) -> None:
        session = new_session(store)
        run(store, session, "a harbour", [Thought("hm"), Text("a lighthouse")])
        talk(store, session)
        said = said_in(store, session)

        store.omit(session, said[1].id, owner=ME, keep=[1])
        store.omit(session, said[0].id, owner=ME)

        assert not store.search("harbour", owner=ME).hits
        (hit,) = store.search("lighthouse", owner=ME).hits
        assert hit.message == said_in(store, session)[0].id

    def test_undo_and_redo_work_around_an_omitted_message(self, store: Store) -> None:
        session = new_session(store)
        talk(store, session, 3)
        store.omit(session, said_in(store, session)[1].id, owner=ME)
        words = texts(store, session)

        store.undo(session, owner=ME)
        assert texts(store, session) == words[:-2]
        store.redo(session, owner=ME)
        assert texts(store, session) == words
        store.undo(session, owner=ME)
        store.undo(session, owner=ME)
        assert texts(store, session) == ["question 1"]
        store.undo(session, owner=ME)
        assert texts(store, session) == []

    # --- tools of a client -----------------------------------------------------------------------------------------

    def test_a_call_left_to_the_client_has_not_run_here_and_takes_its_result_later(self, store: Store) -> None:
        session = new_session(store)
        ended = run(store, session, "hello", [ToolCall("c1", "ask", client=True), ToolCall("c2", "look")])

        ending = bodies_of(store, session)[-1]
        assert isinstance(ending, event.TurnEnded)
        assert ending.may_have_run == ("c2",)
        store.record(session, [message.tool(ToolResult("c1", "yes"))], owner=ME)
        assert said_in(store, session)[-1].parts == (ToolResult("c1", "yes"),)
        assert ended.turn.outcome == Completed()

    # --- export and import ------------------------------------------------------------------------------------------

    def test_notes_are_exported_and_imported(self, store: Store, open_another: OpenAnother) -> None:
        session = store.create(owner=ME, metadata={"topic": "tea"}).id
        turn = run(store, session, "hello", [Thought("hm"), Text("an answer")]).turn.id
        talk(store, session, 2)
        store.forget(turn, owner=ME)
        store.omit(session, said_in(store, session)[1].id, owner=ME, keep=[1])
        store.omit(session, said_in(store, session)[2].id, owner=ME)
        fork = store.fork(session, owner=ME).id
        store.omit(fork, said_in(store, fork)[1].id, owner=ME)
        for one in (session, fork):
            document = store.export(one, owner=ME).to_json()

            copy = store.import_session(Export.from_json(document), owner=ME).session

            assert copy.metadata == store.session(one, owner=ME).metadata
            assert texts(store, copy.id) == texts(store, one)
        assert b'"forgotten":true' in store.export(session, owner=ME).to_json()
