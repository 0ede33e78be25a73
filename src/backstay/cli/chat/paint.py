"""Paint: blocks of the story with colours, for a terminal of a given width; or plain, for whatever reads a pipe."""

from collections.abc import Iterable
from typing import IO, assert_never

from rich.console import Console, RenderableType
from rich.markdown import Markdown
from rich.segment import Segment, SegmentLines
from rich.text import Text

from backstay.cli import screen
from backstay.cli.chat.story import Block, Note, Person, Row, Thinking, Tone, Words
from backstay.cli.chat.wordstream import parse

PROMPT = "› "
_STYLES: dict[Tone, str] = {"quiet": "dim", "good": "green", "bad": "red", "asks": "yellow"}
_MARKS: dict[Tone, str] = {"quiet": "⚙", "good": "✓", "bad": "✗", "asks": "?"}


class Paint:
    """Colours as this terminal has them; none for a file that is no terminal."""

    def __init__(self, file: IO[str] | None = None) -> None:
        self._console = Console(file=file, markup=False, highlight=False, emoji=False, legacy_windows=False)

    def blocks(self, blocks: Iterable[Block], columns: int) -> str:
        """The blocks, one below the other, each line ended."""
        console, options = self._console, self._console.options.update(width=max(20, columns))
        lines = [
            line for block in blocks for line in _laid_out(console.render_lines(_renderable(block), options), block)
        ]
        with console.capture() as drawn:
            console.print(SegmentLines(lines, new_lines=True), end="")
        return drawn.get()


def _laid_out(lines: list[list[Segment]], block: Block) -> list[list[Segment]]:
    """The lines of a block, with nothing at their right, and as much air around it as there was between the words."""
    trimmed = [_trimmed(line) for line in lines]
    while trimmed and not trimmed[0]:
        del trimmed[0]
    while trimmed and not trimmed[-1]:
        del trimmed[-1]
    match block:
        case Person():
            return [[], *trimmed]
        case Words(text=text) if text.endswith("\n\n"):
            return [*trimmed, []]
        case _:
            return trimmed


def _trimmed(line: list[Segment]) -> list[Segment]:
    """Without the spaces that fill it up: they would be copied, and wrapped when the terminal gets narrower."""
    kept = list(line)
    while kept and not kept[-1].text.strip() and not _is_coloured(kept[-1]):
        kept.pop()
    return kept


def _is_coloured(segment: Segment) -> bool:
    """Whether even a space of it is seen."""
    ground = segment.style.bgcolor if segment.style else None
    return ground is not None and not ground.is_default


def plain_text(block: Block) -> str:
    """The block without any drawing."""
    match block:
        case Person(text=text):
            return f"{PROMPT}{text}"
        case Words(text=text):
            return text.strip("\n")
        case Thinking(text=text):
            return f"({text.strip()})"
        case Row():
            return _row(block)
        case Note(text=text):
            return f"[{text}]"
        case _:
            assert_never(block)


def _renderable(block: Block) -> RenderableType:
    match block:
        case Person(text=text, how=how):
            told = Text(f"{PROMPT}{text}", "bold" if not how else "dim")
            return told.append(f"  ({how})", "dim") if how else told
        case Words(text=text):
            return _markdown(text)
        case Thinking(text=text):
            return Text(text.strip("\n"), "dim italic")
        case Row(tone=tone):
            return Text(_row(block), _STYLES[tone], no_wrap=True, overflow="ellipsis")
        case Note(text=text, tone=tone):
            return Text(text, _STYLES[tone])
        case _:
            assert_never(block)


def _markdown(text: str) -> Markdown:
    # Addresses are written out and never made into links: what a click would do must be seen.
    drawn = Markdown("", code_theme="ansi_dark", hyperlinks=False)
    drawn.markup, drawn.parsed = text, parse(text)
    return drawn


def _row(row: Row) -> str:
    took = "" if row.ms is None else f"  {screen.span(row.ms)}"
    result = f" → {row.result}" if row.result else ""
    return f"{_MARKS[row.tone]} {row.name} {row.arguments}{took}{result}"
