"""Indexing on PostgreSQL: the cost of a search index, against a raw insert of the same words."""

import time
from collections.abc import Sequence
from itertools import chain, islice

import psycopg

from backstay import open_store
from backstay.model import message
from backstay.store.postgres import tsvector
from backstay.store.verbs.message_search import owner_token
from benchmarks.instruments.corpus import conversations
from benchmarks.instruments.figure import Figure
from benchmarks.instruments.sample_turns import OWNER
from benchmarks.instruments.stopwatch import micros
from benchmarks.postgres.postgres_server import BenchmarkServer

_MESSAGES, _STEP = 4_000, 200
_INSERT = """
INSERT INTO raw (key, words)
SELECT n.key, CAST(n.words AS tsvector) FROM unnest(%s::bigint[], %s::text[]) n (key, words)
"""


def figure(server: BenchmarkServer) -> Figure:
    """Processor time of both ends for a message. The raw insert gets words that are already split."""
    texts = list(islice(chain.from_iterable(_spoken()), _MESSAGES))
    ours = min(_ours(server, texts) for _ in range(2))
    raw = min(_raw(server, texts) for _ in range(2))
    detail = f"{micros(ours)} and {micros(raw)} a message, {_MESSAGES:,} messages"
    return Figure(name="indexing / raw insert of the same words", value=ours / raw, limit=3.0, detail=detail)


def _spoken() -> list[tuple[str, str]]:
    return [(said.question, said.answer) for talk in conversations(_MESSAGES // 10) for said in talk]


def _ours(server: BenchmarkServer, texts: Sequence[str]) -> float:
    with open_store(server.url(server.database())) as store:
        for low in range(0, len(texts), 500):
            said = [message.user(text) for text in texts[low : low + 500]]
            store.record(store.create(owner=OWNER).id, said, owner=OWNER)
        there, here = server.seconds(), time.process_time()
        store.index()
        return (server.seconds() - there + time.process_time() - here) / len(texts)


def _raw(server: BenchmarkServer, texts: Sequence[str]) -> float:
    words = [tsvector.vector(owner_token(OWNER), text) for text in texts]
    with psycopg.connect(server.url(server.database()), autocommit=True) as connection:
        connection.execute("CREATE TABLE raw (key bigint PRIMARY KEY, words tsvector)")
        connection.execute("CREATE INDEX ON raw USING gin (words)")
        there, here = server.seconds(), time.process_time()
        for low in range(0, len(words), _STEP):
            part = words[low : low + _STEP]
            connection.execute(_INSERT, (list(range(low, low + len(part))), part))
        return (server.seconds() - there + time.process_time() - here) / len(texts)
