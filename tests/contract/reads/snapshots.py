"""Snapshots and badges: a part of a session as of one event, and the data of a list beside its rows."""

from collections.abc import Iterable

import pytest

from backstay.errors import InvalidPayload, NotFound
from backstay.model.content import Text, ToolCall, ToolResult, Usage
from backstay.model.event import Cursor
from backstay.model.history.snapshot import SnapshotQuery
from backstay.model.ids import MessageId
from backstay.model.message import Message
from backstay.model.turn import Completed, Failed, Interrupted
from backstay.store import Store
from backstay.testing.manual_clock import ManualClock
from tests.contract.base import LEASE, ContractBase, OpenAnother
from tests.contract.builders import ME, STRANGER, enqueue, new_session, run, start, talk
from tests.contract.history.rotation import compact


class SnapshotContract(ContractBase):
    """A client that opens a session at any moment can follow from there."""

    def test_a_snapshot_has_the_messages_their_turns_and_the_cursor(self, store: Store) -> None:
        session = new_session(store)
        run(store, session, "one", outcome=Failed("no network"))
        run(store, session, "two")

        snapshot = store.snapshot(session, owner=ME)

        assert snapshot.session == store.session(session, owner=ME)
        assert snapshot.messages == store.messages(session, owner=ME).messages
        assert [turn.outcome for turn in snapshot.turns] == [Failed("no network"), Completed()]
        here = Cursor(fence=snapshot.session.fence, number=snapshot.session.last_event)
        assert store.events_after(session, here, owner=ME).events == ()

    def test_a_snapshot_has_the_output_and_usage_of_the_running_turn(self, store: Store) -> None:
        session = new_session(store)
        turn = start(store, session)
        call = ToolCall("c1", "clock")
        turn = store.checkpoint(turn, [Text("a"), Text("b"), call]).open
        store.checkpoint(turn, [ToolResult("c1", "noon"), Usage(3, 4)])
        waiting = enqueue(store, session, "next")

        snapshot = store.snapshot(session, owner=ME)

        assert [message.parts for message in snapshot.output] == [(Text("ab"), call), (ToolResult("c1", "noon"),)]
        assert snapshot.turns[-1].usage == Usage(3, 4)
        assert [(line.call, line.effect) for line in snapshot.calls] == [("c1", "returned")]
        assert [one.id for one in snapshot.waiting] == [waiting.id]

    def test_a_snapshot_never_shows_a_dead_holders_turn_as_running(
        self, store: Store, open_another: OpenAnother, clock: ManualClock
    ) -> None:
        session, other = new_session(store), open_another()
        start(other, session)
        clock.advance(seconds=LEASE + 1)

        snapshot = store.snapshot(session, owner=ME)

        assert snapshot.session.running is None
        assert isinstance(snapshot.turns[-1].outcome, Interrupted)

    def test_snapshots_lead_upwards_through_summarised_messages(self, store: Store) -> None:
        session = new_session(store)
        talk(store, session, 4)
        compact(store, session, keep_from=6)

        newest = store.snapshot(session, owner=ME)
        behind = store.snapshot(
            session, SnapshotQuery(window=newest.summarises, before=newest.summarises_until, last=4), owner=ME
        )

        assert [message.role for message in newest.messages] == ["summary", "user", "assistant"]
        assert _texts(behind.messages) == ["question 2", "answer 2", "question 3", "answer 3"]
        assert behind.summarises is None

    def test_snapshots_of_a_fork_lead_upwards_into_its_source(self, store: Store) -> None:
        session = new_session(store)
        talk(store, session, 4)
        compact(store, session, keep_from=6)
        fork = store.fork(session, owner=ME).id
        talk(store, session, 1)

        newest = store.snapshot(fork, owner=ME)
        above = SnapshotQuery(window=newest.summarises, before=newest.summarises_until, last=4)

        texts = ["question 2", "answer 2", "question 3", "answer 3"]
        assert _texts(store.snapshot(fork, above, owner=ME).messages) == texts
        with pytest.raises(NotFound):
            store.snapshot(fork, SnapshotQuery(window=store.session(session, owner=ME).window), owner=ME)
        store.delete(session, owner=ME)
        assert _texts(store.snapshot(fork, above, owner=ME).messages) == texts

    def test_a_snapshot_can_be_opened_around_any_message(self, store: Store) -> None:
        session = new_session(store)
        talk(store, session, 4)
        early = store.messages(session, owner=ME).messages[1]
        compact(store, session, keep_from=6)

        snapshot = store.snapshot(session, SnapshotQuery(around=early.id, last=3), owner=ME)

        assert _texts(snapshot.messages) == ["question 1", "answer 1", "question 2"]

    def test_a_message_of_another_session_is_not_found_here(self, store: Store) -> None:
        session, another = new_session(store), new_session(store)
        talk(store, another)
        foreign = store.messages(another, owner=ME).messages[0].id

        with pytest.raises(NotFound):
            store.snapshot(session, SnapshotQuery(around=foreign), owner=ME)
        with pytest.raises(NotFound):
            store.snapshot(session, owner=STRANGER)

    def test_an_invalid_snapshot_query_is_rejected(self, store: Store) -> None:
        session = new_session(store)

        with pytest.raises(InvalidPayload):
            store.snapshot(session, SnapshotQuery(last=0), owner=ME)
        with pytest.raises((InvalidPayload, NotFound)):
            store.snapshot(session, SnapshotQuery(around=MessageId("nonsense")), owner=ME)

    def test_a_fork_of_a_deleted_source_still_has_its_snapshot(self, store: Store) -> None:
        source = new_session(store)
        talk(store, source)
        fork = store.fork(source, owner=ME)
        store.delete(source, owner=ME)

        snapshot = store.snapshot(fork.id, owner=ME)

        assert _texts(snapshot.messages) == ["question 1", "answer 1"]
        assert snapshot.turns == ()

    # --- badges -----------------------------------------------------------------------------------------------------

    def test_a_badge_has_the_last_outcome_the_read_mark_and_the_draft(self, store: Store) -> None:
        session, quiet = new_session(store), new_session(store)
        run(store, session, "one")
        run(store, session, "two", outcome=Failed("no network"))
        store.mark_read(session, 2, owner=ME)
        store.save_draft(session, "and then", owner=ME)

        marked, unmarked = store.badges([session, quiet], owner=ME)

        assert (marked.outcome, marked.asks, marked.marks.read_to, marked.marks.draft) == (
            "failed",
            False,
            2,
            "and then",
        )
        assert (unmarked.outcome, unmarked.asks, unmarked.marks.read_to) == (None, False, 0)

    def test_a_call_waiting_for_approval_is_shown_until_a_decision(self, store: Store) -> None:
        session = new_session(store)
        turn = start(store, session)
        store.checkpoint(turn, [ToolCall("c1", "launch", approval=True)])

        asked = store.badges([session], owner=ME)[0].asks
        store.approve(turn.id, "c1", owner=ME)

        assert (asked, store.badges([session], owner=ME)[0].asks) == (True, False)

    def test_badges_are_only_read_for_sessions_of_the_owner(self, store: Store) -> None:
        assert store.badges([new_session(store)], owner=STRANGER) == ()


def _texts(messages: Iterable[Message]) -> list[str]:
    return [message.text for message in messages]
