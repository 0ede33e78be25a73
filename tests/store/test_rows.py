"""Rows are decoded by the names of their columns, and a name that does not match is rejected before any row is read."""

from pathlib import Path
from typing import NamedTuple

import pytest

from backstay.store.queries import columns_of, load
from backstay.store.rows import Rows


@pytest.mark.parametrize(
    ("statement", "columns"),
    [
        ("SELECT t.id, place FROM turns t", ("id", "place")),
        ("SELECT t.session_id AS session, count(*) AS turns FROM turns t", ("session", "turns")),
        ("SELECT coalesce((SELECT max(a) FROM b), 0) AS newest, c FROM d", ("newest", "c")),
        ("SELECT CAST(sum(a) AS BIGINT) AS total FROM b", ("total",)),
        ("SELECT DISTINCT import_id FROM imports", ("import_id",)),
        ("SELECT count(*) FROM turns", ("",)),
        (
            "WITH RECURSIVE f (id) AS (SELECT id FROM a UNION SELECT id FROM b) SELECT f.id AS session FROM f",
            ("session",),
        ),
        (
            "UPDATE calls SET effect = :effect WHERE turn_id = :turn RETURNING ordinal, call_id AS call",
            ("ordinal", "call"),
        ),
        ("SELECT key FROM indexed FOR UPDATE; SELECT m.key, m.role FROM messages m", ("key", "role")),
        ("DELETE FROM turns WHERE id = :turn", ()),
    ],
)
def test_a_statement_names_its_columns(statement: str, columns: tuple[str, ...]) -> None:
    assert columns_of(statement) == columns


class Reversed(NamedTuple):
    """An address row whose fields stand in another order than the columns."""

    spelling: str
    generation: int
    session: str


class Misspelt(NamedTuple):
    """An address row with a field that is not a column."""

    session: str
    generation: int
    spelled: str


class _OneRow:
    def one(self, query: str, /, **parameters: object) -> tuple[object, ...]:
        return ("ses_1", 3, "chat://matrix/dm/1")


def test_a_column_becomes_the_field_of_its_name_in_any_order() -> None:
    found = Rows("address", Reversed).one(_OneRow(), owner="me", key=b"")  # type: ignore[arg-type]  # reads one row

    assert found == Reversed(spelling="chat://matrix/dm/1", generation=3, session="ses_1")


def test_a_type_without_a_field_for_each_column_is_refused_at_once() -> None:
    with pytest.raises(LookupError, match="spelled"):
        Rows("address", Misspelt)


def test_an_engine_cannot_replace_a_statement_by_one_with_other_columns(tmp_path: Path) -> None:
    shared, overlay = tmp_path / "shared", tmp_path / "overlay"
    for folder, columns in ((shared, "id, owner"), (overlay, "owner, id")):
        folder.mkdir()
        (folder / "sessions.sql").write_text(f"-- name: found\nSELECT {columns} FROM sessions\n")

    with pytest.raises(LookupError, match="found"):
        load(shared, overlay)
