"""How a person names a session: by its id, by as much of it as is unique, or by an address that leads to it."""

from collections.abc import Sequence
from pathlib import Path

import click
from click.shell_completion import CompletionItem

from backstay.cli import plain
from backstay.cli.options import Ask, chosen
from backstay.errors import BackstayError, NotFound
from backstay.model.address import Address
from backstay.model.ids import WindowId, check_session_id
from backstay.model.session import Session
from backstay.store import Store

_SHOWN = 10
# So many sessions are enough to see that a name is not clear.
MANY = _SHOWN + 1
_LETTERS = 26
_PREFIX = "ses_"
# The scope under which a directory's conversation is found again.
_SCOPE = "main"


class SessionName(click.ParamType):  # type: ignore[type-arg]  # it takes one only in newer versions of click
    """An argument that names a session; the shell completes ids."""

    name = "session"

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        try:
            told = chosen(ctx.params.get("file"), db=ctx.params.get("db"), owner=ctx.params.get("owner"))
            ask = Ask(told, json=True)
            with ask.store() as store:
                found = store.beginning_with(prefix_of(incomplete), owner=ask.owner, limit=50)
        except BackstayError:
            return []  # A shell that completes has no place for an error; the command itself will tell.
        return [CompletionItem(one.id, help=plain.one_line(one.title or one.preview or "")) for one in found]


SESSION = SessionName()


def find(store: Store, name: str, owner: str) -> Session:
    """The session that is meant, or an error that says why it is not clear which."""
    if "://" in name:
        return store.at(Address.parse(name), owner=owner)
    if is_whole(name):
        return store.session(check_session_id(name), owner=owner)
    return only(name, store.beginning_with(prefix_of(name), owner=owner, limit=MANY) if name else (), owner)


def is_whole(name: str) -> bool:
    """Whether it looks like an id, and not like the beginning of one."""
    return len(name) == len(_PREFIX) + _LETTERS and name.startswith(_PREFIX)


def prefix_of(name: str) -> str:
    """How the id begins that is meant by its first letters."""
    return name if name.startswith(_PREFIX) or _PREFIX.startswith(name) else _PREFIX + name


def only(name: str, found: Sequence[Session], owner: str | None = None) -> Session:
    """The one session that was found under this name, or an error that says why it is not clear which."""
    if not found:
        whose = "" if owner is None else f" of {owner!r}"
        raise NotFound(
            f"no session{whose} is called {name!r}",
            hint="`backstay list` shows their ids; the first letters of one are enough, or an address.",
        )
    if len(found) > 1:
        raise _ambiguous(name, found)
    return found[0]


def window_of(store: Store, session: Session, name: str) -> WindowId:
    """A window by its id, or by its number in the lineage."""
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
    """The address of whoever works in a directory."""
    return Address.workspace(directory(path), scope=scope or _SCOPE, host=host)


def directory(path: str) -> Path:
    """A directory as a person names it, seen from where they stand."""
    return Path(path).expanduser().absolute()


def _ambiguous(name: str, found: Sequence[Session]) -> NotFound:
    shown = [f"  {one.id}  {plain.one_line(one.title or one.preview or '')[:60]}".rstrip() for one in found[:_SHOWN]]
    more = ["  …"] if len(found) > _SHOWN else []
    return NotFound(
        "\n".join([f"{name!r} could be any of these:", *shown, *more]), hint="Write more letters of the id."
    )
