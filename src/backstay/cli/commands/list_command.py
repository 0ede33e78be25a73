"""`backstay list`: sessions, newest activity first."""

import sys
from collections.abc import Iterator

import click
from msgspec import UNSET, Struct, UnsetType

from backstay.cli.options import CommandOptions, session_options
from backstay.cli.output import screen
from backstay.cli.session_names import SESSION, directory, find
from backstay.cli.session_store import SessionStore
from backstay.model.addresses.address import workspace_place
from backstay.model.session import SessionCursor, SessionFilter, SessionInfo

EXAMPLES = """\b
Examples:
  backstay list
  backstay list --tag work --state open
  backstay list --workspace .
  backstay list --all --json | jq -r '.sessions[].id'
"""


class Listed(Struct):
    """A page of the list as JSON; `next` is the value of --after for the next page."""

    sessions: list[SessionInfo]
    next: str | UnsetType | None = UNSET


@click.command("list", epilog=EXAMPLES)
@click.option("--state", type=click.Choice(["open", "ended", "expired"]), help="Only sessions in this state.")
@click.option("--tag", help="Only sessions with this tag.")
@click.option("--agent", help="Only sessions whose last turn was for this agent.")
@click.option("--platform", help="Only sessions whose first address is of this chat platform.")
@click.option("--workspace", metavar="DIR", help="Only sessions that work in this directory.")
@click.option("--pinned", is_flag=True, help="Only pinned sessions.")
@click.option("--archived", is_flag=True, help="Only archived sessions, which are hidden by default.")
@click.option("--with-archived", is_flag=True, help="Include archived sessions.")
@click.option(
    "--limit", type=click.IntRange(1, 1_000), default=50, show_default=True, help="The maximum number of sessions."
)
@click.option("--after", type=SESSION, help="Continue the list after this session.")
@click.option("--all", "everything", is_flag=True, help="Show all sessions, without a limit.")
@session_options
def list_sessions(
    options: CommandOptions,
    *,
    state: str | None,
    tag: str | None,
    agent: str | None,
    platform: str | None,
    workspace: str | None,
    pinned: bool,
    archived: bool,
    with_archived: bool,
    limit: int,
    after: str | None,
    everything: bool,
) -> None:
    """List sessions, newest activity first."""
    if platform is not None and workspace is not None:
        raise click.UsageError("--platform and --workspace exclude each other.")
    wanted = SessionFilter(
        state=state,  # type: ignore[arg-type]  # one of the choices above
        tag=tag,
        agent=agent,
        family="chat" if platform is not None else "workspace" if workspace is not None else None,
        place=platform if workspace is None else workspace_place(directory(workspace)),
        pinned=True if pinned else None,
        archived=None if with_archived else archived,
    )
    with options.store() as store:
        start = None if after is None else _place_of(find(store, after, options.owner))
        pages = _pages(store, options.owner, wanted, start, limit)
        listed = Listed([one for page in pages for one in page.sessions]) if everything else next(pages)
    _show(options, listed, numbered=start is None and wanted == SessionFilter(archived=False))


def _pages(
    store: SessionStore, owner: str, wanted: SessionFilter, after: SessionCursor | None, limit: int
) -> Iterator[Listed]:
    while True:
        page = store.list(owner=owner, filter=wanted, after=after, limit=limit)
        yield Listed(list(page.sessions), None if page.next is None else page.next.id)
        after = page.next
        if after is None:
            return


def _place_of(session: SessionInfo) -> SessionCursor:
    return SessionCursor(active_at=session.active_at, id=session.id)


def _show(options: CommandOptions, listed: Listed, *, numbered: bool) -> None:
    """Print the list. A person sees numbers that name sessions, unless the list is filtered."""
    if options.json:
        screen.print_json(listed)
        return
    if not listed.sessions:
        screen.note("No session matches. `backstay send` creates one; --with-archived shows archived ones too.")
        return
    headings, rows = ["SESSION", "ACTIVE", "STATE", "TURNS", "TITLE"], [_row(one) for one in listed.sessions]
    if numbered and screen.is_terminal(sys.stdout):
        headings, rows = ["#", *headings], [[str(number), *row] for number, row in enumerate(rows, 1)]
    screen.table(headings, rows)
    if isinstance(listed.next, str):
        screen.note(f"There are more: --after {listed.next}, or --all.")


def _row(session: SessionInfo) -> list[str]:
    return [
        session.id,
        screen.moment(session.active_at),
        state_of(session),
        str(session.turns),
        " ".join([*_badges(session), title_of(session)]),
    ]


def state_of(session: SessionInfo) -> str:
    """Describe what a session is doing, in a word or two."""
    if session.running is not None:
        return f"running +{session.waiting}" if session.waiting else "running"
    if session.held:
        queued = session.waiting - session.held
        return f"held {session.held}, waiting {queued}" if queued else f"held {session.held}"
    return f"waiting {session.waiting}" if session.waiting else session.state


def title_of(session: SessionInfo) -> str:
    """Return the title, or a quote of the last message."""
    return session.title or (f"“{session.preview}”" if session.preview else "")


def _badges(session: SessionInfo) -> list[str]:
    marks = ["pinned"] if session.pinned else []
    marks += ["archived"] if session.archived else []
    return [f"[{word}]" for word in [*marks, *(f"#{tag}" for tag in session.tags)]]
