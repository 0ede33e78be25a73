"""The answer that is sent for the end of a turn. It follows from the turn alone, so every attempt sends the same."""

from collections import Counter
from typing import NamedTuple

from backstay.gateways.outbox.text_limits import next_cut
from backstay.model.content import Attachment, Part, Text, ToolCall, ToolResult, attachments_in, text_of
from backstay.model.gateways.delivery import Ending
from backstay.model.turn import Cancelled, Completed, Failed, Interrupted, Outcome

# The line before a part that may have arrived already.
MARK = "↻ *sent again, the first one may have arrived*\n"
CONTINUED = "⚠️ interrupted, and continued below"
# A line that names more tools would not be compact.
_MOST_TOOLS = 6
_LONGEST_TOOL = 40


class ChatAnswer(NamedTuple):
    """A text, and files that follow it. Its positions are the characters of the text, and then one for each file."""

    text: str
    files: tuple[Attachment, ...] = ()

    @property
    def end(self) -> int:
        """The position after the last one."""
        return len(self.text) + len(self.files)

    def file_at(self, position: int) -> Attachment | None:
        """The file at a position; None: it is in the text."""
        return self.files[position - len(self.text)] if position >= len(self.text) else None

    def next_cut(self, start: int, limit: int) -> int:
        """Where the message that begins at `start` ends. A text has at most `limit` UTF-16 units, a file is alone."""
        return next_cut(self.text, start, limit) if start < len(self.text) else start + 1


def is_broken_off(outcome: Outcome | None) -> bool:
    """Whether a process died or was stopped. The turn may be continued."""
    return isinstance(outcome, Interrupted) and not outcome.waiting_for_approval


def has_content(ending: Ending) -> bool:
    """Whether the turn added more than its end: a text, a file or a tool call."""
    return any(
        isinstance(part, Attachment | ToolCall) or (isinstance(part, Text) and part.text.strip())
        for message in ending.messages
        for part in message.parts
    )


def answer_of(ending: Ending, most_file_bytes: int, *, continued: bool = False) -> ChatAnswer:
    """The answer that is sent for an ended turn.

    Args:
        ending: The end of the turn.
        most_file_bytes: The size of the largest file that can be sent. Others are named.
        continued: Whether the interrupted turn was continued, and that answer follows.

    Returns:
        The text of the agent, the outcome of the turn unless it was completed, its tools, and its files.
    """
    said = [message for message in ending.messages if message.role in ("assistant", "tool")]
    parts = [part for message in said for part in message.parts]
    # A tool may return a file that the agent then attaches: people see it once.
    files = {(file.blob, file.name): file for file in attachments_in(parts)}.values()
    written = [text for message in said if message.role == "assistant" and (text := text_of(message.parts).strip())]
    large = [_too_large(file) for file in files if file.size > most_file_bytes]
    # An empty file is not accepted by chat platforms.
    sent = tuple(file for file in files if 0 < file.size <= most_file_bytes)
    note = CONTINUED if continued else _note(ending, shows=bool(written or files))
    return ChatAnswer("\n\n".join(filter(None, [*written, *large, note, tool_line(parts)])), sent)


def tool_line(parts: list[Part]) -> str:
    """The tool calls among these parts as one line; empty if there are none."""
    names = Counter(part.name for part in parts if isinstance(part, ToolCall))
    if not names:
        return ""
    shown = [f"`{tool_name(name)}`" + (f" ×{count}" if count > 1 else "") for name, count in names.items()]
    more = len(shown) - _MOST_TOOLS
    line = "⚙️ " + ", ".join(shown[:_MOST_TOOLS]) + (f" and {more} more" if more > 0 else "")
    failed = sum(part.error for part in parts if isinstance(part, ToolResult))
    return f"{line} · {failed} failed" if failed else line


def tool_name(name: str) -> str:
    """The name of a tool, short and without what would end its formatting."""
    plain = " ".join(name.replace("`", "'").split())
    return plain if len(plain) <= _LONGEST_TOOL else plain[: _LONGEST_TOOL - 1] + "…"


def _too_large(file: Attachment) -> str:
    size = f"{file.size / 1_000_000:.0f} MB" if file.size >= 1_000_000 else f"{file.size} bytes"
    return f"📎 `{tool_name(file.name)}` ({size}) is too large for this chat. It is in the session."


def _note(ending: Ending, *, shows: bool) -> str:
    match ending.outcome:
        case Completed():
            # A person waits for this answer, but not for messages that a program recorded.
            return "" if ending.agent is None or shows else "✓ done, without a text"
        case Cancelled():
            return "⏹ stopped"
        case Failed(reason=reason):
            return f"⚠️ failed: {reason}" if reason else "⚠️ failed"
        case Interrupted(waiting_for_approval=True):
            return "⏸ waiting for approval"
        case Interrupted(reason=reason):
            return f"⚠️ interrupted: {reason}"
