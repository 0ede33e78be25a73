"""`backstay rename`, `pin`, `archive`, `tag`, `end` and `delete`: organise sessions."""

from collections.abc import Callable, Sequence

import click

from backstay.cli.commands.list_command import title_of
from backstay.cli.options import CommandOptions, session_options
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
@session_options
def rename(options: CommandOptions, *, session: str, title: str | None, untitled: bool) -> None:
    """Set the title of a session."""
    if (title is None) != untitled:
        raise click.UsageError("Give a TITLE, or --none to remove it.")
    with options.store() as store:
        found = find(store, session, options.owner)
        _print_sessions(options, [store.rename(found.id, title, owner=options.owner)], "renamed")


@click.command(epilog=PIN)
@_sessions
@session_options
def pin(options: CommandOptions, *, sessions: Sequence[str]) -> None:
    """Pin sessions."""
    _change_each(options, sessions, "pinned", lambda store, one: store.pin(one.id, True, owner=options.owner))


@click.command(epilog=UNPIN)
@_sessions
@session_options
def unpin(options: CommandOptions, *, sessions: Sequence[str]) -> None:
    """Unpin sessions."""
    _change_each(options, sessions, "unpinned", lambda store, one: store.pin(one.id, False, owner=options.owner))


@click.command(epilog=ARCHIVE)
@_sessions
@session_options
def archive(options: CommandOptions, *, sessions: Sequence[str]) -> None:
    """Archive sessions: `backstay list` hides them."""
    _change_each(options, sessions, "archived", lambda store, one: store.archive(one.id, True, owner=options.owner))


@click.command(epilog=UNARCHIVE)
@_sessions
@session_options
def unarchive(options: CommandOptions, *, sessions: Sequence[str]) -> None:
    """Restore archived sessions to the list."""
    _change_each(options, sessions, "unarchived", lambda store, one: store.archive(one.id, False, owner=options.owner))


@click.command(epilog=TAG)
@click.argument("session", type=SESSION)
@click.argument("tags", metavar="[TAG]...", nargs=-1)
@click.option("--remove", multiple=True, metavar="TAG", help="Remove this tag; may be repeated.")
@session_options
def tag(options: CommandOptions, *, session: str, tags: Sequence[str], remove: Sequence[str]) -> None:
    """Add tags to a session, and remove others."""
    if not tags and not remove:
        raise click.UsageError("Give a TAG to add, or --remove TAG.")
    with options.store() as store:
        found = find(store, session, options.owner)
        _print_sessions(options, [store.tag(found.id, owner=options.owner, add=tags, remove=remove)], "tagged")


@click.command(epilog=END, short_help="End sessions permanently; they stay readable.")
@_sessions
@session_options
def end(options: CommandOptions, *, sessions: Sequence[str]) -> None:
    """End sessions permanently: they stay readable and accept no more messages.

    Their running and waiting turns are cancelled.
    """
    _change_each(options, sessions, "ended", lambda store, one: store.end(one.id, owner=options.owner))


@click.command(epilog=DELETE)
@_sessions
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@session_options
def delete(options: CommandOptions, *, sessions: Sequence[str], yes: bool) -> None:
    """Delete sessions and their messages. This cannot be undone.

    Messages that a fork uses are kept for it.
    """
    if yes and any(list_number(name) is not None for name in sessions):
        raise click.UsageError("With --yes, name sessions by id: the order of the list may have changed.")
    with options.store() as store:
        found = _find_all(store, sessions, options.owner)
        if not yes:
            _confirm_deletion(found)
        deletions = [(one, store.delete(one.id, owner=options.owner)) for one in found]
    if options.json:
        screen.print_json({"deleted": [{"session": one.id, "removed": removed} for one, removed in deletions]})
        return
    for one, removed in deletions:
        screen.print_line(f"deleted {one.id}: {_counts(removed)}")


def _change_each(
    options: CommandOptions, names: Sequence[str], done: str, act: Callable[[SessionStore, SessionInfo], SessionInfo]
) -> None:
    """Find all sessions before the first is changed."""
    with options.store() as store:
        _print_sessions(options, [act(store, one) for one in _find_all(store, names, options.owner)], done)


def _find_all(store: SessionStore, names: Sequence[str], owner: str) -> list[SessionInfo]:
    found = [find(store, name, owner) for name in names]
    return list({one.id: one for one in found}.values())


def _print_sessions(options: CommandOptions, sessions: list[SessionInfo], done: str) -> None:
    if options.json:
        screen.print_json({"sessions": sessions})
        return
    for one in sessions:
        screen.facts([(f"{done} {one.id}", title_of(one))])


def _confirm_deletion(sessions: list[SessionInfo]) -> None:
    for one in sessions:
        screen.facts([(one.id, f"{screen.counted(one.turns, 'turn')}  {title_of(one)}")])
    question = f"Permanently delete {screen.counted(len(sessions), 'session')}?"
    confirm(question, otherwise="nothing was deleted")


def _counts(removed: Deleted) -> str:
    parts = [
        screen.counted(removed.messages, "message"),
        screen.counted(removed.turns, "turn"),
        screen.counted(removed.events, "event"),
    ]
    kept = f"; {screen.counted(removed.kept_messages, 'message')} kept for a fork" if removed.kept_messages else ""
    return ", ".join(parts) + kept
