"""A store moves: everything arrives, the source accepts no writes, and a partial target cannot be opened."""

import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import apsw
import psycopg
import pytest

from backstay import Text, call_off_move, move, open_store
from backstay.errors import ConfigError, CorruptRecord, SchemaMismatch, SessionBusy, StoreArriving, StoreMoved
from backstay.model import message as m
from backstay.model.event import Cursor
from backstay.model.operations.move_progress import MoveProgress
from backstay.model.turn import Completed
from backstay.store.move.moved_tables import OWN, OWN_OF_FILES, TABLES
from backstay.store.move.site import MoveState, Site
from backstay.store.postgres.maintenance.site import PostgresSite
from backstay.store.sqlite.maintenance.site import SqliteSite
from tests.contract.builders import ME, start
from tests.crash.sql_audit import audit
from tests.crash.worker_processes import WorkerProcesses
from tests.crash.workload import Opener, a_random_day
from tests.databases import Place
from tests.move.conftest import EVERY_ROAD, MoveEnds
from tests.move.full_store import CHAT, DESK, HASTY, PHOTO, FullStore, blob, contents_of, fill_store
from tests.open_sqlite import open_sqlite
from tests.store.documents.killed_import import STEPS, a_document, killed

FILES = {"search_config", "search_data", "search_docsize", "search_idx", "search_content"}


# A window that was cut more often than this has a base.
MANY_CUTS = 66

on_every_road = pytest.mark.parametrize("ends", EVERY_ROAD, indirect=True)


def settled(place: Place, turns: int = 0, cuts: int = 2) -> FullStore:
    """A store with something in every table, closed."""
    with open_store(place) as store:
        store.register_agents(["default"])
        return fill_store(store, turns, cuts)


class Cut(Exception):
    """A test interrupts the move."""


def cut_at(step: str, table: str) -> Callable[[MoveProgress], None]:
    """Interrupts the move at this point."""

    def hear(progress: MoveProgress) -> None:
        if (progress.step, progress.table) == (step, table):
            raise Cut

    return hear


# --- everything arrives ---------------------------------------------------------------------------------------------


@on_every_road
def test_each_read_returns_the_same_after_a_move(ends: MoveEnds) -> None:
    settled(ends.source, cuts=MANY_CUTS)
    with open_store(ends.source) as store:
        before = contents_of(store)

    move(ends.source, ends.target)

    with open_store(ends.target) as store:
        assert contents_of(store) == before
    with WorkerProcesses(1) as auditor:
        assert auditor.all(audit, ends.target) == [[]]


def test_a_move_reports_its_progress_and_the_rows_and_hash_of_each_table(ends: MoveEnds, tmp_path: Path) -> None:
    settled(ends.source, turns=150)
    assert killed(ends.source, a_document(tmp_path), STEPS)
    heard: list[MoveProgress] = []

    moved = move(ends.source, ends.target, progress=heard.append)
    back = move(ends.target, ends.fresh())

    assert all(table.rows for table in moved.tables), "the workload leaves something in every table"
    assert back.tables == moved.tables
    for table in moved.tables:
        copied = [(said.rows, said.total) for said in heard if (said.step, said.table) == ("copying", table.name)]
        checked = [said.rows for said in heard if (said.step, said.table) == ("checking", table.name)]
        assert copied == sorted(copied)
        assert copied[-1] == (table.rows, table.rows)
        assert checked[-1] == table.rows
    assert heard[-1].step == "indexing"


@pytest.mark.parametrize("seed", range(4))
def test_a_random_store_is_unchanged_after_a_move_there_and_back(seed: int, tmp_path: Path, database: str) -> None:
    opener = Opener(tmp_path / "store.db")
    for _ in a_random_day(seed)(opener):
        pass
    opener.close()
    with open_sqlite(tmp_path / "store.db") as store:
        store.reap()
        before = contents_of(store)

    there = move(tmp_path / "store.db", database)
    back = move(database, tmp_path / "again" / "store.db")

    assert there.tables == back.tables
    with open_sqlite(tmp_path / "again" / "store.db") as store:
        assert contents_of(store) == before


def test_every_table_and_column_is_moved_or_the_engines_own(tmp_path: Path, database: str) -> None:
    open_store(tmp_path / "store.db").close()
    open_store(database).close()
    declared = {table.name: set(table.columns) for table in TABLES}

    # A file is used on one machine: there are no leases of other machines.
    assert set(columns_of_file(tmp_path / "store.db")) >= OWN_OF_FILES | OWN - {"sightings"}
    assert set(columns_of_database(database)) >= OWN
    for columns in (columns_of_file(tmp_path / "store.db"), columns_of_database(database)):
        assert {name: found for name, found in columns.items() if name not in OWN | OWN_OF_FILES} == declared


def columns_of_file(path: Path) -> dict[str, set[str]]:
    """All tables of a file but those that the index is made of."""
    connection = apsw.Connection(str(path))
    names = [row[0] for row in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")]
    found = {
        name: {row[1] for row in connection.execute(f"PRAGMA table_info({name})")}
        for name in names
        if name not in FILES
    }
    connection.close()
    return found


def columns_of_database(url: str) -> dict[str, set[str]]:
    """All tables of a database but the one with its schema version."""
    found: dict[str, set[str]] = {}
    with psycopg.connect(url) as connection:
        for name, column in connection.execute(
            "SELECT table_name, column_name FROM information_schema.columns WHERE table_schema = 'public'"
        ):
            found.setdefault(name, set()).add(column)
    del found["backstay_schema"]
    return found


# --- after the move -------------------------------------------------------------------------------------------------


@on_every_road
def test_requests_addresses_uploads_and_waiting_turns_continue_after_a_move(ends: MoveEnds) -> None:
    full = settled(ends.source)

    move(ends.source, ends.target)

    with open_store(ends.target) as store:
        assert store.submit(CHAT, "is anybody here?", owner=ME, request_id="first").turn.id == full.asked
        assert store.resolve(CHAT, owner=ME).session.id == full.chat
        assert store.resolve(DESK, owner=ME).session.id == full.supervisor
        assert blob(store, full.photo) == PHOTO
        assert store.upload_chunk(full.upload, 100, PHOTO[100:200], owner=ME) == 200
        claimed = store.claim([HASTY])
        assert claimed is not None
        store.finish(claimed, Completed(), bodies=[Text("at last")])
        assert store.messages(full.supervisor, owner=ME).messages[-1].text == "at last"
        store.undo(full.fork, owner=ME)


def test_workspace_addresses_still_resolve_after_two_moves(ends: MoveEnds) -> None:
    full = settled(ends.source)
    third = ends.source.parent / "third" / "store.db" if isinstance(ends.source, Path) else ends.fresh()

    move(ends.source, ends.target)
    move(ends.target, third)

    with open_store(third) as store:
        assert store.resolve(DESK, owner=ME).session.id == full.supervisor
        assert (
            store.submit(DESK, "next, please", owner=ME, agent=HASTY, request_id="next").turn.session == full.supervisor
        )


def test_followers_continue_where_they_were(ends: MoveEnds) -> None:
    full = settled(ends.source)
    with open_store(ends.source) as store:
        store.finish_upload(store.begin_upload(owner=ME), owner=ME)
        end = store.feed(None, owner=ME).next
        seen = store.events_after(full.supervisor, owner=ME, limit=1000).events[-1]
        cursor = Cursor(number=seen.last, fence=seen.fence)

    move(ends.source, ends.target)

    with open_store(ends.target) as store:
        assert store.feed(end, owner=ME).events == ()
        assert store.events_after(full.supervisor, cursor, owner=ME).events == ()
        store.rename(full.supervisor, "still here", owner=ME)
        (fresh,) = store.feed(end, owner=ME).events
        assert store.events_after(full.supervisor, cursor, owner=ME).events == (fresh.event,)


def test_new_keys_are_never_old_ones(ends: MoveEnds) -> None:
    full = settled(ends.source, turns=150)

    move(ends.source, ends.target)

    with open_store(ends.target) as store:
        store.record(full.chat, [m.user("a lighthouse"), m.assistant("shines")], owner=ME)
        assert [hit.session for hit in store.search("lighthouse", owner=ME).hits] == [full.chat]
        assert len(store.search("harbour", owner=ME).hits) == 1


# --- the source -----------------------------------------------------------------------------------------------------


def test_the_source_of_a_move_stays_readable_and_names_the_target(ends: MoveEnds) -> None:
    full = settled(ends.source)
    with open_store(ends.source) as early:
        before = early.session(full.chat, owner=ME)

        moved = move(ends.source, ends.target)

        with open_store(ends.source) as late:
            for store in (early, late):
                assert store.session(full.chat, owner=ME) == before
                with pytest.raises(StoreMoved, match="it is at") as refused:
                    store.rename(full.chat, "lost", owner=ME)
                assert moved.target in str(refused.value)


def test_everything_that_was_acknowledged_while_the_move_began_has_arrived(ends: MoveEnds) -> None:
    open_store(ends.source).close()
    said: list[list[str]] = [[] for _ in range(3)]
    talking = threading.Barrier(4)

    def talk(number: int) -> None:
        with open_store(ends.source) as store:
            session = store.create(owner=ME).id
            talking.wait()
            try:
                while True:
                    text = f"{number} said {len(said[number])}"
                    store.record(session, [m.user(text)], owner=ME)
                    said[number].append(text)
            except StoreMoved:
                pass

    threads = [threading.Thread(target=talk, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    talking.wait()
    move(ends.source, ends.target)
    for thread in threads:
        thread.join()

    with open_store(ends.target) as store:
        arrived = [
            [message.text for message in store.messages(session.id, owner=ME).messages]
            for session in store.list(owner=ME).sessions
        ]
    assert sorted(arrived) == sorted(said)


def test_a_store_with_a_running_turn_stays_as_it_was(ends: MoveEnds) -> None:
    full = settled(ends.source)
    with open_store(ends.source) as store:
        turn = start(store, full.chat, "not yet")

        with pytest.raises(SessionBusy, match="1 turns"):
            move(ends.source, ends.target)

        store.finish(turn, Completed(), bodies=[Text("now")])
    assert move(ends.source, ends.target).tables


def test_a_move_that_is_called_off_leaves_the_source_as_if_it_had_never_begun(ends: MoveEnds) -> None:
    full = settled(ends.source)
    with pytest.raises(Cut):
        move(ends.source, ends.target, progress=cut_at("copying", "events"))

    call_off_move(ends.source)

    with open_store(ends.source) as store:
        store.rename(full.chat, "still here", owner=ME)
    with pytest.raises(ConfigError, match="there is no move"):
        call_off_move(ends.source)
    assert move(ends.source, ends.fresh()).tables
    with pytest.raises(ConfigError, match="it is finished"):
        call_off_move(ends.source)


def test_a_mover_that_continues_after_the_move_was_called_off_opens_nothing(ends: MoveEnds) -> None:
    settled(ends.source)

    def hear(progress: MoveProgress) -> None:
        if (progress.step, progress.table) == ("checking", "events"):
            call_off_move(ends.source)

    with pytest.raises(ConfigError, match="called off"):
        move(ends.source, ends.target, progress=hear)

    with pytest.raises(StoreArriving):
        open_store(ends.target)


def test_calling_off_a_finished_move_opens_nothing(ends: MoveEnds) -> None:
    settled(ends.source)
    with pytest.raises(Cut):
        move(ends.source, ends.target, progress=cut_at("checking", "tokens"))
    with site(ends.source) as late:
        seen = late.note("leaving")
        assert seen is not None
        move(ends.source, ends.target)

        with pytest.raises(ConfigError, match="finished"):
            late.allow_writes(seen)

    with open_store(ends.source) as store, pytest.raises(StoreMoved):
        store.create(owner=ME)


def test_a_late_mover_cannot_finish_a_finished_move(ends: MoveEnds) -> None:
    settled(ends.source)
    arrived = move(ends.source, ends.target).id
    move(ends.target, ends.fresh())

    with site(ends.target) as late, pytest.raises(ConfigError, match="finished"):
        late.finish_target(MoveState(arrived, "arriving", str(ends.source)), {})

    with open_store(ends.target) as store, pytest.raises(StoreMoved):
        store.create(owner=ME)


def site(place: Place) -> "closing[Site]":
    """One end of a move, as a mover sees it."""
    return closing(SqliteSite(place) if isinstance(place, Path) else PostgresSite(place))


# --- the target -----------------------------------------------------------------------------------------------------


def test_a_partly_moved_store_cannot_be_opened_and_the_next_run_continues_the_move(ends: MoveEnds) -> None:
    settled(ends.source)
    with open_store(ends.source) as store:
        before = contents_of(store)

    for table in TABLES[::2]:
        with pytest.raises(Cut):
            move(ends.source, ends.target, progress=cut_at("copying", table.name))
        with pytest.raises(StoreArriving, match="not finished"):
            open_store(ends.target)
    move(ends.source, ends.target)

    with open_store(ends.target) as store:
        assert contents_of(store) == before


def test_a_process_with_the_empty_target_open_cannot_write_before_the_move_is_done(ends: MoveEnds) -> None:
    full = settled(ends.source)
    with open_store(ends.target) as early:
        with pytest.raises(Cut):
            move(ends.source, ends.target, progress=cut_at("copying", "windows"))

        with pytest.raises(StoreMoved):
            early.create(owner=ME)

        move(ends.source, ends.target)
        early.rename(full.chat, "here", owner=ME)


def test_a_target_that_holds_something_is_refused_and_the_source_stays_open(ends: MoveEnds) -> None:
    settled(ends.source)
    with open_store(ends.target) as store:
        other = store.create(owner=ME).id

    with pytest.raises(ConfigError, match="not empty"):
        move(ends.source, ends.target)

    for place in (ends.source, ends.target):
        with open_store(place) as store:
            store.create(owner=ME)
    with open_store(ends.target) as store:
        assert other in {session.id for session in store.list(owner=ME).sessions}


def test_a_target_that_another_move_began_to_fill_is_refused(ends: MoveEnds) -> None:
    settled(ends.source)
    with pytest.raises(Cut):
        move(ends.source, ends.target, progress=cut_at("copying", "messages"))
    second = ends.fresh()
    open_store(second).close()

    with pytest.raises(StoreArriving):
        move(second, ends.target)
    with pytest.raises(ConfigError, match="is being moved"):
        move(ends.source, second)

    for _ in range(2):
        move(ends.source, ends.target)
    with pytest.raises(ConfigError, match="was moved"):
        move(ends.source, second)


def test_a_row_that_changed_on_the_way_is_found_and_nothing_is_opened(ends: MoveEnds) -> None:
    settled(ends.source)
    with pytest.raises(Cut):
        move(ends.source, ends.target, progress=cut_at("checking", "sessions"))
    spoil(ends.target, "UPDATE turns SET reason = 'spoilt' WHERE id = (SELECT max(id) FROM turns)")

    with pytest.raises(CorruptRecord, match=r"turns \(trn_\w+\)"):
        move(ends.source, ends.target)
    with pytest.raises(StoreArriving):
        open_store(ends.target)


@pytest.mark.parametrize("harm", ["DELETE FROM marks", "DELETE FROM calls"])
def test_a_row_that_was_lost_on_the_way_is_found_or_copied_again(ends: MoveEnds, harm: str) -> None:
    settled(ends.source)
    with open_store(ends.source) as store:
        before = contents_of(store)
    with pytest.raises(Cut):
        move(ends.source, ends.target, progress=cut_at("checking", "sessions"))
    spoil(ends.target, harm)

    move(ends.source, ends.target)

    with open_store(ends.target) as store:
        assert contents_of(store) == before


def test_a_place_without_a_store_has_nothing_to_move(ends: MoveEnds) -> None:
    with pytest.raises(ConfigError, match="no store"):
        move(ends.source, ends.target)


def test_a_store_cannot_be_moved_to_where_it_is(ends: MoveEnds) -> None:
    settled(ends.source)

    with pytest.raises(ConfigError, match="itself"):
        move(ends.source, ends.source)


def test_a_file_of_another_program_is_rejected_as_a_target(tmp_path: Path) -> None:
    settled(tmp_path / "store.db")
    other = apsw.Connection(str(tmp_path / "other.db"))
    other.execute("CREATE TABLE diary (text)")
    other.close()

    with pytest.raises(SchemaMismatch):
        move(tmp_path / "store.db", tmp_path / "other.db")

    with open_store(tmp_path / "store.db") as store:
        store.create(owner=ME)


def spoil(place: Place, harm: str) -> None:
    """Change the database directly."""
    if isinstance(place, Path):
        connection = apsw.Connection(str(place))
        connection.execute(harm)
        connection.close()
    else:
        with psycopg.connect(place) as server:
            server.execute(harm.encode())
