"""Export and import: a session moves to another store, or is copied beside itself, unchanged."""

import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from io import BytesIO
from pathlib import Path

import pytest
from msgspec.structs import replace

from backstay.errors import BackstayError, InvalidPayload, NotFound, NothingToDo, RequestMismatch, TooLarge
from backstay.model import message
from backstay.model.content import Text, ToolCall
from backstay.model.documents.document import FORMAT, TO_SESSION, Export, Imported
from backstay.model.documents.records import gathered, records_in
from backstay.model.event import SessionCreated, SessionDeleted, TurnEnded, TurnHeld
from backstay.model.ids import SessionId
from backstay.model.limits import Limits
from backstay.model.turn import Cancelled, Completed, Interrupted
from backstay.store import Store, open_store
from backstay.testing.manual_clock import ManualClock
from tests.contract.base import ContractBase, OpenAnother
from tests.contract.builders import (
    AGENT,
    ME,
    STRANGER,
    Seen,
    enqueue,
    look,
    new_session,
    refused,
    room,
    run,
    said_in,
    say,
    start,
    texts,
)
from tests.contract.sample_histories import HISTORIES, PHOTO, Teller, photo

every_history = pytest.mark.parametrize("tell", HISTORIES.values(), ids=HISTORIES)

_ID = re.compile(r"(ses|win|trn|msg)_[0-9a-z]{26}")


def travel(document: Export, store: Store, *, owner: str = ME) -> Imported:
    """Import a document that went through a file."""
    return store.import_session(Export.from_json(document.to_json()), owner=owner, addresses=True)


def nameless(document: Export) -> str:
    """A document with its ids numbered in the order they are met; without what a copy does not take with it."""
    requests = [turn.request and replace(turn.request, scope=None) for turn in document.turns]
    turns = tuple(replace(turn, request=own) for turn, own in zip(document.turns, requests, strict=True))
    numbers: dict[str, str] = {}
    text = replace(document, addresses=(), turns=turns).to_json().decode()
    return _ID.sub(lambda found: numbers.setdefault(found[0], f"{found[1]} {len(numbers)}"), text)


def unheld(document: Export) -> Export:
    """A document as it was before an import held its waiting turns."""
    events = tuple(event for event in document.events if not isinstance(event.body, TurnHeld))
    gone = len(document.events) - len(events)
    facts = document.session
    return replace(
        document,
        session=replace(facts, last_event=facts.last_event - gone, revision=facts.revision - bool(gone)),
        events=events,
        turns=tuple(replace(turn, held=False) for turn in document.turns),
    )


def seen(store: Store, document: Export, *, owner: str = ME) -> Seen:
    """All there is to see of an exported session, except that its waiting turns are held."""
    turns = [turn.id for turn in document.turns]
    all_seen = look(store, document.session.id, turns, owner=owner)
    events = tuple(event for event in all_seen.events if not isinstance(event.body, TurnHeld))
    gone, here = len(all_seen.events) - len(events), all_seen.session
    return replace(
        all_seen,
        sessions=0,
        session=replace(here, last_event=here.last_event - gone, revision=here.revision - bool(gone), held=0),
        events=events,
        waiting=tuple(replace(turn, held=False) for turn in all_seen.waiting),
        turns=tuple(replace(turn, held=False) for turn in all_seen.turns),
    )


class ExportContract(ContractBase):
    """An export loses nothing, and an import accepts no invalid document."""

    @pytest.fixture
    def elsewhere(self, tmp_path: Path, clock: ManualClock) -> Iterator[Store]:
        """Another store, independent of the first."""
        with open_store(tmp_path / "elsewhere.db", clock=clock) as store:
            yield store

    # --- there and back ---------------------------------------------------------------------------------------------

    @every_history
    def test_an_imported_session_equals_the_exported_one(
        self, store: Store, elsewhere: Store, clock: ManualClock, tell: Teller
    ) -> None:
        document = elsewhere.export(tell(elsewhere, clock), owner=ME)

        imported = travel(document, store)

        assert (imported.session.id, imported.copied, imported.elsewhere) == (document.session.id, False, ())
        assert unheld(store.export(imported.session.id, owner=ME)) == document
        assert seen(store, document) == seen(elsewhere, document)
        for window in elsewhere.lineage(document.session.id, owner=ME):
            read = elsewhere.messages(document.session.id, owner=ME, window=window.id)
            assert store.messages(document.session.id, owner=ME, window=window.id) == read

    @every_history
    def test_a_file_of_lines_holds_the_whole_document(self, store: Store, clock: ManualClock, tell: Teller) -> None:
        session, file = tell(store, clock), BytesIO()
        document = store.export(session, owner=ME)

        size = store.export_to(session, file, owner=ME)

        file.seek(0)
        assert size == len(file.getvalue())
        assert gathered(record for _, record in records_in(file, 1 << 20)) == document

    @every_history
    def test_an_imported_file_gives_the_same_file_again(
        self, store: Store, elsewhere: Store, clock: ManualClock, tell: Teller
    ) -> None:
        file, again = BytesIO(), BytesIO()
        session = tell(elsewhere, clock)
        elsewhere.export_to(session, file, owner=ME)
        file.seek(0)

        imported = store.import_session(file, owner=ME, addresses=True)

        store.export_to(imported.session.id, again, owner=ME)
        assert unheld(_whole(again)) == _whole(file)

    def test_a_document_can_be_imported_as_json(self, store: Store, elsewhere: Store) -> None:
        run(elsewhere, room(), "hello", "hi")
        document = elsewhere.export(elsewhere.resolve(room(), owner=ME).session.id, owner=ME)

        imported = store.import_session(document.to_json(), owner=ME, addresses=True)

        assert store.export(imported.session.id, owner=ME) == document

    @every_history
    def test_an_exported_session_can_go_elsewhere(
        self, store: Store, elsewhere: Store, clock: ManualClock, tell: Teller
    ) -> None:
        session = tell(store, clock)
        before = store.session(session, owner=ME)

        document = store.export(session, owner=ME)

        assert store.session(session, owner=ME) == before
        assert unheld(elsewhere.export(travel(document, elsewhere).session.id, owner=ME)) == document

    @every_history
    def test_a_session_imported_beside_itself_is_a_copy(self, store: Store, clock: ManualClock, tell: Teller) -> None:
        session = tell(store, clock)
        document = store.export(session, owner=ME)
        before = seen(store, document)

        imported = travel(document, store)

        copy = store.export(imported.session.id, owner=ME)
        assert imported.copied
        assert nameless(unheld(copy)) == nameless(document)
        assert not _names(copy) & _names(document)
        assert seen(store, document) == before

    @every_history
    def test_a_session_can_be_imported_under_new_ids_though_its_own_are_free(
        self, store: Store, elsewhere: Store, clock: ManualClock, tell: Teller
    ) -> None:
        document = elsewhere.export(tell(elsewhere, clock), owner=ME)

        imported = store.import_session(document, owner=ME, new_ids=True, addresses=True)

        copy = store.export(imported.session.id, owner=ME)
        assert imported.copied
        assert nameless(unheld(copy)) == nameless(document)
        assert not _names(copy) & _names(document)

    @every_history
    def test_an_imported_session_can_be_undone_to_its_beginning(
        self, store: Store, elsewhere: Store, clock: ManualClock, tell: Teller
    ) -> None:
        document = elsewhere.export(tell(elsewhere, clock), owner=ME)
        session = travel(document, store).session.id

        assert _undone(store, session) == _undone(elsewhere, session)

    @every_history
    def test_search_finds_the_same_after_an_import(
        self, store: Store, elsewhere: Store, clock: ManualClock, tell: Teller
    ) -> None:
        document = elsewhere.export(tell(elsewhere, clock), owner=ME)
        session = travel(document, store).session.id

        for words in ("question", "answer", "hello", "one", "question 2", "second", "moment"):
            found = store.search(words, owner=ME, session=session, limit=100)
            expected = elsewhere.search(words, owner=ME, session=session, limit=100)
            assert sorted(hit.message for hit in found.hits) == sorted(hit.message for hit in expected.hits)

    @every_history
    def test_nothing_is_left_of_an_imported_session_that_is_deleted(
        self, store: Store, elsewhere: Store, clock: ManualClock, tell: Teller
    ) -> None:
        document = elsewhere.export(tell(elsewhere, clock), owner=ME)
        session = travel(document, store).session.id

        gone = store.delete(session, owner=ME)

        assert gone.messages == sum(len(window.messages) for window in document.windows)
        assert (gone.windows, gone.turns) == (len(document.windows), len(document.turns))
        assert (gone.blobs, gone.kept_messages) == (len(document.attachments), 0)
        assert store.list(owner=ME).sessions == ()
        assert store.search("question", owner=ME).hits == ()

    @every_history
    def test_a_fork_of_an_imported_session_survives_it(
        self, store: Store, elsewhere: Store, clock: ManualClock, tell: Teller
    ) -> None:
        document = elsewhere.export(tell(elsewhere, clock), owner=ME)
        session = travel(document, store).session.id
        expected = said_in(store, session)

        fork = store.fork(session, owner=ME).id
        store.delete(session, owner=ME)

        assert said_in(store, fork) == expected
        assert store.delete(fork, owner=ME).kept_messages == 0

    @every_history
    def test_an_imported_session_is_folded_and_collected_like_any_other(
        self, store: Store, elsewhere: Store, clock: ManualClock, tell: Teller
    ) -> None:
        document = elsewhere.export(tell(elsewhere, clock), owner=ME)
        session = travel(document, store).session.id
        clock.advance(100_000)

        for one in (store, elsewhere):
            one.fold(older_than=1)
            one.collect()

        assert unheld(store.export(session, owner=ME)) == elsewhere.export(session, owner=ME)

    # --- going on ---------------------------------------------------------------------------------------------------

    def test_a_running_turn_is_imported_as_interrupted_with_its_output(
        self, store: Store, elsewhere: Store, clock: ManualClock
    ) -> None:
        session = new_session(elsewhere)
        proof = say(elsewhere, start(elsewhere, session), Text("half an "), ToolCall("c1", "pay"))
        elsewhere.submit(session, "hurry", owner=ME, if_busy="steer")
        proof = elsewhere.checkpoint(proof, [Text("ans")], take_steering=True).open
        waiting = enqueue(elsewhere, session)
        document = elsewhere.export(session, owner=ME)

        imported = travel(document, store)

        turn = store.turn(proof.id, owner=ME)
        assert isinstance(turn.outcome, Interrupted)
        assert (imported.session.running, imported.session.waiting) == (None, 1)
        assert imported.session.fence > document.session.fence
        assert [(said.text, said.partial) for said in said_in(store, session)] == [
            ("hello", False),
            ("half an \nans", True),
            ("hurry", False),
        ]
        assert store.calls(proof.id, owner=ME)[0].effect == "unknown"
        assert store.claim([AGENT]) is None
        store.release(waiting.id, owner=ME)
        claimed = store.claim([AGENT])
        assert claimed is not None
        assert claimed.id == waiting.id
        assert elsewhere.session(session, owner=ME).running == proof.id

    def test_a_turn_that_was_asked_to_stop_before_it_was_exported_is_cancelled(
        self, store: Store, elsewhere: Store
    ) -> None:
        proof = start(elsewhere, room())
        elsewhere.cancel(proof.id, owner=ME)

        travel(elsewhere.export(proof.session, owner=ME), store)

        assert isinstance(store.turn(proof.id, owner=ME).outcome, Cancelled)

    def test_a_turn_whose_holder_is_gone_is_exported_as_interrupted(
        self, store: Store, open_another: OpenAnother
    ) -> None:
        gone = open_another()
        proof = say(gone, start(gone, room()), Text("half"))
        gone.close()

        document = store.export(proof.session, owner=ME)

        assert [turn.state for turn in document.turns] == ["ended"]
        assert isinstance(document.events[-1].body, TurnEnded)

    def test_imported_waiting_turns_run_in_their_order(
        self, store: Store, elsewhere: Store, clock: ManualClock
    ) -> None:
        document = elsewhere.export(HISTORIES["queued"](elsewhere, clock), owner=ME)
        imported = travel(document, store)
        session = imported.session.id
        for turn in imported.held:
            store.release(turn, owner=ME)
        talk_about = []

        while (claimed := store.claim([AGENT, "critic"], session=session, owner=ME)) is not None:
            talk_about.append(claimed.input.text)
            store.finish(claimed, Completed(), bodies=[Text("yes")])

        assert talk_about == ["now!", "first", "second, but better"]
        assert texts(store, session)[-2:] == ["", "seen"]
        assert store.session(session, owner=ME).waiting == 0

    def test_an_imported_conversation_continues(self, store: Store, elsewhere: Store, clock: ManualClock) -> None:
        document = elsewhere.export(HISTORIES["compacted"](elsewhere, clock), owner=ME)
        session = travel(document, store).session.id
        before = store.session(session, owner=ME)

        run(store, session, "and then?", "The end.")

        after = store.session(session, owner=ME)
        assert texts(store, session)[-2:] == ["and then?", "The end."]
        assert after.revision > before.revision
        assert after.fence > before.fence
        assert [event.number for event in store.events_after(session, owner=ME).events][-1] == after.last_event

    def test_the_feed_has_the_events_of_an_import_once_and_in_order(
        self, store: Store, elsewhere: Store, clock: ManualClock
    ) -> None:
        document = elsewhere.export(HISTORIES["forked"](elsewhere, clock), owner=ME)
        position = store.feed(None, owner=ME).next

        session = travel(document, store).session.id

        fed = [one.event for one in store.feed(position, owner=ME).events]
        imported_events = [event for event in fed if event.session == session]
        assert imported_events == list(elsewhere.events_after(session, owner=ME).events)
        assert [event.body for event in fed if event.session != session] == [SessionDeleted()] * len(document.ancestors)
        assert isinstance(fed[-len(imported_events)].body, SessionCreated)

    # --- whose it is ------------------------------------------------------------------------------------------------

    def test_an_imported_session_belongs_to_the_importing_owner(
        self, store: Store, elsewhere: Store, clock: ManualClock
    ) -> None:
        document = elsewhere.export(HISTORIES["filed"](elsewhere, clock), owner=ME)

        imported = travel(document, store, owner=STRANGER)

        assert imported.session.owner == STRANGER
        assert store.export(imported.session.id, owner=STRANGER) == document
        assert store.search("question", owner=STRANGER).hits
        assert store.marks(imported.session.id, owner=STRANGER).draft == "not yet\nfinished"
        assert store.search("question", owner=ME).hits == ()
        with pytest.raises(NotFound):
            store.export(imported.session.id, owner=ME)

    def test_attachments_come_along_and_are_stored_once(
        self, store: Store, elsewhere: Store, clock: ManualClock
    ) -> None:
        document = elsewhere.export(HISTORIES["attached"](elsewhere, clock), owner=ME)
        mine = new_session(store)
        store.record(mine, [message.user(photo(store))], owner=ME)

        first, second = travel(document, store), travel(document, store)

        blob = document.attachments[0].hash
        assert second.copied
        assert store.read_blob(blob, owner=ME) == PHOTO
        with pytest.raises(NotFound):
            store.read_blob(blob, owner=STRANGER)
        assert store.delete(mine, owner=ME).blobs == 0
        assert store.delete(first.session.id, owner=ME).blobs == 0
        assert store.delete(second.session.id, owner=ME).blobs == len(document.attachments)

    def test_a_redelivered_request_is_recognised_after_the_move(
        self, store: Store, elsewhere: Store, clock: ManualClock
    ) -> None:
        document = elsewhere.export(HISTORIES["requested"](elsewhere, clock), owner=ME)
        session = travel(document, store).session.id
        porch, attic, direct = (turn.id for turn in document.turns)

        for to in (room("porch"), room("attic"), session):
            assert store.submit(to, "hello", owner=ME, request_id="r1").turn.id == porch
            assert store.submit(to, "there", owner=ME, request_id="r2").turn.id == attic
            assert store.submit(to, "you", owner=ME, request_id="r3").turn.id == direct

    def test_a_documents_request_ids_name_nothing_unless_its_addresses_are_asked_for(
        self, store: Store, elsewhere: Store, clock: ManualClock
    ) -> None:
        document = elsewhere.export(HISTORIES["requested"](elsewhere, clock), owner=ME)

        imported = store.import_session(document, owner=ME)

        assert [store.requested(name, owner=ME) for name in ("r1", "r2", "r3")] == [None] * 3
        assert [turn.request_id for turn in store.waiting(imported.session.id, owner=ME)] == ["r1", "r2", "r3"]
        assert not store.submit(room("porch"), "hello", owner=ME, request_id="r1").repeated

    def test_in_an_old_document_the_first_turn_keeps_a_repeated_request_id(
        self, store: Store, elsewhere: Store, clock: ManualClock
    ) -> None:
        document = elsewhere.export(HISTORIES["requested"](elsewhere, clock), owner=ME)
        # An id was once unique per address and per session.
        scopes = (room("porch").spelling, room("attic").spelling, TO_SESSION)
        turns = tuple(
            replace(turn, request=replace(turn.request, id="r1", scope=scope))
            for turn, scope in zip(document.turns, scopes, strict=True)
            if turn.request is not None
        )

        imported = travel(replace(document, turns=turns), store)

        first = document.turns[0]
        assert not imported.copied
        assert store.requested("r1", owner=ME) == store.turn(first.id, owner=ME)
        assert [store.turn(turn.id, owner=ME).request_id for turn in document.turns] == ["r1"] * 3
        assert store.submit(room("porch"), "hello", owner=ME, request_id="r1").turn.id == first.id

    def test_a_request_to_a_repointed_address_is_recognised_after_the_move(
        self, store: Store, elsewhere: Store
    ) -> None:
        first = elsewhere.submit(room(), "hello", owner=ME, request_id="r1")
        elsewhere.point(room(), new_session(elsewhere), owner=ME)
        document = elsewhere.export(first.session.id, owner=ME)

        imported = travel(document, store)

        assert imported.addresses == ()
        again = store.submit(room(), "hello", owner=ME, request_id="r1")
        assert (again.repeated, again.turn.id) == (True, first.turn.id)

    def test_a_copy_answers_no_request(self, store: Store, clock: ManualClock) -> None:
        document = store.export(HISTORIES["requested"](store, clock), owner=ME)
        copy = travel(document, store).session.id

        again = store.submit(room("porch"), "hello", owner=ME, request_id="r1")

        assert again.turn.id == document.turns[0].id
        with refused(store, copy, RequestMismatch):
            store.submit(copy, "hello", owner=ME, request_id="r1")
        assert [turn.request_id for turn in store.waiting(copy, owner=ME)] == ["r1", "r2", "r3"]

    def test_a_request_that_became_another_turn_here_makes_it_a_copy(self, store: Store, elsewhere: Store) -> None:
        there = elsewhere.submit(room(), "hello", owner=ME, request_id="r1")
        here = store.submit(room(), "hello", owner=ME, request_id="r1")

        imported = travel(elsewhere.export(there.session.id, owner=ME), store)

        assert (imported.copied, imported.elsewhere) == (True, (room().spelling,))
        assert store.submit(room(), "hello", owner=ME, request_id="r1").turn.id == here.turn.id

    def test_an_import_does_not_take_over_the_requests_of_another_owner(self, store: Store, elsewhere: Store) -> None:
        there = elsewhere.submit(room(), "hello", owner=ME, request_id="r1")

        travel(elsewhere.export(there.session.id, owner=ME), store, owner=STRANGER)

        mine = store.submit(room(), "hello", owner=ME, request_id="r1")
        assert not mine.repeated
        assert store.submit(room(), "hello", owner=STRANGER, request_id="r1").turn.id == there.turn.id

    def test_a_free_address_leads_to_the_imported_session_in_its_generation(
        self, store: Store, elsewhere: Store
    ) -> None:
        first = elsewhere.resolve(room(), owner=ME).session.id
        elsewhere.end(first, owner=ME)
        second = elsewhere.resolve(room(), owner=ME)

        imported = travel(elsewhere.export(second.session.id, owner=ME), store)

        resolved = store.resolve(room(), owner=ME)
        assert imported.addresses == (room().spelling,)
        assert (resolved.session.id, resolved.how, resolved.generation) == (second.session.id, "resumed", 2)

    def test_an_address_that_leads_elsewhere_stays_there(self, store: Store, elsewhere: Store) -> None:
        here = store.resolve(room(), owner=ME).session.id
        there = elsewhere.resolve(room(), owner=ME).session.id
        elsewhere.point(room("porch"), there, owner=ME)

        imported = travel(elsewhere.export(there, owner=ME), store)

        assert (imported.addresses, imported.elsewhere) == ((room("porch").spelling,), (room().spelling,))
        assert store.resolve(room(), owner=ME).session.id == here
        assert store.addresses(there, owner=ME) == (room("porch").spelling,)

    def test_a_deleted_session_comes_back_as_a_copy(self, store: Store, clock: ManualClock) -> None:
        document = store.export(HISTORIES["conversation"](store, clock), owner=ME)
        store.delete(document.session.id, owner=ME)

        imported = travel(document, store)

        assert imported.copied
        assert nameless(store.export(imported.session.id, owner=ME)) == nameless(document)

    def test_of_concurrent_imports_of_a_session_one_keeps_its_ids(
        self, store: Store, other: Store, elsewhere: Store, clock: ManualClock
    ) -> None:
        document = elsewhere.export(HISTORIES["forked"](elsewhere, clock), owner=ME)

        with ThreadPoolExecutor(4) as threads:
            coming = [threads.submit(travel, document, handle) for handle in (store, other, store, other)]
            imported = [one.result() for one in coming]

        assert sorted(one.copied for one in imported) == [False, True, True, True]
        assert {nameless(store.export(one.session.id, owner=ME)) for one in imported} == {nameless(document)}

    def test_a_session_of_another_owner_is_not_exported(self, store: Store) -> None:
        session = new_session(store)

        with pytest.raises(NotFound):
            store.export(session, owner=STRANGER)
        with pytest.raises(NotFound):
            store.export(SessionId("nobody"), owner=ME)

    # --- refused ----------------------------------------------------------------------------------------------------

    def test_a_newer_format_is_rejected_with_a_hint(self, store: Store) -> None:
        document = store.export(new_session(store), owner=ME)

        with pytest.raises(InvalidPayload, match="newer"):
            Export.from_json(replace(document, format=FORMAT + 1).to_json())
        with pytest.raises(InvalidPayload, match="newer"):
            store.import_session(replace(document, format=FORMAT + 1), owner=ME)

    @pytest.mark.parametrize(
        "text", [b"", b"null", b"[]", b"{}", b"\xff", b'{"backstay": "session"}', b'{"backstay": "chat", "format": 1}']
    )
    def test_a_document_of_something_else_is_rejected(self, text: bytes) -> None:
        with pytest.raises(InvalidPayload):
            Export.from_json(text)

    def test_input_that_is_not_a_document_is_rejected(self, store: Store) -> None:
        document = store.export(new_session(store), owner=ME)

        with pytest.raises(InvalidPayload):
            store.import_session({"backstay": "session"}, owner=ME)  # type: ignore[arg-type]  # what a caller may try
        with pytest.raises(InvalidPayload):
            store.import_session(replace(document, turns=("no turn",)), owner=ME)
        with pytest.raises(InvalidPayload):
            store.import_session(replace(document, session=replace(document.session, title="\ud800")), owner=ME)
        with pytest.raises(InvalidPayload):
            store.import_session(document, owner="")

    def test_a_store_with_smaller_limits_rejects_a_larger_document(
        self, store: Store, open_another: OpenAnother, clock: ManualClock
    ) -> None:
        session = HISTORIES["attached"](store, clock)
        document = store.export(session, owner=ME)

        for limits in (Limits(message_bytes=10), Limits(blob_bytes=10)):
            small = open_another(limits=limits)
            position = small.feed(None, owner=ME).next
            with pytest.raises(TooLarge, match=r"\$\."):
                small.import_session(document, owner=ME)
            assert small.feed(position, owner=ME).events == ()


def _whole(file: BytesIO) -> Export:
    """The document in a file, in memory."""
    file.seek(0)
    return gathered(record for _, record in records_in(file, 1 << 20))


def _names(document: Export) -> set[str]:
    """All ids of a document but that of the window it was forked from, which need not be part of it."""
    parents = {window.parent for window in document.windows if window.reason == "fork"}
    windows = {window.id for window in document.windows}
    return {found[0] for found in _ID.finditer(document.to_json().decode())} - (parents - windows)


def _undone(store: Store, session: SessionId) -> list[list[str]]:
    """What a session reads after each undo, until there is nothing left; then after each redo."""
    for turn in store.waiting(session, owner=ME):
        store.release(turn.id, owner=ME)
    while waiting := store.waiting(session, owner=ME):
        store.withdraw(waiting[0].id, owner=ME)
    steps: list[list[str]] = []
    try:
        for verb in (store.undo, store.redo, store.undo):
            try:
                while True:
                    verb(session, owner=ME)
                    steps.append(texts(store, session))
            except NothingToDo:
                continue
    except BackstayError as error:
        steps.append([type(error).__name__])
    return steps
