"""A session as a document, and the file it is written to: for `backstay export`, and for `/export` in a chat."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from secrets import token_hex
from typing import BinaryIO, Literal

from backstay.cli.output import export_pages
from backstay.cli.output.conversation_file import ConversationFile
from backstay.errors import ConfigError

Kind = Literal["jsonl", "markdown", "html"]

# The file name suffixes of each format; the first is the one we write.
ENDINGS: dict[Kind, tuple[str, ...]] = {
    "jsonl": (".jsonl", ".json"),
    "markdown": (".md", ".markdown"),
    "html": (".html", ".htm"),
}


def kind_of(path: Path) -> Kind:
    """Return the format for a file name: by its suffix; `jsonl` for a name without one.

    Raises:
        ConfigError: No format has this suffix.
    """
    ending = path.suffix.lower()
    if not ending:
        return "jsonl"
    for kind, endings in ENDINGS.items():
        if ending in endings:
            return kind
    known = ", ".join(endings[0] for endings in ENDINGS.values())
    raise ConfigError(
        f"{path} cannot be written: there is no format {ending}",
        hint=f"Choose one of {known}, or name the format as well: {', '.join(ENDINGS)}.",
    )


def document_pieces(lines: BinaryIO, kind: Kind) -> Iterator[str]:
    """Convert the lines of an export to the pieces of a document of the current window, one message at a time."""
    export = ConversationFile(lines)
    page = export_pages.markdown if kind == "markdown" else export_pages.html
    return page(export.header, export.messages())


def save(path: Path, lines: BinaryIO, kind: Kind, *, replace: bool = False) -> int:
    """Write an exported session, complete or as a document to read, to a private file; return its size in bytes."""
    with _new_file(path, replace=replace) as file:
        if kind == "jsonl":
            lines.seek(0)
            shutil.copyfileobj(lines, file)
        else:
            file.writelines(piece.encode() for piece in document_pieces(lines, kind))
        return file.tell()


@contextmanager
def _new_file(path: Path, *, replace: bool) -> Iterator[BinaryIO]:
    """Create a private file, which gets its name when it is complete.

    Both the temporary and the final file are new: an attacker cannot have put a file or a link in their place.
    """
    if path.exists() and not replace:
        raise _taken(path)
    unfinished = path.with_name(f".{path.name}.{token_hex(8)}.part")
    try:
        with open(unfinished, "xb", opener=_private) as file:
            yield file
        if replace:
            unfinished.replace(path)
        else:
            _name_once(unfinished, path)
    except FileExistsError as error:
        raise _taken(path) from error
    except OSError as error:
        raise ConfigError(f"{path} cannot be written: {error.strerror}", hint="Choose another file.") from error
    finally:
        unfinished.unlink(missing_ok=True)


def _private(name: str, flags: int) -> int:
    return os.open(name, flags | os.O_NOFOLLOW, 0o600)


def _name_once(unfinished: Path, path: Path) -> None:
    """Give the file its name; raise `FileExistsError` if the name is taken."""
    try:
        os.link(unfinished, path)
    except FileExistsError:
        raise
    except OSError:  # This file system has no hard links: reserve the name first, then move the file there.
        with open(path, "xb", opener=_private):
            pass
        unfinished.replace(path)


def _taken(path: Path) -> ConfigError:
    return ConfigError(f"{path} already exists", hint="Choose another file, or use `backstay export --force`.")
