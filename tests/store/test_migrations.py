"""The steps of a schema's history, as they are shipped."""

from collections.abc import Sequence
from pathlib import Path

import apsw
import psycopg
import pytest

from backstay import Address, open_store
from backstay.model import message
from backstay.store.postgres.migrations import shipped as shipped_for_postgres
from backstay.store.sqlite.migrations import shipped as shipped_for_sqlite
from tests.databases import Place

ME = "me"
PER_ADDRESS = (
    "DROP INDEX turns_by_request",
    "ALTER TABLE turns DROP COLUMN request_owner",
    "CREATE UNIQUE INDEX turns_by_request ON turns (request_key) WHERE request_key IS NOT NULL",
    "UPDATE turns SET request_id = 'r1' WHERE request_id IS NOT NULL",
)


@pytest.mark.parametrize(
    "numbers",
    [[step.number for step in shipped_for_sqlite()], [step.number for step in shipped_for_postgres()]],
    ids=["sqlite", "postgres"],
)
def test_every_migration_has_a_number_of_its_own_and_none_is_missing(numbers: Sequence[int]) -> None:
    assert list(numbers) == list(range(1, len(numbers) + 1))


def test_the_first_request_of_an_owner_keeps_a_repeated_id(place: Place) -> None:
    chats = [Address.chat("matrix", "dm", chat=name) for name in ("porch", "attic")]
    with open_store(place) as store:
        first, second = (
            store.submit(chat, "hello", owner=ME, request_id=f"r{number}").turn for number, chat in enumerate(chats)
        )
        theirs = store.submit(chats[0], "hello", owner="somebody else", request_id="r9").turn
        plain = store.submit(chats[0], "hello", owner=ME).turn
        untouched = store.turn(plain.id, owner=ME)
    run_scripts(place, *PER_ADDRESS)

    run_scripts(place, script_of(place, "request_names"))

    with open_store(place) as store:
        assert store.requested("r1", owner=ME) == store.turn(first.id, owner=ME)
        assert store.requested("r1", owner="somebody else") == store.turn(theirs.id, owner="somebody else")
        assert store.turn(second.id, owner=ME).request_id == "r1"
        assert store.turn(plain.id, owner=ME) == untouched
        session = store.session(first.session, owner=ME).id
        assert store.submit(session, "hello", owner=ME, request_id="r1").turn.id == first.id


@pytest.mark.engines("sqlite")
@pytest.mark.parametrize(("owners", "again"), [((ME,), 0), ((ME, "somebody else"), 2)])
def test_a_search_finds_each_owners_texts_after_the_index_was_put_in_order(
    place: Place, owners: Sequence[str], again: int
) -> None:
    with open_store(place) as store:
        said = {owner: store.create(owner=owner).id for owner in owners}
        for owner, session in said.items():
            store.record(session, [message.user("a fox")], owner=owner)
        store.index()
    run_scripts(place, "DROP TABLE search_owners")

    run_scripts(place, script_of(place, "search_owners"))

    with open_store(place) as store:
        assert store.index() == again, "an index of one owner is in order already"
        for owner, session in said.items():
            assert [hit.session for hit in store.search("fox", owner=owner).hits] == [session]


def test_text_that_waits_counts_for_its_owner_after_the_upgrade(place: Place) -> None:
    with open_store(place) as store:
        session = store.create(owner=ME).id
        store.record(session, [message.user("x" * 20_000)], owner=ME)
        store.submit(session, "x" * 40_000, owner=ME)
        store.rename(session, "A title", owner=ME)
        store.save_draft(session, "x" * 20_000, owner=ME)
        counted = store.usage(owner=ME)
    run_scripts(place, "UPDATE sessions SET text_bytes = 20000", "UPDATE owner_totals SET blocks = 2")

    run_scripts(place, script_of(place, "waiting_text"), script_of(place, "stored_text"))

    with open_store(place) as store:
        assert (store.usage(owner=ME), counted.stored_bytes) == (counted, 8 * (16 << 10))


def script_of(place: Place, name: str) -> str:
    """The SQL of a migration, as it is shipped for this engine."""
    steps = shipped_for_sqlite() if isinstance(place, Path) else shipped_for_postgres()
    return next(step.sql for step in steps if step.name.endswith(f"_{name}.sql"))


def run_scripts(place: Place, *scripts: str) -> None:
    """Run SQL directly in a closed store."""
    if isinstance(place, Path):
        connection = apsw.Connection(str(place))
        for script in scripts:
            connection.execute(script).fetchall()
        connection.close()
        return
    with psycopg.connect(place) as postgres:
        for script in scripts:
            postgres.execute(script.encode())
