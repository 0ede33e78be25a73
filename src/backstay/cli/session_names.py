"""Finds a session by its id, by the first or last letters of it, by its place in the list, or by its address."""

import re
from collections.abc import Sequence
from pathlib import Path

import click
from click.shell_completion import CompletionItem

from backstay.cli.options import CommandOptions, ServerOption, chosen
from backstay.cli.output import safe_text, screen
from backstay.cli.session_store import SessionStore
from backstay.errors import BackstayError, NotFound
from backstay.model.addresses.address import Address
from backstay.model.ids import WindowId, check_session_id
from backstay.model.session import SessionInfo

_SHOWN = 10
# This many sessions are enough to see that a name is ambiguous.
MANY = _SHOWN + 1
_LETTERS = 26
# The name of the session that was active last.
LAST = "last"
_NUMBER = re.compile(r"[1-9][0-9]{0,2}")
_PREFIX = "ses_"
# The default scope of the workspace address of a directory.
_SCOPE = "main"


class SessionName(click.ParamType):  # type: ignore[type-arg]  # it takes one only in newer versions of click
    """A parameter that names a session; the shell completes ids."""

    name = "session"

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        try:
            effective = chosen(ctx.params.get("file"), db=ctx.params.get("db"), owner=ctx.params.get("owner"))
            server = ctx.params.get("server")
            options = CommandOptions(
                effective, json=True, server=ServerOption(server, ctx.params.get("token")) if server else None
            )
            with options.store() as store:
                found = store.beginning_with(prefix_of(incomplete), owner=options.owner, limit=50)
        except BackstayError:
            return []  # Shell completion cannot show an error; the command itself will.
        return [CompletionItem(one.id, help=safe_text.one_line(one.title or one.preview or "")) for one in found]


SESSION = SessionName()


def find(store: SessionStore, name: str, owner: str) -> SessionInfo:
    """Return the session; raise `NotFound` if no session or several match."""
    if "://" in name:
        return store.at(Address.parse(name), owner=owner)
    if is_whole(name):
        return store.session(check_session_id(name), owner=owner)
    number = list_number(name)
    if number is not None:
        return numbered(name, store.list(owner=owner, limit=number).sessions)
    found = store.beginning_with(prefix_of(name), owner=owner, limit=MANY) if name else ()
    return only(name, found or store.ending_with(name, owner=owner, limit=MANY), owner)


def list_number(name: str) -> int | None:
    """Return the place that the name means in `backstay list`: a number from 1 to 999, or `last`, which is 1.

    No beginning of an id looks like such a number: ids begin with their time, and that with a zero until the year 3085.
    """
    if name == LAST:
        return 1
    return int(name) if _NUMBER.fullmatch(name) else None


def numbered(name: str, listed: Sequence[SessionInfo]) -> SessionInfo:
    """Return the last of the first sessions of the list; raise `NotFound` if the list is shorter."""
    if len(listed) < (list_number(name) or 1):
        raise NotFound(
            f"there is no session {name} in the list of {screen.counted(len(listed), 'session')}",
            hint="`backstay list` shows it.",
        )
    return listed[-1]


def is_whole(name: str) -> bool:
    """Whether it looks like a complete id, not like the beginning of one."""
    return len(name) == len(_PREFIX) + _LETTERS and name.startswith(_PREFIX)


def prefix_of(name: str) -> str:
    """Return the id prefix for the first letters of an id, with or without `ses_`."""
    return name if name.startswith(_PREFIX) or _PREFIX.startswith(name) else _PREFIX + name


def only(name: str, found: Sequence[SessionInfo], owner: str | None = None) -> SessionInfo:
    """Return the only session that was found; raise `NotFound` if there is none or more than one."""
    if not found:
        whose = "" if owner is None else f" of {owner!r}"
        raise NotFound(
            f"there is no session{whose} whose id begins or ends with {name!r}",
            hint="`backstay list` shows the ids; the first or last letters of one are enough, or an address.",
        )
    if len(found) > 1:
        raise _ambiguous(name, found)
    return found[0]


def window_of(store: SessionStore, session: SessionInfo, name: str) -> WindowId:
    """Return a window by its id, or by its number in the lineage."""
    if not name.isdecimal():
        return WindowId(name)
    lineage = store.lineage(session.id, owner=session.owner)
    number = int(name)
    if not 1 <= number <= len(lineage):
        raise NotFound(
            f"{session.id} has no window {number}", hint=f"It has {len(lineage)}; `backstay lineage` shows them."
        )
    return lineage[number - 1].id


def workspace(path: str, scope: str | None = None, host: str | None = None) -> Address:
    """Return the workspace address of a directory."""
    return Address.workspace(directory(path), scope=scope or _SCOPE, host=host)


def directory(path: str) -> Path:
    """Return the absolute path of a directory that a person named."""
    return Path(path).expanduser().absolute()


def _ambiguous(name: str, found: Sequence[SessionInfo]) -> NotFound:
    shown = [
        f"  {one.id}  {safe_text.one_line(one.title or one.preview or '')[:60]}".rstrip() for one in found[:_SHOWN]
    ]
    more = ["  …"] if len(found) > _SHOWN else []
    return NotFound(
        "\n".join([f"{name!r} matches several sessions:", *shown, *more]), hint="Write more letters of the id."
    )
