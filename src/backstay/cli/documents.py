"""A session as a document, and the file it is written to: for `backstay export`, and for `/export` in a chat."""

import os
from pathlib import Path
from typing import Literal

from backstay.cli import pages
from backstay.errors import ConfigError
from backstay.model.export import Export

Kind = Literal["json", "markdown", "html"]

# How the names of files end that hold such a document; the first is what we write.
ENDINGS: dict[Kind, tuple[str, ...]] = {
    "json": (".json",),
    "markdown": (".md", ".markdown"),
    "html": (".html", ".htm"),
}


def kind_of(path: Path) -> Kind:
    """What a file of this name holds: JSON, unless its name ends otherwise."""
    ending = path.suffix.lower()
    return next((kind for kind, endings in ENDINGS.items() if ending in endings), "json")


def document(export: Export, kind: Kind) -> bytes:
    """The session whole, as JSON; or what its agent reads, as a page."""
    match kind:
        case "json":
            return export.to_json()
        case "markdown":
            return pages.markdown(export).encode()
        case "html":
            return pages.html(export).encode()


def write(path: Path, text: bytes, *, replace: bool = False) -> None:
    """Write a private file, whole or not at all."""
    if path.exists() and not replace:
        raise ConfigError(
            f"{path} is there already", hint="Name another file; `backstay export --force` writes over it."
        )
    unfinished = path.with_name(f".{path.name}.part")
    try:
        with open(unfinished, "wb", opener=lambda name, flags: os.open(name, flags, 0o600)) as file:
            file.write(text)
        unfinished.replace(path)
    except OSError as error:
        unfinished.unlink(missing_ok=True)
        raise ConfigError(f"{path} cannot be written: {error.strerror}", hint="Name another file.") from error
