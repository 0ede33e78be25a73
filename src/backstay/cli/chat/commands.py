"""Commands: what a person can say to the chat itself, with a slash before it."""

import re

import msgspec

from backstay.errors import InvalidPayload


class Command(msgspec.Struct, frozen=True):
    """A command as people are told of it; `needs` says what must follow it, `takes` what may."""

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
    Command("undo", "take the last turn back"),
    Command("redo", "bring back what the last undo took"),
    Command("retry", "have the last message answered again"),
    Command("edit", "say something else in place of your last message", takes="WORDS"),
    Command("steer", "say something to the turn that runs, instead of waiting for its end", needs="WORDS"),
    Command("approve", "let the tool that asks run"),
    Command("deny", "refuse it"),
    Command("fork", "go on in a new session with the same past"),
    Command("new", "go on in a new, empty session", takes="TITLE"),
    Command("resume", "list the newest sessions, or go on in one of them", takes="NUMBER or ID"),
    Command("search", "search all your sessions", needs="WORDS"),
    Command("lineage", "draw the windows of this session as a tree"),
    Command("compact", "have the past summarised, above all what concerns WORDS", takes="WORDS"),
    Command("title", "show or set the title", takes="WORDS"),
    Command("export", "write the session to a file: .json whole, .md or .html to read", takes="FORMAT or PATH"),
    Command("help", "show this list"),
    Command("quit", "leave; so do Ctrl-D, and Ctrl-C twice"),
)
NAMES = tuple(f"/{command.name}" for command in COMMANDS)
_BY_NAME = {command.name: command for command in COMMANDS}


class Order(msgspec.Struct, frozen=True):
    """A command that was given, with what followed it."""

    name: str
    words: str = ""


def parse(line: str) -> Order | str:
    """The command in this line, or the words to say: `//` before words that begin with a slash."""
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
            f"there is no command /{name[:40]}", hint="/help lists them; // begins a message with a slash."
        )
    if command.needs and not words:
        raise InvalidPayload(f"/{command.name} needs something after it", hint=f"Write {command.usage}")
    if words and not (command.needs or command.takes):
        raise InvalidPayload(f"/{command.name} takes nothing after it", hint=f"To say it instead, write /{text}")
    return Order(command.name, words)


def help_lines() -> list[str]:
    """Every command, and the keys."""
    width = max(len(command.usage) for command in COMMANDS)
    keys = "Enter sends; while a turn runs, what you send waits for its end. Alt-Enter or Ctrl-J begins a new line."
    return [*(f"{command.usage:<{width}}  {command.meaning}" for command in COMMANDS), keys]
