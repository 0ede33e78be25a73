"""Commands that move a session to another window of its lineage, or branch from it: undo, redo, omit, fork."""

from collections.abc import Collection

from backstay.model.ids import MessageId, SessionId, TurnId, check_message_id, check_session_id
from backstay.model.session import SessionInfo, Ttl
from backstay.model.window import Moved
from backstay.store.commands.command import Write
from backstay.store.commands.input_checks import check_message_or_turn
from backstay.store.verbs.history import branches


def undo(session: SessionId, *, owner: str, expect_revision: int | None = None) -> Write[Moved]:
    """Undo the last turn as a unit, across a compaction if need be.

    Args:
        session: The session.
        owner: The owner of the session.
        expect_revision: The revision that the session must have; None: any.

    Returns:
        The current window of the session.

    Raises:
        NotFound: The owner has no such session.
        NothingToDo: There is no turn to undo.
        RevisionMismatch: The session is at another revision.
        SessionBusy: A turn runs or waits.
        SessionEnded: The session was ended.
        SessionExpired: The session has expired.
    """
    where = check_session_id(session)
    return Write(
        name="undo", owner=owner, read_first=True, verb=lambda tx: branches.undo(tx, where, owner, expect_revision)
    )


def redo(session: SessionId, *, owner: str, expect_revision: int | None = None) -> Write[Moved]:
    """Redo the turn that the last undo removed. Possible until the next message.

    Args:
        session: The session.
        owner: The owner of the session.
        expect_revision: The revision that the session must have; None: any.

    Returns:
        The current window of the session.

    Raises:
        NotFound: The owner has no such session.
        NothingToDo: There is nothing to redo.
        RevisionMismatch: The session is at another revision.
        SessionBusy: A turn runs or waits.
        SessionEnded: The session was ended.
        SessionExpired: The session has expired.
    """
    where = check_session_id(session)
    return Write(
        name="redo", owner=owner, read_first=True, verb=lambda tx: branches.redo(tx, where, owner, expect_revision)
    )


def omit(
    session: SessionId,
    message: MessageId,
    *,
    owner: str,
    keep: Collection[int] = (),
    expect_revision: int | None = None,
) -> Write[Moved]:
    """Omit a message, or parts of it, from the history that agents read.

    Opens a window like an edit does; the message stays in the lineage.

    Args:
        session: The session.
        message: The message.
        owner: The owner of the session.
        keep: The parts to keep, counted from 0.
        expect_revision: The revision that the session must have; None: any.

    Returns:
        The current window of the session.

    Raises:
        NotFound: The owner has no such session, or its history does not contain the message.
        Conflict: The message was compacted.
        RevisionMismatch: The session is at another revision.
        SessionBusy: A turn runs or waits.
        SessionEnded: The session was ended.
        SessionExpired: The session has expired.
        InvalidPayload: `keep` names parts that do not exist, or all of them.
    """
    where, which, kept = check_session_id(session), check_message_id(message), tuple(keep)
    return Write(
        name="omit",
        owner=owner,
        read_first=True,
        verb=lambda tx: branches.omit(tx, where, owner, which, keep=kept, expect_revision=expect_revision),
    )


def fork(
    session: SessionId, *, owner: str, at: MessageId | TurnId | None = None, ttl: Ttl | None = None
) -> Write[SessionInfo]:
    """Create a session from the ended turns of this one. Always allowed.

    Copies no message; inherits no lease, queue, address or request id.

    Args:
        session: The session.
        owner: The owner of the session.
        at: The last message or turn of the fork; None: all ended turns.
        ttl: When the fork expires. It does not inherit the time to live of this session.

    Returns:
        The new session.

    Raises:
        NotFound: The owner has no such session, or its history does not contain `at`.
        Conflict: `at` belongs to a turn that still runs.
        InvalidPayload: The time to live is not valid.
        QuotaExceeded: The owner has reached its limit of sessions.
    """
    where, last = check_session_id(session), None if at is None else check_message_or_turn(at)
    return Write(name="fork", owner=owner, read_first=True, verb=lambda tx: branches.fork(tx, where, owner, last, ttl))
