"""The code blocks of a page: content, language, and the reason if it is not run.

What stands behind the language is the name of the file that it is.
`<!-- not run: why -->` above a block marks it. If the reason names commands in backquotes, only those are not run.
"""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
PAGES = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", *ROOT.glob("docs/**/*.md")])

_FENCE = re.compile(r"^ *(`{3,})(.*)$")
_MARK = re.compile(r"^<!-- not run: (.+) -->$")
_SETTING = re.compile(r"[A-Z_]+=.*")


class Command(NamedTuple):
    """One line of a shell block."""

    text: str

    @property
    def words(self) -> list[str]:
        """The command itself, without the settings before it and the remark behind it."""
        words = shlex.split(self.text, comments=True)
        while words and _SETTING.fullmatch(words[0]):
            words = words[1:]
        return words

    @property
    def in_background(self) -> bool:
        return self.words[-1:] == ["&"]

    @property
    def serves(self) -> bool:
        """Whether the command serves until it is stopped."""
        words = [Path(word).name for word in self.words if word != "&"]
        return words[:2] in (["backstay"], ["backstay", "serve"], ["make", "serve"])


class Block(NamedTuple):
    """The text between two fences."""

    page: Path
    line: int
    language: str
    file: str
    text: str
    mark: str | None

    @property
    def place(self) -> str:
        return f"{named(self.page)}:{self.line}"

    @property
    def left_out(self) -> list[str]:
        """The commands that the mark names."""
        return re.findall(r"`([^`]+)`", self.mark or "")

    @property
    def commands(self) -> Iterator[Command]:
        """The lines of a shell block, one command each; a backslash at the end of a line continues it on the next."""
        for line in self.text.replace("\\\n", " ").splitlines():
            if shlex.split(line, comments=True):
                yield Command(line)

    def runs(self, command: Command) -> bool:
        """Whether the mark leaves this command to be run."""
        return self.mark is None or bool(self.left_out and shlex.join(command.words) not in self.left_out)


def named(page: Path) -> str:
    """A page as people name it."""
    return str(page.relative_to(ROOT))


def blocks(page: Path) -> Iterator[Block]:
    """The blocks of a page, from top to bottom."""
    lines = page.read_text().splitlines()
    at = 0
    while at < len(lines):
        fence = _FENCE.match(lines[at])
        at += 1
        if fence is None:
            continue
        end = next(below for below in range(at, len(lines)) if lines[below].strip() == fence[1])
        text = "".join(f"{line}\n" for line in lines[at:end])
        language, _, file = fence[2].strip().partition(" ")
        yield Block(page, at, language, file, text, _mark_above(lines, at - 1))
        at = end + 1


def _mark_above(lines: list[str], fence: int) -> str | None:
    above = [line for line in lines[:fence] if line.strip()]
    found = _MARK.match(above[-1]) if above else None
    return found[1] if found else None
