"""The canonical path of a workspace."""

import errno
import os
import stat
import unicodedata

from backstay.errors import InvalidAddress

PATH_BYTES = 4_096
# File systems of the kernel. A link there reveals processes, not directories.
_KERNEL = ("/proc", "/sys", "/dev")


def canonical_path(path: str | os.PathLike[str]) -> str:
    """The real, absolute path that this names now; it need not exist. Reads the disk, changes nothing."""
    written = _bytes_of(path)
    real = os.path.realpath(_absolute(written))
    _refuse_unresolved(real)
    # Decoded as UTF-8 in every locale, so that processes with different locales agree on one directory.
    return check_path(_merge_forms(real).decode("utf-8", "surrogateescape"))


def located_path(path: str) -> str:
    """The result of `canonical_path` for an absolute path that a client wrote. Reads the disk.

    A path that cannot be resolved is only normalised, like one that does not exist: no error reveals whether it exists.
    """
    plain = plain_path(path)
    if not path.startswith("/") or _is_kernels(plain):
        return plain
    try:
        real = canonical_path(path)
    except InvalidAddress:
        return plain
    return plain if _is_kernels(real) else real


def plain_path(path: str) -> str:
    """An absolute path without empty, "." and ".." segments; any other path unchanged. Does not read the disk."""
    if not path.startswith("/"):
        return path
    segments: list[str] = []
    for segment in path.split("/"):
        if segment == "..":
            del segments[-1:]
        elif segment not in ("", "."):
            segments.append(segment)
    return "/" + "/".join(segments)


def _is_kernels(path: str) -> bool:
    return any(path == top or path.startswith(f"{top}/") for top in _KERNEL)


def check_path(path: object) -> str:
    """The path, if it is in canonical form, or `InvalidAddress`. Does not read the disk."""
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
    """The bytes to pass to the operating system."""
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
    # With an empty HOME, "~" would become the root directory.
    if path.startswith(b"~") or (user == b"~" and os.environ.get("HOME") == ""):
        raise InvalidAddress("path", f"names an unknown home directory: {os.fsdecode(user)!r}")
    return path


def _refuse_unresolved(real: bytes) -> None:
    """Raise unless the path was resolved completely: an unreadable part may be a link to elsewhere."""
    try:
        mode = os.lstat(real).st_mode
    except (FileNotFoundError, NotADirectoryError):
        return
    except OSError as error:
        raise InvalidAddress("path", f"cannot be resolved: {error.strerror}") from error
    if stat.S_ISLNK(mode):
        raise InvalidAddress("path", f"cannot be resolved: {os.strerror(errno.ELOOP)}")


def _merge_forms(real: bytes) -> bytes:
    """The path with each name in composed Unicode form (NFC), if the disk shows that both forms are the same file."""
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
