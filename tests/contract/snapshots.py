"""Chapters and glances: what a reader is shown, read at one moment, and what a list tells besides its lines."""

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
from tests.contract.rotation import compact


class SnapshotContract(ContractBase):
    """Whoever opens a session at any moment can go on from there."""

    def test_a_chapter_has_the_messages_their_turns_and_where_to_go_on(self, store: Store) -> None:
        session = new_session(store)
        run(store, session, "one", outcome=Failed("no network"))
        run(store, session, "two")

        snapshot = store.snapshot(session, owner=ME)

        assert snapshot.session == store.session(session, owner=ME)
        assert snapshot.messages == store.messages(session, owner=ME).messages
        assert [turn.outcome for turn in snapshot.turns] == [Failed("no network"), Completed()]
        here = Cursor(fence=snapshot.session.fence, number=snapshot.session.last_event)
        assert store.events_after(session, here, owner=ME).events == ()

    def test_a_chapter_has_what_the_running_turn_said_and_used_so_far(self, store: Store) -> None:
        session = new_session(store)
        turn = start(store, session)
        call = ToolCall("c1", "clock")
        turn = store.checkpoint(turn, [Text("a"), Text("b"), call]).open
        store.checkpoint(turn, [ToolResult("c1", "noon"), Usage(3, 4)])
        waiting = enqueue(store, session, "next")

        snapshot = store.snapshot(session, owner=ME)

        assert [message.parts for message in snapshot.said] == [(Text("ab"), call), (ToolResult("c1", "noon"),)]
        assert snapshot.turns[-1].usage == Usage(3, 4)
        assert [(line.call, line.effect) for line in snapshot.calls] == [("c1", "returned")]
        assert [one.id for one in snapshot.waiting] == [waiting.id]

    def test_a_chapter_never_shows_a_turn_as_running_whose_holder_is_gone(
        self, store: Store, open_another: OpenAnother, clock: ManualClock
    ) -> None:
        session, other = new_session(store), open_another()
        start(other, session)
        clock.advance(seconds=LEASE + 1)

        snapshot = store.snapshot(session, owner=ME)

        assert snapshot.session.running is None
        assert isinstance(snapshot.turns[-1].outcome, Interrupted)

    def test_chapters_lead_upwards_through_what_a_summary_stands_for(self, store: Store) -> None:
        session = new_session(store)
        talk(store, session, 4)
        compact(store, session, keep_from=6)

        newest = store.snapshot(session, owner=ME)
        behind = store.snapshot(
            session, SnapshotQuery(window=newest.behind, before=newest.behind_until, last=4), owner=ME
        )

        assert [message.role for message in newest.messages] == ["summary", "user", "assistant"]
        assert _texts(behind.messages) == ["question 2", "answer 2", "question 3", "answer 3"]
        assert behind.behind is None

    def test_chapters_of_a_fork_lead_upwards_into_what_it_was_forked_from(self, store: Store) -> None:
        session = new_session(store)
        talk(store, session, 4)
        compact(store, session, keep_from=6)
        fork = store.fork(session, owner=ME).id
        talk(store, session, 1)

        newest = store.snapshot(fork, owner=ME)
        above = SnapshotQuery(window=newest.behind, before=newest.behind_until, last=4)

        texts = ["question 2", "answer 2", "question 3", "answer 3"]
        assert _texts(store.snapshot(fork, above, owner=ME).messages) == texts
        with pytest.raises(NotFound):
            store.snapshot(fork, SnapshotQuery(window=store.session(session, owner=ME).window), owner=ME)
        store.delete(session, owner=ME)
        assert _texts(store.snapshot(fork, above, owner=ME).messages) == texts

    def test_a_message_is_found_wherever_it_stands(self, store: Store) -> None:
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

    def test_nonsense_is_refused(self, store: Store) -> None:
        session = new_session(store)

        with pytest.raises(InvalidPayload):
            store.snapshot(session, SnapshotQuery(last=0), owner=ME)
        with pytest.raises((InvalidPayload, NotFound)):
            store.snapshot(session, SnapshotQuery(around=MessageId("nonsense")), owner=ME)

    def test_a_fork_whose_source_is_gone_still_has_its_chapter(self, store: Store) -> None:
        source = new_session(store)
        talk(store, source)
        fork = store.fork(source, owner=ME)
        store.delete(source, owner=ME)

        snapshot = store.snapshot(fork.id, owner=ME)

        assert _texts(snapshot.messages) == ["question 1", "answer 1"]
        assert snapshot.turns == ()

    # --- glances ----------------------------------------------------------------------------------------------------

    def test_a_glance_tells_how_it_ended_what_was_read_and_what_is_unfinished(self, store: Store) -> None:
        session, quiet = new_session(store), new_session(store)
        run(store, session, "one")
        run(store, session, "two", outcome=Failed("no network"))
        store.mark_read(session, 2, owner=ME)
        store.save_draft(session, "and then", owner=ME)

        told, untold = store.badges([session, quiet], owner=ME)

        assert (told.outcome, told.asks, told.marks.read_to, told.marks.draft) == ("failed", False, 2, "and then")
        assert (untold.outcome, untold.asks, untold.marks.read_to) == (None, False, 0)

    def test_a_call_that_asks_is_seen_until_somebody_decides(self, store: Store) -> None:
        session = new_session(store)
        turn = start(store, session)
        store.checkpoint(turn, [ToolCall("c1", "launch", approval=True)])

        asked = store.badges([session], owner=ME)[0].asks
        store.approve(turn.id, "c1", owner=ME)

        assert (asked, store.badges([session], owner=ME)[0].asks) == (True, False)

    def test_only_ones_own_sessions_are_glanced_at(self, store: Store) -> None:
        assert store.badges([new_session(store)], owner=STRANGER) == ()


def _texts(messages: Iterable[Message]) -> list[str]:
    return [message.text for message in messages]
