"""History: undo, redo, retry, edit, fork and compaction, and the lineage they leave."""

from collections.abc import Sequence

import pytest

from backstay.errors import NotFound
from backstay.model import message
from backstay.model.ids import SessionId, WindowId
from backstay.store import Store
from backstay.testing.manual_clock import ManualClock
from tests.contract.builders import ME, STRANGER, new_session, said_in, talk, texts
from tests.contract.history.forks import ForkContract
from tests.contract.history.retry import RetryContract
from tests.contract.history.rotation import CompactionContract, compact
from tests.contract.history.undo import UndoContract


class HistoryContract(UndoContract, RetryContract, ForkContract, CompactionContract):
    """They move pointers with an event; they delete nothing."""

    # How often a turn is undone in the tests of long histories.
    pieces = 200

    # --- lineage ----------------------------------------------------------------------------------------------------

    def test_a_new_session_has_one_window(self, store: Store) -> None:
        session = store.create(owner=ME)

        (window,) = store.lineage(session.id, owner=ME)

        assert (window.id, window.parent, window.reason, window.start) == (session.window, None, "first", 0)

    def test_the_lineage_has_the_parent_and_the_reason_of_each_window(self, store: Store) -> None:
        session = new_session(store)
        talk(store, session, 2)
        store.undo(session, owner=ME)
        talk(store, session)
        compact(store, session, keep_from=2)
        store.edit(session, said_in(store, session)[1].id, "instead", owner=ME, agent="poet", start=True)

        lineage = store.lineage(session, owner=ME)

        assert [window.reason for window in lineage] == ["first", "undo", "compaction", "edit"]
        assert [window.parent for window in lineage] == [None, *(window.id for window in lineage[:-1])]
        assert lineage[-1].id == store.session(session, owner=ME).window

    def test_the_lineage_is_in_order_whichever_handle_opened_the_windows(self, store: Store, other: Store) -> None:
        session = new_session(store)
        talk(store, session, 6)

        opened = [handle.undo(session, owner=ME).window.id for handle in (store, other) * 3]

        assert [window.id for window in store.lineage(session, owner=ME)][1:] == opened

    def test_the_lineage_is_in_order_although_the_wall_clock_was_set_back(
        self, store: Store, other: Store, clock: ManualClock
    ) -> None:
        session = new_session(store)
        talk(store, session)
        clock.set_wall(clock.now() - 3_600_000)

        other.undo(session, owner=ME)

        assert [window.reason for window in store.lineage(session, owner=ME)] == ["first", "undo"]

    def test_redo_opens_no_new_window(self, store: Store) -> None:
        session = new_session(store)
        talk(store, session)
        store.undo(session, owner=ME)
        before = store.lineage(session, owner=ME)

        store.redo(session, owner=ME)

        assert store.lineage(session, owner=ME) == before

    def test_the_lineage_of_another_owner_is_not_found(self, store: Store) -> None:
        with pytest.raises(NotFound):
            store.lineage(new_session(store), owner=STRANGER)

    def test_the_windows_of_another_session_are_not_found(self, store: Store) -> None:
        session, elsewhere = new_session(store), store.create(owner=ME)

        with pytest.raises(NotFound):
            store.messages(session, owner=ME, window=elsewhere.window)

    def test_every_window_stays_readable(self, store: Store) -> None:
        session = new_session(store)
        talk(store, session, 3)
        read = dict([_read(store, session)])
        for change in (_undo, _compact, _record, _undo, _record, _compact):
            change(store, session)
            _record(store, session)
            read.update([_read(store, session)])

        _assert_all_read(store, session, list(read.items()))

    # --- long histories ---------------------------------------------------------------------------------------------

    def test_many_undone_turns_leave_every_window_readable(self, store: Store) -> None:
        session = new_session(store)
        read = []
        for number in range(self.pieces):
            _record(store, session, f"kept {number}")
            _record(store, session, f"undone {number}")
            read.append(_read(store, session))
            _undo(store, session)

        assert texts(store, session) == [f"kept {number}" for number in range(self.pieces)]
        _assert_all_read(store, session, read)

    def test_a_window_of_many_segments_can_be_undone_to_its_start_and_redone(self, store: Store) -> None:
        session = new_session(store)
        for number in range(self.pieces):
            _record(store, session, f"kept {number}")
            _record(store, session, "undone")
            _undo(store, session)

        lengths = [store.undo(session, owner=ME).length for _ in range(self.pieces)]
        redone = [store.redo(session, owner=ME).length for _ in range(self.pieces)]

        assert lengths == list(reversed(range(self.pieces)))
        assert redone == list(range(1, self.pieces + 1))
        assert texts(store, session) == [f"kept {number}" for number in range(self.pieces)]

    def test_a_window_of_many_segments_reads_the_same_in_pages(self, store: Store) -> None:
        session = new_session(store)
        for number in range(self.pieces):
            _record(store, session, f"kept {number}")
            _record(store, session, "undone")
            _undo(store, session)
        said = said_in(store, session)

        pages = [
            store.messages(session, owner=ME, after=low - 1, before=low + 7).messages
            for low in range(0, self.pieces, 7)
        ]

        assert [entry for page in pages for entry in page] == list(said)
        assert [entry.position for entry in said] == list(range(self.pieces))

    def test_a_window_of_many_segments_can_be_forked_edited_and_compacted(self, store: Store) -> None:
        session = new_session(store)
        for number in range(70):
            _record(store, session, f"kept {number}")
            _record(store, session, "undone")
            _undo(store, session)
        said = said_in(store, session)

        fork = store.fork(session, owner=ME, at=said[66].id).id
        compact(store, session, keep_from=3)
        store.edit(session, said[5].id, "instead", owner=ME, agent="poet", start=True)

        assert texts(store, fork) == [f"kept {number}" for number in range(67)]
        assert texts(store, session) == ["so far", "kept 3", "kept 4", "instead"]

    def test_fifty_compactions_leave_every_window_readable(self, store: Store) -> None:
        session = new_session(store)
        read = []
        for number in range(50):
            _record(store, session, f"turn {number}")
            _record(store, session, f"late {number}")
            read.append(_read(store, session))
            length = store.session(session, owner=ME).length
            compact(store, session, keep_from=length - 1, summary=f"summary {number}")

        assert texts(store, session) == ["summary 49", "late 49"]
        _assert_all_read(store, session, read)

    def test_every_turn_behind_fifty_compactions_can_be_undone(self, store: Store) -> None:
        session = new_session(store)
        for number in range(50):
            _record(store, session, f"turn {number}")
            compact(store, session, keep_from=store.session(session, owner=ME).length)

        last = []
        for _ in range(49):
            store.undo(session, owner=ME)
            last.append(store.session(session, owner=ME).length)
        store.undo(session, owner=ME)

        assert set(last) == {1}
        assert texts(store, session) == []


Reading = tuple[WindowId, Sequence[str]]


def _read(store: Store, session: SessionId) -> Reading:
    page = store.messages(session, owner=ME)
    return page.window, [said.text for said in page.messages]


def _assert_all_read(store: Store, session: SessionId, read: Sequence[Reading]) -> None:
    for window, expected in read:
        page = store.messages(session, owner=ME, window=window)
        assert [said.text for said in page.messages] == expected
        assert page.length == len(expected)


def _record(store: Store, session: SessionId, text: str = "another turn") -> None:
    store.record(session, [message.user(text)], owner=ME)


def _undo(store: Store, session: SessionId) -> None:
    store.undo(session, owner=ME)


def _compact(store: Store, session: SessionId) -> None:
    compact(store, session, keep_from=store.session(session, owner=ME).length - 1)
