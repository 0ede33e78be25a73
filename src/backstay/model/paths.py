"""The one path of a workspace, whichever way it was written."""

import errno
import os
import stat
import unicodedata

from backstay.errors import InvalidAddress

PATH_BYTES = 4_096


def canonical_path(path: str | os.PathLike[str]) -> str:
    """The real, absolute path this names today; it need not exist. Looks at the disk, changes nothing."""
    written = _bytes_of(path)
    real = os.path.realpath(_absolute(written))
    _refuse_unresolved(real)
    # Decoded as UTF-8 in every locale, so that processes with different locales agree on one directory.
    return check_path(_merge_forms(real).decode("utf-8", "surrogateescape"))


def check_path(path: object) -> str:
    """The path, once it is known to be written canonically; never looks at the disk."""
    if type(path) is not str:
        raise InvalidAddress("path", f"is of type {type(path).__name__}, not text")
    if not path.startswith("/"):
        raise _not_absolute(path)
    if "\0" in path:
        raise InvalidAddress("path", "contains NUL")
    if path != "/" and not {"", ".", ".."}.isdisjoint(path[1:].split("/")):
        raise InvalidAddress("path", "is not canonical: it has an empty, '.' or '..' segment")
    _check_bytes(path)
    return path


def _check_bytes(path: str) -> None:
    try:
        raw = path.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        raise _half_character() from None
    if raw.decode("utf-8", "surrogateescape") != path:
        raise InvalidAddress("path", "is not canonical: it escapes bytes that are valid UTF-8")
    _check_length(raw)


def _bytes_of(path: object) -> bytes:
    """What the disk would be asked for."""
    if not isinstance(path, str | os.PathLike) or not isinstance(text := os.fspath(path), str):
        kind = type(path).__name__
        raise InvalidAddress("path", f"is of type {kind}, not text", hint="Pass a str or a pathlib.Path.")
    try:
        raw = os.fsencode(text)
    except UnicodeEncodeError:
        raise _half_character() from None
    if b"\0" in raw:
        raise InvalidAddress("path", "contains NUL")
    return raw


def _absolute(written: bytes) -> bytes:
    path = _expand_home(written) if written.startswith(b"~") else written
    if not path.startswith(b"/"):
        raise _not_absolute(path)
    _check_length(path)
    return path


def _expand_home(written: bytes) -> bytes:
    user = written.partition(b"/")[0]
    path = os.path.expanduser(written)
    # An empty HOME would make "~" the root of the disk.
    if path.startswith(b"~") or (user == b"~" and os.environ.get("HOME") == ""):
        raise InvalidAddress("path", f"names no known home directory: {os.fsdecode(user)!r}")
    return path


def _refuse_unresolved(real: bytes) -> None:
    """Raise unless the path was followed to its end: what could not be looked at may be a link to elsewhere."""
    try:
        mode = os.lstat(real).st_mode
    except (FileNotFoundError, NotADirectoryError):
        return
    except OSError as error:
        raise InvalidAddress("path", f"cannot be resolved: {error.strerror}") from error
    if stat.S_ISLNK(mode):
        raise InvalidAddress("path", f"cannot be resolved: {os.strerror(errno.ELOOP)}")


def _merge_forms(real: bytes) -> bytes:
    """The path with each name in composed unicode form (NFC) where the disk says that this is the same file."""
    if real.isascii():
        return real
    merged = b""
    for name in real[1:].split(b"/"):
        given, composed = merged + b"/" + name, merged + b"/" + _composed(name)
        merged = composed if given != composed and _same_inode(given, composed) else given
    return merged


def _composed(name: bytes) -> bytes:
    text = unicodedata.normalize("NFC", name.decode("utf-8", "surrogateescape"))
    return text.encode("utf-8", "surrogateescape")


def _same_inode(one: bytes, other: bytes) -> bool:
    try:
        return os.path.samestat(os.lstat(one), os.lstat(other))
    except OSError:
        return False


def _check_length(raw: bytes) -> None:
    if len(raw) > PATH_BYTES:
        raise InvalidAddress("path", f"has {len(raw)} bytes, more than {PATH_BYTES}")


def _not_absolute(path: str | bytes) -> InvalidAddress:
    problem = "is not absolute" if path else "is empty"
    return InvalidAddress("path", problem, hint="Name the directory from the root, or from a home directory with '~'.")


def _half_character() -> InvalidAddress:
    hint = "Remove its lone surrogates, or run in a UTF-8 locale."
    return InvalidAddress("path", "contains characters that no file name can have here", hint=hint)
