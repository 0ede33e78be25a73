"""`backstay send`: a message in, the answer out."""

from collections.abc import Sequence
from typing import get_args

import click

from backstay.cli import screen, speaking
from backstay.cli.naming import SESSION, find, workspace
from backstay.cli.options import Ask, asks
from backstay.cli.speaking import Speakers
from backstay.errors import NotFound
from backstay.model.address import Address
from backstay.model.ids import SessionId
from backstay.model.turn import IfBusy
from backstay.runtime.blocking import BlockingApp, BlockingTurn
from backstay.store import open_store

EXAMPLES = (
    """\b
Examples:
  backstay send "What is 6 * 7?"
  backstay send --last "And half of that?"
  git diff | backstay send --workspace . --agent mybot:agent
  backstay send --address chat://telegram/dm/42 --request-id update-1001 "hello"
  backstay send --session ses_01kb --if-busy steer "shorter, please"
"""
    + speaking.ENDINGS
)


@click.command(epilog=EXAMPLES)
@click.argument("text", nargs=-1)
@click.option("--session", type=SESSION, help="The session to say it in: an id, the beginning of one, or an address.")
@click.option("--address", help="The address it comes from; its session is made if there is none.")
@click.option("--workspace", "directory", metavar="DIR", help="The directory it is about; its session is made.")
@click.option("--scope", help="Which run in that directory. [default: main]")
@click.option("--last", is_flag=True, help="The session with the newest activity.")
@speaking.agent_option
@click.option("--request-id", help="Repeated with the same id, it is the same turn, and its answer is given again.")
@click.option(
    "--if-busy", type=click.Choice(get_args(IfBusy)), default="enqueue", show_default=True, help="While a turn runs."
)
@speaking.wait_option
@asks
def send(
    ask: Ask,
    *,
    text: Sequence[str],
    session: str | None,
    address: str | None,
    directory: str | None,
    scope: str | None,
    last: bool,
    agent: str | None,
    request_id: str | None,
    if_busy: IfBusy,
    no_wait: bool,
) -> None:
    """Say something in a session and print the answer as it comes.

    TEXT is what to say; without it, or with -, standard input is read. Without a session, a new one is made.
    """
    if sum((session is not None, address is not None, directory is not None, last)) > 1:
        raise click.UsageError("Give one of --session, --address, --workspace and --last.")
    if scope is not None and directory is None:
        raise click.UsageError("--scope is for --workspace.")
    if request_id is not None and not (session or address or directory or last):
        raise click.UsageError("A --request-id is known by where it was sent: give --session or --address too.")
    content = speaking.text_of(text)
    who = speaking.speakers(ask, agent)
    to = _target(ask, session, address, directory, scope, last=last)

    def say(app: BlockingApp) -> BlockingTurn:
        place = app.session().id if to is None else to
        turn = app.send(place, content, request_id=request_id, if_busy=if_busy, agent=who.name or "default")
        _tell(turn, to)
        return turn

    speaking.have_answered(ask, _named(who), say, no_wait=no_wait)


def _named(who: Speakers) -> Speakers:
    return Speakers(who.specs, who.name or "default")


def _target(
    ask: Ask, session: str | None, address: str | None, directory: str | None, scope: str | None, *, last: bool
) -> Address | SessionId | None:
    if address is not None:
        return Address.parse(address)
    if directory is not None:
        return workspace(directory, scope)
    if session is None and not last:
        return None
    ask.refuse_missing()
    with open_store(ask.db) as store:
        if session is not None:
            return find(store, session, ask.owner).id
        newest = store.list(owner=ask.owner, limit=1).sessions
    if not newest:
        raise NotFound("there is no session yet", hint="Leave out --last to begin one.")
    return newest[0].id


def _tell(turn: BlockingTurn, to: Address | SessionId | None) -> None:
    if turn.forked_from is not None:
        screen.note(f"{turn.forked_from} is busy: said in its fork {turn.session}.")
    elif not isinstance(to, str):
        screen.note(f"in {turn.session}")
