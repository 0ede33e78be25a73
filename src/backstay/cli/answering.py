"""Runs an agent in this process for one turn: shared by `send`, `retry` and `edit`."""

import os
import sys
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import click
from msgspec import Struct

from backstay.cli.open_calls import asks, decide_commands
from backstay.cli.options import CommandOptions, F
from backstay.cli.output import conversation_text, exit_status, safe_text, screen
from backstay.cli.output.exit_status import Exit
from backstay.cli.output.tracebacks import tracebacks
from backstay.config import SCRIPTED
from backstay.errors import InvalidPayload, TooLarge
from backstay.model.codec import encode_parts
from backstay.model.content import Content, Text, ToolCall, Usage, check_input, parts_of
from backstay.model.event import Event, TextDelta, ToolCalled, ToolReturned, TurnFolded, TurnRecorded
from backstay.model.ids import SessionId, TurnId
from backstay.model.limits import Limits
from backstay.model.turn import Completed, Failed, Outcome
from backstay.runtime.blocking import BlockingApp, BlockingTurn, open_blocking
from backstay.runtime.titles import first_words

if TYPE_CHECKING:  # A command on a database loads no HTTP client.
    from backstay.client.blocking_client import BlockingClient, BlockingTurnClient

AnyApp: TypeAlias = "BlockingApp | BlockingClient"
AnyTurn: TypeAlias = "BlockingTurn | BlockingTurnClient"

ENDINGS = """
Exit status: 0 completed, 1 error, 2 wrong usage, 3 the turn failed, 4 it was cancelled, 5 it was interrupted,
130 stopped with Ctrl-C, which cancels the turn.
"""


class TurnReport(Struct):
    """The result of a turn as JSON. Without an outcome, the command did not wait for it."""

    session: SessionId
    turn: TurnId
    repeated: bool
    outcome: Outcome | None = None
    text: str | None = None
    usage: Usage | None = None


class AgentOptions(Struct):
    """The agents to serve here, the name of the one that answers, and the directory of the session if given."""

    specs: tuple[str, ...]
    name: str | None
    directory: str | None = None


def agent_option(command: F) -> F:
    """Add --agent."""
    return click.option(
        "--agent",
        metavar="NAME|[NAME=]MODULE:ATTR|URL#MODEL|acp:COMMAND|scripted",
        help="The agent that answers: one to run here, or the name of one that this or another process serves. "
        "[env: BACKSTAY_AGENT; default: the one that `backstay agents` selects]",
    )(command)


def wait_option(command: F) -> F:
    """Add --no-wait."""
    return click.option(
        "--no-wait", is_flag=True, help="Only store the message; a process that serves the agent answers it later."
    )(command)


def attach_option(command: F) -> F:
    """Add --attach."""
    return click.option(
        "--attach",
        type=click.Path(exists=True, dir_okay=False, readable=True, path_type=Path),
        multiple=True,
        help="A file to send with the message. May be repeated.",
    )(command)


def unserved_option(command: F) -> F:
    """Add --allow-unserved."""
    return click.option(
        "--allow-unserved", is_flag=True, help="Queue the message even if no process has ever served the agent."
    )(command)


def agent_options(options: CommandOptions, agent: str | None) -> AgentOptions:
    """Interpret --agent: a spec of an agent to run here, or else the name of an agent."""
    if agent is None:
        return AgentOptions(options.settings.agent, None)
    name, mark, _ = agent.partition("=")
    is_named = bool(mark) and ":" not in name and "/" not in name
    if is_named or ":" in agent or (agent == SCRIPTED and options.server is None):
        return AgentOptions((agent,), name if is_named else None)
    return AgentOptions(options.settings.agent, agent)


@contextmanager
def app(
    options: CommandOptions, selected: AgentOptions, *, serve: bool = True
) -> Iterator[tuple[AnyApp, Collection[str]]]:
    """Open the server, or an app that serves these agents and runs only its own turns; name the agents served here."""
    if options.server is not None:
        if selected.specs != options.settings.agent:
            raise click.UsageError("With --server, --agent is the name of an agent of the server.")
        with tracebacks(), options.client() as client:
            yield client, ()
        return
    # Imported here: `backstay list` does not need an HTTP client.
    from backstay.agents.selection.agent_specs import parse_agent_specs  # noqa: PLC0415
    from backstay.agents.selection.selection import select_agent  # noqa: PLC0415
    from backstay.server.auth.agent_roots import agent_roots  # noqa: PLC0415

    roots = partial(agent_roots, options.settings, [selected.directory or "."])
    specs = selected.specs or select_agent(options.effective, os.environ).agent if serve else ()
    agents = parse_agent_specs(specs, options.settings, roots=roots) if serve else {}
    titler = first_words if options.settings.titles else None
    with (
        tracebacks(),
        open_blocking(options.db, agents=agents, owner=options.owner, claim="own", titler=titler) as opened,
    ):
        yield opened, agents.keys()


def text_of(argument: Sequence[str], *, optional: bool = False) -> str:
    """Return the message from the arguments or from standard input. A message that no store accepts is rejected.

    With `optional` the text may be empty: files are sent with it.
    """
    text = _read_text(argument, optional=optional)
    encode_parts(parts_of(text), Limits())
    if text.strip() or not optional:
        check_input(parts_of(text))
    return text


def with_files(app: AnyApp, text: str, files: Sequence[Path]) -> Content:
    """Upload the files, and return the message that carries them."""
    attachments = [app.upload(path) for path in files]
    return [*([Text(text)] if text.strip() else []), *attachments] if attachments else text


def _read_text(argument: Sequence[str], *, optional: bool) -> str:
    if argument and argument != ("-",):
        return " ".join(argument)
    if screen.is_terminal(sys.stdin) and not argument:
        if optional:
            return ""
        raise click.UsageError("There is no message: give TEXT, or pipe it in.")
    most = Limits().message_bytes
    data = sys.stdin.buffer.read(most + 1)
    if len(data) > most:
        raise TooLarge(
            f"standard input has more than {most:,} bytes, the limit for a message",
            hint="Send less at once, or put the data in a file that the agent can read.",
        )
    try:
        return data.decode().removesuffix("\n")
    except UnicodeDecodeError as error:
        raise InvalidPayload(
            f"standard input is not text: byte {error.start} is not valid UTF-8",
            hint="Convert it first, e.g. with iconv.",
        ) from error


def print_accepted(options: CommandOptions, turn: AnyTurn) -> None:
    """Print the ids of an accepted turn, without waiting for it."""
    if options.json:
        screen.print_json(TurnReport(turn.session, turn.id, turn.repeated))
    else:
        screen.print_line(f"{turn.session} {turn.id}")


def print_answer(options: CommandOptions, turn: AnyTurn) -> Exit:
    """Print the answer as it arrives; return the exit status for the outcome. Ctrl-C cancels the turn."""
    printer = _AnswerPrinter(turn, quiet=options.json)
    try:
        for event in turn.events():
            printer.add(event)
        outcome = turn.outcome()
    except KeyboardInterrupt:
        printer.close()
        turn.cancel()
        screen.note(f"{turn.id} was cancelled; the partial answer is kept.")
        return Exit.STOPPED
    printer.close()
    if options.json:
        text = "".join(printer.part_text)
        screen.print_json(TurnReport(turn.session, turn.id, turn.repeated, outcome, text, turn.read().usage))
    elif not isinstance(outcome, Completed):
        reason = f": {outcome.reason}" if outcome.reason else ""
        hint = f" ({outcome.hint})" if isinstance(outcome, Failed) and outcome.hint else ""
        click.echo(safe_text.one_line(f"the turn {conversation_text.ending(outcome)}{reason}{hint}"), err=True)
    return exit_status.ENDINGS[type(outcome)]


class _AnswerPrinter:
    """Prints an agent's text to standard output, and its tool calls as notes."""

    def __init__(self, turn: AnyTurn, *, quiet: bool) -> None:
        self.part_text: list[str] = []
        self._turn = turn
        self._quiet = quiet

    def add(self, event: Event) -> None:
        match event.body:
            case TextDelta(text=text):
                self._print(text)
            case ToolCalled(call=call):
                self._print_note(conversation_text.part_text(call))
                if call.approval:
                    self._note_approval(event.session, call)
            case ToolReturned(result=result):
                self._print_note(conversation_text.part_text(result))
            case TurnFolded(messages=messages) | TurnRecorded(messages=messages):
                for message in messages:
                    if message.role == "assistant":
                        self._print(message.text)
            case _:
                pass

    def close(self) -> None:
        """End the last line."""
        if not self._quiet and self.part_text and not self.part_text[-1].endswith("\n"):
            screen.print_line()

    def _print(self, text: str) -> None:
        self.part_text.append(text)
        if not self._quiet:
            click.echo(safe_text.lines(text), nl=False)

    def _print_note(self, text: str) -> None:
        if not self._quiet:
            screen.note(text)

    def _note_approval(self, session: SessionId, call: ToolCall) -> None:
        """Name the approval that the command waits for. Printed also for scripts: the command may wait forever."""
        # A call that was shown before, as after `backstay approve`, may be decided already.
        if not self._quiet and any(asks(made) for made in self._turn.calls() if made.call == call.id):
            waits = f"{call.name} waits for approval: run {decide_commands(session)} in another terminal."
            click.echo(safe_text.one_line(waits), err=True)


def finish(ending: Exit) -> None:
    """Exit with the status of the turn."""
    click.get_current_context().exit(ending)


Send: TypeAlias = "Callable[[AnyApp], AnyTurn]"


def send_and_print(options: CommandOptions, selected: AgentOptions, send: Send, *, no_wait: bool) -> None:
    """Send a message and print the answer; with `no_wait`, only print the ids of the turn."""
    with app(options, selected, serve=not no_wait) as (opened, served):
        turn = send(opened)
        if no_wait:
            print_accepted(options, turn)
            return
        _note_waiting(options, turn, served)
        ending = print_answer(options, turn)
    finish(ending)


def _note_waiting(options: CommandOptions, turn: AnyTurn, served: Collection[str]) -> None:
    """Note that an accepted turn waits for another process. Printed also for scripts: the command may wait forever."""
    if options.json or options.server is not None:
        return
    accepted = turn.read()
    if accepted.state == "waiting" and accepted.agent is not None and accepted.agent not in served:
        note = f"{accepted.agent!r} is not served here: waiting for a process that serves it."
        click.echo(safe_text.one_line(note), err=True)
