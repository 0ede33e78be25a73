"""Prepared databases with a session, which benchmarks copy."""

from pathlib import Path

import msgspec

from backstay import open_store
from backstay.model.ids import SessionId
from benchmarks.instruments.sample_turns import OWNER, run_turns


class PreparedDatabase(msgspec.Struct, frozen=True, kw_only=True):
    """A database to copy, and the session in it."""

    path: Path
    session: SessionId


def session_of(folder: Path, messages: int) -> PreparedDatabase:
    """A session with this number of messages, alone in its database."""
    path = folder / f"messages-{messages}.db"
    with open_store(path) as store:
        session = store.create(owner=OWNER).id
        run_turns(store, session, messages // 2)
    return PreparedDatabase(path=path, session=session)


def store_of(folder: Path, sessions: int) -> PreparedDatabase:
    """A store with this number of empty sessions, and the first of them."""
    path = folder / f"sessions-{sessions}.db"
    with open_store(path) as store:
        ids = [store.create(owner=OWNER).id for _ in range(sessions)]
    return PreparedDatabase(path=path, session=ids[0])
