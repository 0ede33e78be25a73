"""The scope of a session row: written once, only if it changed, and never over the write of another transaction."""

from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import TypeVar

import pytest

from backstay import Address, Store, open_store
from backstay.model.content import Text
from backstay.model.ids import SessionId, TurnId
from backstay.model.limits import Limits
from backstay.store.engine import Overtaken, Parameter, Transaction
from backstay.store.postgres.engine import PostgresEngine
from backstay.store.rows import Rows
from backstay.store.session_row import LockedRow, SessionScope, find, lock_session
from backstay.store.sqlite.engine import SqliteEngine
from backstay.store.sqlite.transaction import SqliteTransaction
from backstay.store.verbs import session_changes
from backstay.store.verbs.turns import lifecycle, submission
from backstay.store.verbs.turns.submission import TurnRequest
from backstay.testing import ManualClock
from tests.touching import touching

T = TypeVar("T")
ME = "me"
# A statement that reads session rows and never locks them, as a careless verb might.
UNLOCKED = Rows("sessions_between", LockedRow)
ROW_WRITES = {"write_session_row", "write_holder_columns", "write_append_columns"}


def without_a_lock(tx: Transaction, session: SessionId) -> SessionScope:
    (row,) = UNLOCKED.all(tx, owner=ME, low=session, high=f"{session}~", limit=1)
    return SessionScope(tx, row)


# --- on PostgreSQL --------------------------------------------------------------------------------------------------


def test_a_row_read_without_a_lock_does_not_overwrite_another_transaction(empty_database: str) -> None:
    engine = PostgresEngine(empty_database, clock=None, limits=Limits(), lease_seconds=30, wait_seconds=10)
    with closing(engine), open_store(empty_database) as other:
        session = other.create(owner=ME).id
        seen: list[int] = []

        # It appends no event: two events with one number would be refused by their unique index.
        def pin(tx: Transaction) -> None:
            with without_a_lock(tx, session) as session_row:
                seen.append(session_row.revision)
                if len(seen) == 1:
                    other.rename(session, "theirs", owner=ME)
                session_row.pinned = 1
                session_row.revision += 1

        engine.write(pin)

        found = other.session(session, owner=ME)
        assert seen == [1, 2]
        assert (found.title, found.pinned, found.revision) == ("theirs", True, 3)
        assert found.last_event == 2


# --- on SQLite ------------------------------------------------------------------------------------------------------


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[SqliteEngine]:
    engine = SqliteEngine(tmp_path / "chat.db", clock=ManualClock(), limits=Limits(), lease_seconds=30, wait_seconds=10)
    with closing(engine):
        yield engine


@pytest.fixture
def store(engine: SqliteEngine) -> Iterator[Store]:
    with Store(engine) as store:
        yield store


@pytest.fixture
def session(store: Store) -> SessionId:
    return store.create(owner=ME).id


def test_a_row_that_was_written_since_it_was_read_is_not_overwritten(
    engine: SqliteEngine, store: Store, session: SessionId
) -> None:
    def overtake_itself(tx: Transaction) -> None:
        with lock_session(tx, session, ME) as outer:
            session_changes.rename(tx, session, ME, "inner", "person")
            outer.revision += 1

    with pytest.raises(Overtaken):
        engine.write(overtake_itself)

    assert store.session(session, owner=ME).title is None


def test_an_unchanged_row_is_not_written(engine: SqliteEngine, session: SessionId) -> None:
    def change_nothing(tx: Transaction) -> None:
        with lock_session(tx, session, ME) as session_row:
            session_row.revision += 1
            session_row.revision -= 1

    before = engine.version()
    engine.write(change_nothing)

    assert engine.version() == before


CHANGES: dict[str, object] = {
    "revision": 7,
    "context": 7,
    "fence": 7,
    "last_event": 7,
    "held_event": 7,
    "window": "win_other",
    "start": 7,
    "length": 7,
    "waiting": 7,
    "steering": 7,
    "cancelling": 1,
    "queued": 7,
    "turns": 7,
    "activity": 7,
    "touched_at": 7,
    "preview": "seven",
    "title": "seven",
    "title_by": "agent",
    "pinned": 1,
    "archived": 1,
    "tags": '["seven"]',
    "idle_ttl": 7,
    "expires_by": 7,
    "metadata": '{"seven": "7"}',
    "agent": "seven",
    "held": 7,
    "text_bytes": 7,
    "state": "ended",
    "ended_at": 7,
    "lease_ms": 7,
    "lease_boot": "seven",
}


@pytest.mark.parametrize("column", CHANGES)
def test_a_change_of_any_column_is_stored(engine: SqliteEngine, session: SessionId, column: str) -> None:
    def change(tx: Transaction) -> None:
        with lock_session(tx, session, ME) as session_row:
            setattr(session_row, column, CHANGES[column])

    engine.write(change)

    assert getattr(engine.read(lambda tx: find(tx, session, ME)), column) == CHANGES[column]


def test_the_holder_of_a_session_is_stored(engine: SqliteEngine, session: SessionId) -> None:
    def hold(tx: Transaction) -> None:
        with lock_session(tx, session, ME) as session_row:
            session_row.holder, session_row.running, session_row.lease_until = tx.worker, TurnId("trn_1"), 7

    engine.write(hold)

    found = engine.read(lambda tx: find(tx, session, ME))
    assert (found.holder, found.running, found.lease_until) == (engine.worker, "trn_1", 7)
    # The columns that a scope never changes: identity and origin, and the position in the list, which follows.
    fixed = {"id", "owner", "family", "place", "source", "created_at", "active_at"}
    assert {*LockedRow.__struct_fields__} == {*CHANGES, "holder", "running", "lease_until"} | fixed


def test_a_row_is_not_written_if_its_block_raises(engine: SqliteEngine, store: Store, session: SessionId) -> None:
    def fail(tx: Transaction) -> None:
        with suppress(KeyError), lock_session(tx, session, ME) as session_row:
            session_row.title = "half done"
            raise KeyError

    before = store.session(session, owner=ME)
    engine.write(fail)

    assert store.session(session, owner=ME) == before


class Statements:
    """The names of the statements that a verb runs, as far as they return no rows."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def run(self, engine: SqliteEngine, verb: Callable[[Transaction], T]) -> T:
        class Noting(SqliteTransaction):
            names = self.names

            def run(self, query: str, /, **parameters: Parameter) -> None:
                self.names.append(query)
                super().run(query, **parameters)

        def noted(tx: Transaction) -> T:
            assert isinstance(tx, SqliteTransaction)
            return verb(Noting(tx._connection, tx._setting))  # noqa: SLF001  # the same transaction, and a note of it

        return engine.write(noted)


@pytest.mark.parametrize(
    ("verb", "extra"),
    [
        (lambda tx, session: touching(session, owner=ME).verb(tx), []),
        (lambda tx, session: session_changes.pin(tx, session, ME, True), ["set_labels"]),
        (lambda tx, session: session_changes.end(tx, session, ME), ["close_session"]),
        (lambda tx, _: session_changes.resolve(tx, Address.chat("matrix", "dm", chat="new"), ME, None), []),
        (
            lambda tx, session: submission.submit(tx, TurnRequest(to=session, owner=ME, start=True), (Text("hi"),)),
            ["set_agent"],
        ),
    ],
)
def test_a_verb_writes_the_session_row_once(
    engine: SqliteEngine,
    session: SessionId,
    verb: Callable[[Transaction, SessionId], object],
    extra: list[str],
) -> None:
    statements = Statements()

    statements.run(engine, lambda tx: verb(tx, session))

    assert len([name for name in statements.names if name in ROW_WRITES]) == 1
    assert [
        name for name in statements.names if name in ("set_labels", "set_agent", "set_ttl", "close_session")
    ] == extra


def test_a_checkpoint_writes_only_the_columns_of_the_holder(engine: SqliteEngine, store: Store) -> None:
    opened = store.submit(store.create(owner=ME).id, "hi", owner=ME, start=True).opened
    assert opened is not None
    statements = Statements()

    def checkpoint(tx: Transaction) -> object:
        return lifecycle.checkpoint(tx, opened, [Text("word")], take_steering=False, repeats={}, unsynced=None)

    statements.run(engine, checkpoint)

    assert statements.names == ["add_event", "write_holder_columns"]
