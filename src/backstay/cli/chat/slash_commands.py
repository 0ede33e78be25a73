"""The slash commands of the chat."""

import re

import msgspec

from backstay.errors import InvalidPayload


class Command(msgspec.Struct, frozen=True):
    """A command with its help text; `needs` names a required argument, `takes` an optional one."""

    name: str
    meaning: str
    needs: str = ""
    takes: str = ""

    @property
    def usage(self) -> str:
        return " ".join(
            [f"/{self.name}", *([self.needs] if self.needs else []), *([f"[{self.takes}]"] if self.takes else [])]
        )


COMMANDS = (
    Command("undo", "undo the last turn"),
    Command("redo", "restore the turn that the last undo removed"),
    Command("retry", "run the last message again"),
    Command("edit", "replace your last message", takes="WORDS"),
    Command("steer", "send a message to the running turn, instead of waiting for its end", needs="WORDS"),
    Command("attach", "send a file with your next message", needs="PATH"),
    Command("detach", "send no files with your next message"),
    Command("approve", "allow the tool call that needs approval"),
    Command("deny", "reject it"),
    Command("rerun", "allow a tool that may have run before an interruption to run again"),
    Command("continue", "continue the interrupted turn; tools that returned are not run again"),
    Command("fork", "continue in a new session with the same history"),
    Command("new", "continue in a new, empty session", takes="TITLE"),
    Command("resume", "list the newest sessions, or continue one of them", takes="NUMBER or ID"),
    Command("search", "search all your sessions", needs="WORDS"),
    Command("lineage", "draw the windows of this session as a tree"),
    Command("compact", "summarise the older messages, with a focus on WORDS", takes="WORDS"),
    Command("remind", "send TEXT at a time, or again and again: /remind day 9:00: Stand up!", needs="WHEN: TEXT"),
    Command("title", "show or set the title", takes="WORDS"),
    Command("export", "write the session to a file: .jsonl complete, .md or .html to read", takes="FORMAT or PATH"),
    Command("help", "show this list"),
    Command("quit", "exit; Ctrl-D, or Ctrl-C twice, do the same"),
)
NAMES = tuple(f"/{command.name}" for command in COMMANDS)
_BY_NAME = {command.name: command for command in COMMANDS}


class ParsedCommand(msgspec.Struct, frozen=True):
    """A command that was entered, with its argument."""

    name: str
    words: str = ""


def parse(line: str) -> ParsedCommand | str:
    """Return the command in this line, or the text to send. `//` escapes a text that begins with a slash.

    Raises:
        InvalidPayload: The command does not exist, lacks its argument, or takes none.
    """
    text = line.strip()
    if text.startswith("//"):
        return text[1:]
    if not text.startswith("/"):
        return line
    name, *rest = re.split(r"\s+", text[1:], maxsplit=1)
    words = "".join(rest)
    command = _BY_NAME.get(name.lower())
    if command is None:
        raise InvalidPayload(
            f"there is no command /{name[:40]}", hint="/help lists the commands; // starts a message with a slash."
        )
    if command.needs and not words:
        raise InvalidPayload(f"/{command.name} needs an argument", hint=f"Write {command.usage}")
    if words and not (command.needs or command.takes):
        raise InvalidPayload(f"/{command.name} takes no argument", hint=f"To send it as a message, write /{text}")
    return ParsedCommand(command.name, words)


def help_lines() -> list[str]:
    """Return the help text: every command, and the keys."""
    width = max(len(command.usage) for command in COMMANDS)
    keys = "Enter sends; while a turn runs, the message waits for its end. Alt-Enter or Ctrl-J starts a new line."
    return [*(f"{command.usage:<{width}}  {command.meaning}" for command in COMMANDS), keys]
