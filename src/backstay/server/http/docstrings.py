"""Docstrings in Google style, taken apart for the OpenAPI document and the reference."""

import inspect
import re
from typing import NamedTuple

_SECTION = re.compile(r"^(Args|Attributes|Returns|Yields|Raises):\n((?:(?: .*)?(?:\n|\Z))*)", re.MULTILINE)
_ENTRY = re.compile(r"(\*{0,2}[\w.]+): (.*)", re.DOTALL)


class Section(NamedTuple):
    """One section: entries by name, or a text in *Returns* and *Yields*."""

    name: str
    entries: dict[str, str]
    text: str


class Docstring(NamedTuple):
    """The paragraphs and the sections of a docstring, each text on one line."""

    paragraphs: tuple[str, ...]
    sections: tuple[Section, ...]


def parse(doc: str | None) -> Docstring:
    """Take a docstring apart.

    Args:
        doc: The docstring, indented as in the source or not.
    """
    clean = inspect.cleandoc(doc or "")
    prose = _SECTION.sub("", clean)
    paragraphs = tuple(one_line(paragraph) for paragraph in prose.split("\n\n") if paragraph.strip())
    return Docstring(paragraphs, tuple(_section(found[1], found[2]) for found in _SECTION.finditer(clean)))


def one_line(text: str) -> str:
    """The same words on one line."""
    return " ".join(text.split())


def _section(name: str, indented: str) -> Section:
    body = inspect.cleandoc("\n" + indented)
    if name in ("Returns", "Yields"):
        return Section(name, {}, one_line(body))
    found = (_ENTRY.fullmatch(entry) for entry in re.split(r"\n(?! )", body))
    return Section(name, {entry[1]: one_line(entry[2]) for entry in found if entry}, "")
