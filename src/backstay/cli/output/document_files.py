"""A session as a document, and the file it is written to: for `backstay export`, and for `/export` in a chat."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import takewhile
from pathlib import Path
from secrets import token_hex
from typing import BinaryIO, Literal

from backstay.cli.output import export_pages
from backstay.errors import ConfigError
from backstay.model.documents.document import ExportedWindow
from backstay.model.documents.records import ExportedMessage, Header, gathered, records_in

Kind = Literal["jsonl", "markdown", "html"]

# The file name suffixes of each format; the first is the one we write.
ENDINGS: dict[Kind, tuple[str, ...]] = {
    "jsonl": (".jsonl", ".json"),
    "markdown": (".md", ".markdown"),
    "html": (".html", ".htm"),
}
# An export by this process is read again without a limit on its length.
_ANY = 1 << 60
_ON_THE_PAGE = (Header, ExportedWindow, ExportedMessage)


def kind_of(path: Path) -> Kind:
    """Return the format for a file name: by its suffix, or `jsonl`."""
    ending = path.suffix.lower()
    return next((kind for kind, endings in ENDINGS.items() if ending in endings), "jsonl")


def document_pieces(lines: BinaryIO, kind: Kind) -> Iterator[str]:
    """Convert the lines of an export to the pieces of a document of the current window.

    Only the messages are held in memory: turns, events and attachments, which come after them, are not on the page.
    """
    lines.seek(0)
    records = (record for _, record in records_in(lines, _ANY))
    export = gathered(takewhile(lambda record: isinstance(record, _ON_THE_PAGE), records))
    return export_pages.markdown(export) if kind == "markdown" else export_pages.html(export)


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
