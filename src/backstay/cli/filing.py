"""`backstay rename`, `pin`, `archive`, `tag`, `end` and `delete`: what a person does with sessions, not in them."""

import sys
from collections.abc import Callable, Sequence

import click

from backstay.cli import screen
from backstay.cli.listing import called
from backstay.cli.naming import SESSION, find
from backstay.cli.options import Ask, asks
from backstay.errors import Conflict
from backstay.model.session import Deleted, Session
from backstay.store import Store

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
@click.option("--none", "untitled", is_flag=True, help="Take the title away.")
@asks
def rename(ask: Ask, *, session: str, title: str | None, untitled: bool) -> None:
    """Give a session a title."""
    if (title is None) != untitled:
        raise click.UsageError("Give a TITLE, or --none to take it away.")
    with ask.store() as store:
        found = find(store, session, ask.owner)
        _done(ask, [store.rename(found.id, title, owner=ask.owner)], "renamed")


@click.command(epilog=PIN)
@_sessions
@asks
def pin(ask: Ask, *, sessions: Sequence[str]) -> None:
    """Mark sessions as pinned."""
    _each(ask, sessions, "pinned", lambda store, one: store.pin(one.id, True, owner=ask.owner))


@click.command(epilog=UNPIN)
@_sessions
@asks
def unpin(ask: Ask, *, sessions: Sequence[str]) -> None:
    """Take the pin off sessions."""
    _each(ask, sessions, "unpinned", lambda store, one: store.pin(one.id, False, owner=ask.owner))


@click.command(epilog=ARCHIVE)
@_sessions
@asks
def archive(ask: Ask, *, sessions: Sequence[str]) -> None:
    """Put sessions away: `backstay list` leaves them out."""
    _each(ask, sessions, "archived", lambda store, one: store.archive(one.id, True, owner=ask.owner))


@click.command(epilog=UNARCHIVE)
@_sessions
@asks
def unarchive(ask: Ask, *, sessions: Sequence[str]) -> None:
    """Bring archived sessions back."""
    _each(ask, sessions, "unarchived", lambda store, one: store.archive(one.id, False, owner=ask.owner))


@click.command(epilog=TAG)
@click.argument("session", type=SESSION)
@click.argument("tags", metavar="[TAG]...", nargs=-1)
@click.option("--remove", multiple=True, metavar="TAG", help="Take this tag away; may be given several times.")
@asks
def tag(ask: Ask, *, session: str, tags: Sequence[str], remove: Sequence[str]) -> None:
    """Add tags to a session, and take others away."""
    if not tags and not remove:
        raise click.UsageError("Give a TAG to add, or --remove TAG.")
    with ask.store() as store:
        found = find(store, session, ask.owner)
        _done(ask, [store.tag(found.id, owner=ask.owner, add=tags, remove=remove)], "tagged")


@click.command(epilog=END, short_help="End sessions for good; they stay readable.")
@_sessions
@asks
def end(ask: Ask, *, sessions: Sequence[str]) -> None:
    """End sessions for good: they stay readable and take no more messages.

    What runs or waits in them is cancelled.
    """
    _each(ask, sessions, "ended", lambda store, one: store.end(one.id, owner=ask.owner))


@click.command(epilog=DELETE)
@_sessions
@click.option("--yes", is_flag=True, help="Do not ask.")
@asks
def delete(ask: Ask, *, sessions: Sequence[str], yes: bool) -> None:
    """Delete sessions and what was said in them. This cannot be undone.

    What a fork still reads is kept for it.
    """
    with ask.store() as store:
        found = _find_all(store, sessions, ask.owner)
        if not yes:
            _ask_first(found)
        gone = [(one, store.delete(one.id, owner=ask.owner)) for one in found]
    if ask.json:
        screen.say_json({"deleted": [{"session": one.id, "removed": removed} for one, removed in gone]})
        return
    for one, removed in gone:
        screen.say(f"deleted {one.id}: {_removed(removed)}")


def _each(ask: Ask, names: Sequence[str], done: str, act: Callable[[Store, Session], Session]) -> None:
    """Find all of them before anything is done to one."""
    with ask.store() as store:
        _done(ask, [act(store, one) for one in _find_all(store, names, ask.owner)], done)


def _find_all(store: Store, names: Sequence[str], owner: str) -> list[Session]:
    found = [find(store, name, owner) for name in names]
    return list({one.id: one for one in found}.values())


def _done(ask: Ask, sessions: list[Session], done: str) -> None:
    if ask.json:
        screen.say_json({"sessions": sessions})
        return
    for one in sessions:
        screen.facts([(f"{done} {one.id}", called(one))])


def _ask_first(sessions: list[Session]) -> None:
    for one in sessions:
        screen.facts([(one.id, f"{screen.counted(one.turns, 'turn')}  {called(one)}")])
    try:
        agreed = click.confirm(f"Delete {screen.counted(len(sessions), 'session')} for good?", err=True)
    except click.Abort:
        if screen.is_terminal(sys.stdin):
            raise
        raise Conflict("nothing was deleted: nobody answered the question", hint="Say --yes.") from None
    if not agreed:
        raise Conflict("nothing was deleted", hint="")


def _removed(removed: Deleted) -> str:
    parts = [
        screen.counted(removed.messages, "message"),
        screen.counted(removed.turns, "turn"),
        screen.counted(removed.events, "event"),
    ]
    kept = f"; {screen.counted(removed.kept_messages, 'message')} kept for a fork" if removed.kept_messages else ""
    return ", ".join(parts) + kept
