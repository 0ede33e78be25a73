"""Salvage: every row of a damaged table that can still be read, and the keys of those that cannot."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Literal

import apsw

from backstay.model.operations.findings import Unreadable
from backstay.store.engine import Row
from backstay.store.move.moved_tables import Table

# Errors of reading a damaged page, or invalid text.
Damage = (apsw.Error, UnicodeDecodeError, OverflowError, MemoryError)
Key = tuple[object, ...]
StoreRow = Callable[[Row], str | None]

_BY_NUMBER = frozenset(("messages", "events", "blobs", "chunks", "turns"))
# The problem of a range whose rows are not in order.
_OUT_OF_ORDER = "the rows that follow are not in order"
# At most this many positions are tried within an unreadable range before the rest of it is given up.
_PROBES = 20_000


class Salvage:
    """Reads one table from both ends, then between. `store` stores a row, or returns the reason why it is invalid."""

    def __init__(self, source: apsw.Connection, table: Table, store: StoreRow) -> None:
        self._source, self._table, self._store = source, table, store
        numbered = table.name in _BY_NUMBER
        # Rows are read in their physical order, so that a damaged index does not matter.
        self._key = ("rowid",) if numbered else table.key
        self._numbered = numbered
        self._keys = ", ".join(self._key)
        self._columns = f"{self._keys}, {', '.join(table.columns)}"
        self.lost: list[Unreadable] = []
        self.gap: tuple[Key | None, Key | None] | None = None

    def run(self) -> None:
        """Read all rows."""
        low, problem = self._walk(None, None)
        if problem is None:
            return
        high, _ = self._walk(None, low, down=True)
        if self._numbered and low is not None and high is not None:
            self._between(_number(low), _number(high), problem)
        elif low is None or high is None or low < high:
            self.gap = (low, high)
            first = f"after {_spelled(low)}" if low else "the first"
            last = f"before {_spelled(high)}" if high else "the last"
            self.lost.append(Unreadable(table=self._table.name, first=first, last=last, problem=problem))

    def look_up(self, keys: Iterable[Key]) -> None:
        """Read rows by keys that other tables name."""
        where = " AND ".join(f"{name} = ?" for name in self._key)
        for key in keys:
            try:
                rows = self._source.execute(self._select(f"WHERE {where}"), key).fetchall()
            except Damage:
                continue
            for row in rows:
                self._take(row)

    # --- from one end -------------------------------------------------------------------------------------------------

    def _walk(self, start: Key | None, until: Key | None, *, down: bool = False) -> tuple[Key | None, str | None]:
        """Read from a key as far as possible; returns the last key, and the problem that ended it early."""
        here = start
        while True:
            try:
                for row in self._after(here, down=down):
                    key = row[: len(self._key)]
                    relation = _relation(here, key, until, down=down)
                    if relation != "ahead":
                        return here, None if relation == "over" else _OUT_OF_ORDER
                    self._take(row)
                    here = key
                return here, None
            except Damage as error:
                problem, mangled = _message_of(error), isinstance(error, UnicodeDecodeError)
            beyond = self._next_key(here, down=down)
            if beyond is None or _relation(here, beyond, until, down=down) != "ahead":
                return here, problem
            # The key can be read and the row cannot: this one record is lost, and reading continues after it.
            saved = mangled and self._save_mangled(beyond)
            self._record_loss(beyond, beyond, problem + ("; saved with � in place of invalid bytes" if saved else ""))
            here = beyond

    def _save_mangled(self, key: Key) -> bool:
        """Keep a row with invalid text, with � in place of each invalid byte."""
        where = " AND ".join(f"{name} = ?" for name in self._key)
        columns = ", ".join(f"typeof({name}), CAST({name} AS BLOB)" for name in self._table.columns)
        try:
            row = self._source.execute(f"SELECT {columns} FROM {self._table.name} WHERE {where}", key).fetchone()
        except Damage:
            return False
        return row is not None and self._store(tuple(map(_value, row[::2], row[1::2]))) is None

    def _after(self, key: Key | None, *, down: bool) -> Iterator[Row]:
        order = ", ".join(f"{name} {'DESC' if down else 'ASC'}" for name in self._key)
        return self._source.execute(self._select(f"{self._from_key(key, down=down)} ORDER BY {order}"), key or ())

    def _next_key(self, key: Key | None, *, down: bool) -> Key | None:
        order = ", ".join(f"{name} {'DESC' if down else 'ASC'}" for name in self._key)
        query = f"SELECT {self._keys} FROM {self._table.name} {self._from_key(key, down=down)} ORDER BY {order} LIMIT 1"
        try:
            return self._source.execute(query, key or ()).fetchone()
        except Damage:
            return None

    def _from_key(self, key: Key | None, *, down: bool) -> str:
        if key is None:
            return ""
        return f"WHERE ({self._keys}) {'<' if down else '>'} ({', '.join('?' * len(self._key))})"

    def _select(self, rest: str) -> str:
        return f"SELECT {self._columns} FROM {self._table.name} {rest}"

    # --- between both ends --------------------------------------------------------------------------------------------

    def _between(self, low: int, high: int, problem: str) -> None:
        """Look for readable rows between two numbers, the widest ranges first.

        Unreadable ranges are added to `lost`.
        """
        ahead, lost, probes = deque([(low, high)]), [], 0
        while ahead:
            low, high = ahead.popleft()
            if high - low <= 1:
                continue
            probes += 1
            if probes > _PROBES:
                lost.append((low + 1, high - 1))
                continue
            middle = (low + high) // 2
            last, ended = self._walk((middle - 1,), (high,))
            ahead.append((low, middle))
            if ended is None:
                continue
            reached = middle if last is None else max(middle, _number(last))
            if last == (middle - 1,):
                lost.append((middle, middle))
            ahead.append((reached, high))
        for first, end in _joined(lost):
            self._record_loss((first,), (end,), problem)

    def _take(self, row: Row) -> None:
        refused = self._store(row[len(self._key) :])
        if refused is not None:
            key = row[: len(self._key)]
            self._record_loss(key, key, refused)

    def _record_loss(self, first: Key | None, last: Key | None, problem: str) -> None:
        self.lost.append(
            Unreadable(table=self._table.name, first=_spelled(first), last=_spelled(last), problem=problem)
        )


def _relation(here: Key | None, key: Key, until: Key | None, *, down: bool) -> Literal["ahead", "over", "astray"]:
    """The relation of a key to a walk from `here` to `until`. In a damaged tree a walk can go in a circle."""
    try:
        if here is not None and not (key < here if down else key > here):
            return "astray"
        if until is not None and not (key > until if down else key < until):
            return "over"
    except TypeError:
        return "astray"
    return "ahead"


def _joined(ranges: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """The same numbers, with adjacent ranges merged."""
    joined: list[tuple[int, int]] = []
    for first, last in sorted(ranges):
        if joined and first <= joined[-1][1] + 1:
            joined[-1] = (joined[-1][0], max(joined[-1][1], last))
        else:
            joined.append((first, last))
    return joined


def _value(kind: str, bytes_: bytes | None) -> object:
    """A value from its type and its bytes."""
    match kind:
        case "integer":
            return int(bytes_ or b"0")
        case "real":
            return float(bytes_ or b"0")
        case "text":
            return (bytes_ or b"").decode(errors="replace")
        case _:
            return bytes_


def _number(key: Key) -> int:
    return key[0] if isinstance(key[0], int) else 0


def _spelled(key: Key | None) -> str:
    return "" if key is None else ", ".join(part.hex() if isinstance(part, bytes) else str(part) for part in key)


def _message_of(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"
