"""`backstay waiting`, `cancel` and `compact`: the turns of a session."""

import click
from msgspec import Struct

from backstay.cli import answering
from backstay.cli.options import CommandOptions, session_options
from backstay.cli.output import conversation_text, safe_text, screen
from backstay.cli.session_names import SESSION, find
from backstay.errors import NothingToDo
from backstay.model.ids import TurnId

WAITING = """\b
Examples:
  backstay waiting ses_01kb
"""
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


@click.command(epilog=WAITING, short_help="List the turns that run and wait.")
@click.argument("session", type=SESSION)
@session_options
def waiting(options: CommandOptions, *, session: str) -> None:
    """List the running turn of a session and those that wait, in the order in which they will run."""
    with options.store() as store:
        found = find(store, session, options.owner)
        running = () if found.running is None else (store.turn(found.running, owner=options.owner),)
        turns = store.waiting(found.id, owner=options.owner)
    if options.json:
        screen.print_json({"session": found.id, "running": running[0] if running else None, "waiting": turns})
        return
    for turn in (*running, *turns):
        state = "held" if turn.held else turn.state
        words = conversation_text.on_one_line(turn.input or ())
        screen.print_line(f"{turn.id}  {state}  {safe_text.one_line(turn.agent or '')}  {words}".rstrip())
    if not running and not turns:
        screen.note("No turn runs or waits.")


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
