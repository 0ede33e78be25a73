"""The standard streams of a command: always there, able to hold any text, and in our words when they fail."""

import errno
import os
import sys
from pathlib import Path

from backstay.errors import ConfigError

# Why a stream cannot be written; an error that names a file is about that file, and not about a stream.
_UNWRITABLE = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EBADF}


def prepare() -> None:
    """Stand in for streams that were closed by whoever started us; spell out what the others cannot encode."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            # Takes the place of the one that was closed, so that no file of the store ends up where output goes.
            setattr(sys, name, Path(os.devnull).open(mode))  # noqa: SIM115  # it lasts as long as the command
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")


def in_our_words(error: OSError) -> ConfigError:
    """Why the answer cannot be written; raises what is about something else."""
    if error.filename is not None or error.errno not in _UNWRITABLE:
        raise error
    abandon_output()
    return ConfigError(
        f"standard output cannot be written: {error.strerror}",
        hint="What the command was to do may have been done: look before you repeat it.",
    )


def abandon_output() -> None:
    """What is still in the buffer goes nowhere, so that the interpreter's last flush does not complain either."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
