"""Notices: the messages of a gateway itself in a chat, beside the answers of agents, and the buttons under them."""

from typing import Literal

import msgspec

from backstay.model.ids import NoticeId, SessionId, TurnId
from backstay.model.turn import Approval, IfBusy, TurnState

NoticeKind = Literal["reply", "busy", "approval", "task"]
NoticeState = Literal["waiting", "sending", "sent", "failed", "unknown"]
# The calls that a person may decide on: none, those of their own questions, also those of no person, or every call.
Rights = Literal["none", "own", "private", "all"]


class DecideCall(msgspec.Struct, frozen=True, tag="decide"):
    """Approve or deny the tool call that the notice is about."""

    approved: bool


class ShowSession(msgspec.Struct, frozen=True, tag="show_session"):
    """Let an address lead to a session, and show its answers in the chat; `done` is what the chat shows then."""

    address: str
    session: SessionId
    done: str


class ChooseAgent(msgspec.Struct, frozen=True, tag="choose_agent"):
    """Set the agent that answers in the chat; None: the one that was asked last."""

    agent: str | None
    done: str


class ChooseBusy(msgspec.Struct, frozen=True, tag="choose_busy"):
    """Set the policy for messages while a turn runs."""

    if_busy: IfBusy
    done: str


class WithdrawTurn(msgspec.Struct, frozen=True, tag="withdraw_turn"):
    """Withdraw the waiting turn that the notice is about."""


ButtonAction = DecideCall | ShowSession | ChooseAgent | ChooseBusy | WithdrawTurn


class NewButton(msgspec.Struct, frozen=True):
    """A new button: its label, and the action of a press."""

    label: str
    action: ButtonAction


class NoticeText(msgspec.Struct, frozen=True):
    """The Markdown text of a notice, and its rows of buttons."""

    text: str
    rows: tuple[tuple[NewButton, ...], ...] = ()


class StoredButton(msgspec.Struct, frozen=True):
    """A button under a notice: its secret id, and its label."""

    id: str
    label: str


class CallName(msgspec.Struct, frozen=True):
    """Names a tool call, whichever turn continues the one that made it; and the hash of the arguments."""

    root: TurnId
    ordinal: int
    arguments_hash: str


class NewNotice(msgspec.Struct, frozen=True, kw_only=True):
    """A notice to be.

    Attributes:
        name: Its subject: a notice of this name is added once.
        destination: Where it is shown.
        kind: A reply to a command, the state of a waiting message, a question for approval, or a task of the gateway.
        content: Its text and buttons.
        person: The platform's id of the person that it answers; None: no particular person.
        turn: The turn that it is about.
        call: The tool call that it asks about.
        phase: The state that its text shows.
        final: Whether it never changes again.
    """

    name: str
    destination: str
    kind: NoticeKind
    content: NoticeText
    person: str | None = None
    turn: TurnId | None = None
    call: CallName | None = None
    phase: str = ""
    final: bool = True


class Notice(msgspec.Struct, frozen=True, kw_only=True):
    """A notice, as it is stored.

    Attributes:
        id: Its id.
        name: Its subject.
        destination: Where it is shown.
        kind: Its kind, as in `NewNotice`.
        person: The person that it answers.
        turn: The turn that it is about.
        call: The tool call that it asks about.
        phase: The state that its text shows.
        text: Its text.
        rows: Its buttons.
        version: Grows with every change of text or buttons.
        shown: The version that the chat shows; 0: none.
        state: How far its first sending is.
        repeated: Whether it was sent again after an attempt whose result is unknown.
        platform_id: The platform's id of the message; None before it is known.
        final: Whether it never changes again: it is dropped once it is shown.
        at: When it was added, in milliseconds since 1970 (UTC).
    """

    id: NoticeId
    name: str
    destination: str
    kind: NoticeKind
    person: str | None
    turn: TurnId | None
    call: CallName | None
    phase: str
    text: str
    rows: tuple[tuple[StoredButton, ...], ...]
    version: int
    shown: int
    state: NoticeState
    repeated: bool
    platform_id: str | None
    final: bool
    at: int


class WatchedNotice(msgspec.Struct, frozen=True, kw_only=True):
    """A notice that may still change, with the state of its subject.

    Attributes:
        notice: The notice.
        turn_state: The state of its turn; None: the turn was deleted, or there is none.
        taken: Whether a running turn took its turn as steering.
        started: Whether its turn has started.
        outcome: How its turn ended.
        approval: The decision on its call; None: the call is gone.
        undecided: Whether the call still waits for a decision.
        decided_by: Who pressed its button: a name for people.
        decided_at: The time of the decision, in milliseconds since 1970 (UTC).
        now: When this was read.
    """

    notice: Notice
    turn_state: TurnState | None
    taken: bool
    started: bool
    outcome: str | None
    approval: Approval | None
    undecided: bool
    decided_by: str | None
    decided_at: int | None
    now: int


class OpenQuestion(msgspec.Struct, frozen=True, kw_only=True):
    """A tool call that waits for a decision, and a chat that was not asked yet.

    Attributes:
        destination: The chat.
        session: The session.
        title: The title of the session.
        turn: The turn that waits.
        call: The name of the call.
        tool: The tool.
        arguments: Its arguments, as JSON.
        person: The person whose message the turn answers; None: it came from elsewhere.
    """

    destination: str
    session: SessionId
    title: str | None
    turn: TurnId
    call: CallName
    tool: str
    arguments: str
    person: str | None


class Press(msgspec.Struct, frozen=True, kw_only=True):
    """A press of a button.

    Attributes:
        id: The platform's id of the press: it is received once.
        button: The claimed id of the button.
        message: The platform's id of the message under which it was.
        sender: The platform's id of the person.
        name: The name of the person, for other people.
        rights: The calls that the person may decide on.
    """

    id: str
    button: str
    message: str | None
    sender: str
    name: str
    rights: Rights


PressResult = Literal["done", "used", "foreign", "unknown"]


class Pressed(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a press: it was "done", the button was "used" before, is for others ("foreign"), or "unknown"."""

    result: PressResult
    action: ButtonAction | None = None
    by: str | None = None


class ChatSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of one chat; None: those of the gateway."""

    agent: str | None = None
    if_busy: IfBusy | None = None


def may_decide(rights: Rights, sender: str, asker: str | None) -> bool:
    """Whether a person may decide on a call of a turn that answers this person, or no person of the platform."""
    if rights == "all":
        return True
    if asker is None:
        return rights == "private"
    return rights in ("own", "private") and sender == asker
