"""The smallest write to a session: one mark of activity. Tests of engines count their commits with it."""

from backstay import Store
from backstay.model.ids import SessionId
from backstay.model.session import SessionInfo
from backstay.store.commands.command import Write
from backstay.store.engine import Transaction
from backstay.store.verbs.session_changes import lock_open_session


def touch(store: Store, session: SessionId, *, owner: str) -> SessionInfo:
    """Count one mark of activity."""
    return store.run(touching(session, owner=owner))


def touching(session: SessionId, *, owner: str) -> Write[SessionInfo]:
    """The command of `touch`."""

    def verb(tx: Transaction) -> SessionInfo:
        with lock_open_session(tx, session, owner) as session_row:
            session_row.touch(tx.now)
        return session_row.value(tx.now)

    return Write(name="touch", owner=owner, verb=verb)
