"""A file to upload: a path, bytes, or a file that was opened in binary mode."""

import io
import os
from mimetypes import guess_type
from pathlib import Path
from typing import BinaryIO

from backstay.errors import InvalidPayload, TooLarge

FileSource = str | os.PathLike[str] | bytes | BinaryIO

_UNKNOWN = "application/octet-stream"


def opened(file: FileSource, most: int | None) -> BinaryIO:
    """The file, opened if need be. A file that is known to have more bytes than `most` is refused at once."""
    if isinstance(file, bytes):
        _check_size(len(file), most)
        return io.BytesIO(file)
    if isinstance(file, str | os.PathLike):
        path = Path(file)
        _check_size(path.stat().st_size, most)
        return path.open("rb")
    # A temporary file is a wrapper, whose `file` is the file itself.
    if not hasattr(file, "read") or isinstance(getattr(file, "file", file), io.TextIOBase):
        raise InvalidPayload(
            f"{type(file).__name__} is not a file", hint="Pass a path, bytes, or a file that was opened in binary mode."
        )
    return file


def name_of(file: FileSource) -> str:
    """The name of a file without its folder; `file` if it has none."""
    named = file if isinstance(file, str | os.PathLike) else getattr(file, "name", None)
    return (Path(named).name if isinstance(named, str | os.PathLike) else "") or "file"


def media_type_of(name: str) -> str:
    """The media type that the ending of a name suggests. The first call reads the tables of the operating system."""
    return guess_type(name)[0] or _UNKNOWN


def _check_size(size: int, most: int | None) -> None:
    if most is not None and size > most:
        raise TooLarge(f"the file has {size:,} bytes; at most {most:,} are accepted", hint="Send a smaller file.")
