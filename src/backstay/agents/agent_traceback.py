"""The traceback of an exception in a user's own code, without the frames of Backstay and of Python's import system."""

import importlib
import traceback
from pathlib import Path

_MOST_FRAMES = 6
_NOT_THEIRS = (str(Path(__file__).parents[1]), str(Path(importlib.__file__).parent), "<frozen ")


def agent_traceback(error: BaseException) -> str:
    """Return the type and text of the exception, after the last frames of the user's code that it went through."""
    frames = traceback.extract_tb(error.__traceback__)
    theirs = [frame for frame in frames if not frame.filename.startswith(_NOT_THEIRS)]
    shown = theirs[-_MOST_FRAMES:]
    left_out = [f"  … {len(theirs) - len(shown)} more\n"] if len(theirs) > len(shown) else []
    lines = [*left_out, *traceback.format_list(shown), *traceback.format_exception_only(error)]
    return "".join(lines).rstrip("\n")
