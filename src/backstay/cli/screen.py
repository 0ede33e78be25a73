"""What a person sees: tables, moments and progress on a terminal; plain lines of full width anywhere else."""

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TextIO

import click
import msgspec

from backstay.cli import plain
from backstay.model.upkeep import Tell

_NARROWEST = 12
_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")


def say(text: str = "") -> None:
    """Write a line for people, which is harmless already."""
    click.echo(text)


def note(text: str) -> None:
    """Say something beside the answer, to somebody who watches; a script's output is not disturbed."""
    if is_terminal(sys.stderr):
        click.echo(_dimmed(plain.one_line(text)), err=True)


def say_json(value: object) -> None:
    """Write one JSON value on a line, for machines."""
    click.echo(plain.in_json(msgspec.json.encode(value)))


def is_terminal(stream: TextIO) -> bool:
    """Whether somebody looks at it."""
    try:
        return stream.isatty()
    except ValueError:
        return False


def in_colour(stream: TextIO) -> bool:
    """Whether colours may be used there."""
    return is_terminal(stream) and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def styled(text: str, **style: bool | str) -> str:
    """The text in a style, where there are styles."""
    return click.style(text, **style) if in_colour(sys.stdout) else text  # type: ignore[arg-type]  # click's own names


def _dimmed(text: str) -> str:
    return click.style(text, dim=True) if in_colour(sys.stderr) else text


def table(headings: Sequence[str], rows: Sequence[Sequence[str]], *, fold: int | None = None) -> None:
    """Rows under headings. On a terminal the column `fold` is wrapped, or the last one cut; elsewhere neither."""
    harmless = [[plain.one_line(cell) for cell in row] for row in rows]
    if is_terminal(sys.stdout):
        _draw(headings, harmless, fold)
        return
    widths = [max(map(len, column)) for column in zip(headings, *harmless, strict=True)]
    for row in [list(headings), *harmless]:
        click.echo("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


def _draw(headings: Sequence[str], rows: Sequence[Sequence[str]], fold: int | None) -> None:
    # Only here: drawing costs more to load than everything else that a command does.
    from rich.cells import cell_len  # noqa: PLC0415
    from rich.console import Console  # noqa: PLC0415
    from rich.table import Table  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    widths = [max(map(cell_len, column)) for column in zip(headings, *rows, strict=True)]
    giving = len(headings) - 1 if fold is None else fold
    # One column gives way; the others hold what a person copies, and are never cut, however narrow the terminal.
    others = sum(widths) - widths[giving] + 2 * (len(widths) - 1)
    seen = Console().width
    widths[giving] = min(widths[giving], max(seen - others, _NARROWEST))
    headed = "bold" if in_colour(sys.stdout) else ""
    drawn = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style=headed)
    for heading, width in zip(headings, widths, strict=True):
        drawn.add_column(heading, width=width, no_wrap=fold is None, overflow="ellipsis" if fold is None else "fold")
    for row in rows:
        drawn.add_row(*map(Text, row))
    Console(width=max(seen, others + widths[giving] + 2), highlight=False).print(drawn)


def facts(named: Sequence[tuple[str, str]]) -> None:
    """Names and what they stand for, one to a line."""
    harmless = [(plain.one_line(name), plain.one_line(fact)) for name, fact in named]
    width = max(len(name) for name, _ in harmless)
    for name, fact in harmless:
        click.echo(f"{name:<{width}}  {fact}".rstrip())


@contextmanager
def progress() -> Iterator[Tell]:
    """A bar for long work, on a terminal only; elsewhere nothing is said."""
    if not is_terminal(sys.stderr):
        yield lambda _what, _done, _total: None
        return
    from rich.console import Console  # noqa: PLC0415  # as above
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn  # noqa: PLC0415

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bars:
        known: dict[str, int] = {}

        def tell(what: str, done: int, total: int) -> None:
            if what not in known:
                known[what] = bars.add_task(what, total=total)
            bars.update(known[what], completed=done, total=max(done, total))  # type: ignore[arg-type]  # a task's id

        yield tell


def span(milliseconds: int) -> str:
    """How long something took."""
    return f"{milliseconds} ms" if milliseconds < 1000 else f"{milliseconds / 1000:.1f} s"


def moment(milliseconds: int | None) -> str:
    """A time as people here write it."""
    if milliseconds is None:
        return ""
    try:
        return f"{datetime.fromtimestamp(milliseconds / 1000, UTC).astimezone():%Y-%m-%d %H:%M}"
    except (OverflowError, ValueError, OSError):
        return f"{milliseconds} ms"


def size(count: int) -> str:
    """So many bytes, in the unit that people would use."""
    amount = float(count)
    for unit in _UNITS[:-1]:
        if amount < 1024:
            return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1024
    return f"{amount:.1f} {_UNITS[-1]}"


def counted(number: int, what: str, many: str = "") -> str:
    """A number and its noun: 1 session, 2 sessions."""
    return f"{number:,} {what if number == 1 else many or what + 's'}"
