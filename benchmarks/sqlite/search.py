"""The cost of a search: a page of 20 hits among 50,000 messages, against raw FTS5 that ranks the same texts."""

from collections.abc import Iterator
from itertools import chain, islice
from pathlib import Path

import apsw

from backstay import Store, open_store
from backstay.model import message
from backstay.model.search.terms import fts5_expression, parse_query, segmented
from benchmarks.instruments.corpus import conversations
from benchmarks.instruments.figure import Figure
from benchmarks.instruments.sample_turns import OWNER
from benchmarks.instruments.scratch_folders import in_memory
from benchmarks.instruments.stopwatch import Comparison, compare, micros, spent

MESSAGES = 50_000
_LIMIT = 20
_PER_SESSION = 70
_REPEATED = 5
_RARE, _EVERY = "heliotrope", 17_000

# The searches, and their limits relative to raw FTS5, which only ranks and returns no text.
_QUERIES = {
    "a rare word": (_RARE, 6.0),
    "a common word": ("the", 0.14),
    "two words": ("time server", 1.5),
    "a phrase": ('"the server"', 1.7),
    "two characters (CJK)": ("数据", 1.5),
}
_RANKED = "SELECT rowid FROM texts WHERE texts MATCH ? ORDER BY bm25(texts), rowid DESC LIMIT ?"
_TAKEN = """
SELECT sum(pgsize) FROM dbstat WHERE aggregate = TRUE AND (name GLOB 'search*' OR name = 'best_matches')
"""


def figures() -> Iterator[Figure]:
    """Indexing, five kinds of search, and the size of the index."""
    with in_memory() as folder:
        path = folder / "search.db"
        texts = list(islice(_texts(), MESSAGES))
        with open_store(path) as store:
            _record(store, texts)
            raw = _raw(folder / "raw.db")
            try:
                yield _indexing(store, raw, texts)
                for name, (query, limit) in _QUERIES.items():
                    yield from _searching(store, raw, name, query, limit)
            finally:
                raw.close()
        yield _size(path)


def _texts() -> Iterator[str]:
    said = chain.from_iterable(chain.from_iterable(conversations(MESSAGES // 40)))
    return (f"{text} {_RARE}" if number % _EVERY == 0 else text for number, text in enumerate(said, 1))


def _record(store: Store, texts: list[str]) -> None:
    for low in range(0, len(texts), _PER_SESSION):
        said = texts[low : low + _PER_SESSION]
        new = [message.assistant(text) if at % 2 else message.user(text) for at, text in enumerate(said)]
        store.record(store.create(owner=OWNER).id, new, owner=OWNER)


def _raw(path: Path) -> apsw.Connection:
    connection = apsw.Connection(str(path))
    connection.execute("PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL").fetchall()
    connection.execute(
        "CREATE VIRTUAL TABLE texts USING fts5 (text, content = '', tokenize = 'unicode61 remove_diacritics 2')"
    )
    return connection


def _fill(raw: apsw.Connection, texts: list[str]) -> None:
    for low in range(0, len(texts), 200):
        with raw:
            part = enumerate(texts[low : low + 200], low + 1)
            raw.executemany("INSERT INTO texts (rowid, text) VALUES (?, ?)", [(n, segmented(text)) for n, text in part])


def _indexing(store: Store, raw: apsw.Connection, texts: list[str]) -> Figure:
    ours, theirs = spent(store.index) / MESSAGES, spent(lambda: _fill(raw, texts)) / MESSAGES
    detail = f"{micros(ours)} and {micros(theirs)} a message, {MESSAGES:,} messages"
    return Figure(name="indexing / raw insert of the same texts", value=ours / theirs, limit=2.0, detail=detail)


def _searching(store: Store, raw: apsw.Connection, name: str, query: str, limit: float) -> Iterator[Figure]:
    expression = fts5_expression(parse_query(query))
    first = spent(lambda: store.search(query, owner=OWNER, limit=_LIMIT))
    hits = store.search(query, owner=OWNER, limit=_LIMIT).hits
    if len(hits) != len(raw.execute(_RANKED, (expression, _LIMIT)).fetchall()):
        raise RuntimeError(f"raw FTS5 finds other messages by {query!r} than the store")
    both = compare(
        lambda: [store.search(query, owner=OWNER, limit=_LIMIT) for _ in range(_REPEATED)],
        lambda: [raw.execute(_RANKED, (expression, _LIMIT)).fetchall() for _ in range(_REPEATED)],
        rounds=10,
        units=_REPEATED,
    )
    yield Figure(name=f"search for {name}", value=both.ratio, limit=limit, detail=_detail(both, first))


def _detail(both: Comparison, first: float) -> str:
    return f"ours {_millis(both.ours)}, raw {_millis(both.raw)}; ours the first time {_millis(first)}"


def _millis(seconds: float) -> str:
    return f"{seconds * 1e3:.2f} ms"


def _size(path: Path) -> Figure:
    connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    try:
        taken = int(connection.execute(_TAKEN).get)
    finally:
        connection.close()
    size = path.stat().st_size
    detail = f"{taken / 1e6:.1f} MB of index in a file of {size / 1e6:.1f} MB"
    return Figure(name="search index / rest of the file", value=taken / (size - taken), limit=0.33, detail=detail)
