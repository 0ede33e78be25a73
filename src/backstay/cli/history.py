"""`backstay undo`, `redo`, `retry`, `edit` and `fork`: changing one's mind. Nothing that was said is lost by it."""

from collections.abc import Sequence

import click

from backstay.cli import screen, speaking
from backstay.cli.naming import SESSION, find
from backstay.cli.options import Ask, asks
from backstay.errors import NothingToDo
from backstay.model.ids import MessageId
from backstay.model.session import Session
from backstay.model.window import Moved
from backstay.store import Store

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
    + speaking.ENDINGS
)
EDIT = (
    """\b
Examples:
  backstay edit ses_01kb "What is 6 * 8?"
  backstay edit ses_01kb --message msg_01kb… "What is 6 * 9?"
"""
    + speaking.ENDINGS
)
FORK = """\b
Examples:
  backstay fork ses_01kb
  backstay send --session $(backstay fork ses_01kb) "another way, please"
"""


@click.command(epilog=UNDO)
@click.argument("session", type=SESSION)
@asks
def undo(ask: Ask, *, session: str) -> None:
    """Take the last turn back. `redo` brings it back until something else is said."""
    with ask.store() as store:
        found = find(store, session, ask.owner)
        _moved(ask, found, store.undo(found.id, owner=ask.owner), "undone")


@click.command(epilog=REDO)
@click.argument("session", type=SESSION)
@asks
def redo(ask: Ask, *, session: str) -> None:
    """Bring back what the last undo took."""
    with ask.store() as store:
        found = find(store, session, ask.owner)
        _moved(ask, found, store.redo(found.id, owner=ask.owner), "redone")


@click.command(epilog=RETRY, short_help="Have the last message answered again.")
@click.argument("session", type=SESSION)
@speaking.agent_option
@click.option("--request-id", help="Repeated with the same id, it is the same turn.")
@speaking.wait_option
@asks
def retry(ask: Ask, *, session: str, agent: str | None, request_id: str | None, no_wait: bool) -> None:
    """Have the last message answered again; the first answer stays in the lineage."""
    with ask.store() as store:
        found = find(store, session, ask.owner).id
    who = speaking.speakers(ask, agent)
    speaking.have_answered(
        ask,
        who,
        lambda app: app.session(found).retry(agent=who.name, request_id=request_id),
        no_wait=no_wait,
    )


@click.command(epilog=EDIT, short_help="Replace an earlier message, and have that answered.")
@click.argument("session", type=SESSION)
@click.argument("text", nargs=-1)
@click.option("--message", help="Which message of yours. [default: the last one]")
@speaking.agent_option
@click.option("--request-id", help="Repeated with the same id, it is the same turn.")
@speaking.wait_option
@asks
def edit(
    ask: Ask,
    *,
    session: str,
    text: Sequence[str],
    message: str | None,
    agent: str | None,
    request_id: str | None,
    no_wait: bool,
) -> None:
    """Say something else in place of an earlier message, and have that answered.

    What was said after it stays in the lineage. Without TEXT, standard input is read.
    """
    content = speaking.text_of(text)
    with ask.store() as store:
        found = find(store, session, ask.owner)
        instead_of = _last_words(store, found) if message is None else MessageId(message)
    who = speaking.speakers(ask, agent)
    speaking.have_answered(
        ask,
        who,
        lambda app: app.session(found.id).edit(instead_of, content, agent=who.name, request_id=request_id),
        no_wait=no_wait,
    )


@click.command(epilog=FORK, short_help="Begin a new session from this one, and print its id.")
@click.argument("session", type=SESSION)
@click.option("--at", metavar="MESSAGE|TURN", help="Up to and including it. [default: all that was said]")
@asks
def fork(ask: Ask, *, session: str, at: str | None) -> None:
    """Begin a new session with what was said in this one, and print its id."""
    with ask.store() as store:
        found = find(store, session, ask.owner)
        made = store.fork(found.id, owner=ask.owner, at=None if at is None else MessageId(at))
    if ask.json:
        screen.say_json(made)
    else:
        screen.say(made.id)


def _last_words(store: Store, session: Session) -> MessageId:
    page = store.messages(session.id, owner=session.owner)
    own = [said.id for said in page.messages if said.role == "user"]
    if not own:
        raise NothingToDo(f"nobody has said anything in {session.id}", hint="`backstay send` says something.")
    return own[-1]


def _moved(ask: Ask, session: Session, moved: Moved, done: str) -> None:
    if ask.json:
        screen.say_json({"session": session.id, **{name: getattr(moved, name) for name in moved.__struct_fields__}})
    else:
        screen.say(f"{done}: {session.id} has {screen.counted(moved.length, 'message')} now")
