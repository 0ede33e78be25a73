"""Named SQL: loads the `.sql` files into a dictionary of statements.

A file is a list of `-- name: …` headings, each followed by a sentence on what the statement does and one statement.
`{{name}}` inside a statement is replaced by the statement of that name, so that a list of columns is written once. A
statement that replaces another one may include it in the same way, and returns the same columns.
"""

import re
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable

_HEADING = re.compile(r"^-- name: (\w+)$", re.MULTILINE)
_COMMENT = re.compile(r"^--.*$", re.MULTILINE)
_FRAGMENT = re.compile(r"\{\{(\w+)\}\}")

_WORD = re.compile(r"[(),]|[^\s(),]+")
_COLUMN = re.compile(r"(?:\w+\.)?(\w+)")

Queries = dict[str, str]


def load(*folders: "Traversable") -> Queries:
    """All statements of these folders.

    A statement in a later folder replaces one of the same name in an earlier folder.
    """
    found: Queries = {}
    replaced: Queries = {}
    for name, text in (pair for folder in folders for pair in _read(folder)):
        if name in found:
            replaced.setdefault(name, found[name])
        found[name] = text.replace("{{" + name + "}}", found.get(name, ""))
    whole = {name: _whole(text, found) for name, text in found.items()}
    for name, text in replaced.items():
        # Rows are decoded by the columns of the shared statement, whichever engine returns them.
        columns = columns_of(_whole(text, found))
        if columns and columns != columns_of(whole[name]):
            raise LookupError(f"statement {name} returns other columns than the statement that it replaces")
    return whole


def shared() -> Path:
    """The folder of the statements that all engines use."""
    return Path(__file__).with_name("sql")


@cache
def _shared_statements() -> Queries:
    return dict(_read(shared()))


def shared_statement(name: str) -> str:
    """A shared statement. Fragments that only an engine defines, which are conditions, are left out."""
    found = _shared_statements()
    text = found[name]
    while "{{" in text:
        text = _FRAGMENT.sub(lambda match: found.get(match[1], ""), text)
    return text


def columns_of(statement: str) -> tuple[str, ...]:
    """The names of the columns that a statement returns; an expression without a name has an empty one."""
    columns: list[list[str]] = []
    depth = 0
    for word in _WORD.findall(statement.rpartition("; ")[2]):
        depth += (word == "(") - (word == ")")
        if depth == 0 and not columns and word in ("SELECT", "RETURNING"):
            columns.append([])
        elif depth == 0 and columns and word in ("FROM", "WHERE"):
            break
        elif depth == 0 and columns and word == ",":
            columns.append([])
        elif columns and word != "DISTINCT":
            columns[-1].append(word)
    return tuple(map(_name_of, columns))


def _name_of(column: list[str]) -> str:
    if len(column) > 1 and column[-2] == "AS":
        return column[-1]
    plain = _COLUMN.fullmatch(column[0]) if len(column) == 1 else None
    return "" if plain is None else plain[1]


def _read(folder: "Traversable") -> Iterator[tuple[str, str]]:
    for file in sorted(folder.iterdir(), key=lambda entry: entry.name):
        if file.name.endswith(".sql"):
            yield from _statements(file.read_text("utf-8"))


def _whole(text: str, found: Queries) -> str:
    while "{{" in text:
        text = _FRAGMENT.sub(lambda match: found[match[1]], text)
    return text


def _statements(text: str) -> Iterable[tuple[str, str]]:
    pieces = _HEADING.split(text)[1:]
    for name, body in zip(pieces[::2], pieces[1::2], strict=True):
        yield name, " ".join(_COMMENT.sub("", body).split()).rstrip(";")
