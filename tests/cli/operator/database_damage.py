"""Reproducible damage, as disks, people and other programs cause it."""

import random
from pathlib import Path

import apsw
import psycopg

from backstay import open_store
from backstay.model import message
from backstay.model.ids import SessionId
from tests.databases import Place

ME = "local"


def a_store(place: Place, sessions: int = 4, turns: int = 4) -> list[SessionId]:
    """A store with this number of sessions, one of them undone and forked; their ids."""
    made: list[SessionId] = []
    with open_store(place) as store:
        for number in range(sessions):
            session = store.create(owner=ME).id
            for turn in range(turns):
                words = f"question {number} {turn}", "answer " * (2_000 if turn == 1 else 20)
                store.record(session, [message.user(words[0]), message.assistant(words[1])], owner=ME)
            made.append(session)
        store.undo(made[0], owner=ME)
        made.append(store.fork(made[0], owner=ME).id)
        store.index()
    return made


def execute(place: Place, *statements: str) -> None:
    """Write to the database directly."""
    if isinstance(place, Path):
        connection = apsw.Connection(str(place))
        try:
            for statement in statements:
                connection.execute(statement)
        finally:
            connection.close()
        return
    with psycopg.connect(place, autocommit=True) as server:
        for statement in statements:
            server.execute(statement.encode())


def messages_in(path: Path) -> set[str]:
    """The ids of all messages of a sound file."""
    connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    try:
        return {str(row[0]) for row in connection.execute("SELECT id FROM messages")}
    finally:
        connection.close()


def damaged(sound: bytes, number: int) -> bytes:
    """The n-th way to damage these bytes: a bit, a stretch, a page, the header, or the end."""
    chance = random.Random(number)
    data, at = bytearray(sound), chance.randrange(len(sound))
    match number % 5:
        case 0:
            data[at] ^= 1 << chance.randrange(8)
        case 1:
            data[at : at + 64] = chance.randbytes(len(data[at : at + 64]))
        case 2:
            page = at // 4_096 * 4_096
            data[page : page + 4_096] = bytes(4_096)
        case 3:
            for _ in range(4):
                data[chance.randrange(110)] ^= 0xFF
        case _:
            del data[at:]
    return bytes(data)
