"""Finds a session by its id, by a unique beginning of it, or by an address that points to it."""

from collections.abc import Sequence
from pathlib import Path

import click
from click.shell_completion import CompletionItem

from backstay.cli.options import Ask, chosen
from backstay.cli.output import safe_text
from backstay.errors import BackstayError, NotFound
from backstay.model.addresses.address import Address
from backstay.model.ids import WindowId, check_session_id
from backstay.model.session import SessionInfo
from backstay.store import Store

_SHOWN = 10
# This many sessions are enough to see that a name is ambiguous.
MANY = _SHOWN + 1
_LETTERS = 26
_PREFIX = "ses_"
# The default scope of the workspace address of a directory.
_SCOPE = "main"


class SessionName(click.ParamType):  # type: ignore[type-arg]  # it takes one only in newer versions of click
    """A parameter that names a session; the shell completes ids."""

    name = "session"

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        try:
            effective = chosen(ctx.params.get("file"), db=ctx.params.get("db"), owner=ctx.params.get("owner"))
            ask = Ask(effective, json=True)
            with ask.store() as store:
                found = store.beginning_with(prefix_of(incomplete), owner=ask.owner, limit=50)
        except BackstayError:
            return []  # Shell completion cannot show an error; the command itself will.
        return [CompletionItem(one.id, help=safe_text.one_line(one.title or one.preview or "")) for one in found]


SESSION = SessionName()


def find(store: Store, name: str, owner: str) -> SessionInfo:
    """Return the session; raise `NotFound` if no session or several match."""
    if "://" in name:
        return store.at(Address.parse(name), owner=owner)
    if is_whole(name):
        return store.session(check_session_id(name), owner=owner)
    return only(name, store.beginning_with(prefix_of(name), owner=owner, limit=MANY) if name else (), owner)


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
            f"there is no session{whose} with the id or prefix {name!r}",
            hint="`backstay list` shows the ids; the first letters of one are enough, or an address.",
        )
    if len(found) > 1:
        raise _ambiguous(name, found)
    return found[0]


def window_of(store: Store, session: SessionInfo, name: str) -> WindowId:
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
