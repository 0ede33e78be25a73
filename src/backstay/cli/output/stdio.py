"""The standard streams of a command: replaces closed ones, and turns write failures into error messages."""

import errno
import os
import sys
from pathlib import Path

from backstay.errors import ConfigError

# Errors of writing to a stream. An error with a file name concerns that file, not a stream.
_UNWRITABLE = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EBADF}


def prepare() -> None:
    """Replace the streams that were closed by the parent process; escape characters that the others cannot encode."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            # Takes the closed file descriptor, so that no file of the store gets the number of an output stream.
            setattr(sys, name, Path(os.devnull).open(mode))  # noqa: SIM115  # it stays open as long as the command
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")


def config_error(error: OSError) -> ConfigError:
    """Convert a failure to write standard output to a `ConfigError`; raise any other error again."""
    if error.filename is not None or error.errno not in _UNWRITABLE:
        raise error
    abandon_output()
    return ConfigError(
        f"standard output cannot be written: {error.strerror}",
        hint="The command may have been executed: check before you repeat it.",
    )


def abandon_output() -> None:
    """Discard the buffered output, so that the interpreter's final flush does not fail too."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
