"""The tables that a move copies, in an order that satisfies their references.

A table that is not listed belongs to the engine (`OWN`), which creates its content itself. A test compares both lists
with the schemas.
"""

from collections.abc import Sequence
from typing import NamedTuple

from backstay.store.engine import Row


class Table(NamedTuple):
    """A table, in the order of its key. `step` rows are copied at once.

    Columns that refer to rows of the same table are set `later`, when all rows are there.
    """

    name: str
    key: tuple[str, ...]
    columns: tuple[str, ...]
    later: tuple[str, ...] = ()
    step: int = 256

    def key_of(self, row: Sequence[object]) -> Row:
        """The key of a row."""
        return tuple(row[self.columns.index(name)] for name in self.key)

    def without_later(self, rows: Sequence[Row]) -> Sequence[Row]:
        """The rows without the columns that are set later, so that they can be added in any order."""
        if not self.later:
            return rows
        kept = [name not in self.later for name in self.columns]
        return [tuple(value if keep else None for value, keep in zip(row, kept, strict=True)) for row in rows]

    def amendments(self, rows: Sequence[Row]) -> list[Row]:
        """For each row that has any, the values to set later, and its key."""
        indexes = [self.columns.index(name) for name in self.later]
        return [
            (*(row[index] for index in indexes), *self.key_of(row))
            for row in rows
            if any(row[index] is not None for index in indexes)
        ]

    # --- its statements, with `?` for each parameter -----------------------------------------------------------------

    def select(self, *, from_start: bool) -> str:
        """Selects the next rows after a key."""
        keys, marks = ", ".join(self.key), ", ".join("?" * len(self.key))
        after = "" if from_start else f"WHERE ({keys}) > ({marks}) "
        return f"SELECT {', '.join(self.columns)} FROM {self.name} {after}ORDER BY {keys} LIMIT ?"

    def select_last(self) -> str:
        """Selects the greatest key."""
        keys, order = ", ".join(self.key), ", ".join(f"{name} DESC" for name in self.key)
        return f"SELECT {keys} FROM {self.name} ORDER BY {order} LIMIT 1"

    def select_count(self) -> str:
        """Counts the rows."""
        return f"SELECT count(*) FROM {self.name}"

    def insert(self) -> str:
        """Inserts one row."""
        return f"INSERT INTO {self.name} ({', '.join(self.columns)}) VALUES ({', '.join('?' * len(self.columns))})"

    def update(self) -> str:
        """Sets the columns of one row that were left out before."""
        filled, keys = (" = ?, ".join(self.later), " = ? AND ".join(self.key))
        return f"UPDATE {self.name} SET {filled} = ? WHERE {keys} = ?"


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


TABLES = (
    Table(
        "sessions",
        ("id",),
        _words(
            "id owner state revision context fence last_event held_event window_id start length holder lease_until"
            " lease_boot lease_ms running_id cancelling waiting steering queued turns activity touched_at preview title"
            " title_by pinned archived tags family place source_id idle_ttl expires_by created_at active_at ended_at"
            " metadata agent held text_bytes"
        ),
    ),
    Table("addresses", ("owner", "key"), _words("owner key spelling session_id generation")),
    Table(
        "windows",
        ("id",),
        _words("id session_id parent_id reason start base_id base_until summarises_id summarises_until event at"),
        later=_words("base_id base_until summarises_id summarises_until"),
    ),
    Table("segments", ("window_id", "start"), _words("window_id start source_id low high")),
    Table("messages", ("key",), _words("key window_id position id turn_id role partial format body at")),
    Table(
        "turns",
        ("id",),
        _words(
            "id session_id root_id agent state outcome reason code hint steer taken_by cancel_requested place event"
            " first_event format input request_owner request_key request_id request_hash usage created_at started_at"
            " ended_at forgotten held"
        ),
    ),
    Table(
        "calls",
        ("root_id", "ordinal"),
        _words("root_id ordinal turn_id call_id name arguments_hash approval effect started_at ended_at run_again"),
    ),
    Table(
        "events",
        ("key",),
        _words("key session_id number last fence turn_id kind format body source_id low high at"),
    ),
    Table("imports", ("session_id",), _words("session_id import_id owner until feed_end")),
    Table("marks", ("session_id", "owner"), _words("session_id owner draft read_to at")),
    Table("blobs", ("key",), _words("key owner upload_id hash size created_at")),
    Table("chunks", ("key",), _words("key blob_key start bytes"), step=8),
    Table("blob_uses", ("blob_key", "holder_id"), _words("blob_key holder_id")),
    Table("owner_totals", ("owner", "shard"), _words("owner shard sessions blocks")),
    Table("served_agents", ("name",), _words("name first_served_at")),
    Table(
        "schedules",
        ("id",),
        _words(
            "id owner timing target agent message if_busy if_missed state revision next_due asked_due request_id"
            " request_hash created_at"
        ),
    ),
    Table(
        "schedule_log",
        ("schedule_id", "number"),
        _words("schedule_id number at step due missed session_id turn_id reason"),
    ),
    Table("tokens", ("id",), _words("id owner name kind hash created_at expires_at revoked_at access")),
    Table(
        "gateways",
        ("owner", "name"),
        _words(
            "owner name cursor feed received_at fence holder lease_until lease_boot lease_ms created_at answered_at"
            " problem pairing_until"
        ),
    ),
    Table(
        "gateway_people",
        ("owner", "gateway", "person"),
        _words("owner gateway person name code code_until paired_at"),
    ),
    Table(
        "arrivals",
        ("owner", "gateway", "id"),
        _words("owner gateway id turn_id gathering place parts files at sender"),
    ),
    Table("deliveries", ("id",), _words("id owner gateway destination session_id cursor due closing stopped preview")),
    Table(
        "receipts",
        ("delivery_id", "event", "part"),
        _words("delivery_id event part low high state attempts repeated platform_id reason at"),
    ),
    Table("chats", ("owner", "gateway", "destination"), _words("owner gateway destination agent if_busy")),
    Table(
        "notices",
        ("id",),
        _words(
            "id owner gateway name destination kind person turn_id root_id ordinal arguments_hash phase content version"
            " shown state repeated platform_id final at"
        ),
    ),
    Table("buttons", ("id",), _words("id notice_id action used_in used_by used_at")),
    Table(
        "push_subscriptions",
        ("owner", "number"),
        _words("owner number endpoint public_key secret name text created_at"),
    ),
    Table("push_choices", ("session_id",), _words("session_id done needs_you")),
    Table("push_keys", ("id",), _words("id private_key")),
)

# Workers, commit marks, the search index, and the moves themselves.
OWN = frozenset(_words("workers commits search indexed moves hosts sightings"))
# The order of the search index in a file, and its best matches.
OWN_OF_FILES = frozenset(_words("search_owners best_matches"))
