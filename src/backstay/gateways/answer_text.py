"""The text that is sent for the end of a turn. It follows from the turn alone, so it is the same at every attempt."""

from backstay.model.content import text_of
from backstay.model.gateways.delivery import Ending
from backstay.model.turn import Cancelled, Completed, Failed, Interrupted

# What stands before a part that may have arrived already.
MARK = "↻ *sent again, the first one may have arrived*\n"


def answer_text(ending: Ending) -> str:
    """The text of an ended turn: what the agent wrote, and how the turn ended unless it was completed."""
    return "\n\n".join(filter(None, [*_written(ending), _note(ending)]))


def _written(ending: Ending) -> list[str]:
    return [text_of(message.parts).strip() for message in ending.messages if message.role == "assistant"]


def _note(ending: Ending) -> str:
    match ending.outcome:
        case Completed():
            # Somebody asked and waits. Messages that a program recorded were not asked for.
            return "" if ending.agent is None or any(_written(ending)) else "✓ done, without a text"
        case Cancelled():
            return "⏹ stopped"
        case Failed(reason=reason):
            return f"⚠️ failed: {reason}" if reason else "⚠️ failed"
        case Interrupted(waiting_for_approval=True):
            return "⏸ waiting for approval"
        case Interrupted(reason=reason):
            return f"⚠️ interrupted: {reason}"
