"""An event: one numbered, durable step of a session's story."""

from typing import Literal, assert_never

import msgspec

from backstay.model.content import Body, Custom, Json, Part, Text, Thought, ToolCall, ToolResult, Usage
from backstay.model.ids import SessionId, TurnId, WindowId
from backstay.model.message import Message
from backstay.model.session import TitleBy
from backstay.model.turn import Outcome
from backstay.model.window import WindowReason


class SessionCreated(
    msgspec.Struct, frozen=True, gc=False, tag_field="kind", tag="session_created", omit_defaults=True
):
    """The session begins; `source` is the session it was forked from."""

    source: SessionId | None = None


class SessionRenamed(msgspec.Struct, frozen=True, gc=False, tag_field="kind", tag="session_renamed"):
    """It has another title, given by a person or made up by a titler."""

    title: str | None
    by: TitleBy


class SessionPinned(msgspec.Struct, frozen=True, gc=False, tag_field="kind", tag="session_pinned"):
    """It was pinned, or is pinned no longer."""

    pinned: bool


class SessionArchived(msgspec.Struct, frozen=True, gc=False, tag_field="kind", tag="session_archived"):
    """It was put away, or brought back."""

    archived: bool


class SessionTagged(msgspec.Struct, frozen=True, gc=False, tag_field="kind", tag="session_tagged"):
    """Tags came and went."""

    added: tuple[str, ...]
    removed: tuple[str, ...]


class SessionAnnotated(msgspec.Struct, frozen=True, gc=False, tag_field="kind", tag="session_annotated"):
    """A program replaced its notes on the session."""

    metadata: dict[str, str]


class SessionEnded(msgspec.Struct, frozen=True, gc=False, tag_field="kind", tag="session_ended"):
    """It was ended, for good."""


class SessionExpired(msgspec.Struct, frozen=True, gc=False, tag_field="kind", tag="session_expired"):
    """Its time to live ran out."""


class SessionDeleted(msgspec.Struct, frozen=True, gc=False, tag_field="kind", tag="session_deleted"):
    """It is gone; the last thing that a follower hears."""


class AddressPointed(msgspec.Struct, frozen=True, gc=False, tag_field="kind", tag="address_pointed"):
    """An address leads here now."""

    address: str


class WindowOpened(msgspec.Struct, frozen=True, gc=False, tag_field="kind", tag="window_opened", omit_defaults=True):
    """The session reads another window now; `window` may be an earlier one, when a person redid what was undone."""

    window: WindowId
    parent: WindowId | None
    reason: WindowReason | Literal["redo"]
    length: int


class TurnSubmitted(msgspec.Struct, frozen=True, gc=False, tag_field="kind", tag="turn_submitted", omit_defaults=True):
    """A turn waits. One that starts at once has only `turn_started`."""

    agent: str | None
    parts: tuple[Part, ...]
    steer: bool = False


class TurnEdited(msgspec.Struct, frozen=True, gc=False, tag_field="kind", tag="turn_edited"):
    """The input of a waiting turn was changed."""

    parts: tuple[Part, ...]


class TurnsReordered(msgspec.Struct, frozen=True, gc=False, tag_field="kind", tag="turns_reordered"):
    """The turns that wait, in the order they will run now."""

    turns: tuple[TurnId, ...]


class TurnStarted(msgspec.Struct, frozen=True, gc=False, tag_field="kind", tag="turn_started", omit_defaults=True):
    """The turn's input entered the window; `message` is that input, looked up when the event is read."""

    agent: str | None
    message: Message | None = None


class TextDelta(msgspec.Struct, frozen=True, gc=False, tag_field="kind", tag="text_delta"):
    """The agent said some more."""

    text: str


class ThoughtDelta(msgspec.Struct, frozen=True, gc=False, tag_field="kind", tag="thought_delta"):
    """The agent thought some more."""

    text: str


class ToolCalled(msgspec.Struct, frozen=True, gc=False, tag_field="kind", tag="tool_called"):
    """The intent to run a tool, on disk before it runs; `key` is what the tool is handed."""

    call: ToolCall
    key: str


class ToolReturned(msgspec.Struct, frozen=True, gc=False, tag_field="kind", tag="tool_returned"):
    """A tool gave its result."""

    result: ToolResult


class UsageReported(msgspec.Struct, frozen=True, gc=False, tag_field="kind", tag="usage_reported"):
    """What the model read and wrote so far."""

    usage: Usage


class CustomReported(
    msgspec.Struct, frozen=True, gc=False, tag_field="kind", tag="custom_reported", omit_defaults=True
):
    """A body of the agent's own kind."""

    name: str
    data: Json = None


class SteeringTaken(msgspec.Struct, frozen=True, gc=False, tag_field="kind", tag="steering_taken"):
    """The running turn took this input of the waiting turn `steer`."""

    steer: TurnId
    parts: tuple[Part, ...]


class CancelRequested(msgspec.Struct, frozen=True, gc=False, tag_field="kind", tag="cancel_requested"):
    """Somebody asked that the turn stop."""


class ApprovalDecided(msgspec.Struct, frozen=True, gc=False, tag_field="kind", tag="approval_decided"):
    """A person allowed or refused a tool call."""

    call: str
    approved: bool


class TurnEnded(msgspec.Struct, frozen=True, gc=False, tag_field="kind", tag="turn_ended", omit_defaults=True):
    """How the turn ended; `may_have_run` names the tool calls whose effect nobody knows."""

    outcome: Outcome
    messages: int = 0
    may_have_run: tuple[str, ...] = ()


class TurnRecorded(msgspec.Struct, frozen=True, gc=False, tag_field="kind", tag="turn_recorded", omit_defaults=True):
    """Finished messages were added; they are looked up when the event is read."""

    messages: tuple[Message, ...] = ()


class TurnFolded(msgspec.Struct, frozen=True, gc=False, tag_field="kind", tag="turn_folded", omit_defaults=True):
    """Stands for events of an ended turn, numbers `first` to `last`.

    With an `outcome` it stands for the whole turn, from its start to its end, and `messages` begins with its input. If
    other events lay between, only runs of deltas are folded, and the last of these folds has what the turn said.
    """

    first: int
    last: int
    agent: str | None = None
    outcome: Outcome | None = None
    may_have_run: tuple[str, ...] = ()
    messages: tuple[Message, ...] = ()


class TailLost(msgspec.Struct, frozen=True, gc=False, tag_field="kind", tag="tail_lost"):
    """Deltas that had been seen did not survive a power loss; whoever saw them must read again."""


EventBody = (
    SessionCreated
    | SessionRenamed
    | SessionPinned
    | SessionArchived
    | SessionTagged
    | SessionAnnotated
    | SessionEnded
    | SessionExpired
    | SessionDeleted
    | AddressPointed
    | WindowOpened
    | TurnSubmitted
    | TurnEdited
    | TurnsReordered
    | TurnStarted
    | TextDelta
    | ThoughtDelta
    | ToolCalled
    | ToolReturned
    | UsageReported
    | CustomReported
    | SteeringTaken
    | CancelRequested
    | ApprovalDecided
    | TurnEnded
    | TurnRecorded
    | TurnFolded
    | TailLost
)


class Cursor(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """A place in a session's story: after the event with this number, written under this fence."""

    fence: int
    number: int


START = Cursor(fence=0, number=0)
# The fence of a cursor whose reader has seen nothing yet: there is nothing it could have to forget.
UNSEEN = -1


class Event(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """One step. `number` grows by one from event to event of a session; `last` is greater only for folded ones."""

    session: SessionId
    number: int
    last: int
    fence: int
    at: int
    turn: TurnId | None
    body: EventBody

    @property
    def cursor(self) -> Cursor:
        return Cursor(fence=self.fence, number=self.last)


class EventPage(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """Events after a cursor.

    `gap` is None when the page continues the cursor exactly. `snapshot`: the cursor pointed into deltas that are folded
    by now, so the page starts with the fold that contains it. `resync`: what the reader saw no longer exists (a lost
    tail, or a cursor of another store), so the page starts from the beginning.
    """

    events: tuple[Event, ...]
    gap: Literal["snapshot", "resync"] | None
    next: Cursor
    more: bool


class FeedEvent(msgspec.Struct, frozen=True, kw_only=True):
    """An event in the feed of all of an owner's sessions, and where it stands there."""

    position: int
    event: Event


class FeedPage(msgspec.Struct, frozen=True, kw_only=True):
    """Events of all of an owner's sessions after a position, in the order they were written."""

    events: tuple[FeedEvent, ...]
    next: int
    more: bool


def event_of(body: Body, key: str = "") -> EventBody:
    """The event that a streamed body becomes; `key` is the ledger's, for tool calls."""
    match body:
        case Text(text=text):
            return TextDelta(text)
        case Thought(text=text):
            return ThoughtDelta(text)
        case ToolCall():
            return ToolCalled(body, key)
        case ToolResult():
            return ToolReturned(body)
        case Usage():
            return UsageReported(body)
        case Custom(kind=kind, data=data):
            return CustomReported(kind, data)
        case _:
            assert_never(body)
