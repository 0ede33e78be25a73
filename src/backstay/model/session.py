"""A session: one conversation, as a person understands it."""

from typing import Literal

import msgspec

from backstay.model.ids import SessionId, TurnId, WindowId, WorkerId

SessionState = Literal["open", "ended", "expired"]
TitleBy = Literal["person", "agent"]
How = Literal["created", "resumed", "replaced"]

# The length of the preview of the last message in a list, in characters.
PREVIEW = 160


class Ttl(msgspec.Struct, frozen=True, kw_only=True):
    """The time to live of a session, in seconds. None means no limit.

    Args:
        idle: After its last activity.
        absolute: After its creation.
    """

    idle: float | None = None
    absolute: float | None = None


class SessionInfo(msgspec.Struct, frozen=True):
    """A session at one moment: everything that a list needs, nothing that grows with its history.

    Times are milliseconds since 1970 (UTC).

    Attributes:
        id: Never changes.
        owner: The user or tenant that it belongs to.
        state: "open", "ended" or "expired".
        revision: Grows with every visible change; compare it with `expect_revision`.
        context: The context number; grows with every change of the messages that an agent would read.
        fence: The fence of the current or last holder.
        last_event: The number of the last event.
        window: The current window.
        length: The number of messages in it.
        title: The title; None if it has none.
        title_by: Whether a person or an agent set the title.
        preview: The beginning of the last message.
        pinned: Whether a person pinned it.
        archived: Whether a person archived it.
        tags: Sorted tags.
        family: The family of its address, "chat" or "workspace".
        place: The platform or the directory of its address.
        source: The session that it was forked from.
        running: The turn that runs now.
        holder: The worker that runs it.
        waiting: The number of waiting turns.
        turns: The number of turns that ended, without compactions.
        activity: Grows by one with every submission and record, and with lookups by address at most once a second.
        created_at: When it was created.
        active_at: When it was last used, to the second; lists are sorted by it.
        expires_at: When its time to live runs out; None if it has no limit.
        ended_at: When it ended or expired.
        metadata: Notes of programs, by name.
        agent: The agent of the last turn.
        held: How many of the waiting turns wait for a person to release them.
    """

    id: SessionId
    owner: str
    state: SessionState
    revision: int
    context: int
    fence: int
    last_event: int
    window: WindowId
    length: int
    title: str | None
    title_by: TitleBy | None
    preview: str | None
    pinned: bool
    archived: bool
    tags: tuple[str, ...]
    family: str | None
    place: str | None
    source: SessionId | None
    running: TurnId | None
    holder: WorkerId | None
    waiting: int
    turns: int
    activity: int
    created_at: int
    active_at: int
    expires_at: int | None
    ended_at: int | None
    metadata: dict[str, str] = {}
    agent: str | None = None
    held: int = 0


class Resolved(msgspec.Struct, frozen=True, kw_only=True):
    """The session of an address, and how it was found.

    Attributes:
        session: The session.
        how: "resumed" (it existed), "created" (the address was new) or "replaced" (the previous session was over).
        generation: The number of sessions that the address has had, from 1.
    """

    session: SessionInfo
    how: How
    generation: int


class SessionCursor(msgspec.Struct, frozen=True, kw_only=True):
    """The position after a page of a session list. Pass it on unchanged.

    Attributes:
        active_at: When the last session of the page was used.
        id: The id of that session.
    """

    active_at: int
    id: SessionId


class SessionPage(msgspec.Struct, frozen=True, kw_only=True):
    """A page of a session list.

    Attributes:
        sessions: The sessions, the most recently active first.
        next: The cursor of the next page; None after the last page.
    """

    sessions: tuple[SessionInfo, ...]
    next: SessionCursor | None


class SessionFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Which sessions a list contains; None means any.

    Args:
        state: Sessions in this state.
        tag: Sessions with this tag.
        family: Sessions whose address is of this family, "chat" or "workspace".
        place: Sessions of this platform or directory.
        agent: Sessions whose last turn was for this agent.
        pinned: Only pinned, or only unpinned ones.
        archived: Only archived, or only other ones.
    """

    state: SessionState | None = None
    tag: str | None = None
    family: str | None = None
    place: str | None = None
    agent: str | None = None
    pinned: bool | None = None
    archived: bool | None = None


class SessionPatch(msgspec.Struct, frozen=True, kw_only=True):
    """Changes of a session that are applied together; unset fields stay as they are.

    Args:
        title: The new title; None removes it.
        pinned: Whether it is pinned.
        archived: Whether it is archived.
        metadata: Replaces all metadata.
        add_tags: Tags to add.
        remove_tags: Tags to remove.
    """

    title: str | msgspec.UnsetType | None = msgspec.UNSET
    pinned: bool | msgspec.UnsetType = msgspec.UNSET
    archived: bool | msgspec.UnsetType = msgspec.UNSET
    metadata: dict[str, str] | msgspec.UnsetType = msgspec.UNSET
    add_tags: tuple[str, ...] = ()
    remove_tags: tuple[str, ...] = ()


class Deleted(msgspec.Struct, frozen=True, kw_only=True):
    """How much the deletion of a session removed.

    Attributes:
        messages: Messages.
        turns: Turns.
        events: Events.
        windows: Windows.
        blobs: Files that no message uses any more.
        kept_messages: Messages that were kept, because a fork still reads them.
    """

    messages: int
    turns: int
    events: int
    windows: int
    blobs: int
    kept_messages: int


class Forecast(msgspec.Struct, frozen=True, kw_only=True):
    """The effect of a collection and a fold now: sessions to expire and to delete, uploads to drop, turns to fold."""

    expired: int = 0
    deleted: int = 0
    blobs: int = 0
    folded: int = 0


class Collected(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a collection.

    Attributes:
        expired: Sessions that expired.
        deleted: Sessions that were deleted.
        messages: Messages that were deleted with them.
        blobs: Files and uploads that were dropped, because no message uses them.
    """

    expired: int = 0
    deleted: int = 0
    messages: int = 0
    blobs: int = 0


class UpkeepReport(msgspec.Struct, frozen=True, kw_only=True):
    """The result of maintenance.

    Attributes:
        collected: Expired and deleted sessions.
        folded: Rows of events that were folded.
        indexed: Messages that were added to the search index.
    """

    collected: Collected
    folded: int
    indexed: int
