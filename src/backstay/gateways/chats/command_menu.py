"""The commands of a chat: a message that begins with a slash."""

import re

import msgspec

from backstay.gateways.platform import OfferedCommand
from backstay.model.turn import IfBusy


class ChatCommand(msgspec.Struct, frozen=True):
    """A command with its meaning; `takes` names its argument."""

    name: str
    meaning: str
    takes: str = ""


MENU = (
    ChatCommand("new", "begin a new session in this chat"),
    ChatCommand("sessions", "list the sessions, with buttons"),
    ChatCommand("resume", "continue an interrupted answer, or another session", "SESSION"),
    ChatCommand("here", "continue a session in this chat", "SESSION"),
    ChatCommand("mirror", "show the answers of another session here, too", "SESSION or off"),
    ChatCommand("stop", "stop the answer that is being written"),
    ChatCommand("undo", "take the last message and its answer back"),
    ChatCommand("redo", "bring them back"),
    ChatCommand("retry", "answer the last message again"),
    ChatCommand("fork", "continue in a copy of the session; with TEXT, only for this message", "TEXT"),
    ChatCommand("compact", "summarise the older messages", "FOCUS"),
    ChatCommand("status", "show what runs and waits"),
    ChatCommand("agent", "choose the agent of this chat", "NAME"),
    ChatCommand("busy", "choose what happens to messages while an answer is written", "queue, steer, replace or fork"),
    ChatCommand("approve", "approve the tool call that waits"),
    ChatCommand("deny", "deny it"),
    ChatCommand("queue", "send TEXT behind the running answer", "TEXT"),
    ChatCommand("steer", "send TEXT to the running answer", "TEXT"),
    ChatCommand("replace", "stop the running answer, and answer TEXT instead", "TEXT"),
    ChatCommand("help", "show this list"),
)
# The words of people for what happens to a message while a turn runs.
BUSY_WORDS: dict[str, IfBusy] = {"queue": "enqueue", "steer": "steer", "replace": "replace", "fork": "fork"}
BUSY_MEANINGS: dict[IfBusy, str] = {
    "enqueue": "Messages wait for the end of the running answer.",
    "steer": "Messages go to the running answer, if its agent takes them.",
    "replace": "A message stops the running answer.",
    "fork": "A message to a busy session is answered in a copy of it.",
}

_COMMAND = re.compile(r"/([A-Za-z][A-Za-z_]{0,31})(?:@\w+)?(?:\s+(.*))?", re.DOTALL)


class ParsedMessage(msgspec.Struct, frozen=True):
    """A message: a command with its argument, or a text with what happens to it while a turn runs."""

    text: str
    command: str | None = None
    if_busy: IfBusy | None = None


def parse_message(text: str) -> ParsedMessage:
    """Read a message. `//` begins a text with a slash; a path such as `/etc/hosts` is a text, too."""
    if text.startswith("//"):
        return ParsedMessage(text[1:])
    found = _COMMAND.fullmatch(text)
    if found is None:
        return ParsedMessage(text)
    name, words = found[1].lower(), (found[2] or "").strip()
    if name in BUSY_WORDS and words:
        return ParsedMessage(words, if_busy=BUSY_WORDS[name])
    return ParsedMessage(words, command="help" if name == "start" else name)


def offered() -> tuple[OfferedCommand, ...]:
    """The commands as the platform's menu shows them."""
    return tuple(OfferedCommand(name=command.name, meaning=command.meaning) for command in MENU)


def help_text() -> str:
    """All commands, and how a message is sent."""
    lines = [f"/{command.name}{f' {command.takes}' if command.takes else ''}: {command.meaning}" for command in MENU]
    return "\n".join(
        [
            "Write to me, and the agent answers. Commands:",
            *lines,
            "SESSION is its number in /sessions, or letters from the beginning or the end of its id.",
            "A message that begins with // is sent with one slash.",
        ]
    )
