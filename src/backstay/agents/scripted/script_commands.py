"""The commands of the scripted agent, one per line of the input."""

import re
from collections.abc import Callable, Iterator

import msgspec

from backstay.model.content import Json


class Echo(msgspec.Struct, frozen=True):
    """Not a command: text to repeat."""

    text: str


class Think(msgspec.Struct, frozen=True):
    text: str


class Use(msgspec.Struct, frozen=True):
    """Call the tool of this name. `text` is the JSON of the arguments, if they were given as such."""

    tool: str
    arguments: dict[str, Json] = {}
    text: str | None = None


class Pay(msgspec.Struct, frozen=True):
    """Call the payment tool; with `crash`, kill the process inside it."""

    amount: int
    crash: bool = False


class Slow(msgspec.Struct, frozen=True):
    pieces: int


class Long(msgspec.Struct, frozen=True):
    kilobytes: int


class Fail(msgspec.Struct, frozen=True):
    reason: str


class Crash(msgspec.Struct, frozen=True):
    pass


class Count(msgspec.Struct, frozen=True):
    """Report the usage of the turn."""


class Help(msgspec.Struct, frozen=True):
    pass


Command = Echo | Think | Use | Pay | Slow | Long | Fail | Crash | Count | Help

CommandParser = Callable[[re.Match[str]], Command | None]


class CommandHelp(msgspec.Struct, frozen=True):
    """One command: its help text and its parser."""

    spelling: str
    meaning: str
    pattern: str
    make: CommandParser


def _use(match: re.Match[str]) -> Use | None:
    """Return None if the rest of the line is not a JSON object: then the line is a sentence, not a command."""
    try:
        return Use(match[1], msgspec.json.decode(match[2] or "{}", type=dict[str, Json]), match[2])
    except msgspec.DecodeError:
        return None


ENTRIES = (
    CommandHelp("think WORDS", "stream these words as a thought, then answer", r"think\s+(.+)", lambda m: Think(m[1])),
    CommandHelp("tool NAME {JSON}", "call a tool, such as: tool clock", r"tool\s+(\S+)(?:\s+(\S.*))?", _use),
    CommandHelp("calc 2+3*4", "work out arithmetic", r"calc\s+(.+)", lambda m: Use("calculator", {"expression": m[1]})),
    CommandHelp("search WORDS", "search your own sessions", r"search\s+(.+)", lambda m: Use("search", {"query": m[1]})),
    CommandHelp(
        "ask QUESTION",
        "call a tool that waits for your approval",
        r"ask(?:\s+(.+))?",
        lambda m: Use("confirm", {"question": m[1] or "May I?"}),
    ),
    CommandHelp("pay N", "call a tool that must not run twice", r"pay\s+(\d{1,9})", lambda m: Pay(int(m[1]))),
    CommandHelp(
        "pay N crash",
        "the same, but kill the process inside the tool, if that is allowed",
        r"pay\s+(\d{1,9})\s+crash",
        lambda m: Pay(int(m[1]), True),
    ),
    CommandHelp("slow N", "answer in N pieces with pauses", r"slow\s+(\d{1,4})", lambda m: Slow(int(m[1]))),
    CommandHelp("long N", "answer with N KB", r"long\s+(\d{1,5})", lambda m: Long(int(m[1]))),
    CommandHelp("usage", "report the usage of this turn", r"usage", lambda _: Count()),
    CommandHelp(
        "fail REASON", "fail with this reason", r"fail(?:\s+(.+))?", lambda m: Fail(m[1] or "you asked for it")
    ),
    CommandHelp("crash", "kill this process, if that is allowed", r"crash", lambda _: Crash()),
    CommandHelp("help", "show this list", r"help|\?", lambda _: Help()),
)

# A Markdown list: clients would join plain lines.
HELP = "\n".join(f"- `{entry.spelling}`: {entry.meaning}" for entry in ENTRIES) + "\n"


def parse(text: str) -> tuple[Command, ...]:
    """Return the commands in this text, one per line, with or without a slash. Adjacent other lines are one echo."""
    return tuple(_merged(_read(line) for line in text.splitlines() if line.strip())) or (Echo(text),)


def _read(line: str) -> Command:
    words = line.strip()
    for entry in ENTRIES:
        match = re.fullmatch(entry.pattern, words.removeprefix("/"), re.IGNORECASE)
        command = entry.make(match) if match else None
        if command is not None:
            return command
    return Echo(words)


def _merged(commands: Iterator[Command]) -> Iterator[Command]:
    echo: Echo | None = None
    for command in commands:
        if isinstance(command, Echo):
            echo = Echo(f"{echo.text}\n{command.text}" if echo else command.text)
            continue
        if echo:
            yield echo
        echo = None
        yield command
    if echo:
        yield echo
