"""The `backstay` command: every verb of the command line starts here."""

import os
import sys
from typing import NoReturn

import click

from backstay.cli import plain
from backstay.cli.access import link, tokens
from backstay.cli.agents import agents
from backstay.cli.chatting import chat
from backstay.cli.completion import completion
from backstay.cli.doctor import doctor
from backstay.cli.exits import Exit
from backstay.cli.exporting import export, import_session
from backstay.cli.filing import archive, delete, end, pin, rename, tag, unarchive, unpin
from backstay.cli.following import follow
from backstay.cli.history import edit, fork, redo, retry, undo
from backstay.cli.keeping import backup, migrate, move, retain, vacuum
from backstay.cli.lineage import lineage
from backstay.cli.listing import list_sessions
from backstay.cli.searching import search
from backstay.cli.sending import send
from backstay.cli.serving import config, serve
from backstay.cli.showing import show
from backstay.errors import BackstayError

EXAMPLES = """\b
Examples:
  backstay serve
  backstay send "What is 6 * 7?"
  backstay list
  backstay serve --db ./chat.db --agent mybot:agent
  BACKSTAY_DB=./chat.db backstay serve --workers 4

Exit statuses: 0 done, 1 error, 2 wrong usage; `send` and `doctor` have more, see their help.
"""


def main() -> None:
    """Run the command line; an expected error is a sentence on stderr and an exit status, never a trace."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    try:
        code = commands.main(prog_name="backstay", standalone_mode=False)
    except BackstayError as error:
        _complain(plain.lines(str(error.args[0])), plain.lines(error.advice))
        code = Exit.ERROR
    except click.ClickException as error:
        error.show()
        code = error.exit_code
    except click.Abort:
        code = Exit.STOPPED
    sys.exit(code or 0)


def _complain(sentence: str, hint: str) -> None:
    click.echo(f"error: {sentence}", err=True)
    if hint:
        click.echo(f"hint: {hint}", err=True)


class Commands(click.Group):
    """The verbs; whoever stops reading what they write is left in peace."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """In the order in which they are listed below, which puts together what belongs together."""
        return list(self.commands)

    def invoke(self, ctx: click.Context) -> object:
        try:
            answer: object = super().invoke(ctx)
            sys.stdout.flush()
        except BrokenPipeError:
            _leave_quietly(ctx)
        return answer


def _leave_quietly(ctx: click.Context) -> NoReturn:
    # What is still in the buffer goes nowhere, so that the interpreter's last flush does not complain either.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    ctx.exit(Exit.PIPE_CLOSED)


@click.group(
    cls=Commands, epilog=EXAMPLES, invoke_without_command=True, context_settings={"help_option_names": ["-h", "--help"]}
)
@click.version_option(package_name="backstay", message="%(prog)s %(version)s")
@click.pass_context
def commands(context: click.Context) -> None:
    """Durable sessions for AI agents. Without a command: serve them, and show the page."""
    if context.invoked_subcommand is None:
        context.invoke(serve)


for verb in (
    serve,
    chat,
    agents,
    send,
    list_sessions,
    show,
    follow,
    search,
    lineage,
    undo,
    redo,
    retry,
    edit,
    fork,
    rename,
    pin,
    unpin,
    archive,
    unarchive,
    tag,
    end,
    delete,
    export,
    import_session,
    backup,
    vacuum,
    retain,
    migrate,
    move,
    doctor,
    tokens,
    link,
    completion,
    config,
):
    commands.add_command(verb)
