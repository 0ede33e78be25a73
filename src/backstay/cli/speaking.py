"""An agent that answers in this process, for as long as one turn takes: shared by `send`, `retry` and `edit`."""

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import click
from msgspec import Struct

from backstay.cli import conversation, exits, plain, screen
from backstay.cli.exits import Exit
from backstay.cli.options import Ask, F
from backstay.config import SCRIPTED
from backstay.errors import InvalidPayload, TooLarge
from backstay.model.codec import encode_parts
from backstay.model.content import Usage, check_input, parts_of
from backstay.model.event import Event, TextDelta, ToolCalled, ToolReturned, TurnFolded, TurnRecorded
from backstay.model.ids import SessionId, TurnId
from backstay.model.limits import Limits
from backstay.model.turn import Cancelled, Completed, Failed, Interrupted, Outcome
from backstay.runtime.blocking import BlockingApp, BlockingTurn, open_blocking

ENDINGS = """
Exit status: 0 completed, 1 error, 2 wrong usage, 3 the turn failed, 4 it was cancelled, 5 it was interrupted,
130 stopped with Ctrl-C, which cancels the turn.
"""


class Answer(Struct):
    """What became of a turn, for machines. Without an outcome it was not waited for."""

    session: SessionId
    turn: TurnId
    repeated: bool
    outcome: Outcome | None = None
    text: str | None = None
    usage: Usage | None = None


class Speakers(Struct):
    """Who may answer here, and who shall."""

    specs: tuple[str, ...]
    name: str | None


def agent_option(command: F) -> F:
    """--agent, for verbs that have something answered."""
    return click.option(
        "--agent",
        metavar="NAME|[NAME=]MODULE:ATTR|URL#MODEL|acp:COMMAND|scripted",
        help="Who answers: an agent to run here, or the name of one that this or another process serves. "
        "[env: BACKSTAY_AGENT; default: the first of the ladder that `backstay agents` shows]",
    )(command)


def wait_option(command: F) -> F:
    """--no-wait, for verbs that have something answered."""
    return click.option(
        "--no-wait", is_flag=True, help="Only accept it, durably; a process that serves the agent answers later."
    )(command)


def speakers(ask: Ask, agent: str | None) -> Speakers:
    """What --agent means: a way to make an agent if it looks like one, and otherwise a name."""
    if agent is None:
        return Speakers(ask.settings.agent, None)
    name, mark, _ = agent.partition("=")
    is_named = bool(mark) and ":" not in name and "/" not in name
    if is_named or ":" in agent or agent == SCRIPTED:
        return Speakers((agent,), name if is_named else None)
    return Speakers(ask.settings.agent, agent)


@contextmanager
def app(ask: Ask, who: Speakers, *, serve: bool = True) -> Iterator[BlockingApp]:
    """An app in which these agents answer; it starts nothing that it would not see to the end."""
    # Only here: a listing need not know how to ask a provider.
    from backstay.agents.ladder import climb  # noqa: PLC0415
    from backstay.server.casting import cast  # noqa: PLC0415

    agents = cast(who.specs or climb(ask.told, os.environ).agent, ask.settings) if serve else {}
    with open_blocking(ask.db, agents=agents, owner=ask.owner, claim="own") as opened:
        if serve and who.name is not None and who.name not in agents and not ask.json:
            # Also said to a script: it may wait for ever.
            click.echo(
                plain.one_line(f"{who.name!r} is not served here: waiting for a process that serves it."), err=True
            )
        yield opened


def text_of(argument: Sequence[str]) -> str:
    """What is to be said: the arguments, or standard input to its end. What no store would take is refused here."""
    text = _words(argument)
    encode_parts(parts_of(text), Limits())
    check_input(parts_of(text))
    return text


def _words(argument: Sequence[str]) -> str:
    if argument and argument != ("-",):
        return " ".join(argument)
    if screen.is_terminal(sys.stdin) and not argument:
        raise click.UsageError("There is nothing to say: give TEXT, or pipe it in.")
    most = Limits().message_bytes
    data = sys.stdin.buffer.read(most + 1)
    if len(data) > most:
        raise TooLarge(
            f"standard input has more than {most:,} bytes, the most that a message can have",
            hint="Send less at once, or put the bulk in a file that the agent can read.",
        )
    try:
        return data.decode().removesuffix("\n")
    except UnicodeDecodeError as error:
        raise InvalidPayload(
            f"standard input is not text: byte {error.start} is not UTF-8", hint="Convert it first, e.g. with iconv."
        ) from error


def accepted(ask: Ask, turn: BlockingTurn) -> None:
    """Say that a turn waits, and leave it to others."""
    if ask.json:
        screen.say_json(Answer(turn.session, turn.id, turn.repeated))
    else:
        screen.say(f"{turn.session} {turn.id}")


def hear(ask: Ask, turn: BlockingTurn) -> Exit:
    """Write the answer as it comes; how the turn ended. Ctrl-C cancels it."""
    speech = _Speech(quiet=ask.json)
    try:
        for event in turn.events():
            speech.add(event)
        outcome = turn.outcome()
    except KeyboardInterrupt:
        speech.close()
        turn.cancel()
        screen.note(f"{turn.id} was cancelled; what was said so far is kept.")
        return Exit.STOPPED
    speech.close()
    if ask.json:
        text = "".join(speech.said)
        screen.say_json(Answer(turn.session, turn.id, turn.repeated, outcome, text, turn.read().usage))
    elif not isinstance(outcome, Completed):
        reason = f": {outcome.reason}" if outcome.reason else ""
        click.echo(plain.one_line(f"the turn was {_ending(outcome)}{reason}"), err=True)
    return exits.ENDINGS[type(outcome)]


def _ending(outcome: Outcome) -> str:
    return {Failed: "failed by its agent", Cancelled: "cancelled", Interrupted: "interrupted"}[type(outcome)]


class _Speech:
    """What an agent says, on standard output; what its tools do, beside it."""

    def __init__(self, *, quiet: bool) -> None:
        self.said: list[str] = []
        self._quiet = quiet

    def add(self, event: Event) -> None:
        match event.body:
            case TextDelta(text=text):
                self._say(text)
            case ToolCalled(call=call):
                self._beside(conversation.said(call))
            case ToolReturned(result=result):
                self._beside(conversation.said(result))
            case TurnFolded(messages=messages) | TurnRecorded(messages=messages):
                for message in messages:
                    if message.role == "assistant":
                        self._say(message.text)
            case _:
                pass

    def close(self) -> None:
        """End the line."""
        if not self._quiet and self.said and not self.said[-1].endswith("\n"):
            screen.say()

    def _say(self, text: str) -> None:
        self.said.append(text)
        if not self._quiet:
            click.echo(plain.lines(text), nl=False)

    def _beside(self, text: str) -> None:
        if not self._quiet:
            screen.note(text)


def finish(ending: Exit) -> None:
    """End the command as the turn ended."""
    click.get_current_context().exit(ending)


Send = Callable[[BlockingApp], BlockingTurn]


def have_answered(ask: Ask, who: Speakers, send: Send, *, no_wait: bool) -> None:
    """Send something, then hear the answer, or leave it to others."""
    with app(ask, who, serve=not no_wait) as opened:
        turn = send(opened)
        if no_wait:
            accepted(ask, turn)
            return
        ending = hear(ask, turn)
    finish(ending)
