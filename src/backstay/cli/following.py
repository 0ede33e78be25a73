"""`backstay follow`: what happens in a session, or in all of them, as it happens."""

import sys
from collections.abc import Iterator
from typing import NamedTuple

import click
import msgspec

from backstay.cli import conversation, plain, screen
from backstay.cli.naming import SESSION, find
from backstay.cli.options import Ask, asks
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
from backstay.runtime.blocking import open_blocking
from backstay.store import Store

EXAMPLES = """\b
Examples:
  backstay follow ses_01kb
  backstay follow ses_01kb --after 120
  backstay follow --json | jq .event.body.kind
"""


class Told(NamedTuple):
    """An event, and where it stands in the feed if that is what is followed."""

    event: Event
    position: int | None = None


@click.command(epilog=EXAMPLES, short_help="Write what happens in one session, or in all, as it happens.")
@click.argument("session", type=SESSION, required=False)
@click.option(
    "--after",
    type=click.IntRange(0),
    help="Begin after this event's number; without a session, after this position of the feed. "
    "[default: a session's beginning; now, without a session]",
)
@click.option("--once", is_flag=True, help="Write what is there, and stop.")
@asks
def follow(ask: Ask, *, session: str | None, after: int | None, once: bool) -> None:
    """Write what happens in a session, from its beginning and then as it happens; or, from now on, in all sessions.

    Each line is one durable event. Ends with Ctrl-C, or when the session is deleted.
    """
    with ask.store() as store:
        one = None if session is None else find(store, session, ask.owner).id
        if once:
            for told in _stored(store, ask.owner, one, after):
                _write(ask, told)
            return
    for told in _live(ask, one, after):
        _write(ask, told)
        # Somebody reads along: a line is shown when it is written.
        sys.stdout.flush()


def _stored(store: Store, owner: str, session: SessionId | None, after: int | None) -> Iterator[Told]:
    if session is None:
        yield from _stored_feed(store, owner, after or 0)
        return
    cursor, more = Cursor(fence=UNSEEN, number=after or 0), True
    while more:
        page = store.events_after(session, cursor, owner=owner)
        cursor, more = page.next, page.more
        yield from map(Told, page.events)


def _stored_feed(store: Store, owner: str, position: int) -> Iterator[Told]:
    more = True
    while more:
        page = store.feed(position, owner=owner)
        position, more = page.next, page.more
        yield from (Told(one.event, one.position) for one in page.events)


def _live(ask: Ask, session: SessionId | None, after: int | None) -> Iterator[Told]:
    with open_blocking(ask.db, owner=ask.owner) as app:
        if session is None:
            yield from (Told(one.event, one.position) for one in app.follow(after))
        else:
            yield from map(Told, app.session(session).follow(after or 0))


def _write(ask: Ask, told: Told) -> None:
    if ask.json:
        place = {} if told.position is None else {"position": told.position}
        screen.say_json({**place, "event": told.event})
        return
    event = told.event
    where = "" if told.position is None else f"{told.position}  {event.session}  "
    number = str(event.number) if event.last == event.number else f"{event.number}-{event.last}"
    kind = event.body.__struct_config__.tag
    screen.say(f"{screen.moment(event.at)}  {where}{number}  {kind}  {_detail(event)}".rstrip())


def _detail(event: Event) -> str:
    match event.body:
        case TextDelta(text=text) | ThoughtDelta(text=text):
            return plain.one_line(text.replace("\n", "⏎"))
        case ToolCalled(call=call):
            return conversation.on_one_line([call])
        case ToolReturned(result=result):
            return conversation.on_one_line([result])
        case TurnStarted(agent=agent, message=message):
            words = "" if message is None else conversation.on_one_line(message.parts)
            return f"{plain.one_line(agent or '')}: {words}"
        case TurnSubmitted(parts=parts) | TurnEdited(parts=parts):
            return conversation.on_one_line(parts)
        case TurnEnded(outcome=outcome):
            return plain.one_line(f"{type(outcome).__name__.lower()} {outcome.reason}")
        case TurnFolded(messages=messages) | TurnRecorded(messages=messages):
            return conversation.on_one_line([part for message in messages for part in message.parts])
        case _:
            return plain.in_json(msgspec.json.encode(_rest(event)))


def _rest(event: Event) -> dict[str, object]:
    return {name: getattr(event.body, name) for name in event.body.__struct_fields__}
