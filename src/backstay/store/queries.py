"""Named SQL: reads the `.sql` files beside this module into a dictionary of statements.

A file is a list of `-- name: …` headings, each followed by a sentence on what the statement does and one statement.
`{{name}}` inside a statement is replaced by the statement of that name, so that a list of columns is written once. A
statement that replaces another may quote it in the same way.
"""

import re
from collections.abc import Iterable
from importlib.resources import files
from importlib.resources.abc import Traversable

_HEADING = re.compile(r"^-- name: (\w+)$", re.MULTILINE)
_COMMENT = re.compile(r"^--.*$", re.MULTILINE)
_FRAGMENT = re.compile(r"\{\{(\w+)\}\}")

Queries = dict[str, str]


def load(*folders: Traversable) -> Queries:
    """All statements of these folders; a later folder's statement replaces an earlier one's of the same name."""
    found: Queries = {}
    for folder in folders:
        for file in sorted(folder.iterdir(), key=lambda entry: entry.name):
            if file.name.endswith(".sql"):
                for name, text in _statements(file.read_text("utf-8")):
                    found[name] = text.replace("{{" + name + "}}", found.get(name, ""))
    return {name: _whole(text, found) for name, text in found.items()}


def shared() -> Traversable:
    """Where the statements lie on which the engines agree."""
    return files("backstay.store").joinpath("sql")


def _whole(text: str, found: Queries) -> str:
    while "{{" in text:
        text = _FRAGMENT.sub(lambda match: found[match[1]], text)
    return text


def _statements(text: str) -> Iterable[tuple[str, str]]:
    pieces = _HEADING.split(text)[1:]
    for name, body in zip(pieces[::2], pieces[1::2], strict=True):
        yield name, " ".join(_COMMENT.sub("", body).split()).rstrip(";")
