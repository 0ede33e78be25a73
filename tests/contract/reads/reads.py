"""Reads: messages in pages, events from any number on, lists of sessions; a read changes nothing."""

from collections.abc import Callable
from typing import Any

import pytest

from backstay.errors import InvalidPayload, NotFound
from backstay.model import message
from backstay.model.addresses.address import Address
from backstay.model.content import Text, ToolCall, ToolResult, Usage
from backstay.model.event import (
    START,
    UNSEEN,
    Cursor,
    Event,
    TurnFolded,
    TurnRecorded,
    TurnStarted,
)
from backstay.model.ids import SessionId
from backstay.model.session import SessionFilter, SessionInfo, Ttl
from backstay.model.turn import Completed, Interrupted
from backstay.store import Store
from backstay.testing.manual_clock import ManualClock
from tests.contract.base import LEASE, ContractBase
from tests.contract.builders import (
    ME,
    STRANGER,
    enqueue,
    events_of,
    look,
    new_session,
    room,
    run,
    said_in,
    say,
    start,
    talk,
    texts,
)
from tests.contract.history.rotation import compact
from tests.touching import touch

HOUR = 3600.0


class ReadingContract(ContractBase):
    """Each reader reads the same, in pages of any size."""

    # --- sessions by their names --------------------------------------------------------------------------------------

    def test_an_address_is_looked_up_without_making_anything(self, store: Store) -> None:
        with pytest.raises(NotFound):
            store.at(room(), owner=ME)
        made = store.resolve(room(), owner=ME).session

        assert store.list(owner=ME).sessions == (store.at(room(), owner=ME),)
        assert store.at(room(), owner=ME).activity == made.activity
        with pytest.raises(NotFound):
            store.at(room(), owner=STRANGER)

    def test_an_address_still_leads_to_a_session_that_has_ended(self, store: Store) -> None:
        session = store.resolve(room(), owner=ME).session.id
        store.end(session, owner=ME)

        assert (store.at(room(), owner=ME).id, store.at(room(), owner=ME).state) == (session, "ended")

    def test_an_address_of_a_directory_is_looked_up_as_it_was_resolved(self, store: Store) -> None:
        address = Address.workspace("/somewhere", scope="run")
        session = store.resolve(address, owner=ME).session.id

        assert store.at(address, owner=ME).id == session
        assert store.at(Address.parse(store.addresses(session, owner=ME)[0]), owner=ME).id == session

    def test_sessions_are_found_by_the_beginning_of_their_ids(self, store: Store) -> None:
        made = [new_session(store) for _ in range(3)]
        foreign = new_session(store, owner=STRANGER)
        store.delete(made[1], owner=ME)

        assert [one.id for one in store.beginning_with("ses_", owner=ME)] == [made[0], made[2]]
        assert [one.id for one in store.beginning_with("", owner=ME, limit=1)] == [made[0]]
        assert [one.id for one in store.beginning_with(made[2], owner=ME)] == [made[2]]
        for nobody in (made[1], foreign, made[0] + "0", "win_", "zes_", "ses_%", "ses_é", "ses_\0"):
            assert store.beginning_with(nobody, owner=ME) == ()
        with pytest.raises(InvalidPayload):
            store.beginning_with("ses_", owner=ME, limit=0)

    def test_sessions_are_found_by_the_end_of_their_ids(self, store: Store) -> None:
        made = [new_session(store) for _ in range(3)]
        foreign = new_session(store, owner=STRANGER)
        store.delete(made[1], owner=ME)

        assert [one.id for one in store.ending_with(made[0][4:], owner=ME)] == [made[0]]
        assert made[2] in [one.id for one in store.ending_with(made[2][-1], owner=ME)]
        for nobody in (made[1][4:], foreign[4:], "", "%", "_", made[0][4:].upper(), made[0][4:-1] + "_", "é", "\0"):
            assert store.ending_with(nobody, owner=ME) == ()
        with pytest.raises(InvalidPayload):
            store.ending_with("a", owner=ME, limit=0)

    # --- messages ---------------------------------------------------------------------------------------------------

    @pytest.mark.parametrize(
        ("before", "after", "last", "positions"),
        [
            (None, None, None, [0, 1, 2, 3, 4, 5]),
            (None, None, 2, [4, 5]),
            (None, None, 0, []),
            (None, None, 100, [0, 1, 2, 3, 4, 5]),
            (2, None, None, [0, 1]),
            (0, None, None, []),
            (100, None, None, [0, 1, 2, 3, 4, 5]),
            (None, 3, None, [4, 5]),
            (None, 5, None, []),
            (None, 100, None, []),
            (3, 0, None, [1, 2]),
            (3, 3, None, []),
            (4, None, 2, [2, 3]),
            (None, 1, 2, [4, 5]),
            (5, 1, 2, [3, 4]),
            (None, 3, 5, [4, 5]),
        ],
    )
    def test_messages_are_read_between_positions_and_from_the_end(
        self, store: Store, before: int | None, after: int | None, last: int | None, positions: list[int]
    ) -> None:
        session = new_session(store)
        talk(store, session, 3)

        page = store.messages(session, owner=ME, before=before, after=after, last=last)

        assert [said.position for said in page.messages] == positions
        assert page.length == 6
        assert page.window == store.session(session, owner=ME).window

    @pytest.mark.parametrize(("before", "after", "last"), [(-1, None, None), (None, -2, None), (None, None, -1)])
    def test_there_are_no_messages_before_the_first(
        self, store: Store, before: int | None, after: int | None, last: int | None
    ) -> None:
        session = new_session(store)

        with pytest.raises(InvalidPayload):
            store.messages(session, owner=ME, before=before, after=after, last=last)

    def test_messages_of_any_window_are_read_in_pages(self, store: Store) -> None:
        session = new_session(store)
        talk(store, session, 3)
        first = store.session(session, owner=ME).window
        compact(store, session, keep_from=5)

        page = store.messages(session, owner=ME, window=first, before=4, last=2)

        assert [(said.position, said.text) for said in page.messages] == [(2, "question 2"), (3, "answer 2")]
        assert (page.window, page.length) == (first, 6)

    def test_a_position_always_names_the_same_message_of_a_window(self, store: Store) -> None:
        session = new_session(store)
        talk(store, session, 2)
        before = store.messages(session, owner=ME)

        talk(store, session, 2)
        store.undo(session, owner=ME)
        compact(store, session, keep_from=3)

        after = store.messages(session, owner=ME, window=before.window, before=4)
        assert after.messages == before.messages

    def test_a_window_counts_positions_from_its_own_beginning(self, store: Store) -> None:
        session = new_session(store)
        talk(store, session, 3)

        compact(store, session, keep_from=4)
        talk(store, session)

        assert [said.position for said in said_in(store, session)] == [0, 1, 2, 3, 4]

    def test_messages_of_another_owner_are_not_found(self, store: Store) -> None:
        session = new_session(store)
        talk(store, session)

        with pytest.raises(NotFound):
            store.messages(session, owner=STRANGER)

    def test_a_reader_of_messages_sees_the_end_of_a_dead_holders_turn(self, store: Store, other: Store) -> None:
        session = new_session(store)
        say(other, start(other, session, "hello"), Text("hi the"))
        other.close()

        said = said_in(store, session)

        assert [(one.text, one.partial) for one in said] == [("hello", False), ("hi the", True)]

    # --- the event log ----------------------------------------------------------------------------------------------

    def test_events_are_numbered_from_one_without_a_gap(self, store: Store, other: Store) -> None:
        session = _eventful(store, other)

        events = events_of(store, session)

        assert [event.number for event in events] == list(range(1, len(events) + 1))
        assert all(event.last == event.number for event in events)
        assert events[-1].number == store.session(session, owner=ME).last_event

    @pytest.mark.parametrize("limit", [1, 2, 3, 7, 1000])
    def test_events_are_the_same_in_pages_of_every_size(self, store: Store, other: Store, limit: int) -> None:
        session = _eventful(store, other)

        assert _in_pages(store, session, limit) == events_of(store, session)

    def test_events_can_be_read_after_any_event(self, store: Store, other: Store) -> None:
        session = _eventful(store, other)
        events = events_of(store, session)

        for seen, event in enumerate(events, 1):
            page = store.events_after(session, event.cursor, owner=ME)
            assert (page.gap, page.events) == (None, events[seen:])

    def test_a_page_states_whether_there_is_more_and_the_next_cursor(self, store: Store) -> None:
        session = new_session(store)
        talk(store, session, 2)
        events = events_of(store, session)

        first = store.events_after(session, owner=ME, limit=2)
        second = store.events_after(session, first.next, owner=ME, limit=1)

        assert (first.more, first.next) == (True, events[1].cursor)
        assert (second.more, second.next) == (False, events[2].cursor)

    def test_a_reader_that_has_caught_up_keeps_its_cursor(self, store: Store) -> None:
        session = new_session(store)
        talk(store, session)
        end = events_of(store, session)[-1].cursor

        page = store.events_after(session, end, owner=ME)

        assert (page.events, page.gap, page.next, page.more) == ((), None, end, False)

    def test_a_reader_that_saw_another_fence_reads_from_the_beginning(self, store: Store) -> None:
        session = new_session(store)
        talk(store, session, 2)
        seen = events_of(store, session)[1]

        page = store.events_after(session, Cursor(fence=seen.fence + 1, number=seen.number), owner=ME)

        assert (page.gap, page.events) == ("resync", events_of(store, session))

    def test_a_reader_past_the_end_reads_from_the_beginning(self, store: Store) -> None:
        session = new_session(store)
        talk(store, session)
        end = events_of(store, session)[-1]

        page = store.events_after(session, Cursor(fence=end.fence, number=end.number + 1), owner=ME)

        assert (page.gap, page.events) == ("resync", events_of(store, session))

    def test_a_resync_is_reported_once(self, store: Store) -> None:
        session = new_session(store)
        talk(store, session, 3)

        first = store.events_after(session, Cursor(fence=7, number=99), owner=ME, limit=2)
        second = store.events_after(session, first.next, owner=ME)

        assert (first.gap, second.gap) == ("resync", None)
        assert first.events + second.events == events_of(store, session)

    @pytest.mark.parametrize(
        "cursor",
        [None, 3, "3", Cursor(fence="1", number=3), Cursor(fence=1, number="3"), Cursor(fence=1, number=1.5)],  # type: ignore[arg-type]
        ids=repr,
    )
    def test_an_invalid_cursor_is_rejected(self, store: Store, cursor: Any) -> None:
        with pytest.raises(InvalidPayload):
            store.events_after(new_session(store), cursor, owner=ME)

    @pytest.mark.parametrize("odd", ["3", 1.5, b"1", [1], Text("1")], ids=repr)
    def test_an_invalid_position_filter_or_query_is_rejected(self, store: Store, odd: Any) -> None:
        session = new_session(store)
        for where in ("before", "after", "last"):
            with pytest.raises(InvalidPayload):
                store.messages(session, owner=ME, **{where: odd})
        for choice in ("filter", "after"):
            with pytest.raises(InvalidPayload):
                store.list(owner=ME, **{choice: odd})
        with pytest.raises(InvalidPayload):
            store.search("tea", owner=ME, filter=odd)
        if not isinstance(odd, str):
            with pytest.raises(InvalidPayload):
                store.search(odd, owner=ME)

    @pytest.mark.parametrize("cursor", [Cursor(fence=-2, number=1), Cursor(fence=0, number=-1)])
    def test_a_cursor_with_negative_numbers_is_refused(self, store: Store, cursor: Cursor) -> None:
        with pytest.raises(InvalidPayload):
            store.events_after(new_session(store), cursor, owner=ME)

    @pytest.mark.parametrize("limit", [0, 1001])
    def test_a_page_of_events_is_bounded(self, store: Store, limit: int) -> None:
        with pytest.raises(InvalidPayload):
            store.events_after(new_session(store), owner=ME, limit=limit)

    def test_the_events_of_another_owner_are_not_found(self, store: Store) -> None:
        with pytest.raises(NotFound):
            store.events_after(new_session(store), owner=STRANGER)

    def test_the_start_of_a_turn_shows_its_input(self, store: Store) -> None:
        session = new_session(store)
        proof = start(store, session, "hello")

        event = events_of(store, session)[-1]

        assert event.body == TurnStarted("default", proof.input)
        assert event.turn == proof.id

    def test_recorded_messages_are_shown_with_their_event(self, store: Store) -> None:
        session = new_session(store)
        talk(store, session)

        assert events_of(store, session)[-1].body == TurnRecorded(said_in(store, session))

    def test_an_event_shows_its_messages_after_they_were_undone(self, store: Store) -> None:
        session = new_session(store)
        talk(store, session)
        before = events_of(store, session)

        store.undo(session, owner=ME)

        assert events_of(store, session)[: len(before)] == before

    # --- folding ----------------------------------------------------------------------------------------------------

    def test_a_fold_replaces_a_whole_ended_turn_and_shows_its_messages(self, store: Store, clock: ManualClock) -> None:
        session = new_session(store)
        _stream(store, session, 5)
        before = events_of(store, session)
        clock.advance(HOUR)

        went = store.fold()

        after = events_of(store, session)
        fold = after[1]
        assert went == 6
        assert after == (before[0], fold)
        assert (fold.number, fold.last, fold.fence, fold.turn) == (2, 8, before[1].fence, before[1].turn)
        assert fold.body == TurnFolded(2, 8, "default", Completed(), (), said_in(store, session))

    def test_only_runs_of_deltas_are_folded_between_other_events(self, store: Store, clock: ManualClock) -> None:
        session = new_session(store)
        proof = say(store, start(store, session), Text("a"), Text("b"))
        store.rename(session, "in between", owner=ME)
        store.finish(say(store, proof, Text("c"), Text("d")), Completed())
        clock.advance(HOUR)

        store.fold()

        events = events_of(store, session)
        assert [(event.number, event.last) for event in events] == [(1, 1), (2, 2), (3, 4), (5, 5), (6, 7), (8, 8)]
        folds = [event.body for event in events if isinstance(event.body, TurnFolded)]
        assert [fold.outcome for fold in folds] == [None, None]
        assert [len(fold.messages) for fold in folds] == [0, 1]

    def test_folding_twice_changes_nothing(self, store: Store, clock: ManualClock) -> None:
        session = new_session(store)
        _stream(store, session, 5)
        clock.advance(HOUR)
        store.fold()
        before = events_of(store, session)

        again = store.fold()

        assert again == 0
        assert events_of(store, session) == before

    def test_a_running_turn_is_not_folded(self, store: Store, clock: ManualClock) -> None:
        session = new_session(store)
        proof = start(store, session)
        for _ in range(3):
            proof = say(store, proof, Text("still "))
        before = events_of(store, session)

        assert store.fold(older_than=0) == 0
        assert events_of(store, session) == before

    def test_a_turn_that_ended_lately_is_not_folded(self, store: Store, clock: ManualClock) -> None:
        session = new_session(store)
        _stream(store, session, 5)
        clock.advance(HOUR - 1)

        assert store.fold() == 0
        assert store.fold(older_than=HOUR - 1) == 6

    def test_a_fold_covers_tool_calls_results_and_usage(self, store: Store, clock: ManualClock) -> None:
        session = new_session(store)
        proof = say(store, start(store, session), Text("let me "), Text("see"), ToolCall("c1", "look"))
        proof = say(store, proof, ToolResult("c1", "there"), Usage(input_tokens=3), Text("it is "), Text("there"))
        store.finish(proof, Completed())
        clock.advance(HOUR)

        store.fold()

        created, fold = events_of(store, session)
        assert (created.number, fold.number, fold.last) == (1, 2, 10)
        assert isinstance(fold.body, TurnFolded)
        assert fold.body.messages == said_in(store, session)

    def test_a_fold_names_the_calls_with_unknown_effect(self, store: Store, clock: ManualClock) -> None:
        session = new_session(store)
        store.finish(say(store, start(store, session), ToolCall("c1", "pay")), Interrupted("gone"))
        clock.advance(HOUR)

        store.fold()

        fold = events_of(store, session)[-1].body
        assert isinstance(fold, TurnFolded)
        assert (fold.outcome, fold.may_have_run) == (Interrupted("gone"), ("c1",))

    def test_the_messages_of_a_turn_are_shown_once_after_several_folds(self, store: Store, clock: ManualClock) -> None:
        session = new_session(store)
        proof = start(store, session)
        for _ in range(3):
            proof = say(store, proof, Text("a"), Text("b"))
            store.rename(session, f"between {proof.event}", owner=ME)
        store.finish(proof, Completed())
        clock.advance(HOUR)

        store.fold()

        folds = [event.body for event in events_of(store, session) if isinstance(event.body, TurnFolded)]
        assert len(folds) == 3
        assert [said for fold in folds for said in fold.messages] == list(said_in(store, session)[1:])

    def test_a_reader_inside_a_fold_gets_a_snapshot_gap_and_the_fold(self, store: Store, clock: ManualClock) -> None:
        session = new_session(store)
        _stream(store, session, 5)
        inside = events_of(store, session)[1:-1]
        clock.advance(HOUR)
        store.fold()
        folded = events_of(store, session)

        for event in inside:
            for cursor in (event.cursor, Cursor(fence=UNSEEN, number=event.number)):
                page = store.events_after(session, cursor, owner=ME)
                assert (page.gap, page.events) == ("snapshot", folded[1:])

    def test_a_reader_outside_a_fold_continues_without_a_gap(self, store: Store, clock: ManualClock) -> None:
        session = new_session(store)
        _stream(store, session, 5)
        created, *_, ended = events_of(store, session)
        clock.advance(HOUR)
        store.fold()
        folded = events_of(store, session)

        rest = [store.events_after(session, event.cursor, owner=ME) for event in (created, ended)]

        assert [page.gap for page in rest] == [None, None]
        assert [page.events for page in rest] == [folded[1:], ()]

    @pytest.mark.parametrize("limit", [1, 2, 3])
    def test_folded_events_are_the_same_in_pages_of_every_size(
        self, store: Store, clock: ManualClock, limit: int
    ) -> None:
        session = new_session(store)
        for _ in range(3):
            _stream(store, session, 4)
        clock.advance(HOUR)
        store.fold()

        pages = _in_pages(store, session, limit)

        assert pages == events_of(store, session)
        assert _covered(pages) == list(range(1, store.session(session, owner=ME).last_event + 1))

    def test_folding_changes_nothing_but_the_events(self, store: Store, clock: ManualClock) -> None:
        session = new_session(store)
        _stream(store, session, 5)
        clock.advance(HOUR)
        before = look(store, session)

        store.fold()

        after = look(store, session)
        assert (after.session, after.messages, after.lineage) == (before.session, before.messages, before.lineage)

    def test_a_fold_shows_its_messages_after_they_were_undone_and_compacted(
        self, store: Store, clock: ManualClock
    ) -> None:
        session = new_session(store)
        _stream(store, session, 5)
        said = said_in(store, session)
        compact(store, session, keep_from=2)
        store.undo(session, owner=ME)
        clock.advance(HOUR)

        store.fold()

        (fold,) = [event.body for event in events_of(store, session) if isinstance(event.body, TurnFolded)]
        assert fold.messages == said

    def test_a_turn_that_took_steering_folds_with_the_steering(self, store: Store, clock: ManualClock) -> None:
        session = new_session(store)
        proof = say(store, start(store, session, "count"), Text("one "))
        store.submit(session, "faster", owner=ME, if_busy="steer")
        proof = store.checkpoint(proof, [Text("two ")], take_steering=True).open
        store.finish(proof, Completed(), bodies=[Text("three")])
        clock.advance(HOUR)

        store.fold()

        folds = [event.body for event in events_of(store, session) if isinstance(event.body, TurnFolded)]
        assert [said.text for fold in folds for said in fold.messages] == texts(store, session)[1:]
        assert _covered(events_of(store, session)) == list(range(1, store.session(session, owner=ME).last_event + 1))

    def test_the_turn_of_a_dead_holder_is_folded_like_any_other(
        self, store: Store, other: Store, clock: ManualClock
    ) -> None:
        session = new_session(store)
        say(other, start(other, session), Text("half "), Text("an "), Text("ans"))
        other.close()
        store.reap()
        clock.advance(HOUR)

        store.fold()

        (fold,) = [event.body for event in events_of(store, session) if isinstance(event.body, TurnFolded)]
        assert [(said.text, said.partial) for said in fold.messages] == [("half an ans", True)]

    # --- lists ------------------------------------------------------------------------------------------------------

    def test_the_list_shows_the_newest_activity_first(self, store: Store, clock: ManualClock) -> None:
        sessions = [new_session(store) for _ in range(3)]
        for session in (sessions[1], sessions[0], sessions[2]):
            clock.advance(2)
            talk(store, session)

        assert _listed(store) == [sessions[2], sessions[0], sessions[1]]

    @pytest.mark.parametrize("limit", [1, 2, 3, 5, 50])
    def test_sessions_of_one_moment_are_listed_once_each_in_pages_of_every_size(self, store: Store, limit: int) -> None:
        sessions = [new_session(store) for _ in range(7)]

        pages = _listed(store, limit=limit)

        assert sorted(pages) == sorted(sessions)
        assert pages == _listed(store, limit=100)

    def test_a_list_that_ends_with_its_page_has_no_next_page(self, store: Store) -> None:
        for _ in range(4):
            new_session(store)

        first = store.list(owner=ME, limit=2)
        second = store.list(owner=ME, limit=2, after=first.next)

        assert first.next is not None
        assert (len(second.sessions), second.next) == (2, None)

    def test_an_unchanged_session_is_listed_once_while_others_move(self, store: Store, clock: ManualClock) -> None:
        sessions = []
        for _ in range(9):
            clock.advance(2)
            sessions.append(new_session(store))
        first = store.list(owner=ME, limit=3)
        clock.advance(2)
        touch(store, sessions[0], owner=ME)
        touch(store, sessions[7], owner=ME)
        new_session(store)
        store.delete(sessions[6], owner=ME)

        rest = store.list(owner=ME, limit=50, after=first.next)

        assert [session.id for session in first.sessions] == [sessions[8], sessions[7], sessions[6]]
        assert [session.id for session in rest.sessions] == [sessions[n] for n in (5, 4, 3, 2, 1)]

    def test_sessions_of_other_owners_are_never_listed(self, store: Store) -> None:
        mine = new_session(store)
        new_session(store, owner=STRANGER)

        assert _listed(store) == [mine]

    def test_deleted_sessions_are_not_listed(self, store: Store) -> None:
        gone, stays = new_session(store), new_session(store)
        store.delete(gone, owner=ME)

        assert _listed(store) == [stays]

    @pytest.mark.parametrize(
        ("filter", "names"),
        [
            (SessionFilter(), {"plain", "pinned", "archived", "tagged", "ended", "expired", "work"}),
            (SessionFilter(pinned=True), {"pinned"}),
            (SessionFilter(pinned=False), {"plain", "archived", "tagged", "ended", "expired", "work"}),
            (SessionFilter(archived=True), {"archived"}),
            (SessionFilter(archived=False), {"plain", "pinned", "tagged", "ended", "expired", "work"}),
            (SessionFilter(tag="food"), {"tagged"}),
            (SessionFilter(tag="foo"), set()),
            (SessionFilter(state="open"), {"plain", "pinned", "archived", "tagged", "work"}),
            (SessionFilter(state="ended"), {"ended"}),
            (SessionFilter(state="expired"), {"expired"}),
            (SessionFilter(family="workspace"), {"work"}),
            (SessionFilter(family="chat"), {"plain", "pinned", "archived", "tagged", "ended", "expired"}),
            (SessionFilter(place="matrix"), {"plain", "pinned", "archived", "tagged", "ended", "expired"}),
            (SessionFilter(place="/srv/project"), {"work"}),
            (SessionFilter(tag="food", pinned=True), set()),
            (SessionFilter(family="chat", state="open", archived=True), {"archived"}),
        ],
    )
    @pytest.mark.parametrize("limit", [1, 50])
    def test_the_list_is_filtered(
        self, store: Store, clock: ManualClock, filter: SessionFilter, names: set[str], limit: int
    ) -> None:
        sessions = _filed(store, clock)

        found = _listed(store, filter=filter, limit=limit)

        assert {name for name, session in sessions.items() if session in found} == names
        assert len(found) == len(names)

    def test_tags_are_matched_as_a_whole_and_by_case(self, store: Store) -> None:
        session = new_session(store)
        store.tag(session, owner=ME, add=["Food & drink", 'with "quotes"'])

        found = [
            _listed(store, filter=SessionFilter(tag=tag))
            for tag in ("Food & drink", 'with "quotes"', "food & drink", "Food", "%", "Food & drin_")
        ]

        assert found == [[session], [session], [], [], [], []]

    def test_the_list_shows_running_and_waiting_turns(self, store: Store, other: Store) -> None:
        session = new_session(store)
        proof = start(other, session)
        enqueue(store, session)

        (listed,) = store.list(owner=ME).sessions

        assert (listed.running, listed.holder, listed.waiting) == (proof.id, other.worker, 1)
        assert listed == store.session(session, owner=ME)

    def test_the_list_never_shows_a_dead_holders_turn_as_running(self, store: Store, other: Store) -> None:
        session = new_session(store)
        proof = start(other, session)
        other.close()

        (listed,) = store.list(owner=ME).sessions

        assert (listed.running, listed.holder, listed.turns) == (None, None, 1)
        assert store.turn(proof.id, owner=ME).outcome == Interrupted("its process died")

    def test_the_list_never_shows_a_turn_as_running_whose_lease_lapsed(self, store: Store, clock: ManualClock) -> None:
        start(store, new_session(store))
        clock.advance(LEASE + 1)

        (listed,) = store.list(owner=ME).sessions

        assert listed.running is None

    def test_the_list_shows_title_preview_and_counts(self, store: Store) -> None:
        session = new_session(store)
        talk(store, session, 2)
        run(store, session, "how are you?", "Well,\n\n thank   you.")
        store.rename(session, "Small talk", owner=ME)

        (listed,) = store.list(owner=ME).sessions

        assert (listed.title, listed.preview) == ("Small talk", "Well, thank you.")
        assert (listed.turns, listed.length) == (3, 6)

    def test_the_list_does_not_show_undone_text(self, store: Store) -> None:
        session = new_session(store)
        talk(store, session, 2)

        store.undo(session, owner=ME)

        (listed,) = store.list(owner=ME).sessions
        assert (listed.preview, listed.length) == ("answer 1", 2)

    def test_the_list_shows_expired_sessions_as_expired_before_a_collection(
        self, store: Store, clock: ManualClock
    ) -> None:
        session = store.create(owner=ME, ttl=Ttl(idle=10)).id
        clock.advance(10)

        assert [entry.state for entry in store.list(owner=ME).sessions] == ["expired"]
        assert _listed(store, filter=SessionFilter(state="expired")) == [session]
        assert _listed(store, filter=SessionFilter(state="open")) == []

    def test_maintenance_and_organising_do_not_reorder_the_list(self, store: Store, clock: ManualClock) -> None:
        sessions = []
        for _ in range(3):
            clock.advance(2)
            sessions.append(new_session(store))
            _stream(store, sessions[-1], 3)
        before = _listed(store)
        clock.advance(2 * HOUR)

        store.fold()
        store.index()
        store.collect()
        store.rename(sessions[0], "a title", owner=ME, by="agent")
        store.mark_read(sessions[0], 1, owner=ME)

        assert _listed(store) == before == sessions[::-1]

    @pytest.mark.parametrize("limit", [0, -1, 1001])
    def test_a_page_of_sessions_is_bounded(self, store: Store, limit: int) -> None:
        with pytest.raises(InvalidPayload):
            store.list(owner=ME, limit=limit)

    # --- revision ---------------------------------------------------------------------------------------------------

    def test_the_revision_equals_that_of_the_session(self, store: Store) -> None:
        session = new_session(store)
        talk(store, session, 2)

        assert store.revision(session, owner=ME) == store.session(session, owner=ME).revision

    def test_the_revision_of_another_owners_session_is_not_found(self, store: Store) -> None:
        with pytest.raises(NotFound):
            store.revision(new_session(store), owner=STRANGER)

    @pytest.mark.parametrize(
        "change",
        [
            lambda store, session: store.rename(session, "name", owner=ME),
            lambda store, session: store.pin(session, True, owner=ME),
            lambda store, session: store.archive(session, True, owner=ME),
            lambda store, session: store.tag(session, owner=ME, add=["x"]),
            lambda store, session: store.point(room("porch"), session, owner=ME),
            lambda store, session: store.submit(session, "hello", owner=ME),
            lambda store, session: store.submit(session, "hello", owner=ME, start=True),
            lambda store, session: store.record(session, [message.user("hello")], owner=ME),
            lambda store, session: store.undo(session, owner=ME),
            lambda store, session: store.retry(session, owner=ME, agent="poet"),
            lambda store, session: compact(store, session, keep_from=1),
            lambda store, session: store.end(session, owner=ME),
        ],
    )
    def test_the_revision_grows_with_each_visible_change(
        self, store: Store, change: Callable[[Store, SessionId], object]
    ) -> None:
        session = new_session(store)
        talk(store, session)
        before = store.revision(session, owner=ME)

        change(store, session)

        assert store.revision(session, owner=ME) > before

    @pytest.mark.parametrize(
        "act",
        [
            lambda store, session: store.save_draft(session, "half", owner=ME),
            lambda store, session: store.mark_read(session, 1, owner=ME),
            lambda store, session: store.fork(session, owner=ME),
            lambda store, session: store.pin(session, False, owner=ME),
            lambda store, session: store.tag(session, owner=ME, remove=["x"]),
            lambda store, session: compact(store, session, keep_from=0),
            lambda store, _: (store.index(), store.reap(), store.collect(), store.fold(older_than=0)),
        ],
    )
    def test_invisible_changes_do_not_grow_the_revision(
        self, store: Store, act: Callable[[Store, SessionId], object]
    ) -> None:
        session = new_session(store)
        _stream(store, session, 3)
        before = store.revision(session, owner=ME)

        act(store, session)

        assert store.revision(session, owner=ME) == before

    def test_checkpoints_and_renewals_leave_the_revision_alone(self, store: Store) -> None:
        session = new_session(store)
        proof = start(store, session)
        before = store.revision(session, owner=ME)

        proof = store.renew(say(store, proof, Text("hi"), ToolCall("c1", "look"))).open

        assert store.revision(session, owner=ME) == before
        assert store.finish(proof, Completed()).revision == before + 1


def _stream(store: Store, session: SessionId, deltas: int) -> None:
    """One whole turn with an answer in this number of pieces."""
    proof = start(store, session)
    for number in range(deltas):
        proof = say(store, proof, Text(f"piece {number} "))
    store.finish(proof, Completed())


def _eventful(store: Store, other: Store) -> SessionId:
    """A session to which nearly everything has happened, by two holders."""
    session = new_session(store)
    talk(other, session, 2)
    _stream(store, session, 3)
    proof = say(other, start(other, session, "look it up"), ToolCall("c1", "search"), Usage(input_tokens=1))
    enqueue(store, session, "and then?")
    store.submit(session, "faster", owner=ME, if_busy="steer")
    proof = other.checkpoint(proof, [ToolResult("c1", "found")], take_steering=True).open
    other.finish(proof, Completed(), bodies=[Text("here")], agents=["default"])
    other.close()
    store.reap()
    store.undo(session, owner=ME)
    store.redo(session, owner=ME)
    compact(store, session, keep_from=2)
    store.rename(session, "much ado", owner=ME)
    return session


def _in_pages(store: Store, session: SessionId, limit: int) -> tuple[Event, ...]:
    events: tuple[Event, ...] = ()
    cursor, more = START, True
    while more:
        page = store.events_after(session, cursor, owner=ME, limit=limit)
        assert page.gap is None
        events, cursor, more = events + page.events, page.next, page.more
    return events


def _covered(events: tuple[Event, ...]) -> list[int]:
    """Every number that these events stand for."""
    return [number for event in events for number in range(event.number, event.last + 1)]


def _listed(store: Store, *, filter: SessionFilter | None = None, limit: int = 50) -> list[SessionId]:
    """The whole list, read in pages."""
    found: list[SessionInfo] = []
    page = store.list(owner=ME, filter=filter or SessionFilter(), limit=limit)
    found += page.sessions
    while page.next is not None:
        page = store.list(owner=ME, filter=filter or SessionFilter(), limit=limit, after=page.next)
        found += page.sessions
    return [session.id for session in found]


def _filed(store: Store, clock: ManualClock) -> dict[str, SessionId]:
    """Sessions by their distinguishing feature."""
    names = ("plain", "pinned", "archived", "tagged", "ended")
    sessions = {name: store.resolve(room(name), owner=ME).session.id for name in names}
    sessions["expired"] = store.resolve(room("expired"), owner=ME, ttl=Ttl(idle=1)).session.id
    work = Address.workspace("/srv/project", scope="run-1")
    sessions["work"] = store.resolve(work, owner=ME).session.id
    store.pin(sessions["pinned"], True, owner=ME)
    store.archive(sessions["archived"], True, owner=ME)
    store.tag(sessions["tagged"], owner=ME, add=["drink", "food"])
    store.end(sessions["ended"], owner=ME)
    clock.advance(2)
    return sessions
