"""Streamed Markdown, cut into blocks: a finished block is drawn once, the rest again with every delta."""

from markdown_it import MarkdownIt
from markdown_it.token import Token

# A longer block is cut at a line end: the text that is drawn again with every delta must stay short.
LONGEST = 8_192

# HTML tags are shown as text, so that the screen shows everything that the agent wrote.
_parser = MarkdownIt("commonmark", {"html": False}).enable("table").enable("strikethrough")


def parse(text: str) -> list[Token]:
    """Parse the text as Markdown."""
    return _parser.parse(text)


class WordStream:
    """Collects text and returns finished blocks."""

    def __init__(self) -> None:
        self.tail = ""

    def feed(self, text: str) -> list[str]:
        """Add text; return the blocks that are finished now, which no later text can change."""
        self.tail += text
        if "\n" not in text and len(self.tail) <= LONGEST:
            return []
        return [block for block in (self._finished(), *self._overlong()) if block.strip()]

    def close(self) -> list[str]:
        """End the stream; return the rest."""
        rest, self.tail = self.tail, ""
        return [rest] if rest.strip() else []

    def _finished(self) -> str:
        """Remove and return all complete lines but those of the last block."""
        *lines, _ = self.tail.split("\n")
        starts = [token.map[0] for token in _blocks("\n".join(lines)) if token.map]
        if len(starts) < 2:
            return ""
        whole = "\n".join(lines[: starts[-1]]) + "\n"
        self.tail = self.tail[len(whole) :]
        return whole

    def _overlong(self) -> list[str]:
        """Cut a block that has become too long into pieces, at a line end if there is one."""
        cut = []
        while len(self.tail) > LONGEST:
            at = self.tail.rfind("\n", LONGEST // 2, LONGEST) + 1 or LONGEST
            cut.append(self.tail[:at])
            # The rest of a code block must stay code.
            self.tail = _open_fence(self.tail[:at]) + self.tail[at:]
        return cut


def _blocks(text: str) -> list[Token]:
    return [token for token in parse(text) if token.level == 0 and token.nesting >= 0]


def _open_fence(text: str) -> str:
    """Return the line that opened the code block in which this text ends; empty if it ends elsewhere."""
    blocks = _blocks(text)
    if not blocks or blocks[-1].type != "fence" or not blocks[-1].map:
        return ""
    fence, lines = blocks[-1], text.rstrip("\n").split("\n")
    is_closed = len(lines) - 1 > blocks[-1].map[0] and lines[-1].strip() == fence.markup
    return "" if is_closed else f"{fence.markup}{fence.info[:100]}\n"
