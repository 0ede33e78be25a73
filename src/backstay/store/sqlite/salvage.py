"""Salvage: every row of a damaged table that can still be read, and the name of every one that cannot."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Literal

import apsw

from backstay.model.upkeep import Unreadable
from backstay.store.engine import Row
from backstay.store.moving.tables import Table

# What reading a damaged page, or text that is no text any more, can raise.
Damage = (apsw.Error, UnicodeDecodeError, OverflowError, MemoryError)
Key = tuple[object, ...]
Keep = Callable[[Row], str | None]

_BY_NUMBER = frozenset(("messages", "events", "blobs", "chunks", "turns"))
# What is said of a stretch whose rows cannot be in the order in which they are found.
_ASTRAY = "the rows that follow are not in order"
# So many places are tried within a stretch that cannot be read, before it is given up as a whole.
_PROBES = 20_000


class Salvage:
    """Reads one table from both ends, then between; `keep` takes a row, or says why it is none."""

    def __init__(self, source: apsw.Connection, table: Table, keep: Keep) -> None:
        self._source, self._table, self._keep = source, table, keep
        numbered = table.name in _BY_NUMBER
        # Rows are read in the order in which they lie, so that a damaged index beside them does not matter.
        self._key = ("rowid",) if numbered else table.key
        self._numbered = numbered
        self._keys = ", ".join(self._key)
        self._asked = f"{self._keys}, {', '.join(table.columns)}"
        self.lost: list[Unreadable] = []
        self.gap: tuple[Key | None, Key | None] | None = None

    def run(self) -> None:
        """Read all there is."""
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
        """Fetch rows by keys that other tables name."""
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
        """Read on from a key as far as it goes; the last key, and what ended it before its time."""
        here = start
        while True:
            try:
                for row in self._after(here, down=down):
                    key = row[: len(self._key)]
                    place = _place(here, key, until, down=down)
                    if place != "ahead":
                        return here, None if place == "over" else _ASTRAY
                    self._take(row)
                    here = key
                return here, None
            except Damage as error:
                problem, mangled = _said(error), isinstance(error, UnicodeDecodeError)
            beyond = self._next_key(here, down=down)
            if beyond is None or _place(here, beyond, until, down=down) != "ahead":
                return here, problem
            # Its key can be read, and it cannot: this one record is lost, and the rest goes on after it.
            saved = mangled and self._save_mangled(beyond)
            self._lose(beyond, beyond, problem + ("; saved with � in place of what is no text" if saved else ""))
            here = beyond

    def _save_mangled(self, key: Key) -> bool:
        """Keep a row whose text is no longer text, with a sign in place of each byte that is none."""
        where = " AND ".join(f"{name} = ?" for name in self._key)
        columns = ", ".join(f"typeof({name}), CAST({name} AS BLOB)" for name in self._table.columns)
        try:
            row = self._source.execute(f"SELECT {columns} FROM {self._table.name} WHERE {where}", key).fetchone()
        except Damage:
            return False
        return row is not None and self._keep(tuple(map(_value, row[::2], row[1::2]))) is None

    def _after(self, key: Key | None, *, down: bool) -> Iterator[Row]:
        order = ", ".join(f"{name} {'DESC' if down else 'ASC'}" for name in self._key)
        return self._source.execute(self._select(f"{self._beyond(key, down=down)} ORDER BY {order}"), key or ())

    def _next_key(self, key: Key | None, *, down: bool) -> Key | None:
        order = ", ".join(f"{name} {'DESC' if down else 'ASC'}" for name in self._key)
        asked = f"SELECT {self._keys} FROM {self._table.name} {self._beyond(key, down=down)} ORDER BY {order} LIMIT 1"
        try:
            return self._source.execute(asked, key or ()).fetchone()
        except Damage:
            return None

    def _beyond(self, key: Key | None, *, down: bool) -> str:
        if key is None:
            return ""
        return f"WHERE ({self._keys}) {'<' if down else '>'} ({', '.join('?' * len(self._key))})"

    def _select(self, rest: str) -> str:
        return f"SELECT {self._asked} FROM {self._table.name} {rest}"

    # --- between both ends --------------------------------------------------------------------------------------------

    def _between(self, low: int, high: int, problem: str) -> None:
        """Look for islands between two numbers, the widest stretches first, and name what lies around them."""
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
            self._lose((first,), (end,), problem)

    def _take(self, row: Row) -> None:
        refused = self._keep(row[len(self._key) :])
        if refused is not None:
            key = row[: len(self._key)]
            self._lose(key, key, refused)

    def _lose(self, first: Key | None, last: Key | None, problem: str) -> None:
        self.lost.append(
            Unreadable(table=self._table.name, first=_spelled(first), last=_spelled(last), problem=problem)
        )


def _place(here: Key | None, key: Key, until: Key | None, *, down: bool) -> Literal["ahead", "over", "astray"]:
    """Where a key lies for somebody who walks from here until there. In a damaged tree one can walk in a circle."""
    try:
        if here is not None and not (key < here if down else key > here):
            return "astray"
        if until is not None and not (key > until if down else key < until):
            return "over"
    except TypeError:
        return "astray"
    return "ahead"


def _joined(ranges: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """The same numbers, neighbours put together."""
    joined: list[tuple[int, int]] = []
    for first, last in sorted(ranges):
        if joined and first <= joined[-1][1] + 1:
            joined[-1] = (joined[-1][0], max(joined[-1][1], last))
        else:
            joined.append((first, last))
    return joined


def _value(kind: str, bytes_: bytes | None) -> object:
    """A value from its kind and its bytes."""
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


def _said(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"
