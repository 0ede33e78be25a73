"""Short reads run on the thread that asks for them, within a budget. All others are left to another thread."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from backstay import Completed, NewMessage, Store, Text, commands, open_store
from backstay.errors import StoreUnavailable
from backstay.store.commands import Read
from backstay.store.engine import Transaction, WouldBlock
from backstay.store.sqlite.files.file_locks import locks_of
from backstay.store.sqlite.files.read_pause import LONGEST_SECONDS, ReadPause
from tests.databases import Place

ME = "local"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A new database."""
    return tmp_path / "store.db"


@pytest.fixture
def store(path: Path) -> Iterator[Store]:
    """A store that has made a read, so that a connection is there for short ones."""
    with open_store(path) as store:
        with pytest.raises(WouldBlock):
            store.read_now(commands.tokens(owner=ME))
        store.tokens(owner=ME)
        yield store


def test_a_short_read_returns_what_any_read_returns(store: Store) -> None:
    session = store.create(owner=ME).id
    store.record(session, [NewMessage(role="user", parts=(Text("hello"),))], owner=ME)

    for read in (commands.session(session, owner=ME), commands.revision(session, owner=ME)):
        assert store.read_now(read) == store.run(read)
    assert store.read_now(commands.messages(session, owner=ME)) == store.messages(session, owner=ME)


def test_a_read_over_its_budget_is_left_to_another_thread(store: Store) -> None:
    long, short = store.create(owner=ME).id, store.create(owner=ME).id
    for _ in range(3):
        store.record(long, [NewMessage(role="user", parts=(Text("hello"),))] * 1_000, owner=ME)

    for _ in range(20):
        with pytest.raises(WouldBlock):
            store.read_now(commands.messages(long, owner=ME))
        assert store.read_now(commands.session(short, owner=ME)).id == short


def test_many_short_reads_have_a_budget_each(store: Store) -> None:
    session = store.create(owner=ME).id

    assert {store.read_now(commands.session(session, owner=ME)).id for _ in range(2_000)} == {session}


def test_a_read_that_meets_a_dead_holder_is_left_to_another_thread(store: Store, path: Path) -> None:
    with open_store(path) as other:
        session = other.create(owner=ME).id
        opened = other.submit(session, "hello", owner=ME, start=True).opened
        assert opened is not None
        assert store.read_now(commands.turn(opened.id, owner=ME)).state == "running"

    with pytest.raises(WouldBlock):
        store.read_now(commands.turn(opened.id, owner=ME))
    assert store.turn(opened.id, owner=ME).state == "ended"
    assert store.read_now(commands.turn(opened.id, owner=ME)).state == "ended"


def test_a_read_during_a_pause_for_readers_is_left_to_another_thread(store: Store, path: Path) -> None:
    session = store.create(owner=ME).id
    pause = ReadPause(locks_of(path) / "pause")

    def read_during_pause() -> None:
        while True:
            pause.request(time.monotonic() + LONGEST_SECONDS)
            store.read_now(commands.session(session, owner=ME))
            assert not pause.lasts()  # On a busy machine the pause may end before the read.

    with pytest.raises(WouldBlock):
        read_during_pause()
    pause.end()
    assert store.read_now(commands.session(session, owner=ME)).id == session
    pause.close()


def test_a_read_inside_a_read_is_left_to_another_thread(store: Store) -> None:
    session = store.create(owner=ME).id

    def nested(tx: Transaction) -> str:
        with pytest.raises(WouldBlock):
            store.read_now(commands.session(session, owner=ME))
        return "the outer read"

    assert store.read_now(Read(name="nested", owner=ME, verb=nested)) == "the outer read"


def test_a_closed_store_makes_no_short_read(path: Path) -> None:
    with open_store(path) as store:
        session = store.create(owner=ME).id
        with pytest.raises(WouldBlock):
            store.read_now(commands.session(session, owner=ME))
        store.session(session, owner=ME)

    with pytest.raises(StoreUnavailable):
        store.read_now(commands.session(session, owner=ME))


def test_a_message_is_stored_until_its_session_is_deleted(place: Place) -> None:
    with open_store(place) as store:
        session = store.create(owner=ME).id
        opened = store.submit(session, "hello", owner=ME, start=True).opened
        assert opened is not None
        assert store.is_stored(opened, opened.input.id)
        store.finish(opened, Completed())
        store.delete(session, owner=ME)
        assert not store.is_stored(opened, opened.input.id)
