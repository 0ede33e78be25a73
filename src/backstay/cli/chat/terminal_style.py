"""Draws blocks with colours for a terminal of a given width, or as plain text for a pipe."""

from collections.abc import Iterable
from typing import IO, assert_never

from rich.console import Console, RenderableType
from rich.markdown import Markdown
from rich.segment import Segment, SegmentLines
from rich.text import Text

from backstay.cli.chat.blocks import Block, NoteBlock, PersonBlock, TextBlock, ThoughtBlock, Tone, ToolBlock
from backstay.cli.chat.markdown_stream import parse
from backstay.cli.output import screen

PROMPT = "› "
_STYLES: dict[Tone, str] = {"quiet": "dim", "good": "green", "bad": "red", "question": "yellow"}
_MARKS: dict[Tone, str] = {"quiet": "⚙", "good": "✓", "bad": "✗", "question": "?"}


class TerminalStyle:
    """Draws with the colours of this terminal; without colours into a file that is not a terminal."""

    def __init__(self, file: IO[str] | None = None) -> None:
        self._console = Console(file=file, markup=False, highlight=False, emoji=False, legacy_windows=False)

    def blocks(self, blocks: Iterable[Block], columns: int) -> str:
        """Return the blocks, one below the other, each line ended."""
        console, options = self._console, self._console.options.update(width=max(20, columns))
        lines = [
            line for block in blocks for line in _laid_out(console.render_lines(_renderable(block), options), block)
        ]
        with console.capture() as drawn:
            console.print(SegmentLines(lines, new_lines=True), end="")
        return drawn.get()


def _laid_out(lines: list[list[Segment]], block: Block) -> list[list[Segment]]:
    """Return the lines of a block without trailing spaces and outer blank lines, and with its blank line around it."""
    trimmed = [_trimmed(line) for line in lines]
    while trimmed and not trimmed[0]:
        del trimmed[0]
    while trimmed and not trimmed[-1]:
        del trimmed[-1]
    match block:
        case PersonBlock():
            return [[], *trimmed]
        case TextBlock(text=text) if text.endswith("\n\n"):
            return [*trimmed, []]
        case _:
            return trimmed


def _trimmed(line: list[Segment]) -> list[Segment]:
    """Remove the padding: it would be copied with the text, and wrapped when the terminal gets narrower."""
    kept = list(line)
    while kept and not kept[-1].text.strip() and not _is_coloured(kept[-1]):
        kept.pop()
    return kept


def _is_coloured(segment: Segment) -> bool:
    """Whether a space in this segment is visible."""
    ground = segment.style.bgcolor if segment.style else None
    return ground is not None and not ground.is_default


def plain_text(block: Block) -> str:
    """Return the block as plain text."""
    match block:
        case PersonBlock(text=text):
            return f"{PROMPT}{text}"
        case TextBlock(text=text):
            return text.strip("\n")
        case ThoughtBlock(text=text):
            return f"({text.strip()})"
        case ToolBlock():
            return _row(block)
        case NoteBlock(text=text):
            return f"[{text}]"
        case _:
            assert_never(block)


def _renderable(block: Block) -> RenderableType:
    match block:
        case PersonBlock(text=text, how=how):
            shown = Text(f"{PROMPT}{text}", "bold" if not how else "dim")
            return shown.append(f"  ({how})", "dim") if how else shown
        case TextBlock(text=text):
            return _markdown(text)
        case ThoughtBlock(text=text):
            return Text(text.strip("\n"), "dim italic")
        case ToolBlock(tone=tone):
            return Text(_row(block), _STYLES[tone], no_wrap=True, overflow="ellipsis")
        case NoteBlock(text=text, tone=tone):
            return Text(text, _STYLES[tone])
        case _:
            assert_never(block)


def _markdown(text: str) -> Markdown:
    # URLs are written out and never made into links: people must see where a click would lead.
    drawn = Markdown("", code_theme="ansi_dark", hyperlinks=False)
    drawn.markup, drawn.parsed = text, parse(text)
    return drawn


def _row(row: ToolBlock) -> str:
    took = "" if row.ms is None else f"  {screen.span(row.ms)}"
    result = f" → {row.result}" if row.result else ""
    return f"{_MARKS[row.tone]} {row.name} {row.arguments}{took}{result}"
