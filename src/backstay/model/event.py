"""Events: the numbered, durable entries in the log of a session."""

from typing import Literal, assert_never

import msgspec

from backstay.model.content import Body, Custom, Json, Part, Text, Thought, ToolCall, ToolResult, Usage
from backstay.model.ids import ScheduleId, SessionId, TurnId, WindowId
from backstay.model.message import Message
from backstay.model.session import TitleBy
from backstay.model.turn import Outcome
from backstay.model.window import WindowReason


class SessionCreated(
    msgspec.Struct, frozen=True, gc=False, tag_field="kind", tag="session_created", omit_defaults=True
):
    """The session was created; `source` is the session it was forked from."""

    source: SessionId | None = None


class SessionRenamed(msgspec.Struct, frozen=True, gc=False, tag_field="kind", tag="session_renamed"):
    """The title changed; `by` is whether a person or a titler set it."""

    title: str | None
    by: TitleBy


class SessionPinned(msgspec.Struct, frozen=True, gc=False, tag_field="kind", tag="session_pinned"):
    """The session was pinned or unpinned."""

    pinned: bool


class SessionArchived(msgspec.Struct, frozen=True, gc=False, tag_field="kind", tag="session_archived"):
    """The session was archived or restored."""

    archived: bool


class SessionTagged(msgspec.Struct, frozen=True, gc=False, tag_field="kind", tag="session_tagged"):
    """Tags were added or removed."""

    added: tuple[str, ...]
    removed: tuple[str, ...]


class SessionAnnotated(msgspec.Struct, frozen=True, gc=False, tag_field="kind", tag="session_annotated"):
    """A program replaced the session's metadata."""

    metadata: dict[str, str]


class SessionEndedEvent(msgspec.Struct, frozen=True, gc=False, tag_field="kind", tag="session_ended"):
    """The session was ended, permanently."""


class SessionExpiredEvent(msgspec.Struct, frozen=True, gc=False, tag_field="kind", tag="session_expired"):
    """The session's time to live ran out."""


class SessionDeleted(msgspec.Struct, frozen=True, gc=False, tag_field="kind", tag="session_deleted"):
    """The session was deleted. A follower receives no further event."""


class AddressPointed(msgspec.Struct, frozen=True, gc=False, tag_field="kind", tag="address_pointed"):
    """An address now points to this session."""

    address: str


class WindowOpened(msgspec.Struct, frozen=True, gc=False, tag_field="kind", tag="window_opened", omit_defaults=True):
    """The session reads another window now; `window` may be an earlier one after a redo.

    `parent` is the window that it succeeded, `reason` the operation, and `length` its number of messages.
    """

    window: WindowId
    parent: WindowId | None
    reason: WindowReason | Literal["redo"]
    length: int


class TurnSubmitted(msgspec.Struct, frozen=True, gc=False, tag_field="kind", tag="turn_submitted", omit_defaults=True):
    """A turn was queued.

    `parts` is its input, and `agent` the agent that answers. With `steer`, the input is for the running turn. A turn
    that starts at once has only `turn_started`.
    """

    agent: str | None
    parts: tuple[Part, ...]
    steer: bool = False


class TurnEdited(msgspec.Struct, frozen=True, gc=False, tag_field="kind", tag="turn_edited"):
    """The input of a waiting turn was changed to `parts`."""

    parts: tuple[Part, ...]


class TurnHeld(msgspec.Struct, frozen=True, gc=False, tag_field="kind", tag="turn_held"):
    """A waiting turn is held until its release: it was imported, or a chat gateway gathers its input."""


class TurnReleased(msgspec.Struct, frozen=True, gc=False, tag_field="kind", tag="turn_released"):
    """A held turn was released, by a person or by a chat gateway. It starts when it is next in the queue."""


class TurnsReordered(msgspec.Struct, frozen=True, gc=False, tag_field="kind", tag="turns_reordered"):
    """The waiting turns, in their new order."""

    turns: tuple[TurnId, ...]


class TurnStarted(msgspec.Struct, frozen=True, gc=False, tag_field="kind", tag="turn_started", omit_defaults=True):
    """The turn of this `agent` started, and its input is part of the window now.

    `message` is the input; it is loaded when the event is read.
    """

    agent: str | None
    message: Message | None = None


class TextDelta(msgspec.Struct, frozen=True, gc=False, tag_field="kind", tag="text_delta"):
    """More `text` of the agent."""

    text: str


class ThoughtDelta(msgspec.Struct, frozen=True, gc=False, tag_field="kind", tag="thought_delta"):
    """More `text` of the agent's reasoning."""

    text: str


class ToolCalled(msgspec.Struct, frozen=True, gc=False, tag_field="kind", tag="tool_called"):
    """The intent to run a tool, stored before the tool runs.

    `call` is the call, and `key` the idempotency key that the tool gets.
    """

    call: ToolCall
    key: str


class ToolReturned(msgspec.Struct, frozen=True, gc=False, tag_field="kind", tag="tool_returned"):
    """A tool returned its `result`."""

    result: ToolResult


class UsageReported(msgspec.Struct, frozen=True, gc=False, tag_field="kind", tag="usage_reported"):
    """The `usage` of the model calls so far: tokens and cost."""

    usage: Usage


class CustomReported(
    msgspec.Struct, frozen=True, gc=False, tag_field="kind", tag="custom_reported", omit_defaults=True
):
    """A custom body of the agent: its `data`, and its kind as `name`."""

    name: str
    data: Json = None


class SteeringTaken(msgspec.Struct, frozen=True, gc=False, tag_field="kind", tag="steering_taken"):
    """The running turn took the input of the waiting turn `steer`; `parts` is that input."""

    steer: TurnId
    parts: tuple[Part, ...]


class CancelRequested(msgspec.Struct, frozen=True, gc=False, tag_field="kind", tag="cancel_requested"):
    """A client asked to cancel the turn."""


class ApprovalDecided(
    msgspec.Struct, frozen=True, gc=False, tag_field="kind", tag="approval_decided", omit_defaults=True
):
    """A person `approved` or denied a tool `call`.

    With `run_again`, they allowed a call that may have run to run once more.
    """

    call: str
    approved: bool
    run_again: bool = False


class TurnEnded(msgspec.Struct, frozen=True, gc=False, tag_field="kind", tag="turn_ended", omit_defaults=True):
    """The turn ended with this `outcome`.

    `messages` is the number of messages that it added, and `may_have_run` names the tool calls of unknown effect.
    """

    outcome: Outcome
    messages: int = 0
    may_have_run: tuple[str, ...] = ()


class TurnContinued(msgspec.Struct, frozen=True, gc=False, tag_field="kind", tag="turn_continued"):
    """The interrupted turn is continued by another one; `by` is that turn, which starts with the next event."""

    by: TurnId


class TurnRecorded(msgspec.Struct, frozen=True, gc=False, tag_field="kind", tag="turn_recorded", omit_defaults=True):
    """Finished messages were added; they are loaded when the event is read."""

    messages: tuple[Message, ...] = ()


class TurnFolded(msgspec.Struct, frozen=True, gc=False, tag_field="kind", tag="turn_folded", omit_defaults=True):
    """Replaces the events `first` to `last` of an ended turn.

    With an `outcome` it replaces the whole turn of the `agent`, from its start to its end; `messages` begins with its
    input, and `may_have_run` names the tool calls of unknown effect. If events of others are between them, only runs of
    deltas are folded, and the last of these folds has the turn's messages.
    """

    first: int
    last: int
    agent: str | None = None
    outcome: Outcome | None = None
    may_have_run: tuple[str, ...] = ()
    messages: tuple[Message, ...] = ()


class TailLost(msgspec.Struct, frozen=True, gc=False, tag_field="kind", tag="tail_lost", omit_defaults=True):
    """Deltas that readers had seen were lost in a crash of the database; readers must read again.

    `rewritten`: the turn's worker still had them, and they follow under new numbers. Otherwise the output of the turn
    is incomplete, and the turn does not end `completed`.
    """

    rewritten: bool = False


class ScheduleFired(msgspec.Struct, frozen=True, gc=False, tag_field="kind", tag="schedule_fired", omit_defaults=True):
    """The turn was submitted by this `schedule`.

    `due` is the due time (None: a person asked for it now), `late` how many milliseconds after it this was, and
    `missed` the number of due times before it that were left out.
    """

    schedule: ScheduleId
    due: int | None = None
    late: int = 0
    missed: int = 0


class ScheduleMissed(
    msgspec.Struct, frozen=True, gc=False, tag_field="kind", tag="schedule_missed", omit_defaults=True
):
    """Nothing was sent at this `due` time of a `schedule`, nor at others: `missed` in all.

    The `decision`: the policy of the schedule left them out ("skipped"), a person decides about this one ("asked"), or
    sending "failed" for the `reason`.
    """

    schedule: ScheduleId
    due: int
    decision: Literal["skipped", "asked", "failed"]
    missed: int = 1
    reason: str = ""


EventBody = (
    SessionCreated
    | SessionRenamed
    | SessionPinned
    | SessionArchived
    | SessionTagged
    | SessionAnnotated
    | SessionEndedEvent
    | SessionExpiredEvent
    | SessionDeleted
    | AddressPointed
    | WindowOpened
    | TurnSubmitted
    | TurnEdited
    | TurnHeld
    | TurnReleased
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
    | TurnContinued
    | TurnRecorded
    | TurnFolded
    | TailLost
    | ScheduleFired
    | ScheduleMissed
)


class Cursor(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """A position in a session's event log.

    Attributes:
        fence: The fence under which the last event before it was written. It shows whether that event was lost.
        number: The number of that event; 0 at the beginning.
    """

    fence: int
    number: int


START = Cursor(fence=0, number=0)
# The fence of a cursor whose reader has seen no event yet, so none that could have been lost.
UNSEEN = -1


class Event(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """One event of a session.

    Attributes:
        session: The session.
        number: The number of the event; grows by one from event to event of a session.
        last: Equal to `number`; for a fold, the last number that it replaces.
        fence: The fence under which it was written.
        at: When it was written, in milliseconds since 1970 (UTC).
        turn: The turn that it belongs to.
        body: Its content; the type is the kind of the event.
    """

    session: SessionId
    number: int
    last: int
    fence: int
    at: int
    turn: TurnId | None
    body: EventBody

    @property
    def cursor(self) -> Cursor:
        """The cursor of a reader that has seen this event."""
        return Cursor(fence=self.fence, number=self.last)


class EventPage(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """Events after a cursor.

    Attributes:
        events: The events, in order.
        gap: None if the page continues exactly at the cursor. "snapshot": the cursor was inside deltas that are folded
            by now, and the page starts with the fold that contains it. "resync": events that the reader saw no longer
            exist (a lost tail, or a cursor of another store), and the page starts from the beginning.
        next: The cursor after the last event of the page.
        more: Whether there are further events already.
    """

    events: tuple[Event, ...]
    gap: Literal["snapshot", "resync"] | None
    next: Cursor
    more: bool


class FeedEvent(msgspec.Struct, frozen=True, kw_only=True):
    """An event in the feed of an owner, and its position there."""

    position: int
    event: Event


class FeedPage(msgspec.Struct, frozen=True, kw_only=True):
    """Events of all sessions of an owner after a position, in the order of their writing.

    Attributes:
        events: The events.
        next: The position after the last of them.
        more: Whether there are further events already.
    """

    events: tuple[FeedEvent, ...]
    next: int
    more: bool


def event_of(body: Body, key: str = "") -> EventBody:
    """The event for a streamed body; `key` is the idempotency key of a tool call."""
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
