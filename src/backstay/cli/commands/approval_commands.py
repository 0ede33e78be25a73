"""`backstay resume`, `approve` and `deny`: continue an interrupted or waiting turn."""

import click

from backstay.cli import answering
from backstay.cli.answering import AnyApp, AnyTurn
from backstay.cli.options import CommandOptions, session_options
from backstay.cli.output import screen
from backstay.cli.session_names import SESSION, find
from backstay.cli.session_store import SessionStore
from backstay.errors import Conflict, NothingToDo
from backstay.model.event import TurnContinued
from backstay.model.ids import SessionId, TurnId
from backstay.model.turn import Interrupted, ToolCallRecord

RESUME_EXAMPLES = (
    """\b
Examples:
  backstay resume ses_01kb
  backstay resume ses_01kb --agent mybot:agent
"""
    + answering.ENDINGS
)
APPROVE_EXAMPLES = (
    """\b
Examples:
  backstay approve ses_01kb
  backstay approve ses_01kb --call call_1 --agent mybot:agent
  backstay approve ses_01kb --run-again
"""
    + answering.ENDINGS
)
DENY_EXAMPLES = (
    """\b
Examples:
  backstay deny ses_01kb
  backstay deny ses_01kb --call call_1
"""
    + answering.ENDINGS
)


@click.command(epilog=RESUME_EXAMPLES)
@click.argument("session", type=SESSION)
@answering.agent_option
@session_options
def resume(options: CommandOptions, *, session: str, agent: str | None) -> None:
    """Continue the interrupted last turn of SESSION.

    SESSION is an id, the beginning of one, or an address. Stored output is kept, and no tool that may have run is run
    again.
    """
    with options.store() as store:
        found = find(store, session, options.owner).id
    answering.send_and_print(
        options, answering.agent_options(options, agent), lambda app: app.session(found).resume(), no_wait=False
    )


@click.command(epilog=APPROVE_EXAMPLES)
@click.argument("session", type=SESSION)
@click.option("--call", metavar="ID", help="The tool call; needed if several wait. `backstay show --json` lists them.")
@click.option("--run-again", is_flag=True, help="Allow a tool that may have run to run once more.")
@answering.agent_option
@answering.wait_option
@session_options
def approve(
    options: CommandOptions, *, session: str, call: str | None, run_again: bool, agent: str | None, no_wait: bool
) -> None:
    """Approve the waiting tool call of SESSION and print the answer.

    SESSION is an id, the beginning of one, or an address. An interrupted turn continues where its agent is served, or
    else in this process.
    """
    with options.store() as store:
        found = find(store, session, options.owner).id
        made = _call_to_decide(store, found, options.owner, call, run_again=run_again)
        store.approve(
            made.turn, made.call, owner=options.owner, arguments_hash=made.arguments_hash, run_again=run_again
        )
    _print_following_turn(options, made, agent, no_wait=no_wait)


@click.command(epilog=DENY_EXAMPLES)
@click.argument("session", type=SESSION)
@click.option("--call", metavar="ID", help="The tool call; needed if several wait. `backstay show --json` lists them.")
@answering.agent_option
@answering.wait_option
@session_options
def deny(options: CommandOptions, *, session: str, call: str | None, agent: str | None, no_wait: bool) -> None:
    """Deny the waiting tool call of SESSION and print the answer.

    SESSION is an id, the beginning of one, or an address.
    """
    with options.store() as store:
        found = find(store, session, options.owner).id
        made = _call_to_decide(store, found, options.owner, call, run_again=False)
        store.deny(made.turn, made.call, owner=options.owner, arguments_hash=made.arguments_hash)
    _print_following_turn(options, made, agent, no_wait=no_wait)


def _call_to_decide(
    store: SessionStore, session: SessionId, owner: str, call: str | None, *, run_again: bool
) -> ToolCallRecord:
    """Return the call of the last turn that waits for a decision."""
    running = store.session(session, owner=owner).running
    last = store.last_turn(session, owner=owner) if running is None else store.turn(running, owner=owner)
    waiting = [
        made
        for made in store.ledger(last.root, owner=owner)
        if (made.effect == "unknown" if run_again else made.effect == "called" and made.approval == "asked")
        and call in (None, made.call)
    ]
    if not waiting:
        raise NothingToDo(
            f"no tool call of {session} " + ("may have run" if run_again else "waits for approval"),
            hint="`backstay show` shows the session.",
        )
    if len(waiting) > 1:
        names = ", ".join(f"{made.call} ({made.name})" for made in waiting)
        raise Conflict(f"{len(waiting)} tool calls wait: {names}", hint="Name one of them with --call.")
    return waiting[0]


def _print_following_turn(options: CommandOptions, made: ToolCallRecord, agent: str | None, *, no_wait: bool) -> None:
    """Print the answer that follows the decision; an interrupted turn is resumed."""
    if no_wait:
        screen.print_json(made) if options.json else screen.print_line(f"{made.turn} {made.call}")
        return
    answering.send_and_print(
        options, answering.agent_options(options, agent), lambda app: _following_turn(app, made.turn), no_wait=False
    )


def _following_turn(app: AnyApp, turn: TurnId) -> AnyTurn:
    """Return the turn to follow: this one while it runs, or else the one that continues it."""
    decided = app.turn(turn)
    if not isinstance(decided.read().outcome, Interrupted):
        return decided
    try:
        return decided.resume()
    except Conflict as error:
        if type(error) is not Conflict:
            raise
    # Its agent is not served here: a process that serves it continues the turn.
    screen.note(f"{decided.read().agent!r} is not served here: waiting for a process that serves it.")
    for event in app.session(decided.session).follow():
        if event.turn == turn and isinstance(event.body, TurnContinued):
            return app.turn(event.body.by)
    raise NothingToDo(f"{decided.session} was deleted")
