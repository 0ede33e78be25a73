"""Output for people: tables, times and progress bars on a terminal; plain lines without a width limit elsewhere."""

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TextIO

import click
import msgspec

from backstay.cli.output import safe_text
from backstay.model.operations.findings import ProgressCallback

_NARROWEST = 12
_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")


def print_line(text: str = "") -> None:
    """Write a line. The text must already be free of control characters."""
    click.echo(text)


def note(text: str) -> None:
    """Write a remark to standard error if it is a terminal; the output of a script is not affected."""
    if is_terminal(sys.stderr):
        click.echo(_dimmed(safe_text.one_line(text)), err=True)


def print_json(value: object) -> None:
    """Write one JSON value on a line."""
    click.echo(safe_text.in_json(msgspec.json.encode(value)))


def is_terminal(stream: TextIO) -> bool:
    """Whether the stream is an open terminal."""
    try:
        return stream.isatty()
    except ValueError:
        return False


def in_colour(stream: TextIO) -> bool:
    """Whether colours may be used on the stream."""
    return is_terminal(stream) and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def styled(text: str, **style: bool | str) -> str:
    """Return the text in a style, if standard output has colours."""
    return click.style(text, **style) if in_colour(sys.stdout) else text  # type: ignore[arg-type]  # click's own names


def _dimmed(text: str) -> str:
    return click.style(text, dim=True) if in_colour(sys.stderr) else text


def table(headings: Sequence[str], rows: Sequence[Sequence[str]], *, fold: int | None = None) -> None:
    """Print rows under headings. On a terminal the column `fold` is wrapped, or the last one cut; elsewhere neither."""
    harmless = [[safe_text.one_line(cell) for cell in row] for row in rows]
    if is_terminal(sys.stdout):
        _draw(headings, harmless, fold)
        return
    widths = [max(map(len, column)) for column in zip(headings, *harmless, strict=True)]
    for row in [list(headings), *harmless]:
        click.echo("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


def _draw(headings: Sequence[str], rows: Sequence[Sequence[str]], fold: int | None) -> None:
    # Imported here: loading rich takes longer than the rest of a command.
    from rich.cells import cell_len  # noqa: PLC0415
    from rich.console import Console  # noqa: PLC0415
    from rich.table import Table  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    widths = [max(map(cell_len, column)) for column in zip(headings, *rows, strict=True)]
    shrinking = len(headings) - 1 if fold is None else fold
    # Only one column is shortened. The others hold values to copy and are never cut, even on a narrow terminal.
    others = sum(widths) - widths[shrinking] + 2 * (len(widths) - 1)
    seen = Console().width
    widths[shrinking] = min(widths[shrinking], max(seen - others, _NARROWEST))
    headed = "bold" if in_colour(sys.stdout) else ""
    drawn = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style=headed)
    for heading, width in zip(headings, widths, strict=True):
        drawn.add_column(heading, width=width, no_wrap=fold is None, overflow="ellipsis" if fold is None else "fold")
    for row in rows:
        drawn.add_row(*map(Text, row))
    Console(width=max(seen, others + widths[shrinking] + 2), highlight=False).print(drawn)


def facts(named: Sequence[tuple[str, str]]) -> None:
    """Print names and values, one pair per line."""
    harmless = [(safe_text.one_line(name), safe_text.one_line(fact)) for name, fact in named]
    width = max(len(name) for name, _ in harmless)
    for name, fact in harmless:
        click.echo(f"{name:<{width}}  {fact}".rstrip())


@contextmanager
def progress() -> Iterator[ProgressCallback]:
    """Show a progress bar on a terminal; show nothing elsewhere."""
    if not is_terminal(sys.stderr):
        yield lambda _what, _done, _total: None
        return
    from rich.console import Console  # noqa: PLC0415  # as above
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn  # noqa: PLC0415

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bars:
        known: dict[str, int] = {}

        def update(what: str, done: int, total: int) -> None:
            if what not in known:
                known[what] = bars.add_task(what, total=total)
            bars.update(known[what], completed=done, total=max(done, total))  # type: ignore[arg-type]  # a task's id

        yield update


def span(milliseconds: int) -> str:
    """Format a duration."""
    return f"{milliseconds} ms" if milliseconds < 1000 else f"{milliseconds / 1000:.1f} s"


def moment(milliseconds: int | None) -> str:
    """Format a time in the local time zone."""
    if milliseconds is None:
        return ""
    try:
        return f"{datetime.fromtimestamp(milliseconds / 1000, UTC).astimezone():%Y-%m-%d %H:%M}"
    except (OverflowError, ValueError, OSError):
        return f"{milliseconds} ms"


def size(count: int) -> str:
    """Format a number of bytes with a suitable unit."""
    amount = float(count)
    for unit in _UNITS[:-1]:
        if amount < 1024:
            return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1024
    return f"{amount:.1f} {_UNITS[-1]}"


def counted(number: int, what: str, many: str = "") -> str:
    """Return a number and its noun: 1 session, 2 sessions."""
    return f"{number:,} {what if number == 1 else many or what + 's'}"
