"""A session: what a person means by "our conversation"."""

from typing import Literal

import msgspec

from backstay.model.ids import SessionId, TurnId, WindowId, WorkerId

SessionState = Literal["open", "ended", "expired"]
TitleBy = Literal["person", "agent"]
How = Literal["created", "resumed", "replaced"]

# How much of the last words a list shows, in characters.
PREVIEW = 160


class Ttl(msgspec.Struct, frozen=True, kw_only=True):
    """How long a session lives, in seconds: after its last activity, and after its birth. None means for ever."""

    idle: float | None = None
    absolute: float | None = None


class Session(msgspec.Struct, frozen=True, kw_only=True):
    """A session as it was at one moment; everything a list needs, nothing that grows with its history.

    `agent` is the one that was asked last.
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


class Resolved(msgspec.Struct, frozen=True, kw_only=True):
    """The session behind an address, and how it came to be there."""

    session: Session
    how: How
    generation: int


class SessionCursor(msgspec.Struct, frozen=True, kw_only=True):
    """Where a list of sessions goes on."""

    active_at: int
    id: SessionId


class SessionPage(msgspec.Struct, frozen=True, kw_only=True):
    """Some sessions, newest first, and where the next page starts."""

    sessions: tuple[Session, ...]
    next: SessionCursor | None


class SessionFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Which sessions a list shows; None means any."""

    state: SessionState | None = None
    tag: str | None = None
    family: str | None = None
    place: str | None = None
    agent: str | None = None
    pinned: bool | None = None
    archived: bool | None = None


class Filing(msgspec.Struct, frozen=True, kw_only=True):
    """What a person changes about a session at once; what is unset stays as it is."""

    title: str | msgspec.UnsetType | None = msgspec.UNSET
    pinned: bool | msgspec.UnsetType = msgspec.UNSET
    archived: bool | msgspec.UnsetType = msgspec.UNSET
    metadata: dict[str, str] | msgspec.UnsetType = msgspec.UNSET
    add_tags: tuple[str, ...] = ()
    remove_tags: tuple[str, ...] = ()


class Deleted(msgspec.Struct, frozen=True, kw_only=True):
    """What a deletion removed, and what stays because a surviving fork reads it."""

    messages: int
    turns: int
    events: int
    windows: int
    blobs: int
    kept_messages: int


class Forecast(msgspec.Struct, frozen=True, kw_only=True):
    """What a collection and a fold would do now: sessions to expire and to delete, uploads to drop, turns to fold."""

    expired: int = 0
    deleted: int = 0
    blobs: int = 0
    folded: int = 0


class Collected(msgspec.Struct, frozen=True, kw_only=True):
    """What a collection did: sessions found expired, sessions deleted, blobs and uploads dropped."""

    expired: int = 0
    deleted: int = 0
    messages: int = 0
    blobs: int = 0


class Tidied(msgspec.Struct, frozen=True, kw_only=True):
    """What upkeep did: what was collected, how many rows were folded away, how many messages were indexed."""

    collected: Collected
    folded: int
    indexed: int
