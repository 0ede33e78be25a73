"""A turn: one run of an agent over one input. It waits, runs, and ends in one of four ways."""

from typing import Annotated, Literal

import msgspec

from backstay.model.content import Part, Usage
from backstay.model.ids import MessageId, SessionId, TurnId, WindowId, WorkerId
from backstay.model.message import Message
from backstay.model.session import Session
from backstay.model.window import Window

TurnState = Literal["waiting", "running", "ended"]
IfBusy = Literal["enqueue", "reject", "steer", "replace", "fork"]
Approval = Literal["none", "asked", "approved", "denied"]
# Milliseconds since 1970 (UTC).
Moment = Annotated[int, msgspec.Meta(ge=0, le=1 << 52)]
Effect = Literal["called", "returned", "unknown"]

# Turns that run next have a place in the queue below this; all others wait behind it.
BEHIND = 1 << 40
# A compaction runs as a turn of its own, under this agent's name: it holds the lease, can be cancelled, and ends once.
COMPACTOR = "backstay.compactor"


class Completed(msgspec.Struct, frozen=True, omit_defaults=True, tag="completed"):
    """The agent said all it had to say."""

    reason: str = ""


class Cancelled(msgspec.Struct, frozen=True, omit_defaults=True, tag="cancelled"):
    """Somebody asked for it to stop."""

    reason: str = ""


class Failed(msgspec.Struct, frozen=True, omit_defaults=True, tag="failed"):
    """The agent failed, for this reason."""

    reason: str = ""


class Interrupted(msgspec.Struct, frozen=True, omit_defaults=True, tag="interrupted"):
    """Its process died or was stopped."""

    reason: str = ""


Outcome = Completed | Cancelled | Failed | Interrupted
OUTCOMES: dict[str, type[Outcome]] = {
    "completed": Completed,
    "cancelled": Cancelled,
    "failed": Failed,
    "interrupted": Interrupted,
}


class Turn(msgspec.Struct, frozen=True, kw_only=True):
    """A turn as it was at one moment. `input` is the turn's own while it waits; then it is a message of the window.

    `event` is the number of the event that told of its acceptance: its story begins there.
    """

    id: TurnId
    session: SessionId
    root: TurnId
    agent: str | None
    state: TurnState
    outcome: Outcome | None
    steer: bool
    taken_by: TurnId | None
    cancel_requested: bool
    input: tuple[Part, ...] | None
    request_id: str | None
    usage: Usage
    created_at: int
    started_at: int | None
    ended_at: int | None
    event: int
    forgotten: bool = False


class OpenTurn(msgspec.Struct, frozen=True, kw_only=True):
    """A turn that its holder may write: the proof it shows with every write.

    `found` is the context number that the session had before the turn's own input: what a live agent must know.
    """

    id: TurnId
    session: SessionId
    owner: str
    agent: str | None
    root: TurnId
    window: WindowId
    holder: WorkerId
    fence: int
    found: int
    context: int
    event: int
    lease_until: int
    input: Message


class Mail(msgspec.Struct, frozen=True, kw_only=True):
    """What waits for the holder of a running turn."""

    cancel: bool
    steering: int
    waiting: int


class Steering(msgspec.Struct, frozen=True, kw_only=True):
    """A steering input that the running turn has just taken; the agent must be shown it."""

    turn: TurnId
    parts: tuple[Part, ...]


class Checkpointed(msgspec.Struct, frozen=True, kw_only=True):
    """A checkpoint's answer: the proof to show next time, mail, what was taken from it, and the keys of its calls."""

    open: OpenTurn
    mail: Mail
    steering: tuple[Steering, ...] = ()
    keys: dict[str, str] = {}


class Renewed(msgspec.Struct, frozen=True, kw_only=True):
    """A renewal's answer: the proof with its longer lease, and mail."""

    open: OpenTurn
    mail: Mail


class Accepted(msgspec.Struct, frozen=True, kw_only=True):
    """A submission that is durable now.

    `repeated` says that this request was accepted before and nothing was written; `opened` is the proof when the
    turn started at once for the submitting holder; `forked_from` names the busy session it was kept out of.
    """

    turn: Turn
    session: Session
    repeated: bool = False
    opened: OpenTurn | None = None
    forked_from: SessionId | None = None


class Recorded(msgspec.Struct, frozen=True, kw_only=True):
    """Messages that are durable now. `turn.state` is waiting if they were queued behind a running turn."""

    turn: Turn
    session: Session
    messages: tuple[MessageId, ...]
    repeated: bool = False


class Finished(msgspec.Struct, frozen=True, kw_only=True):
    """An ended turn. `opened` is the next one, or the compaction that was asked for, under the same lease.

    `window`, `length` and `context` are what the session had right after the turn's own messages, before anything else.
    `unbroken` says that nothing but this holder's own writes changed the context since the turn began; `event` is the
    number of the session's last event.
    """

    turn: Turn
    event: int
    messages: tuple[MessageId, ...]
    revision: int
    window: WindowId
    length: int
    context: int
    unbroken: bool
    opened: OpenTurn | None = None


class Compacting(msgspec.Struct, frozen=True, kw_only=True):
    """A compaction under way. `opened` is its proof; None if somebody else compacts, whose turn it then is."""

    turn: Turn
    opened: OpenTurn | None = None


class Call(msgspec.Struct, frozen=True, kw_only=True):
    """One line of the tool-effect ledger. `key` is the same for the same call however often its turn is resumed.

    `started_at` is when the call was written down, just before its tool ran; if it asked, when a person allowed it.
    `ended_at` is when its result was written down. What never ran has no start, and what is unknown no end.
    """

    turn: TurnId
    root: TurnId
    ordinal: int
    call: str
    name: str
    arguments_hash: str
    approval: Approval
    effect: Effect
    started_at: Moment | None = None
    ended_at: Moment | None = None

    @property
    def key(self) -> str:
        return f"{self.root}.{self.ordinal}"


class Rotated(msgspec.Struct, frozen=True, kw_only=True):
    """The window a compaction led to. `won` is false when there was nothing to do, or another was first.

    `open` is the new proof of a turn that rotated its own session.
    """

    window: Window
    won: bool
    revision: int
    context: int
    length: int
    open: OpenTurn | None = None
