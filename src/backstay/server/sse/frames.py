"""The frames of the event stream as types, for the OpenAPI document: each is one server-sent event, `data` as JSON."""

from typing import Literal

import msgspec

from backstay.model.event import Event
from backstay.model.ids import SessionId
from backstay.model.session import SessionInfo
from backstay.server.sse.session_list import SessionList


class StreamGap(msgspec.Struct, frozen=True, kw_only=True):
    """The client must read the session again: `seen` is the number of the last event that it has."""

    session: SessionId
    seen: int


class SnapshotData(msgspec.Struct, frozen=True, kw_only=True):
    """The first page of the session list in `feed`; or the session whose events were folded, as in `StreamGap`."""

    feed: SessionList | None = None
    session: SessionId | None = None
    seen: int | None = None


class UnlistedSession(msgspec.Struct, frozen=True, kw_only=True):
    """A session that is no longer in the list."""

    id: SessionId


class EventFrame(msgspec.Struct, frozen=True, kw_only=True):
    """A stored event. `id` is the position after it: the `Last-Event-ID` of a client that resumes."""

    event: Literal["event"]
    id: str
    data: Event


class ListedFrame(msgspec.Struct, frozen=True, kw_only=True):
    """A session of the list, as it is now."""

    event: Literal["listed"]
    id: str
    data: SessionInfo


class UnlistedFrame(msgspec.Struct, frozen=True, kw_only=True):
    """A session left the list."""

    event: Literal["unlisted"]
    id: str
    data: UnlistedSession


class SnapshotFrame(msgspec.Struct, frozen=True, kw_only=True):
    """The list from its beginning; or, without an id, events that were folded, which the next frames repeat."""

    event: Literal["snapshot"]
    data: SnapshotData
    id: str | None = None


class ResyncFrame(msgspec.Struct, frozen=True, kw_only=True):
    """Events that the client has seen no longer exist."""

    event: Literal["resync"]
    data: StreamGap


FRAMES = (EventFrame, ListedFrame, UnlistedFrame, SnapshotFrame, ResyncFrame)
