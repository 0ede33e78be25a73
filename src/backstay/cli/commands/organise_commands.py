"""`backstay rename`, `pin`, `archive`, `tag`, `end` and `delete`: organise sessions."""

from collections.abc import Callable, Sequence

import click

from backstay.cli.commands.list_command import called
from backstay.cli.options import Ask, asks
from backstay.cli.output import screen
from backstay.cli.output.confirmation import confirm
from backstay.cli.session_names import SESSION, find, list_number
from backstay.cli.session_store import SessionStore
from backstay.model.session import Deleted, SessionInfo

RENAME = """\b
Examples:
  backstay rename ses_01kb "Holiday plans"
  backstay rename ses_01kb --none
"""
PIN = """\b
Examples:
  backstay pin ses_01kb
  backstay list --pinned
"""
UNPIN = """\b
Examples:
  backstay unpin ses_01kb ses_01kc
"""
ARCHIVE = """\b
Examples:
  backstay archive ses_01kb ses_01kc
  backstay list --archived
"""
UNARCHIVE = """\b
Examples:
  backstay unarchive ses_01kb
"""
END = """\b
Examples:
  backstay end ses_01kb
  backstay list --state ended
"""
DELETE = """\b
Examples:
  backstay delete ses_01kb
  backstay delete --yes ses_01kb ses_01kc
"""
TAG = """\b
Examples:
  backstay tag ses_01kb work urgent
  backstay tag ses_01kb --remove urgent
"""

_sessions = click.argument("sessions", metavar="SESSION...", type=SESSION, nargs=-1, required=True)


@click.command(epilog=RENAME)
@click.argument("session", type=SESSION)
@click.argument("title", required=False)
@click.option("--none", "untitled", is_flag=True, help="Remove the title.")
@asks
def rename(ask: Ask, *, session: str, title: str | None, untitled: bool) -> None:
    """Set the title of a session."""
    if (title is None) != untitled:
        raise click.UsageError("Give a TITLE, or --none to remove it.")
    with ask.store() as store:
        found = find(store, session, ask.owner)
        _done(ask, [store.rename(found.id, title, owner=ask.owner)], "renamed")


@click.command(epilog=PIN)
@_sessions
@asks
def pin(ask: Ask, *, sessions: Sequence[str]) -> None:
    """Pin sessions."""
    _each(ask, sessions, "pinned", lambda store, one: store.pin(one.id, True, owner=ask.owner))


@click.command(epilog=UNPIN)
@_sessions
@asks
def unpin(ask: Ask, *, sessions: Sequence[str]) -> None:
    """Unpin sessions."""
    _each(ask, sessions, "unpinned", lambda store, one: store.pin(one.id, False, owner=ask.owner))


@click.command(epilog=ARCHIVE)
@_sessions
@asks
def archive(ask: Ask, *, sessions: Sequence[str]) -> None:
    """Archive sessions: `backstay list` hides them."""
    _each(ask, sessions, "archived", lambda store, one: store.archive(one.id, True, owner=ask.owner))


@click.command(epilog=UNARCHIVE)
@_sessions
@asks
def unarchive(ask: Ask, *, sessions: Sequence[str]) -> None:
    """Restore archived sessions to the list."""
    _each(ask, sessions, "unarchived", lambda store, one: store.archive(one.id, False, owner=ask.owner))


@click.command(epilog=TAG)
@click.argument("session", type=SESSION)
@click.argument("tags", metavar="[TAG]...", nargs=-1)
@click.option("--remove", multiple=True, metavar="TAG", help="Remove this tag; may be repeated.")
@asks
def tag(ask: Ask, *, session: str, tags: Sequence[str], remove: Sequence[str]) -> None:
    """Add tags to a session, and remove others."""
    if not tags and not remove:
        raise click.UsageError("Give a TAG to add, or --remove TAG.")
    with ask.store() as store:
        found = find(store, session, ask.owner)
        _done(ask, [store.tag(found.id, owner=ask.owner, add=tags, remove=remove)], "tagged")


@click.command(epilog=END, short_help="End sessions permanently; they stay readable.")
@_sessions
@asks
def end(ask: Ask, *, sessions: Sequence[str]) -> None:
    """End sessions permanently: they stay readable and accept no more messages.

    Their running and waiting turns are cancelled.
    """
    _each(ask, sessions, "ended", lambda store, one: store.end(one.id, owner=ask.owner))


@click.command(epilog=DELETE)
@_sessions
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@asks
def delete(ask: Ask, *, sessions: Sequence[str], yes: bool) -> None:
    """Delete sessions and their messages. This cannot be undone.

    Messages that a fork uses are kept for it.
    """
    if yes and any(list_number(name) is not None for name in sessions):
        raise click.UsageError("With --yes, name sessions by id: the order of the list may have changed.")
    with ask.store() as store:
        found = _find_all(store, sessions, ask.owner)
        if not yes:
            _ask_first(found)
        gone = [(one, store.delete(one.id, owner=ask.owner)) for one in found]
    if ask.json:
        screen.print_json({"deleted": [{"session": one.id, "removed": removed} for one, removed in gone]})
        return
    for one, removed in gone:
        screen.print_line(f"deleted {one.id}: {_removed(removed)}")


def _each(ask: Ask, names: Sequence[str], done: str, act: Callable[[SessionStore, SessionInfo], SessionInfo]) -> None:
    """Find all sessions before the first is changed."""
    with ask.store() as store:
        _done(ask, [act(store, one) for one in _find_all(store, names, ask.owner)], done)


def _find_all(store: SessionStore, names: Sequence[str], owner: str) -> list[SessionInfo]:
    found = [find(store, name, owner) for name in names]
    return list({one.id: one for one in found}.values())


def _done(ask: Ask, sessions: list[SessionInfo], done: str) -> None:
    if ask.json:
        screen.print_json({"sessions": sessions})
        return
    for one in sessions:
        screen.facts([(f"{done} {one.id}", called(one))])


def _ask_first(sessions: list[SessionInfo]) -> None:
    for one in sessions:
        screen.facts([(one.id, f"{screen.counted(one.turns, 'turn')}  {called(one)}")])
    question = f"Permanently delete {screen.counted(len(sessions), 'session')}?"
    confirm(question, otherwise="nothing was deleted")


def _removed(removed: Deleted) -> str:
    parts = [
        screen.counted(removed.messages, "message"),
        screen.counted(removed.turns, "turn"),
        screen.counted(removed.events, "event"),
    ]
    kept = f"; {screen.counted(removed.kept_messages, 'message')} kept for a fork" if removed.kept_messages else ""
    return ", ".join(parts) + kept
