"""A turn: one run of an agent over one input. It waits, runs, and ends in one of four ways."""

from typing import Annotated, Final, Literal, TypedDict

import msgspec

from backstay.model.content import Part, Usage
from backstay.model.history.unsynced import SYNCED, Unsynced
from backstay.model.ids import MessageId, SessionId, TurnId, WindowId, WorkerId
from backstay.model.message import Message
from backstay.model.session import SessionInfo, Ttl
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


class SendOptions(TypedDict, total=False):
    """The options of `send`, which are the same for every handle, in this process and on a server.

    Attributes:
        agent: The agent that answers.
        request_id: Identifies the request among all requests of the owner.
        if_busy: The policy if a turn runs or waits in the session.
        expect_revision: The revision that the session must have.
        ttl: When the session expires.
        allow_unserved: Let the message wait for an agent that no process serves or has served.
    """

    agent: str | None
    request_id: str | None
    if_busy: IfBusy
    expect_revision: int | None
    ttl: Ttl | None
    allow_unserved: bool


SEND_DEFAULTS: Final[SendOptions] = {
    "agent": "default",
    "request_id": None,
    "if_busy": "enqueue",
    "expect_revision": None,
    "ttl": None,
    "allow_unserved": False,
}
# A handle of a session has an agent of its own.
SESSION_SEND_DEFAULTS: Final[SendOptions] = {**SEND_DEFAULTS, "agent": None}


class Completed(msgspec.Struct, frozen=True, omit_defaults=True, tag="completed"):
    """The agent finished.

    Attributes:
        reason: An optional note.
    """

    reason: str = ""


class Cancelled(msgspec.Struct, frozen=True, omit_defaults=True, tag="cancelled"):
    """A client asked to cancel the turn, and it stopped.

    Attributes:
        reason: Why, for people.
    """

    reason: str = ""


class Failed(msgspec.Struct, frozen=True, omit_defaults=True, tag="failed"):
    """The agent failed.

    Attributes:
        reason: What happened, for people.
        code: The kind of failure, for programs: the name of an error class in snake case, such as `input_refused` or
            `agent_timed_out`; `agent_raised` for any other exception of the agent.
        hint: What to do next; may be empty.
    """

    reason: str = ""
    code: str = "agent_failed"
    hint: str = ""


class Interrupted(msgspec.Struct, frozen=True, omit_defaults=True, tag="interrupted"):
    """The process died or was stopped.

    Attributes:
        reason: Why, for people.
        waiting_for_approval: Whether a tool call waited for a person at that moment. It still waits: the tool has not
            run, and the decision continues the turn.
    """

    reason: str = ""
    waiting_for_approval: bool = False


Outcome = Completed | Cancelled | Failed | Interrupted
OUTCOMES: dict[str, type[Outcome]] = {
    "completed": Completed,
    "cancelled": Cancelled,
    "failed": Failed,
    "interrupted": Interrupted,
}
# The provider refuses the input itself: the messages of such a turn are left out of the history that agents read.
REFUSALS = frozenset({"input_refused", "context_overflow"})


_WAITING_FOR_APPROVAL = "waiting_for_approval"


def outcome_of(name: str, reason: str, code: str, hint: str) -> Outcome:
    """The outcome with these stored values. A failure that was stored without a code gets the usual one."""
    match name:
        case "failed":
            return Failed(reason, code or Failed().code, hint)
        case "interrupted":
            return Interrupted(reason, waiting_for_approval=code == _WAITING_FOR_APPROVAL)
        case _:
            return OUTCOMES[name](reason)


def code_and_hint_of(outcome: Outcome | None) -> tuple[str, str]:
    """The code and the hint of an outcome, as they are stored."""
    match outcome:
        case Failed(code=code, hint=hint):
            return code, hint
        case Interrupted(waiting_for_approval=True):
            return _WAITING_FOR_APPROVAL, ""
        case _:
            return "", ""


class TurnInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A turn at one moment. Times are milliseconds since 1970 (UTC).

    Attributes:
        id: The id of the turn.
        session: Its session.
        root: The first of the turns that this one resumes; its own id if it resumes none.
        agent: The agent that answers; None for recorded messages.
        state: "waiting", "running" or "ended".
        outcome: How it ended; None before.
        steer: Whether its input is for a running turn.
        taken_by: The running turn that took it as steering.
        cancel_requested: Whether a client asked to cancel it.
        input: Its input while it waits; after that, the input is a message of the window.
        request_id: The id that the client gave to the request.
        usage: The tokens and cost of its model calls.
        created_at: When it was accepted.
        started_at: When it started.
        ended_at: When it ended.
        event: The number of the event of its acceptance; its events begin there.
        forgotten: Whether a client asked that it cannot be read by its id any more; its messages stay.
        held: Whether it was imported and waits until a person releases it.
        continued_by: The turn that continues this interrupted one; None if none does.
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
    continued_by: TurnId | None = None


class OpenTurn(msgspec.Struct, frozen=True, kw_only=True):
    """A running turn that its holder may write. Each write takes the last one and returns the next.

    Attributes:
        id: The id of the turn.
        session: Its session.
        owner: The owner of the session.
        agent: The agent that answers.
        root: The first of the turns that this one resumes.
        window: The current window.
        holder: The worker that runs it.
        fence: The fence of its lease; a write under an older one raises `LeaseLost`.
        found: The context number before the turn's own input. A live agent must know exactly this state.
        context: The current context number.
        event: The number of the last event that the holder wrote.
        lease_until: When the lease expires, on the boot clock of the holder's machine.
        input: The input message.
        unsynced: Output since the last synced write. If the database loses it in a crash, the next write stores it
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
    """A steering input that the running turn has just taken. The agent must act on it: no other turn will.

    Attributes:
        turn: The waiting turn that it was sent as.
        parts: Its content.
    """

    turn: TurnId
    parts: tuple[Part, ...]


class Checkpointed(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a checkpoint.

    Attributes:
        open: The open turn for the next write.
        inbox: The inbox.
        steering: The steering inputs that were taken.
        keys: The idempotency key of each stored call.
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
        turn: The turn.
        session: Its session after the submission.
        repeated: Whether this request was accepted before, and nothing was written.
        opened: The open turn, if it started at once in the submitting worker.
        forked_from: The busy session, if the turn went into a fork of it.
    """

    turn: TurnInfo
    session: SessionInfo
    repeated: bool = False
    opened: OpenTurn | None = None
    forked_from: SessionId | None = None


class Recorded(msgspec.Struct, frozen=True, kw_only=True):
    """Messages that are durable now.

    Attributes:
        turn: Its state is "waiting" if the messages were queued behind a running turn.
        session: Its session after the submission.
        messages: The ids of the messages.
        repeated: Whether this request was accepted before, and nothing was written.
    """

    turn: TurnInfo
    session: SessionInfo
    messages: tuple[MessageId, ...]
    repeated: bool = False


class Finished(msgspec.Struct, frozen=True, kw_only=True):
    """An ended turn, and the next one if it starts in the same transaction.

    Attributes:
        turn: The ended turn.
        event: The number of the session's last event.
        messages: The messages that it added.
        revision: The session's revision.
        window: The window right after the turn's own messages, before anything else.
        length: The number of messages at that moment.
        context: The context number at that moment.
        unbroken: Whether only this holder's own writes changed the context since the turn began.
        opened: The next turn, or the requested compaction, under the same lease.
        titled: Whether the session had a title at that moment.
    """

    turn: TurnInfo
    event: int
    messages: tuple[Message, ...]
    revision: int
    window: WindowId
    length: int
    context: int
    unbroken: bool
    opened: OpenTurn | None = None
    titled: bool = False


class Compacting(msgspec.Struct, frozen=True, kw_only=True):
    """A compaction that runs. `opened` is its open turn; None if another process compacts, in the given turn."""

    turn: TurnInfo
    opened: OpenTurn | None = None


class ToolCallRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One entry of the tool-effect ledger. Times are milliseconds since 1970 (UTC).

    Attributes:
        turn: The turn that made the call.
        root: The first of the turns that it resumes.
        ordinal: The number of the call, counted from 0 over all turns with this root.
        call: The id of the call within its turn.
        name: The tool.
        arguments_hash: The hash of the arguments; an approval is bound to it.
        approval: Whether a person was asked, and the decision.
        effect: "called" (no result yet), "returned", or "unknown" (it may have run).
        started_at: When the call was stored, just before its tool ran; with approval, when a person approved it. None
            if it never ran.
        ended_at: When its result was stored. None if the effect is unknown.
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
        window: The window of the compaction.
        won: False if there was nothing to do, or another process was first.
        revision: The session's revision.
        context: Its context number.
        length: The number of messages in the window.
        open: The next open turn, if a turn rotated its own session.
    """

    window: Window
    won: bool
    revision: int
    context: int
    length: int
    open: OpenTurn | None = None
