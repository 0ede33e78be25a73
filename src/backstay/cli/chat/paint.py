"""Paint: blocks of the story with colours, for a terminal of a given width; or plain, for whatever reads a pipe."""

from collections.abc import Iterable
from typing import IO, assert_never

from rich.console import Console, RenderableType
from rich.markdown import Markdown
from rich.padding import Padding
from rich.text import Text

from backstay.cli.chat.story import Block, Note, Person, Row, Thinking, Tone, Words
from backstay.cli.chat.wordstream import parse

PROMPT = "› "
_STYLES: dict[Tone, str] = {"quiet": "dim", "good": "green", "bad": "red"}
_MARKS: dict[Tone, str] = {"quiet": "⚙", "good": "✓", "bad": "✗"}


class Paint:
    """Colours as this terminal has them; none for a file that is no terminal."""

    def __init__(self, file: IO[str] | None = None) -> None:
        self._console = Console(file=file, markup=False, highlight=False, emoji=False, legacy_windows=False)

    def blocks(self, blocks: Iterable[Block], columns: int) -> str:
        """The blocks, one below the other, each line ended."""
        console = self._console
        with console.capture() as drawn:
            for block in blocks:
                console.print(_renderable(block), width=max(20, columns))
        return drawn.get()


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
            return Padding(told.append(f"  ({how})", "dim") if how else told, (1, 0, 0, 0))
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
    took = "" if row.ms is None else f"  {row.ms / 1000:.1f} s" if row.ms >= 1000 else f"  {row.ms} ms"
    result = f" → {row.result}" if row.result else ""
    return f"{_MARKS[row.tone]} {row.name} {row.arguments}{took}{result}"
