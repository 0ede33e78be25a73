"""The browser of whoever sits before the machine, if somebody does."""

import os
import sys
import threading
import webbrowser
from collections.abc import Mapping


def somebody_looks(environment: Mapping[str, str]) -> bool:
    """Whether there is a terminal in which somebody started us, and a display on which a page can be shown."""
    if not sys.stdout.isatty():
        return False
    if sys.platform == "darwin":
        return "SSH_CONNECTION" not in environment
    return bool(environment.get("DISPLAY") or environment.get("WAYLAND_DISPLAY"))


def open_page(url: str, wanted: bool | None) -> None:
    """Show the page if that is wanted; or, if nothing was said, if somebody can see it.

    On a thread: some browsers return when they are closed, and the server must answer meanwhile.
    """
    if somebody_looks(os.environ) if wanted is None else wanted:
        threading.Thread(target=webbrowser.open, args=[url], name="backstay browser", daemon=True).start()
