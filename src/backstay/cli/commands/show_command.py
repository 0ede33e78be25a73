"""`backstay show`: the messages of a session, as the agent would read them."""

from collections.abc import Iterator, Sequence
from contextlib import suppress

import click

from backstay.cli.commands.list_command import state_of
from backstay.cli.open_calls import asks, can_be_decided
from backstay.cli.options import CommandOptions, session_options
from backstay.cli.output import conversation_text, safe_text, screen
from backstay.cli.session_names import SESSION, find, window_of
from backstay.cli.session_store import SessionStore
from backstay.errors import NotFound
from backstay.model.content import ToolCall
from backstay.model.ids import TurnId
from backstay.model.message import Message, MessagePage
from backstay.model.session import SessionInfo
from backstay.model.turn import Completed, ToolCallRecord, TurnInfo

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
@click.option("--window", help="A window other than the current one: its id, or its number in `backstay lineage`.")
@click.option("--last", type=click.IntRange(0), help="Show only this many of the last messages.")
@click.option("--whole", is_flag=True, help="Do not shorten the arguments and results of tools.")
@session_options
def show(options: CommandOptions, *, session: str, window: str | None, last: int | None, whole: bool) -> None:
    """Show a session and its messages.

    SESSION is an id, the beginning of one, or an address that points to it.
    """
    with options.store() as store:
        found = find(store, session, options.owner)
        here = None if window is None else window_of(store, found, window)
        page = store.messages(found.id, owner=options.owner, window=here, last=last)
        calls = tuple(_calls(store, page.messages, found.running, options.owner))
        addresses = store.addresses(found.id, owner=options.owner)
        turns = tuple(_turns(store, found, page.messages, options.owner))
    if options.json:
        screen.print_json(
            {
                "session": found,
                "addresses": addresses,
                "window": page.window,
                "length": page.length,
                "messages": page.messages,
                "turns": turns,
                "calls": calls,
            }
        )
        return
    _head(found, page, addresses)
    took = conversation_text.durations(calls)
    for message in page.messages:
        _message(message, took, whole=whole)
    _state(turns, calls)


def _calls(
    store: SessionStore, messages: Sequence[Message], running: TurnId | None, owner: str
) -> Iterator[ToolCallRecord]:
    """Yield the ledger entries of the calls in these messages and of the running turn."""
    turns = [each.turn for each in messages if any(isinstance(part, ToolCall) for part in each.parts)]
    for turn in dict.fromkeys([*turns, running]):
        # Messages that a fork shares come from turns of another session; if that is deleted, so are its turns.
        with suppress(NotFound):
            if turn is not None:
                yield from store.calls(turn, owner=owner)


def _turns(store: SessionStore, session: SessionInfo, messages: Sequence[Message], owner: str) -> Iterator[TurnInfo]:
    """Yield the turns of these messages, the running one, and those that wait."""
    ids = dict.fromkeys([*(each.turn for each in messages), session.running])
    for turn in ids:
        # Turns of messages that a fork shares belong to another session, which may be deleted.
        with suppress(NotFound):
            if turn is not None:
                yield store.turn(turn, owner=owner)
    yield from store.waiting(session.id, owner=owner)


def _state(turns: Sequence[TurnInfo], calls: Sequence[ToolCallRecord]) -> None:
    """Print the state before the next message: the outcome of the last turn and the states of its calls."""
    facts: list[str] = []
    outcomes = [turn.outcome for turn in turns if turn.outcome is not None]
    if outcomes and not isinstance(outcomes[-1], Completed):
        reason = safe_text.one_line(outcomes[-1].reason)
        facts.append(f"The last turn {conversation_text.ending(outcomes[-1])}{': ' if reason else ''}{reason}")
    started = [turn for turn in turns if turn.state != "waiting"]
    # A call of an earlier turn can no longer be decided: the session went on without it.
    open_turn = started[-1].id if started and can_be_decided(started[-1]) else None
    for call in calls:
        name = safe_text.one_line(f"{call.name} ({call.call})")
        if call.effect == "unknown":
            facts.append(f"{name} may have run: it has no result.")
        elif asks(call) and call.turn == open_turn:
            facts.append(f"{name} waits for approval: `backstay approve` or `backstay deny`.")
    facts += [f"{one.id} {'is held' if one.held else 'waits'}." for one in turns if one.state == "waiting"]
    if facts:
        screen.print_line()
    for fact in facts:
        screen.print_line(fact)


def _head(session: SessionInfo, page: MessagePage, addresses: tuple[str, ...]) -> None:
    rows: list[tuple[str, str]] = [("session", session.id)]
    if session.title:
        rows.append(("title", session.title))
    rows += [("state", state_of(session)), ("active", screen.moment(session.active_at))]
    rows += [("address", spelling) for spelling in addresses]
    if session.tags:
        rows.append(("tags", ", ".join(session.tags)))
    if session.source:
        rows.append(("fork of", session.source))
    older = "" if page.window == session.window else " (not the current one)"
    rows.append(("window", page.window + older))
    hidden = page.length - len(page.messages)
    rows.append(("messages", f"{page.length}" + (f", {hidden} not shown" if hidden else "")))
    screen.facts(rows)


def _message(message: Message, took: conversation_text.Durations, *, whole: bool) -> None:
    screen.print_line()
    screen.print_line(
        screen.styled(conversation_text.author(message), bold=True, fg=_COLOURS[message.role])
        + screen.styled(f"  {screen.moment(message.at)}  {message.id}", dim=True)
    )
    for line in conversation_text.message_lines(message, took, whole=whole):
        screen.print_line(f"  {line}".rstrip())
