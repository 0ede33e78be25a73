"""A turn: one run of an agent over one input. It waits, runs, and ends in one of four ways."""

from typing import Annotated, Literal

import msgspec

from backstay.model.content import Part, Usage
from backstay.model.history.unsynced import SYNCED, Unsynced
from backstay.model.ids import MessageId, SessionId, TurnId, WindowId, WorkerId
from backstay.model.message import Message
from backstay.model.session import SessionInfo
from backstay.model.window import Window

TurnState = Literal["waiting", "running", "ended"]
IfBusy = Literal["enqueue", "reject", "steer", "replace", "fork"]
Approval = Literal["none", "asked", "approved", "denied"]
# Milliseconds since 1970 (UTC).
Moment = Annotated[int, msgspec.Meta(ge=0, le=1 << 52)]
Effect = Literal["called", "returned", "unknown"]
RunAgain = Literal["none", "approved", "used"]

# Turns that run next have a queue position below this number; all others have one above.
BACK_OF_QUEUE = 1 << 40
# A compaction is a turn of its own with this agent name: it holds the lease, can be cancelled, and ends once.
COMPACTOR = "backstay.compactor"


class Completed(msgspec.Struct, frozen=True, omit_defaults=True, tag="completed"):
    """The agent finished; `reason` is an optional note."""

    reason: str = ""


class Cancelled(msgspec.Struct, frozen=True, omit_defaults=True, tag="cancelled"):
    """A client asked to cancel the turn."""

    reason: str = ""


class Failed(msgspec.Struct, frozen=True, omit_defaults=True, tag="failed"):
    """The agent failed, for this `reason`."""

    reason: str = ""


class Interrupted(msgspec.Struct, frozen=True, omit_defaults=True, tag="interrupted"):
    """The process died or was stopped; see `reason`."""

    reason: str = ""


Outcome = Completed | Cancelled | Failed | Interrupted
OUTCOMES: dict[str, type[Outcome]] = {
    "completed": Completed,
    "cancelled": Cancelled,
    "failed": Failed,
    "interrupted": Interrupted,
}


class TurnInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A turn at one moment. Times are milliseconds since 1970 (UTC).

    Attributes:
        id: the id of the turn.
        session: its session.
        root: the first of the turns that this one resumes; its own id if it resumes none.
        agent: the agent that answers; None for recorded messages.
        state: "waiting", "running" or "ended".
        outcome: how it ended; None before.
        steer: whether its input is for a running turn.
        taken_by: the running turn that took it as steering.
        cancel_requested: whether a client asked to cancel it.
        input: its input while it waits; after that, the input is a message of the window.
        request_id: the id that the client gave to the request.
        usage: the tokens and cost of its model calls.
        created_at: when it was accepted.
        started_at: when it started.
        ended_at: when it ended.
        event: the number of the event of its acceptance; its events begin there.
        forgotten: whether a client asked that it cannot be read by its id any more; its messages stay.
        held: whether it was imported and waits until a person releases it.
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
    held: bool = False


class OpenTurn(msgspec.Struct, frozen=True, kw_only=True):
    """A running turn that its holder may write. Each write takes the last one and returns the next.

    Attributes:
        id: the id of the turn.
        session: its session.
        owner: the owner of the session.
        agent: the agent that answers.
        root: the first of the turns that this one resumes.
        window: the current window.
        holder: the worker that runs it.
        fence: the fence of its lease; a write under an older one raises `LeaseLost`.
        found: the context number before the turn's own input. A live agent must know exactly this state.
        context: the current context number.
        event: the number of the last event that the holder wrote.
        lease_until: when the lease expires, on the boot clock of the holder's machine.
        input: the input message.
        unsynced: output since the last synced write. If the database loses it in a crash, the next write stores it
            again.
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
    unsynced: Unsynced = SYNCED


class Inbox(msgspec.Struct, frozen=True, kw_only=True):
    """The inbox of a running turn's holder: whether to cancel, and how many steering inputs and turns wait."""

    cancel: bool
    steering: int
    waiting: int


class Steering(msgspec.Struct, frozen=True, kw_only=True):
    """A steering input that the running turn has just taken; the agent must be shown it."""

    turn: TurnId
    parts: tuple[Part, ...]


class Checkpointed(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a checkpoint.

    Attributes:
        open: the open turn for the next write.
        inbox: the inbox.
        steering: the steering inputs that were taken.
        keys: the idempotency key of each stored call.
    """

    open: OpenTurn
    inbox: Inbox
    steering: tuple[Steering, ...] = ()
    keys: dict[str, str] = {}


class Renewed(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a lease renewal: the open turn with its longer lease, and the inbox."""

    open: OpenTurn
    inbox: Inbox


class Accepted(msgspec.Struct, frozen=True, kw_only=True):
    """A submission that is durable now.

    Attributes:
        turn: the turn.
        session: its session after the submission.
        repeated: whether this request was accepted before, and nothing was written.
        opened: the open turn, if it started at once in the submitting worker.
        forked_from: the busy session, if the turn went into a fork of it.
    """

    turn: TurnInfo
    session: SessionInfo
    repeated: bool = False
    opened: OpenTurn | None = None
    forked_from: SessionId | None = None


class Recorded(msgspec.Struct, frozen=True, kw_only=True):
    """Messages that are durable now.

    Attributes:
        turn: its state is "waiting" if the messages were queued behind a running turn.
        session: its session after the submission.
        messages: the ids of the messages.
        repeated: whether this request was accepted before, and nothing was written.
    """

    turn: TurnInfo
    session: SessionInfo
    messages: tuple[MessageId, ...]
    repeated: bool = False


class Finished(msgspec.Struct, frozen=True, kw_only=True):
    """An ended turn, and the next one if it starts in the same transaction.

    Attributes:
        turn: the ended turn.
        event: the number of the session's last event.
        messages: the ids of the messages that it added.
        revision: the session's revision.
        window: the window right after the turn's own messages, before anything else.
        length: the number of messages at that moment.
        context: the context number at that moment.
        unbroken: whether only this holder's own writes changed the context since the turn began.
        opened: the next turn, or the requested compaction, under the same lease.
    """

    turn: TurnInfo
    event: int
    messages: tuple[MessageId, ...]
    revision: int
    window: WindowId
    length: int
    context: int
    unbroken: bool
    opened: OpenTurn | None = None


class Compacting(msgspec.Struct, frozen=True, kw_only=True):
    """A compaction that runs. `opened` is its open turn; None if another process compacts, in the given turn."""

    turn: TurnInfo
    opened: OpenTurn | None = None


class ToolCallRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One entry of the tool-effect ledger. Times are milliseconds since 1970 (UTC).

    Attributes:
        turn: the turn that made the call.
        root: the first of the turns that it resumes.
        ordinal: the number of the call, counted from 0 over all turns with this root.
        call: the id of the call within its turn.
        name: the tool.
        arguments_hash: the hash of the arguments; an approval is bound to it.
        approval: whether a person was asked, and the decision.
        effect: "called" (no result yet), "returned", or "unknown" (it may have run).
        started_at: when the call was stored, just before its tool ran; with approval, when a person approved it. None
            if it never ran.
        ended_at: when its result was stored. None if the effect is unknown.
        run_again: "approved" once a person lets a call of unknown effect run again, and "used" once it did.
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
    run_again: RunAgain = "none"

    @property
    def key(self) -> str:
        """The idempotency key: the same for the same call, however often its turn is resumed."""
        return f"{self.root}.{self.ordinal}"


class Rotated(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a rotation.

    Attributes:
        window: the window of the compaction.
        won: False if there was nothing to do, or another process was first.
        revision: the session's revision.
        context: its context number.
        length: the number of messages in the window.
        open: the next open turn, if a turn rotated its own session.
    """

    window: Window
    won: bool
    revision: int
    context: int
    length: int
    open: OpenTurn | None = None
