"""A session that was compacted many times: all messages stay readable, and opening it costs the same."""

from pathlib import Path

import pytest

from backstay import Store, open_store
from backstay.model import message
from backstay.model.ids import SessionId
from backstay.model.turn import Completed
from benchmarks.instruments.sqlite_counters import counted
from tests.touching import touch

ME = "me"
TIMES = 50


def talk(store: Store, session: SessionId, number: int) -> None:
    store.record(session, [message.user(f"question q{number}"), message.assistant(f"answer a{number}")], owner=ME)


def compact(store: Store, session: SessionId, number: int) -> None:
    """Compact everything but the last turn, as a turn of its own."""
    opened = store.compact(session, owner=ME).opened
    assert opened is not None
    rotated = store.rotate(
        session,
        [message.summary(f"gist {number}")],
        owner=ME,
        parent=opened.window,
        keep_from=store.session(session, owner=ME).length - 2,
        turn=opened,
    )
    assert rotated.won
    assert rotated.open is not None
    store.finish(rotated.open, Completed())


@pytest.fixture
def compacted(tmp_path: Path) -> tuple[Path, SessionId]:
    """A session that was compacted fifty times, after every second turn."""
    path = tmp_path / "store.db"
    with open_store(path) as store:
        session = store.create(owner=ME).id
        for number in range(TIMES):
            talk(store, session, 2 * number)
            talk(store, session, 2 * number + 1)
            compact(store, session, number)
    return path, session


def opening(path: Path, session: SessionId) -> int:
    """The number of steps of SQLite to read the session and its messages."""
    with counted() as counters, open_store(path) as store:
        # The store closes its writer last; under a VFS in Python, a connection that can only read cannot be the last.
        touch(store, session, owner=ME)
        before = counters.copy()
        store.session(session, owner=ME)
        assert len(store.messages(session, owner=ME).messages) == 3
        return counters.since(before).steps


def test_after_fifty_compactions_a_session_opens_in_as_many_steps_as_after_one(
    compacted: tuple[Path, SessionId], tmp_path: Path
) -> None:
    once = tmp_path / "once.db"
    with open_store(once) as store:
        young = store.create(owner=ME).id
        talk(store, young, 0)
        talk(store, young, 1)
        compact(store, young, 0)

    assert opening(*compacted) == opening(once, young)


def test_the_lineage_has_every_window_and_each_is_readable(compacted: tuple[Path, SessionId]) -> None:
    path, session = compacted
    with open_store(path) as store:
        lineage = store.lineage(session, owner=ME)
        read = [store.messages(session, owner=ME, window=window.id).messages for window in lineage]

    assert [window.reason for window in lineage] == ["first"] + ["compaction"] * TIMES
    assert [window.parent for window in lineage[1:]] == [window.id for window in lineage[:-1]]
    said = {one.text for messages in read for one in messages}
    assert said >= {f"question q{number}" for number in range(2 * TIMES)}
    assert said >= {f"gist {number}" for number in range(TIMES)}


def test_text_compacted_fifty_times_is_still_found(compacted: tuple[Path, SessionId]) -> None:
    path, session = compacted
    with open_store(path) as store:
        found = [store.search(f"a{number}", owner=ME).hits for number in (0, 33, 98, 99)]

    assert [(len(hits), hits[0].session) for hits in found] == [(1, session)] * 4


def test_undo_crosses_every_compaction_down_to_the_first_turn(compacted: tuple[Path, SessionId]) -> None:
    path, session = compacted
    with open_store(path) as store:
        for number in range(2 * TIMES - 1, 0, -1):
            store.undo(session, owner=ME)
            # A turn outside of the tail can still be undone, through the summary that replaced it.
            left = f"gist {number // 2}" if number % 2 else f"answer a{number - 1}"
            assert store.messages(session, owner=ME).messages[-1].text == left
        store.undo(session, owner=ME)
        assert store.messages(session, owner=ME).messages == ()
        store.redo(session, owner=ME)
        assert [one.text for one in store.messages(session, owner=ME).messages] == ["gist 0"]


def test_a_fork_of_a_compacted_session_reads_the_same_and_can_be_undone_as_far(
    compacted: tuple[Path, SessionId],
) -> None:
    path, session = compacted
    with open_store(path) as store:
        fork = store.fork(session, owner=ME).id
        assert [one.id for one in store.messages(fork, owner=ME).messages] == [
            one.id for one in store.messages(session, owner=ME).messages
        ]
        for _ in range(2 * TIMES):
            store.undo(fork, owner=ME)
        assert store.messages(fork, owner=ME).messages == ()
        assert len(store.messages(session, owner=ME).messages) == 3
