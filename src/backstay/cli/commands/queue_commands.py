"""`backstay waiting`, `cancel` and `compact`: the turns of a session."""

from collections.abc import Iterator

import click
from msgspec import Struct

from backstay.cli import answering
from backstay.cli.open_calls import decide_commands, open_calls
from backstay.cli.options import CommandOptions, session_options
from backstay.cli.output import conversation_text, safe_text, screen
from backstay.cli.session_names import SESSION, find
from backstay.cli.session_store import SessionStore
from backstay.errors import NothingToDo
from backstay.model.ids import SessionId, TurnId
from backstay.model.session import SessionCursor, SessionFilter, SessionInfo
from backstay.model.turn import ToolCallRecord, TurnInfo

WAITING = """\b
Examples:
  backstay waiting
  backstay waiting ses_01kb
"""
# So many sessions, the most recently active ones, are looked at if none is named.
_MOST_SESSIONS = 1_000
_PAGE = 200
CANCEL = """\b
Examples:
  backstay cancel ses_01kb
  backstay cancel ses_01kb --turn trn_01kb…
"""
COMPACT = """\b
Examples:
  backstay compact ses_01kb
  backstay compact ses_01kb --keep 2000 --focus "the travel dates"
"""


class CompactedWindow(Struct):
    """The result of a compaction as JSON."""

    session: str
    window: str


class OpenWork(Struct):
    """The work of a session that is not done, as JSON: its running turn, those that wait, and calls to approve."""

    session: SessionId
    running: TurnInfo | None
    waiting: tuple[TurnInfo, ...]
    calls: tuple[ToolCallRecord, ...]

    def __bool__(self) -> bool:
        return bool(self.running or self.waiting or self.calls)


@click.command(epilog=WAITING, short_help="List turns that run and wait, and calls to approve.")
@click.argument("session", type=SESSION, required=False)
@session_options
def waiting(options: CommandOptions, *, session: str | None) -> None:
    """List what a session waits for: its running turn, the turns behind it, and tool calls that need approval.

    The turns are in the order in which they will run. Without SESSION, all sessions in which something runs or waits
    are listed, of the 1,000 that were active last.
    """
    with options.store() as store:
        rows = _busy(store, options.owner) if session is None else [find(store, session, options.owner)]
        found = [_open_work(store, row, options.owner) for row in rows]
    if options.json:
        screen.print_json(found[0] if session is not None else {"sessions": found})
        return
    for row, work in zip(rows, found, strict=True):
        if session is None:
            screen.print_line(f"{row.id}  {safe_text.one_line(row.title or row.preview or '')}".rstrip())
        for line in _lines(work):
            screen.print_line(line if session is not None else f"  {line}")
    if not any(found):
        screen.note("No turn runs or waits.")


def _busy(store: SessionStore, owner: str) -> list[SessionInfo]:
    """Return the sessions in which a turn runs or waits, or a tool call needs approval."""
    found: list[SessionInfo] = []
    after: SessionCursor | None = None
    for _ in range(0, _MOST_SESSIONS, _PAGE):
        page = store.list(owner=owner, filter=SessionFilter(state="open"), after=after, limit=_PAGE)
        idle = [row.id for row in page.sessions if row.running is None and not row.waiting]
        asking = {badge.session for badge in store.badges(idle, owner=owner) if badge.asks} if idle else set()
        found += [row for row in page.sessions if row.id not in idle or row.id in asking]
        after = page.next
        if after is None:
            break
    return found


def _open_work(store: SessionStore, session: SessionInfo, owner: str) -> OpenWork:
    running = None if session.running is None else store.turn(session.running, owner=owner)
    turns = store.waiting(session.id, owner=owner)
    return OpenWork(session.id, running, turns, open_calls(store, session, owner))


def _lines(work: OpenWork) -> Iterator[str]:
    for turn in (*([work.running] if work.running else []), *work.waiting):
        state = "held" if turn.held else turn.state
        words = conversation_text.on_one_line(turn.input or ())
        yield f"{turn.id}  {state}  {safe_text.one_line(turn.agent or '')}  {words}".rstrip()
    for call in work.calls:
        name = safe_text.one_line(f"{call.name} ({call.call})")
        yield f"{name} waits for approval: {decide_commands(work.session)}"


@click.command(epilog=CANCEL, short_help="Cancel the running turn of a session, in any process.")
@click.argument("session", type=SESSION)
@click.option("--turn", metavar="TURN", help="Cancel this turn, which may also wait. [default: the running turn]")
@session_options
def cancel(options: CommandOptions, *, session: str, turn: str | None) -> None:
    """Cancel the running turn of a session, in any process, and wait until it has ended. Its output is kept."""
    with options.store() as store:
        found = find(store, session, options.owner)
    chosen = found.running if turn is None else TurnId(turn)
    if chosen is None:
        raise NothingToDo(f"no turn runs in {found.id}", hint="`backstay waiting` lists the turns that wait.")
    with options.app() as app:
        handle = app.session(found.id).turn(chosen)
        outcome = handle.cancel()
    if options.json:
        screen.print_json({"session": found.id, "turn": chosen, "outcome": outcome})
    else:
        screen.print_line(f"{chosen} {type(outcome).__name__.lower()}")


@click.command(epilog=COMPACT, short_help="Summarise all messages of a session but the last ones.")
@click.argument("session", type=SESSION)
@click.option("--keep", type=click.IntRange(0), metavar="TOKENS", help="About how many tokens to keep unchanged.")
@click.option("--focus", default="", help="The topic that the summary should preserve above all.")
@answering.agent_option
@session_options
def compact(options: CommandOptions, *, session: str, keep: int | None, focus: str, agent: str | None) -> None:
    """Summarise all messages of a session but the last ones. The messages stay in the lineage."""
    with options.store() as store:
        found = find(store, session, options.owner)
    with answering.app(options, answering.agent_options(options, agent)) as (app, _):
        window = app.session(found.id).compact(keep=keep, focus=focus)
    if options.json:
        screen.print_json(CompactedWindow(found.id, window.id))
    elif window.id == found.window:
        screen.note("There is nothing to summarise.")
    else:
        screen.print_line(f"compacted: {found.id} reads {window.id} now")
