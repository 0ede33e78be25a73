"""How a reference page is put together."""

from collections.abc import Iterable, Sequence

NOTICE = "<!-- Written by `make reference` from what the program declares. Change it there. -->"


def whole(title: str, introduction: str, *parts: str) -> str:
    """A whole page."""
    return "\n\n".join([f"# {title}", NOTICE, introduction, *parts]) + "\n"


def table(heading: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table; what is in its cells cannot break it."""
    lines = [heading, ["---"] * len(heading), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


def code(text: str) -> str:
    """A word of code."""
    return f"`{text}`"


def sentence(doc: str | None) -> str:
    """What a docstring promises, on one line."""
    return " ".join((doc or "").split())
