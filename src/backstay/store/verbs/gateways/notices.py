"""Notices: messages of the gateway itself. Each is sent under a receipt, and edited while it changes.

A press of a button is received like a message: once, in one transaction with its action and with the cursor.
"""

import os
from collections.abc import Callable
from typing import NamedTuple

import msgspec

from backstay.errors import Conflict, NotFound, NothingToDo
from backstay.model.addresses.address import Address
from backstay.model.codec import check_name, check_text
from backstay.model.content import ToolCall
from backstay.model.event import ToolCalled
from backstay.model.gateways.delivery import PartDeferred, PartRefused, PartResult, PartSent, PartUncertain
from backstay.model.gateways.gateway import OpenGateway
from backstay.model.gateways.notice import (
    ButtonAction,
    CallName,
    ChatSettings,
    ChooseAgent,
    ChooseBusy,
    DecideCall,
    NewNotice,
    Notice,
    NoticeKind,
    NoticeState,
    NoticeText,
    OpenQuestion,
    Press,
    Pressed,
    ShowSession,
    StoredButton,
    WatchedNotice,
    WithdrawTurn,
    may_decide,
)
from backstay.model.ids import NoticeId, SessionId, TurnId
from backstay.model.turn import Approval, TurnState
from backstay.store.engine import Transaction
from backstay.store.rows import Rows, value
from backstay.store.session_row import find
from backstay.store.verbs.gateways import chats, gateway_row
from backstay.store.verbs.history import window_segments
from backstay.store.verbs.turns import approvals, event_log, messages, turn_queue
from backstay.store.verbs.turns.turn_row import find as find_turn

# The call of a question is searched in so many of the last messages, if the events of its turn are folded.
_MOST_MESSAGES = 1_000
_BUTTON_BYTES = 16


class _Shown(msgspec.Struct):
    """The text and the buttons of a notice, as they are stored."""

    text: str
    rows: tuple[tuple[StoredButton, ...], ...] = ()


class NoticeRow(msgspec.Struct):
    """The row of a notice."""

    id: NoticeId
    name: str
    destination: str
    kind: NoticeKind
    person: str | None
    turn: TurnId | None
    root: TurnId | None
    ordinal: int | None
    arguments_hash: str | None
    phase: str
    content: str
    version: int
    shown: int
    state: NoticeState
    repeated: int
    platform_id: str | None
    final: int
    at: int

    @property
    def call(self) -> CallName | None:
        """The tool call that it asks about."""
        if self.root is None or self.ordinal is None or self.arguments_hash is None:
            return None
        return CallName(self.root, self.ordinal, self.arguments_hash)

    def value(self) -> Notice:
        """The notice as a caller sees it."""
        content = msgspec.json.decode(self.content, type=_Shown)
        return Notice(
            id=self.id,
            name=self.name,
            destination=self.destination,
            kind=self.kind,
            person=self.person,
            turn=self.turn,
            call=self.call,
            phase=self.phase,
            text=content.text,
            rows=content.rows,
            version=self.version,
            shown=self.shown,
            state=self.state,
            repeated=self.repeated == 1,
            platform_id=self.platform_id,
            final=self.final == 1,
            at=self.at,
        )


class _WatchedRow(NoticeRow, kw_only=True):
    """The row of a notice, with the state of its subject."""

    turn_state: TurnState | None
    taken_by: TurnId | None
    started_at: int | None
    outcome: str | None
    approval: Approval | None
    undecided: int
    used_by: str | None
    decided_at: int | None


class _ButtonRow(NamedTuple):
    """A button, and the press that was used of its notice."""

    id: str
    notice: NoticeId
    action: str
    used_in: str | None
    used_by: str | None


class _CallToAsk(NamedTuple):
    """A call of a session that waits for a decision."""

    turn: TurnId
    root: TurnId
    ordinal: int
    call: str
    arguments_hash: str
    tool: str
    request_id: str | None


class _UnaskedCall(NamedTuple):
    """A call that waits for a decision, and a chat that was not asked."""

    destination: str
    session: SessionId
    title: str | None
    turn: TurnId
    root: TurnId
    ordinal: int
    call: str
    arguments_hash: str
    tool: str
    request_id: str | None


class _LedgerPlace(NamedTuple):
    """The turn that a call belongs to now, and its id there."""

    turn: TurnId
    call: str


_NOTICE = Rows("notice", NoticeRow)
_NAMED = Rows("notice_named", NoticeRow)
_DUE = Rows("due_notices", NoticeRow)
_LIST = Rows("newest_notice_of", NoticeRow)
_WATCHED = Rows("watched_notices", _WatchedRow)
_BUTTON = Rows("button", _ButtonRow)
_UNASKED = Rows("unasked_calls", _UnaskedCall)
_UNDECIDED = Rows("undecided_in", _CallToAsk)
_PLACE = Rows("place_of_call", _LedgerPlace)
_to_action: Callable[[str], ButtonAction] = msgspec.json.Decoder(ButtonAction).decode
_encode = msgspec.json.Encoder().encode


# --- notices --------------------------------------------------------------------------------------------------------


def add(tx: Transaction, proof: OpenGateway, new: NewNotice) -> Notice:
    """Add a notice, unless there is one of its name. A new list with buttons replaces the list before it."""
    gateway_row.lock(tx, proof)
    check_name("the destination", new.destination, tx.limits.name_bytes)
    found = _NAMED.one(tx, owner=proof.owner, gateway=proof.name, name=new.name, destination=new.destination)
    if found is not None:
        return found.value()
    if new.kind == "reply" and not new.final:
        _retire_list(tx, proof, new.destination)
    name = tx.ids.notice()
    tx.run(
        "add_notice",
        notice=name,
        owner=proof.owner,
        gateway=proof.name,
        name=check_name("the name of a notice", new.name, tx.limits.name_bytes),
        destination=new.destination,
        kind=new.kind,
        person=new.person,
        turn=new.turn,
        root=None if new.call is None else new.call.root,
        ordinal=None if new.call is None else new.call.ordinal,
        arguments_hash=None if new.call is None else new.call.arguments_hash,
        phase=new.phase,
        content=_encode(_Shown("")).decode(),
        final=int(new.final),
        now=tx.now,
    )
    row = _locked(tx, proof, name)
    row.content = _content(tx, row, new.content)
    _write(tx, row, found_version=row.version)
    return row.value()


def ask(tx: Transaction, proof: OpenGateway, new: NewNotice) -> Notice | None:
    """Add a question for approval, if its call still waits with these arguments."""
    gateway_row.lock(tx, proof)
    if new.call is None or new.turn is None:
        return None
    session = find_turn(tx, new.turn, proof.owner).session
    waiting = _UNDECIDED.all(tx, session=session, owner=proof.owner)
    if new.call not in [CallName(call.root, call.ordinal, call.arguments_hash) for call in waiting]:
        return None
    return add(tx, proof, new)


def revise(
    tx: Transaction, proof: OpenGateway, notice: NoticeId, content: NoticeText, phase: str, *, final: bool
) -> Notice | None:
    """Change the text of a notice. None: it is gone, and nothing is left to show."""
    gateway_row.lock(tx, proof)
    row = _NOTICE.one(tx, notice=notice, owner=proof.owner, gateway=proof.name)
    if row is None:
        return None
    return _revise(tx, row, content, phase, final=final)


def begin(tx: Transaction, proof: OpenGateway, notice: NoticeId) -> Notice | None:
    """Store that a notice is being sent for the first time, before it is. None: there is nothing to send."""
    gateway_row.lock(tx, proof)
    row = _NOTICE.one(tx, notice=notice, owner=proof.owner, gateway=proof.name)
    if row is None or row.state in ("sent", "failed", "sending"):
        return None
    if row.kind == "busy" and row.state == "unknown":
        # It may stand there already, and says nothing that the answer does not show.
        drop(tx, row.id)
        return None
    if row.final and not row.shown and row.kind == "busy":
        drop(tx, row.id)
        return None
    row.repeated = int(row.repeated or row.state == "unknown")
    row.state = "sending"
    _write(tx, row, found_version=row.version)
    return row.value()


def finish(tx: Transaction, proof: OpenGateway, sent: Notice, result: PartResult, max_age: int) -> Notice | None:
    """Store the result of a sending or an edit. None: the notice was dropped, because nothing is left to show."""
    gateway_row.lock(tx, proof)
    row, version = _NOTICE.one(tx, notice=sent.id, owner=proof.owner, gateway=proof.name), sent.version
    if row is None:
        return None
    late = tx.now - row.at >= max_age
    match result:
        case PartSent(platform_id):
            if row.platform_id is None:
                row.state, row.platform_id = "sent", check_text("the platform's id", platform_id, tx.limits.name_bytes)
            row.shown = max(row.shown, version)
        case PartRefused():
            # A message that a person deleted cannot be edited, and is not sent again.
            row.state, row.shown = ("sent" if row.platform_id else "failed"), version
        case PartDeferred() | PartUncertain():
            if row.platform_id is None:
                row.state = "failed" if late else "waiting" if isinstance(result, PartDeferred) else "unknown"
            elif late:
                row.shown = version
    if row.final and (row.shown >= row.version or row.state == "failed"):
        drop(tx, row.id)
        return None
    _write(tx, row, found_version=row.version)
    return row.value()


def due(tx: Transaction, owner: str, gateway: str, after: str, limit: int) -> tuple[Notice, ...]:
    """The notices whose latest version the chats do not show yet."""
    return tuple(row.value() for row in _DUE.all(tx, owner=owner, gateway=gateway, after=after, limit=limit))


def watched(tx: Transaction, owner: str, gateway: str) -> tuple[WatchedNotice, ...]:
    """The notices that may still change, with the state of their subjects."""
    return tuple(
        WatchedNotice(
            notice=row.value(),
            turn_state=row.turn_state,
            taken=row.taken_by is not None,
            started=row.started_at is not None,
            outcome=row.outcome,
            approval=row.approval,
            undecided=row.undecided == 1,
            decided_by=row.used_by,
            decided_at=row.decided_at,
            now=tx.now,
        )
        for row in _WATCHED.all(tx, owner=owner, gateway=gateway)
    )


def drop(tx: Transaction, notice: NoticeId) -> None:
    """Drop a notice, and its buttons with it."""
    tx.run("drop_buttons", notice=notice)
    tx.run("drop_notice", notice=notice)


def _retire_list(tx: Transaction, proof: OpenGateway, destination: str) -> None:
    row = _LIST.one(tx, owner=proof.owner, gateway=proof.name, destination=destination)
    if row is not None:
        _revise(tx, row, NoticeText(row.value().text), row.phase, final=True)


def _revise(tx: Transaction, row: NoticeRow, content: NoticeText, phase: str, *, final: bool) -> Notice:
    found = row.version
    row.content, row.phase, row.final, row.version = _content(tx, row, content), phase, int(final), found + 1
    _write(tx, row, found_version=found)
    return row.value()


def _content(tx: Transaction, row: NoticeRow, content: NoticeText) -> str:
    """The stored form of a text with buttons. Buttons of an earlier text stay valid until the notice is dropped."""
    rows = tuple(tuple(_button(tx, row.id, new.label, new.action) for new in line) for line in content.rows)
    text = check_text("the text of a notice", content.text, tx.limits.message_bytes)
    return _encode(_Shown(text, rows)).decode()


def _button(tx: Transaction, notice: NoticeId, label: str, action: ButtonAction) -> StoredButton:
    # The id is all that a press proves, so it is random, unlike the ids of the store.
    button = StoredButton(os.urandom(_BUTTON_BYTES).hex(), label)
    tx.run("add_button", id=button.id, notice=notice, action=_encode(action).decode())
    return button


def _write(tx: Transaction, row: NoticeRow, *, found_version: int) -> None:
    tx.run_guarded(
        "write_notice",
        notice=row.id,
        phase=row.phase,
        content=row.content,
        version=row.version,
        shown=row.shown,
        state=row.state,
        repeated=row.repeated,
        platform_id=row.platform_id,
        final=row.final,
        found_version=found_version,
    )


def _locked(tx: Transaction, proof: OpenGateway, notice: NoticeId) -> NoticeRow:
    row = _NOTICE.one(tx, notice=notice, owner=proof.owner, gateway=proof.name)
    if row is None:
        raise NotFound(f"no notice {notice} of {proof.owner!r}")
    return row


# --- questions ------------------------------------------------------------------------------------------------------


def unasked(tx: Transaction, owner: str, gateway: str, limit: int) -> tuple[OpenQuestion, ...]:
    """The calls that wait for a decision, for each chat that shows their session and was not asked."""
    return tuple(
        OpenQuestion(
            destination=row.destination,
            session=row.session,
            title=row.title,
            turn=row.turn,
            call=CallName(row.root, row.ordinal, row.arguments_hash),
            tool=row.tool,
            arguments=_arguments_of(tx, owner, row.session, row.turn, row.call),
            person=asker_of(tx, owner, gateway, row.request_id),
        )
        for row in _UNASKED.all(tx, owner=owner, gateway=gateway, limit=limit)
    )


def undecided(tx: Transaction, owner: str, gateway: str, session: SessionId) -> tuple[OpenQuestion, ...]:
    """The calls of a session that wait for a decision."""
    title = find(tx, session, owner).title
    return tuple(
        OpenQuestion(
            destination="",
            session=session,
            title=title,
            turn=row.turn,
            call=CallName(row.root, row.ordinal, row.arguments_hash),
            tool=row.tool,
            arguments=_arguments_of(tx, owner, session, row.turn, row.call),
            person=asker_of(tx, owner, gateway, row.request_id),
        )
        for row in _UNDECIDED.all(tx, session=session, owner=owner)
    )


def decide(tx: Transaction, proof: OpenGateway, call: CallName, *, approved: bool) -> None:
    """DecideCall on a call, with the arguments that were shown."""
    gateway_row.lock(tx, proof)
    place = _PLACE.one(tx, root=call.root, ordinal=call.ordinal)
    if place is None:
        raise NothingToDo("this tool call is gone")
    approvals.decide(tx, place.turn, place.call, proof.owner, approved=approved, arguments_hash=call.arguments_hash)


def asker_of(tx: Transaction, owner: str, gateway: str, request_id: str | None) -> str | None:
    """The person whose message became the turn of a request; None: it did not come through this gateway."""
    if request_id is None or not request_id.startswith(f"{gateway}/"):
        return None
    arrival = request_id.removeprefix(f"{gateway}/")
    found: str | None = value(tx, "sender_of_arrival", owner=owner, gateway=gateway, id=arrival)
    return found


def _arguments_of(tx: Transaction, owner: str, session: SessionId, turn: TurnId, call: str) -> str:
    """The arguments of a call, as JSON: from the events of its turn, or from its messages if they are folded."""
    row = find_turn(tx, turn, owner)
    for body in event_log.of_turn(tx, session, turn, row.first_event or row.event):
        if isinstance(body, ToolCalled) and body.call.id == call:
            return _encode(body.call.arguments).decode()
    session_row = find(tx, session, owner)
    for segment in reversed(window_segments.segments(tx, session_row.window, session_row.length)):
        for message in messages.read_back(tx, segment, limit=_MOST_MESSAGES):
            for part in message.parts:
                if message.turn == turn and isinstance(part, ToolCall) and part.id == call:
                    return _encode(part.arguments).decode()
    return '"(the arguments are shown in the session)"'


# --- presses --------------------------------------------------------------------------------------------------------


def press(tx: Transaction, proof: OpenGateway, made: Press, cursor: str) -> Pressed:
    """Store a press with the cursor, and execute the action of its button once, if the person may."""
    gateway = gateway_row.lock(tx, proof)
    gateway.cursor, gateway.received_at = check_text("the cursor", cursor, tx.limits.name_bytes), tx.now
    gateway_row.write(tx, gateway)
    name = f"press/{check_name('the id of a press', made.id, tx.limits.name_bytes)}"
    button = _BUTTON.one(tx, id=made.button, owner=proof.owner, gateway=proof.name) if made.button else None
    if value(tx, "knows_arrival", owner=proof.owner, gateway=proof.name, id=name):
        return _seen_before(button, made)
    tx.run(
        "add_arrival",
        owner=proof.owner,
        gateway=proof.name,
        id=name,
        turn=None,
        gathering=None,
        place=0,
        parts=0,
        files=None,
        now=tx.now,
        sender=made.sender,
    )
    if button is None:
        return Pressed(result="unknown")
    notice = _locked(tx, proof, button.notice)
    action = _to_action(button.action)
    if not _is_there(notice, made):
        return Pressed(result="unknown")
    if button.used_in is not None or notice.final:
        return Pressed(result="used", action=action, by=button.used_by)
    if not _may(notice, action, made):
        return Pressed(result="foreign", action=action)
    _act(tx, proof, notice, action)
    tx.run("use_button", id=button.id, used_in=made.id, used_by=made.name, now=tx.now)
    return Pressed(result="done", action=action, by=made.name)


def _seen_before(button: _ButtonRow | None, made: Press) -> Pressed:
    """The same press again: its answer was perhaps not sent."""
    if button is None:
        return Pressed(result="unknown")
    done = button.used_in == made.id
    return Pressed(result="done" if done else "used", action=_to_action(button.action), by=button.used_by)


def _is_there(notice: NoticeRow, made: Press) -> bool:
    """Whether the button was under this message. The id of a message is unknown until its receipt is stored."""
    return notice.platform_id in (None, made.message) or notice.repeated == 1


def _may(notice: NoticeRow, action: ButtonAction, made: Press) -> bool:
    if made.rights == "all":
        return True
    if not isinstance(action, DecideCall):
        return notice.person == made.sender
    return may_decide(made.rights, made.sender, notice.person)


def _act(tx: Transaction, proof: OpenGateway, notice: NoticeRow, action: ButtonAction) -> None:
    match action:
        case DecideCall(approved=approved) if notice.call is not None:
            # What the chat shows then follows from the decision, wherever it is made.
            decide(tx, proof, notice.call, approved=approved)
        case WithdrawTurn() if notice.turn is not None:
            turn_queue.withdraw(tx, notice.turn, proof.owner)
        case ShowSession(address=address, session=session):
            chats.show_session(tx, proof, Address.parse(address), notice.destination, session)
            _revise(tx, notice, NoticeText(action.done), "done", final=True)
        case ChooseAgent() | ChooseBusy():
            known = chats.settings(tx, proof.owner, proof.name, notice.destination)
            chats.choose(tx, proof, notice.destination, _with(known, action))
            _revise(tx, notice, NoticeText(action.done), "done", final=True)
        case _:
            raise Conflict(f"notice {notice.id} is not about a call or a turn")


def _with(known: ChatSettings, action: ChooseAgent | ChooseBusy) -> ChatSettings:
    if isinstance(action, ChooseAgent):
        return ChatSettings(agent=action.agent, if_busy=known.if_busy)
    return ChatSettings(agent=known.agent, if_busy=action.if_busy)
