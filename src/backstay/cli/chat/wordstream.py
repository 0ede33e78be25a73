"""Words that arrive bit by bit, cut into blocks of Markdown: what is finished is drawn once, the rest over and over."""

from markdown_it import MarkdownIt
from markdown_it.token import Token

# A block that grows longer is cut at a line: what is drawn again with every word must stay short.
LONGEST = 8_192

# Tags of HTML are words like others: what was said is shown.
_parser = MarkdownIt("commonmark", {"html": False}).enable("table").enable("strikethrough")


def parse(text: str) -> list[Token]:
    """The text as Markdown."""
    return _parser.parse(text)


class WordStream:
    """Takes words, gives finished blocks."""

    def __init__(self) -> None:
        self.tail = ""

    def feed(self, text: str) -> list[str]:
        """The blocks that are finished with these words: nothing that may follow can change how they are drawn."""
        self.tail += text
        if "\n" not in text and len(self.tail) <= LONGEST:
            return []
        return [block for block in (self._finished(), *self._overlong()) if block.strip()]

    def close(self) -> list[str]:
        """What is left, now that nothing follows."""
        rest, self.tail = self.tail, ""
        return [rest] if rest.strip() else []

    def _finished(self) -> str:
        """All but the last block of the lines that are complete."""
        *lines, _ = self.tail.split("\n")
        starts = [token.map[0] for token in _blocks("\n".join(lines)) if token.map]
        if len(starts) < 2:
            return ""
        whole = "\n".join(lines[: starts[-1]]) + "\n"
        self.tail = self.tail[len(whole) :]
        return whole

    def _overlong(self) -> list[str]:
        """Pieces of a block that does not end, each cut at a line if there is one."""
        cut = []
        while len(self.tail) > LONGEST:
            at = self.tail.rfind("\n", LONGEST // 2, LONGEST) + 1 or LONGEST
            cut.append(self.tail[:at])
            # The rest of a code block is code too.
            self.tail = _open_fence(self.tail[:at]) + self.tail[at:]
        return cut


def _blocks(text: str) -> list[Token]:
    return [token for token in parse(text) if token.level == 0 and token.nesting >= 0]


def _open_fence(text: str) -> str:
    """The line that opened the code block in which this text ends; nothing if it ends elsewhere."""
    blocks = _blocks(text)
    if not blocks or blocks[-1].type != "fence" or not blocks[-1].map:
        return ""
    fence, lines = blocks[-1], text.rstrip("\n").split("\n")
    is_closed = len(lines) - 1 > blocks[-1].map[0] and lines[-1].strip() == fence.markup
    return "" if is_closed else f"{fence.markup}{fence.info[:100]}\n"
