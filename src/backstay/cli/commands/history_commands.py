"""`backstay undo`, `redo`, `retry`, `edit` and `fork`: change the history. No message is lost."""

from collections.abc import Sequence

import click

from backstay.cli import answering
from backstay.cli.options import CommandOptions, session_options
from backstay.cli.output import screen
from backstay.cli.session_names import SESSION, find
from backstay.cli.session_store import SessionStore
from backstay.errors import NothingToDo
from backstay.model.ids import MessageId
from backstay.model.session import SessionInfo
from backstay.model.window import Moved

UNDO = """\b
Examples:
  backstay undo ses_01kb
  backstay undo chat://telegram/dm/42
"""
REDO = """\b
Examples:
  backstay redo ses_01kb
"""
RETRY = (
    """\b
Examples:
  backstay retry ses_01kb
  backstay retry ses_01kb --agent other=mybot:agent
"""
    + answering.ENDINGS
)
EDIT = (
    """\b
Examples:
  backstay edit ses_01kb "What is 6 * 8?"
  backstay edit ses_01kb --message msg_01kb… "What is 6 * 9?"
"""
    + answering.ENDINGS
)
FORK = """\b
Examples:
  backstay fork ses_01kb
  backstay send --session $(backstay fork ses_01kb) "another way, please"
"""


@click.command(epilog=UNDO)
@click.argument("session", type=SESSION)
@session_options
def undo(options: CommandOptions, *, session: str) -> None:
    """Undo the last turn. `redo` restores it until another message is sent."""
    with options.store() as store:
        found = find(store, session, options.owner)
        _print_moved(options, found, store.undo(found.id, owner=options.owner), "undone")


@click.command(epilog=REDO)
@click.argument("session", type=SESSION)
@session_options
def redo(options: CommandOptions, *, session: str) -> None:
    """Restore the turn that the last undo removed."""
    with options.store() as store:
        found = find(store, session, options.owner)
        _print_moved(options, found, store.redo(found.id, owner=options.owner), "redone")


@click.command(epilog=RETRY, short_help="Run the last message again.")
@click.argument("session", type=SESSION)
@answering.agent_option
@click.option("--request-id", help="Idempotency key: the same id again returns the same turn.")
@answering.wait_option
@session_options
def retry(options: CommandOptions, *, session: str, agent: str | None, request_id: str | None, no_wait: bool) -> None:
    """Run the last message again; the first answer stays in the lineage."""
    with options.store() as store:
        found = find(store, session, options.owner).id
    selected = answering.agent_options(options, agent)
    answering.send_and_print(
        options,
        selected,
        lambda app: app.session(found).retry(agent=selected.name, request_id=request_id),
        no_wait=no_wait,
    )


@click.command(epilog=EDIT, short_help="Replace an earlier message and run it.")
@click.argument("session", type=SESSION)
@click.argument("text", nargs=-1)
@click.option("--message", help="The id of the message to replace. [default: your last message]")
@answering.agent_option
@click.option("--request-id", help="Idempotency key: the same id again returns the same turn.")
@answering.wait_option
@session_options
def edit(
    options: CommandOptions,
    *,
    session: str,
    text: Sequence[str],
    message: str | None,
    agent: str | None,
    request_id: str | None,
    no_wait: bool,
) -> None:
    """Replace an earlier message and print the new answer.

    The messages after it stay in the lineage. Without TEXT, standard input is read.
    """
    content = answering.text_of(text)
    with options.store() as store:
        found = find(store, session, options.owner)
        instead_of = _last_user_message(store, found) if message is None else MessageId(message)
    selected = answering.agent_options(options, agent)
    answering.send_and_print(
        options,
        selected,
        lambda app: app.session(found.id).edit(instead_of, content, agent=selected.name, request_id=request_id),
        no_wait=no_wait,
    )


@click.command(epilog=FORK, short_help="Create a new session from this one, and print its id.")
@click.argument("session", type=SESSION)
@click.option("--at", metavar="MESSAGE|TURN", help="The last message or turn of the fork. [default: all ended turns]")
@session_options
def fork(options: CommandOptions, *, session: str, at: str | None) -> None:
    """Create a new session with the history of this one, and print its id."""
    with options.store() as store:
        found = find(store, session, options.owner)
        made = store.fork(found.id, owner=options.owner, at=None if at is None else MessageId(at))
    if options.json:
        screen.print_json(made)
    else:
        screen.print_line(made.id)


def _last_user_message(store: SessionStore, session: SessionInfo) -> MessageId:
    page = store.messages(session.id, owner=session.owner)
    own = [message.id for message in page.messages if message.role == "user"]
    if not own:
        raise NothingToDo(f"there is no message of yours in {session.id}", hint="Send one with `backstay send`.")
    return own[-1]


def _print_moved(options: CommandOptions, session: SessionInfo, moved: Moved, done: str) -> None:
    if options.json:
        screen.print_json({"session": session.id, **{name: getattr(moved, name) for name in moved.__struct_fields__}})
    else:
        screen.print_line(f"{done}: {session.id} has {screen.counted(moved.length, 'message')} now")
