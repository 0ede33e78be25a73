"""`backstay follow`: the events of one session, or of all, as they happen."""

import sys
from collections.abc import Iterator
from typing import NamedTuple

import click
import msgspec

from backstay.cli.options import CommandOptions, session_options
from backstay.cli.output import conversation_text, safe_text, screen
from backstay.cli.session_names import SESSION, find
from backstay.cli.session_store import SessionStore
from backstay.model.event import (
    UNSEEN,
    Cursor,
    Event,
    TextDelta,
    ThoughtDelta,
    ToolCalled,
    ToolReturned,
    TurnEdited,
    TurnEnded,
    TurnFolded,
    TurnRecorded,
    TurnStarted,
    TurnSubmitted,
)
from backstay.model.ids import SessionId

EXAMPLES = """\b
Examples:
  backstay follow ses_01kb
  backstay follow ses_01kb --after 120
  backstay follow --json | jq .event.body.kind
"""


class FollowedEvent(NamedTuple):
    """An event, and its position in the feed if all sessions are followed."""

    event: Event
    position: int | None = None


@click.command(epilog=EXAMPLES, short_help="Print the events of one session, or of all, as they happen.")
@click.argument("session", type=SESSION, required=False)
@click.option(
    "--after",
    type=click.IntRange(0),
    help="Start after this event number; without a session, after this position of the feed. "
    "[default: the start of the session; without a session, now]",
)
@click.option("--once", is_flag=True, help="Print the stored events, and stop.")
@session_options
def follow(options: CommandOptions, *, session: str | None, after: int | None, once: bool) -> None:
    """Print the events of a session from its start and then as they happen; without a session, of all from now on.

    Each line is one durable event. Stops with Ctrl-C, or when the session is deleted.
    """
    with options.store() as store:
        one = None if session is None else find(store, session, options.owner).id
        if once:
            for followed in _stored(store, options.owner, one, after):
                _write(options, followed)
            return
    for followed in _live(options, one, after):
        _write(options, followed)
        # Show each event at once, also through a pipe.
        sys.stdout.flush()


def _stored(store: SessionStore, owner: str, session: SessionId | None, after: int | None) -> Iterator[FollowedEvent]:
    if session is None:
        yield from _stored_feed(store, owner, after or 0)
        return
    cursor, more = Cursor(fence=UNSEEN, number=after or 0), True
    while more:
        page = store.events_after(session, cursor, owner=owner)
        cursor, more = page.next, page.more
        yield from map(FollowedEvent, page.events)


def _stored_feed(store: SessionStore, owner: str, position: int) -> Iterator[FollowedEvent]:
    more = True
    while more:
        page = store.feed(position, owner=owner)
        position, more = page.next, page.more
        yield from (FollowedEvent(one.event, one.position) for one in page.events)


def _live(options: CommandOptions, session: SessionId | None, after: int | None) -> Iterator[FollowedEvent]:
    with options.app() as app:
        if session is None:
            yield from (FollowedEvent(one.event, one.position) for one in app.follow(after))
        else:
            yield from map(FollowedEvent, app.session(session).follow(after or 0))


def _write(options: CommandOptions, followed: FollowedEvent) -> None:
    if options.json:
        place = {} if followed.position is None else {"position": followed.position}
        screen.print_json({**place, "event": followed.event})
        return
    event = followed.event
    where = "" if followed.position is None else f"{followed.position}  {event.session}  "
    number = str(event.number) if event.last == event.number else f"{event.number}-{event.last}"
    kind = event.body.__struct_config__.tag
    screen.print_line(f"{screen.moment(event.at)}  {where}{number}  {kind}  {_detail(event)}".rstrip())


def _detail(event: Event) -> str:
    match event.body:
        case TextDelta(text=text) | ThoughtDelta(text=text):
            return safe_text.one_line(text.replace("\n", "⏎"))
        case ToolCalled(call=call):
            return conversation_text.on_one_line([call])
        case ToolReturned(result=result):
            return conversation_text.on_one_line([result])
        case TurnStarted(agent=agent, message=message):
            words = "" if message is None else conversation_text.on_one_line(message.parts)
            return f"{safe_text.one_line(agent or '')}: {words}"
        case TurnSubmitted(parts=parts) | TurnEdited(parts=parts):
            return conversation_text.on_one_line(parts)
        case TurnEnded(outcome=outcome):
            return safe_text.one_line(f"{type(outcome).__name__.lower()} {outcome.reason}")
        case TurnFolded(messages=messages) | TurnRecorded(messages=messages):
            return conversation_text.on_one_line([part for message in messages for part in message.parts])
        case _:
            return safe_text.in_json(msgspec.json.encode(_rest(event)))


def _rest(event: Event) -> dict[str, object]:
    return {name: getattr(event.body, name) for name in event.body.__struct_fields__}
