"""The traceback of an exception in a user's own code, without the frames of Backstay and of Python's import system."""

import importlib
import traceback
from pathlib import Path

_MOST_FRAMES = 6
_LIBRARY_PREFIXES = (str(Path(__file__).parents[1]), str(Path(importlib.__file__).parent), "<frozen ")


def agent_traceback(error: BaseException) -> str:
    """Return the type and text of the exception, after the last frames of the user's code that it went through."""
    frames = traceback.extract_tb(error.__traceback__)
    agent_frames = [frame for frame in frames if not frame.filename.startswith(_LIBRARY_PREFIXES)]
    shown = agent_frames[-_MOST_FRAMES:]
    left_out = [f"  … {len(agent_frames) - len(shown)} more\n"] if len(agent_frames) > len(shown) else []
    lines = [*left_out, *traceback.format_list(shown), *traceback.format_exception_only(error)]
    return "".join(lines).rstrip("\n")
