"""The texts of notices, each from the state that it shows. The same state has the same text."""

from datetime import UTC, datetime

import msgspec

from backstay.errors import BackstayError
from backstay.gateways.platform import IncomingMessage
from backstay.model.gateways.notice import (
    DecideCall,
    NewButton,
    NewNotice,
    Notice,
    NoticeText,
    OpenQuestion,
    WatchedNotice,
    WithdrawTurn,
)
from backstay.model.turn import Accepted, IfBusy

_LONGEST_ARGUMENTS = 2_500
_WAITING = {
    "enqueue": "⏳ waiting for the running answer",
    "steer": "⏳ waiting for the running answer to take this",
    "replace": "⏳ stopping the running answer for this",
}
_WITHDRAW = ((NewButton("✖ Withdraw", WithdrawTurn()),),)


class NextPhase(msgspec.Struct, frozen=True):
    """The state that a notice should show now."""

    name: str
    content: NoticeText
    final: bool


def reply(message: IncomingMessage, content: NoticeText) -> NewNotice:
    """A reply to a message. A list of buttons stays until one is pressed."""
    return NewNotice(
        name=f"reply {message.id}",
        destination=message.place.destination,
        kind="reply",
        content=content,
        person=message.sender,
        final=not content.rows,
    )


def task_notice(message: IncomingMessage, text: str) -> NewNotice:
    """The state of work that the gateway itself does for a message."""
    return NewNotice(
        name=f"task {message.id}",
        destination=message.place.destination,
        kind="task",
        content=NoticeText(text),
        person=message.sender,
        phase="begun",
        final=False,
    )


def problem_text(error: BackstayError) -> str:
    """One line for what is wrong, and one for what to do next."""
    return f"⚠️ {error.args[0]}" + (f"\n{error.hint}" if error.hint else "")


# --- waiting messages -----------------------------------------------------------------------------------------------


def acknowledgement(message: IncomingMessage, if_busy: IfBusy, accepted: Accepted) -> NewNotice | None:
    """The notice about a message to a busy session; None: its turn is next, and needs no notice."""
    turn, session = accepted.turn, accepted.session
    if accepted.forked_from is not None:
        here = f"⑂ A copy of the session answers this.\n/here {session.id[-6:]} continues the copy in this chat."
        return reply(message, NoticeText(here))
    if session.running in (None, turn.id) and session.waiting <= 1:
        return None
    return NewNotice(
        name=f"busy {message.id}",
        destination=message.place.destination,
        kind="busy",
        content=NoticeText(_WAITING.get(if_busy, _WAITING["enqueue"]), _WITHDRAW),
        person=message.sender,
        turn=turn.id,
        phase="waiting",
        final=False,
    )


def _phase_of_turn(watched: WatchedNotice) -> NextPhase:
    if watched.turn_state is None:
        return NextPhase("gone", NoticeText("✖ the session was deleted"), final=True)
    if watched.taken:
        return NextPhase("taken", NoticeText("↪ taken by the running answer"), final=True)
    if watched.turn_state == "waiting":
        return NextPhase("waiting", NoticeText(watched.notice.text), final=False)
    if watched.turn_state == "running":
        return NextPhase("running", NoticeText("▶ being answered now"), final=False)
    if not watched.started:
        return NextPhase("withdrawn", NoticeText("✖ withdrawn"), final=True)
    return NextPhase("answered", NoticeText("✓ answered" if watched.outcome == "completed" else "■ ended"), final=True)


# --- approvals ------------------------------------------------------------------------------------------------------


def question(open_question: OpenQuestion) -> NewNotice:
    """The question for approval of a tool call, with its arguments as a person reads them."""
    buttons = ((NewButton("✅ Approve", DecideCall(True)), NewButton("🚫 Deny", DecideCall(False))),)
    title = f" in **{_one_line(open_question.title)}**" if open_question.title else ""
    head = f"🔐 `{_one_line(open_question.tool)}` needs approval{title}"
    return NewNotice(
        name=f"call {open_question.call.root}.{open_question.call.ordinal}",
        destination=open_question.destination,
        kind="approval",
        content=NoticeText(f"{head}\n{readable_arguments(open_question.arguments)}", buttons),
        person=open_question.person,
        turn=open_question.turn,
        call=open_question.call,
        phase="asked",
        final=False,
    )


def readable_arguments(arguments: str) -> str:
    """Arguments as a person reads them: one line for each, texts as they are; shortened, and it says so."""
    value = msgspec.json.decode(arguments)
    if isinstance(value, dict):
        text = "\n".join(f"{name}: {_shown(inner)}" for name, inner in value.items())
    else:
        text = _shown(value)
    left = len(text) - _LONGEST_ARGUMENTS
    more = f"\n… and {left:,} more characters: the session shows all" if left > 0 else ""
    text = text[:_LONGEST_ARGUMENTS]
    fence = "```"
    while fence in text:
        fence += "`"
    return f"{fence}\n{text or '(no arguments)'}\n{fence}{more}"


def _shown(value: object) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _phase_of_call(watched: WatchedNotice) -> NextPhase:
    notice = watched.notice
    if watched.undecided:
        return NextPhase("asked", NoticeText(notice.text), final=False)
    if watched.approval in ("approved", "denied"):
        sign = "✅ approved" if watched.approval == "approved" else "🚫 denied"
        who = f"by {_one_line(watched.decided_by)}" if watched.decided_by else "on another surface"
        ended = f"{sign} {who}, {_moment(watched.decided_at or watched.now)}"
    elif watched.approval is None:
        ended = "✖ the session was deleted"
    else:
        ended = f"■ no longer needed: the turn has ended, {_moment(watched.now)}"
    return NextPhase(watched.approval or "gone", NoticeText(f"{notice.text}\n{ended}"), final=True)


def next_phase(watched: WatchedNotice, *, working: bool) -> NextPhase | None:
    """What a notice should say now; None: what it says. `working` is whether this process does its task."""
    match watched.notice.kind:
        case "busy":
            phase = _phase_of_turn(watched)
        case "approval":
            phase = _phase_of_call(watched)
        case "task" if not working:
            text = "⚠️ The gateway stopped before this was done. Send the command again."
            phase = NextPhase("stopped", NoticeText(text), final=True)
        case _:
            return None
    return None if phase.name == watched.notice.phase else phase


def marked(notice: Notice) -> str:
    """The text of a notice as it is sent: with a mark if it may stand there already."""
    mark = "↻ *sent again, the first one may have arrived*\n" if notice.repeated else ""
    return mark + notice.text


def _one_line(text: str) -> str:
    return " ".join(text.replace("`", "'").replace("*", "").split())[:80]


def _moment(at: int) -> str:
    return f"{datetime.fromtimestamp(at / 1000, UTC):%Y-%m-%d %H:%M} UTC"
