"""The Markdown of a reference page."""

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType

from backstay.server.http.docstrings import Section, parse

NOTICE = "<!-- Written by `make reference` from declarations in the code. Change it there. -->"


def whole(title: str, introduction: str, *parts: str) -> str:
    """A whole page."""
    return "\n\n".join([f"# {title}", NOTICE, introduction, *parts]) + "\n"


def table(heading: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table; its cells are escaped."""
    lines = [heading, ["---"] * len(heading), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


def code(text: str) -> str:
    """A word of code."""
    return f"`{text}`"


def sentence(text: str | None) -> str:
    """A text on one line."""
    return " ".join((text or "").split())


def summary(doc: str | None) -> str:
    """The first paragraph of a docstring, on one line."""
    return next(iter(parse(doc).paragraphs), "")


def prose(doc: str | None) -> str:
    """A docstring without its sections, on one line."""
    return " ".join(parse(doc).paragraphs)


def description(doc: str | None, types: Mapping[str, str] = MappingProxyType({})) -> str:
    """A docstring as Markdown: its paragraphs, then a list for each section such as *Args* or *Raises*.

    The entries of *Args* and *Attributes* show their types, as far as they are given.
    """
    parsed = parse(doc)
    return "\n\n".join([*parsed.paragraphs, *(_section(section, types) for section in parsed.sections)])


def _section(section: Section, types: Mapping[str, str]) -> str:
    if section.text:
        return f"*{section.name}*: {section.text}"
    known = types if section.name in ("Args", "Attributes") else {}
    entries = [
        f"- {code(name)}{f' ({code(known[name])})' if name in known else ''}: {text}"
        for name, text in section.entries.items()
    ]
    return "\n".join([f"*{section.name}*:", "", *entries])
