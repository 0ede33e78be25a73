"""Commands for a session as a whole: find or create it, file it, end it, delete it."""

from collections.abc import Mapping, Sequence

from backstay.model.addresses.address import Address
from backstay.model.ids import SessionId, check_session_id
from backstay.model.session import Deleted, Resolved, SessionInfo, SessionPatch, TitleBy, Ttl
from backstay.store.commands.command import Write
from backstay.store.commands.input_checks import check_address, check_names, check_owner
from backstay.store.verbs import session_changes, session_deletion, session_queries

NO_NOTES: Mapping[str, str] = {}


def resolve(address: Address, *, owner: str, ttl: Ttl | None = None) -> Write[Resolved]:
    """Find the open session of an address, or create it, and count one mark of activity.

    A lookup within a second of the last mark is not counted and only reads, unless the session has an idle time to
    live. A mark that only moves the session up in the list is not synced: power loss may take it back.

    However many processes resolve the same new address at once, exactly one gets `created`. A session that has ended
    or expired is replaced by a new one with the next generation; it is never revived.

    Args:
        address: The address. A workspace address without a host is one of this machine.
        owner: The owner of the session.
        ttl: When the session expires. Without it the session keeps the one it has.

    Returns:
        The session, and whether it was created, resumed or replaced.

    Raises:
        InvalidPayload: An argument is not valid.
        QuotaExceeded: The owner has reached its limit of sessions.
    """
    check_address(address)
    return Write(
        name="resolve",
        owner=owner,
        durable=False,
        verb=lambda tx: session_changes.resolve(tx, address.on(tx.host), check_owner(tx, owner), ttl),
        precheck=lambda tx: session_queries.resolved(tx, address.on(tx.host), check_owner(tx, owner), ttl),
    )


def create(*, owner: str, ttl: Ttl | None = None, metadata: Mapping[str, str] = NO_NOTES) -> Write[SessionInfo]:
    """Create a session without an address.

    Args:
        owner: The owner of the session.
        ttl: When the session expires.
        metadata: Notes of programs about the session.

    Returns:
        The new session.

    Raises:
        InvalidPayload: An argument is not valid.
        QuotaExceeded: The owner has reached its limit of sessions, or with metadata its limit of stored bytes.
    """
    return Write(
        name="create",
        owner=owner,
        verb=lambda tx: session_changes.create(tx, check_owner(tx, owner), ttl, metadata),
    )


def rename(session: SessionId, title: str | None, *, owner: str, by: TitleBy = "person") -> Write[SessionInfo]:
    """Set the title of a session.

    Args:
        session: The session.
        title: The title; None removes it.
        owner: The owner of the session.
        by: A person's title replaces a generated one; a generated title never replaces a person's.

    Returns:
        The session.

    Raises:
        NotFound: The owner has no such session.
        SessionEnded: The session was ended.
        SessionExpired: The session has expired.
        QuotaExceeded: The owner has reached its limit of stored bytes.
        InvalidPayload: The title is not valid.
        TooLarge: The title is too long.
    """
    where = check_session_id(session)
    return Write(
        name="rename", owner=owner, read_first=True, verb=lambda tx: session_changes.rename(tx, where, owner, title, by)
    )


def pin(session: SessionId, pinned: bool, *, owner: str) -> Write[SessionInfo]:
    """Pin or unpin a session. It writes nothing if nothing changes.

    Args:
        session: The session.
        pinned: Whether it is pinned from now on.
        owner: The owner of the session.

    Returns:
        The session.

    Raises:
        NotFound: The owner has no such session.
        SessionEnded: The session was ended.
        SessionExpired: The session has expired.
        InvalidPayload: `pinned` is not a bool.
    """
    where = check_session_id(session)
    return Write(
        name="pin", owner=owner, read_first=True, verb=lambda tx: session_changes.pin(tx, where, owner, pinned)
    )


def archive(session: SessionId, archived: bool, *, owner: str) -> Write[SessionInfo]:
    """Archive or unarchive a session.

    Args:
        session: The session.
        archived: Whether it is archived from now on.
        owner: The owner of the session.

    Returns:
        The session.

    Raises:
        NotFound: The owner has no such session.
        SessionEnded: The session was ended.
        SessionExpired: The session has expired.
        InvalidPayload: `archived` is not a bool.
    """
    where = check_session_id(session)
    return Write(
        name="archive",
        owner=owner,
        read_first=True,
        verb=lambda tx: session_changes.archive(tx, where, owner, archived),
    )


def tag(session: SessionId, *, owner: str, add: Sequence[str] = (), remove: Sequence[str] = ()) -> Write[SessionInfo]:
    """Add and remove tags of a session.

    Args:
        session: The session.
        owner: The owner of the session.
        add: The tags to add.
        remove: The tags to remove.

    Returns:
        The session.

    Raises:
        NotFound: The owner has no such session.
        SessionEnded: The session was ended.
        SessionExpired: The session has expired.
        QuotaExceeded: The owner has reached its limit of stored bytes.
        InvalidPayload: A tag is not valid, or there are too many.
    """
    where = check_session_id(session)
    check_names("add", add)
    check_names("remove", remove)
    return Write(
        name="tag", owner=owner, read_first=True, verb=lambda tx: session_changes.tag(tx, where, owner, add, remove)
    )


def update(
    session: SessionId, patch: SessionPatch, *, owner: str, expect_revision: int | None = None
) -> Write[SessionInfo]:
    """Rename, pin, archive, tag and annotate at once, or change nothing.

    Args:
        session: The session.
        patch: The changes. Metadata is replaced as a whole.
        owner: The owner of the session.
        expect_revision: The revision that the session must have; None: any.

    Returns:
        The session.

    Raises:
        NotFound: The owner has no such session.
        RevisionMismatch: The session is at another revision.
        SessionEnded: The session was ended.
        SessionExpired: The session has expired.
        QuotaExceeded: The owner has reached its limit of stored bytes.
        InvalidPayload: A change is not valid.
    """
    where = check_session_id(session)
    check_names("add_tags", patch.add_tags)
    check_names("remove_tags", patch.remove_tags)
    return Write(
        name="update",
        owner=owner,
        read_first=True,
        verb=lambda tx: session_changes.update(tx, where, owner, patch, expect_revision),
    )


def point(address: Address, session: SessionId, *, owner: str) -> Write[SessionInfo]:
    """Point an address to a session. Requests that were accepted before are still found.

    Args:
        address: The address. A workspace address without a host is one of this machine.
        session: The session.
        owner: The owner of the session.

    Returns:
        The session.

    Raises:
        NotFound: The owner has no such session.
        SessionEnded: The session was ended.
        SessionExpired: The session has expired.
        QuotaExceeded: The owner has reached its limit of stored bytes.
        InvalidPayload: The value is not an address.
    """
    check_address(address)
    where = check_session_id(session)
    return Write(
        name="point",
        owner=owner,
        read_first=True,
        verb=lambda tx: session_changes.point(tx, address.on(tx.host), where, owner),
    )


def end(session: SessionId, *, owner: str, expect_revision: int | None = None) -> Write[SessionInfo]:
    """End a session permanently, and cancel its running and waiting turns.

    It stays readable, and can still be forked, marked as read and deleted. It rejects every other write.

    Args:
        session: The session.
        owner: The owner of the session.
        expect_revision: The revision that the session must have; None: any.

    Returns:
        The session.

    Raises:
        NotFound: The owner has no such session.
        RevisionMismatch: The session is at another revision.
    """
    where = check_session_id(session)
    return Write(
        name="end", owner=owner, read_first=True, verb=lambda tx: session_changes.end(tx, where, owner, expect_revision)
    )


def delete(session: SessionId, *, owner: str, expect_revision: int | None = None) -> Write[Deleted]:
    """Remove a session and its messages, from the search index too; keep the messages that a fork reads.

    Leaves a tombstone, so that followers of the session learn of the deletion.

    Args:
        session: The session.
        owner: The owner of the session.
        expect_revision: The revision that the session must have; None: any.

    Returns:
        How much was removed and kept.

    Raises:
        NotFound: The owner has no such session.
        RevisionMismatch: The session is at another revision.
    """
    where = check_session_id(session)
    return Write(
        name="delete",
        owner=owner,
        read_first=True,
        verb=lambda tx: session_deletion.delete(tx, where, owner, expect_revision),
    )
