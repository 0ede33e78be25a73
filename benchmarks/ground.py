"""A ground: a database with a session in it, to be copied and measured on."""

from pathlib import Path

import msgspec

from backstay import open_store
from backstay.model.ids import SessionId
from benchmarks.speech import OWNER, talk


class Ground(msgspec.Struct, frozen=True, kw_only=True):
    """A database to copy, and the session in it."""

    path: Path
    session: SessionId


def session_of(room: Path, messages: int) -> Ground:
    """A session with so many messages, alone in its database."""
    path = room / f"messages-{messages}.db"
    with open_store(path) as store:
        session = store.create(owner=OWNER).id
        talk(store, session, messages // 2)
    return Ground(path=path, session=session)


def store_of(room: Path, sessions: int) -> Ground:
    """A store with so many empty sessions, and the first of them."""
    path = room / f"sessions-{sessions}.db"
    with open_store(path) as store:
        ids = [store.create(owner=OWNER).id for _ in range(sessions)]
    return Ground(path=path, session=ids[0])
