"""The `backstay` command: every verb of the command line starts here."""

import sys
from importlib import import_module
from itertools import takewhile

import click

from backstay.cli import plain, streams
from backstay.cli.exits import Exit
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

# Each verb by its module and its name there. Only the one that is asked for is loaded: a list of sessions does not wait
# for what runs agents.
_VERBS = {
    "serve": ("serving", "serve"),
    "chat": ("chatting", "chat"),
    "agents": ("agents", "agents"),
    "send": ("sending", "send"),
    "list": ("listing", "list_sessions"),
    "show": ("showing", "show"),
    "follow": ("following", "follow"),
    "search": ("searching", "search"),
    "lineage": ("lineage", "lineage"),
    "undo": ("history", "undo"),
    "redo": ("history", "redo"),
    "retry": ("history", "retry"),
    "edit": ("history", "edit"),
    "fork": ("history", "fork"),
    "rename": ("filing", "rename"),
    "pin": ("filing", "pin"),
    "unpin": ("filing", "unpin"),
    "archive": ("filing", "archive"),
    "unarchive": ("filing", "unarchive"),
    "tag": ("filing", "tag"),
    "end": ("filing", "end"),
    "delete": ("filing", "delete"),
    "export": ("exporting", "export"),
    "import": ("exporting", "import_session"),
    "backup": ("keeping", "backup"),
    "vacuum": ("keeping", "vacuum"),
    "retain": ("keeping", "retain"),
    "migrate": ("keeping", "migrate"),
    "move": ("keeping", "move"),
    "doctor": ("doctor", "doctor"),
    "tokens": ("access", "tokens"),
    "link": ("access", "link"),
    "completion": ("completion", "completion"),
    "config": ("serving", "config"),
}


def main() -> None:
    """Run the command line; an expected error is a sentence on stderr and an exit status, never a trace."""
    streams.prepare()
    try:
        code = commands.main(prog_name="backstay", standalone_mode=False)
    except (BackstayError, click.ClickException) as error:
        code = _complain(error)
    except click.Abort:
        code = Exit.STOPPED
    except OSError as error:
        code = _complain(streams.in_our_words(error))
    sys.exit(code or 0)


def _complain(error: BackstayError | click.ClickException) -> int:
    """Say what went wrong, to a person or to a machine; the status to end with."""
    code = Exit.ERROR if isinstance(error, BackstayError) else error.exit_code
    if "--json" in takewhile("--".__ne__, sys.argv[1:]):
        # Only here: whoever asks for the version need not know what a server's problems are.
        from backstay.cli.complaints import complaint  # noqa: PLC0415

        click.echo(complaint(error, code), err=True)
    elif isinstance(error, BackstayError):
        click.echo(f"error: {plain.lines(str(error.args[0]))}", err=True)
        if error.advice:
            click.echo(f"hint: {plain.lines(error.advice)}", err=True)
    else:
        error.show()
    return code


class Commands(click.Group):
    """The verbs; whoever stops reading what they write is left in peace."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """In the order of the table, which puts together what belongs together."""
        return list(_VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        return _load(cmd_name) if cmd_name in _VERBS else None

    def invoke(self, ctx: click.Context) -> object:
        try:
            answer: object = super().invoke(ctx)
            sys.stdout.flush()
        except BrokenPipeError:
            streams.abandon_output()
            ctx.exit(Exit.PIPE_CLOSED)
        return answer


def _load(verb: str) -> click.Command:
    module, name = _VERBS[verb]
    command: click.Command = getattr(import_module(f"backstay.cli.{module}"), name)
    return command


@click.group(
    cls=Commands, epilog=EXAMPLES, invoke_without_command=True, context_settings={"help_option_names": ["-h", "--help"]}
)
@click.version_option(package_name="backstay", message="%(prog)s %(version)s")
@click.pass_context
def commands(context: click.Context) -> None:
    """Durable sessions for AI agents. Without a command: serve them, and show the page."""
    if context.invoked_subcommand is None:
        context.invoke(_load("serve"))
