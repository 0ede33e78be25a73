"""`backstay show`: a session's conversation, as the agent would read it."""

from collections.abc import Iterator, Sequence
from contextlib import suppress

import click

from backstay.cli import conversation, screen
from backstay.cli.listing import state_of
from backstay.cli.naming import SESSION, find, window_of
from backstay.cli.options import Ask, asks
from backstay.errors import NotFound
from backstay.model.content import ToolCall
from backstay.model.message import Message, MessagePage
from backstay.model.session import Session
from backstay.model.turn import Call
from backstay.store import Store

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
        calls = tuple(_calls(store, page.messages, ask.owner))
        addresses = store.addresses(found.id, owner=ask.owner)
    if ask.json:
        screen.say_json(
            {
                "session": found,
                "addresses": addresses,
                "window": page.window,
                "length": page.length,
                "messages": page.messages,
                "calls": calls,
            }
        )
        return
    _head(found, page, addresses)
    took = conversation.durations(calls)
    for message in page.messages:
        _message(message, took, whole=whole)


def _calls(store: Store, messages: Sequence[Message], owner: str) -> Iterator[Call]:
    """What the ledger knows of the calls in these messages."""
    turns = (each.turn for each in messages if any(isinstance(part, ToolCall) for part in each.parts))
    for turn in dict.fromkeys(turn for turn in turns if turn is not None):
        # What a fork shares was said in turns of another session; if that is gone, so are they.
        with suppress(NotFound):
            yield from store.calls(turn, owner=owner)


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


def _message(message: Message, took: conversation.Durations, *, whole: bool) -> None:
    screen.say()
    screen.say(
        screen.styled(conversation.speaker(message), bold=True, fg=_COLOURS[message.role])
        + screen.styled(f"  {screen.moment(message.at)}  {message.id}", dim=True)
    )
    for line in conversation.spoken(message, took, whole=whole):
        screen.say(f"  {line}".rstrip())
