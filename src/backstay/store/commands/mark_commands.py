"""Commands for an owner's draft and read mark of a session."""

from backstay.model.ids import SessionId, check_session_id
from backstay.model.marks import Marks
from backstay.store.commands.command import Read, Write
from backstay.store.verbs import reader_marks


def marks(session: SessionId, *, owner: str) -> Read[Marks]:
    """Read the owner's draft and read mark.

    Args:
        session: The session.
        owner: The owner of the session.

    Returns:
        The marks.

    Raises:
        NotFound: The owner has no such session.
    """
    where = check_session_id(session)
    return Read(name="marks", owner=owner, verb=lambda tx: reader_marks.get(tx, where, owner))


def save_draft(session: SessionId, text: str, *, owner: str) -> Write[Marks]:
    """Store an unfinished message. Changes neither revision nor context number.

    Args:
        session: The session.
        text: The draft.
        owner: The owner of the session.

    Returns:
        The marks.

    Raises:
        NotFound: The owner has no such session.
        SessionEnded: The session was ended.
        SessionExpired: The session has expired.
        QuotaExceeded: The owner has reached its limit of stored bytes.
        InvalidPayload: The draft is not text.
        TooLarge: The draft is too long.
    """
    where = check_session_id(session)
    return Write(
        name="save_draft",
        owner=owner,
        read_first=True,
        wakes=False,
        verb=lambda tx: reader_marks.save_draft(tx, where, owner, text),
    )


def mark_read(session: SessionId, number: int, *, owner: str) -> Write[Marks]:
    """Mark every event up to a number as read. The mark only moves forward.

    Args:
        session: The session.
        number: The number of the last event that was read.
        owner: The owner of the session.

    Returns:
        The marks.

    Raises:
        NotFound: The owner has no such session.
        InvalidPayload: The session has no such event.
    """
    where = check_session_id(session)
    return Write(
        name="mark_read",
        owner=owner,
        read_first=True,
        wakes=False,
        verb=lambda tx: reader_marks.mark_read(tx, where, owner, number),
    )
