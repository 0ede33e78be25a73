"""The Markdown of a reference page."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType, UnionType
from typing import Annotated, Literal, NewType, TypeVar, Union, get_args, get_origin

import msgspec

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


def type_name(kind: object, aliases: Mapping[object, str] = MappingProxyType({})) -> str:
    """A type as it is written, without its modules. `aliases` are the names of unions."""
    parts = get_args(kind)
    if not parts:
        return _plain_name(kind)
    if kind in aliases:
        return aliases[kind]
    origin = get_origin(kind)
    if origin in (Union, UnionType):
        return _union_name(parts, aliases)
    if origin is Literal:
        return " | ".join(map(repr, parts))
    if origin is Callable:
        return "Callable"
    named = [type_name(part, aliases) for part in parts if part is not ...]
    if origin is Annotated:
        return named[0]
    ends = ", ..." if ... in parts else ""
    return f"{getattr(origin, '__name__', origin)}[{', '.join(named)}{ends}]"


def _plain_name(kind: object) -> str:
    if kind is None or kind is type(None):
        return "None"
    if kind is msgspec.UnsetType:
        return "unset"
    if isinstance(kind, type | TypeVar | NewType):
        return kind.__name__
    return str(kind).rpartition(".")[2]


def _union_name(parts: Sequence[object], aliases: Mapping[object, str]) -> str:
    """The members of a union, with the name of an alias in place of all its members: `Content | None`."""
    for alias, name in aliases.items():
        members = get_args(alias)
        if get_origin(alias) in (Union, UnionType) and set(members) <= set(parts):
            return " | ".join([name, *(type_name(part, aliases) for part in parts if part not in members)])
    return " | ".join(type_name(part, aliases) for part in parts)
