"""`backstay send`: send a message and print the answer."""

import socket
from collections.abc import Sequence
from pathlib import Path
from typing import get_args

import click

from backstay.cli import answering
from backstay.cli.answering import AgentOptions, AnyApp, AnyTurn
from backstay.cli.options import CommandOptions, session_options
from backstay.cli.output import screen
from backstay.cli.session_names import SESSION, find, workspace
from backstay.errors import NotFound
from backstay.model.addresses.address import Address, WorkspaceAddress
from backstay.model.ids import SessionId
from backstay.model.turn import IfBusy

EXAMPLES = (
    """\b
Examples:
  backstay send "What is 6 * 7?"
  backstay send --last "And half of that?"
  git diff | backstay send --workspace . --agent mybot:agent
  backstay send --address chat://telegram/dm/42 --request-id update-1001 "hello"
  backstay send --session ses_01kb --if-busy steer "shorter, please"
  backstay send --attach photo.png --attach notes.txt "What do you see?"
"""
    + answering.ENDINGS
)


@click.command(epilog=EXAMPLES)
@click.argument("text", nargs=-1)
@click.option("--session", type=SESSION, help="The session: an id, the beginning of one, or an address.")
@click.option("--address", help="The address of the sender. Its session is created if needed.")
@click.option(
    "--workspace", "directory", metavar="DIR", help="The directory of the session, which is created if needed."
)
@click.option("--scope", help="The scope of the workspace address. [default: main]")
@click.option("--last", is_flag=True, help="The session with the newest activity.")
@answering.attach_option
@answering.agent_option
@click.option("--request-id", help="Idempotency key: the same id again returns the same turn and its answer.")
@click.option(
    "--if-busy",
    type=click.Choice(get_args(IfBusy)),
    default="enqueue",
    show_default=True,
    help="What to do while a turn runs.",
)
@answering.wait_option
@answering.unserved_option
@session_options
def send(
    options: CommandOptions,
    *,
    text: Sequence[str],
    session: str | None,
    address: str | None,
    directory: str | None,
    scope: str | None,
    last: bool,
    attach: tuple[Path, ...],
    agent: str | None,
    request_id: str | None,
    if_busy: IfBusy,
    no_wait: bool,
    allow_unserved: bool,
) -> None:
    """Send a message and print the answer as it arrives.

    TEXT is the message; without it, or with -, standard input is read. A message with files needs no text. Without a
    session, a new one is created.
    """
    if sum((session is not None, address is not None, directory is not None, last)) > 1:
        raise click.UsageError("Give only one of --session, --address, --workspace and --last.")
    if scope is not None and directory is None:
        raise click.UsageError("--scope needs --workspace.")
    words = answering.text_of(text, optional=bool(attach))
    selected = answering.agent_options(options, agent)
    to = target(options, session, address, directory, scope, last=last)

    def send(app: AnyApp) -> AnyTurn:
        turn = app.send(
            "new" if to is None else to,
            answering.with_files(app, words, attach),
            request_id=request_id,
            if_busy=if_busy,
            agent=selected.name or "default",
            # Without --agent there is no name to misspell: any later `backstay` serves the default agent.
            allow_unserved=allow_unserved or agent is None,
        )
        _note_session(turn, to)
        return turn

    directory = to.path if isinstance(to, WorkspaceAddress) else None
    answering.send_and_print(
        options, AgentOptions(selected.specs, selected.name or "default", directory), send, no_wait=no_wait
    )


def target(
    options: CommandOptions,
    session: str | None,
    address: str | None,
    directory: str | None,
    scope: str | None,
    *,
    last: bool,
) -> Address | SessionId | None:
    """Return the session or address that the options name; None for a new session."""
    if address is not None:
        return Address.parse(address)
    if directory is not None:
        # For a server on another machine, the workspace address must name our host.
        return workspace(directory, scope, None if options.is_local else socket.gethostname())
    if session is None and not last:
        return None
    with options.store() as store:
        if session is not None:
            return find(store, session, options.owner).id
        newest = store.list(owner=options.owner, limit=1).sessions
    if not newest:
        raise NotFound("there is no session yet", hint="Leave out --last to create one.")
    return newest[0].id


def _note_session(turn: AnyTurn, to: Address | SessionId | None) -> None:
    if turn.forked_from is not None:
        screen.note(f"{turn.forked_from} is busy: sent to its fork {turn.session}.")
    elif not isinstance(to, str):
        screen.note(f"in {turn.session}")
