"""Opens the web UI in a browser, if a person is at this machine."""

import os
import sys
import threading
import webbrowser
from collections.abc import Mapping


def has_display(environment: Mapping[str, str]) -> bool:
    """Whether a terminal started us and there is a display for a browser."""
    if not sys.stdout.isatty():
        return False
    if sys.platform == "darwin":
        return "SSH_CONNECTION" not in environment
    return bool(environment.get("DISPLAY") or environment.get("WAYLAND_DISPLAY"))


def is_opened(wanted: bool | None) -> bool:
    """Whether to open the web UI: as requested, or by default if there is a terminal and a display."""
    return has_display(os.environ) if wanted is None else wanted


def open_web_ui(url: str, wanted: bool | None) -> None:
    """Open the web UI, if it should be opened.

    On a thread: some browsers return only when they are closed, and the server must run meanwhile.
    """
    if is_opened(wanted):
        threading.Thread(target=webbrowser.open, args=[url], name="backstay browser", daemon=True).start()
