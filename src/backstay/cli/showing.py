"""`backstay show`: a session's conversation, as the agent would read it."""

import click

from backstay.cli import conversation, screen
from backstay.cli.listing import state_of
from backstay.cli.naming import SESSION, find, window_of
from backstay.cli.options import Ask, asks
from backstay.model.message import Message, MessagePage
from backstay.model.session import Session

EXAMPLES = """\b
Examples:
  backstay show ses_01kb
  backstay show chat://telegram/dm/42 --last 4
  backstay show ses_01kb --window 1
  backstay show ses_01kb --json | jq -r '.messages[] | .role'
"""
_COLOURS = {"user": "green", "assistant": "cyan", "tool": "magenta", "system": "yellow", "summary": "yellow"}


@click.command(epilog=EXAMPLES)
@click.argument("session", type=SESSION)
@click.option("--window", help="Another window than the current one: its id, or its number in `backstay lineage`.")
@click.option("--last", type=click.IntRange(0), help="Only the last so many messages.")
@click.option("--whole", is_flag=True, help="Do not shorten what tools were given and gave back.")
@asks
def show(ask: Ask, *, session: str, window: str | None, last: int | None, whole: bool) -> None:
    """Show a session and what was said in it.

    SESSION is an id, the beginning of one, or an address that leads to it.
    """
    with ask.store() as store:
        found = find(store, session, ask.owner)
        here = None if window is None else window_of(store, found, window)
        page = store.messages(found.id, owner=ask.owner, window=here, last=last)
        addresses = store.addresses(found.id, owner=ask.owner)
    if ask.json:
        screen.say_json(
            {
                "session": found,
                "addresses": addresses,
                "window": page.window,
                "length": page.length,
                "messages": page.messages,
            }
        )
        return
    _head(found, page, addresses)
    for message in page.messages:
        _message(message, whole=whole)


def _head(session: Session, page: MessagePage, addresses: tuple[str, ...]) -> None:
    told: list[tuple[str, str]] = [("session", session.id)]
    if session.title:
        told.append(("title", session.title))
    told += [("state", state_of(session)), ("active", screen.moment(session.active_at))]
    told += [("address", spelling) for spelling in addresses]
    if session.tags:
        told.append(("tags", ", ".join(session.tags)))
    if session.source:
        told.append(("fork of", session.source))
    older = "" if page.window == session.window else " (not the current one)"
    told.append(("window", page.window + older))
    left_out = page.length - len(page.messages)
    told.append(("messages", f"{page.length}" + (f", {left_out} not shown" if left_out else "")))
    screen.facts(told)


def _message(message: Message, *, whole: bool) -> None:
    screen.say()
    screen.say(
        screen.styled(conversation.speaker(message), bold=True, fg=_COLOURS[message.role])
        + screen.styled(f"  {screen.moment(message.at)}  {message.id}", dim=True)
    )
    for line in conversation.spoken(message, whole=whole):
        screen.say(f"  {line}".rstrip())
