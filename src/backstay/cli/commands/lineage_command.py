"""`backstay lineage`: the windows of a session as a tree."""

from collections import defaultdict
from collections.abc import Iterator, Sequence

import click

from backstay.cli.options import CommandOptions, session_options
from backstay.cli.output import screen
from backstay.cli.session_names import SESSION, find
from backstay.model.ids import WindowId
from backstay.model.session import SessionInfo
from backstay.model.window import Window

EXAMPLES = """\b
Examples:
  backstay lineage ses_01kb
  backstay show ses_01kb --window 1
"""
_REASONS = {
    "first": "began",
    "undo": "after an undo",
    "retry": "for a retry",
    "edit": "with a message edited",
    "fork": "forked",
    "compaction": "after a compaction",
}


@click.command(epilog=EXAMPLES, short_help="Draw the windows of a session as a tree.")
@click.argument("session", type=SESSION)
@session_options
def lineage(options: CommandOptions, *, session: str) -> None:
    """Draw the windows of a session: why each was created, and which one is current.

    `backstay show --window` takes these numbers.
    """
    with options.store() as store:
        found = find(store, session, options.owner)
        windows = store.lineage(found.id, owner=options.owner)
    if options.json:
        screen.print_json({"session": found.id, "current": found.window, "source": found.source, "windows": windows})
        return
    for line in drawn(found, windows):
        screen.print_line(line)


def drawn(session: SessionInfo, windows: Sequence[Window]) -> Iterator[str]:
    """Yield the lines of the tree. A window whose parent belongs to another session, or is deleted, is a root."""
    if session.source is not None:
        yield f"forked from {session.source}"
    numbers = {window.id: number for number, window in enumerate(windows, 1)}
    children: defaultdict[WindowId | None, list[Window]] = defaultdict(list)
    for window in windows:
        children[window.parent if window.parent in numbers else None].append(window)
    width = len(str(len(windows)))
    # Without recursion: a session that was undone a thousand times has a tree a thousand levels deep.
    stack = [(window, "", True, True) for window in reversed(children[None])]
    while stack:
        window, indent, last, root = stack.pop()
        branch = "" if root else "└─ " if last else "├─ "
        here = "  ← now" if window.id == session.window else ""
        yield f"{numbers[window.id]:>{width}}  {indent}{branch}{_description(window)}{here}"
        below = indent if root else indent + ("   " if last else "│  ")
        own_children = children[window.id]
        stack += [(child, below, child is own_children[-1], False) for child in reversed(own_children)]


def _description(window: Window) -> str:
    shared = f", shares {screen.counted(window.start, 'message')}" if window.start else ""
    return f"{window.id}  {screen.moment(window.at)}  {_REASONS[window.reason]}{shared}"
