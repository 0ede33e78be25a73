"""The `backstay` command: the entry point of every subcommand."""

import sys
from importlib import import_module
from itertools import takewhile

import click

from backstay.cli.output import safe_text, stdio
from backstay.cli.output.exit_status import Exit
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

# Each command with its module and its function there. Only the requested module is imported, so `backstay list` does
# not pay for the runtime that runs agents.
_VERBS = {
    "serve": ("operator.serve_command", "serve"),
    "chat": ("commands.chat_command", "chat"),
    "agents": ("operator.agent_commands", "agents"),
    "send": ("commands.send_command", "send"),
    "list": ("commands.list_command", "list_sessions"),
    "show": ("commands.show_command", "show"),
    "follow": ("commands.follow_command", "follow"),
    "search": ("commands.search_command", "search"),
    "lineage": ("commands.lineage_command", "lineage"),
    "undo": ("commands.history_commands", "undo"),
    "redo": ("commands.history_commands", "redo"),
    "retry": ("commands.history_commands", "retry"),
    "edit": ("commands.history_commands", "edit"),
    "fork": ("commands.history_commands", "fork"),
    "rename": ("commands.organise_commands", "rename"),
    "pin": ("commands.organise_commands", "pin"),
    "unpin": ("commands.organise_commands", "unpin"),
    "archive": ("commands.organise_commands", "archive"),
    "unarchive": ("commands.organise_commands", "unarchive"),
    "tag": ("commands.organise_commands", "tag"),
    "end": ("commands.organise_commands", "end"),
    "delete": ("commands.organise_commands", "delete"),
    "export": ("commands.export_commands", "export"),
    "import": ("commands.export_commands", "import_session"),
    "release": ("commands.export_commands", "release"),
    "backup": ("operator.maintenance_commands", "backup"),
    "vacuum": ("operator.maintenance_commands", "vacuum"),
    "retain": ("operator.maintenance_commands", "retain"),
    "migrate": ("operator.maintenance_commands", "migrate"),
    "move": ("operator.maintenance_commands", "move"),
    "doctor": ("operator.doctor", "doctor"),
    "tokens": ("operator.token_commands", "tokens"),
    "link": ("operator.token_commands", "link"),
    "completion": ("operator.shell_completion", "completion"),
    "config": ("operator.serve_command", "config"),
}


def main() -> None:
    """Run the command line. An expected error is printed to stderr and sets the exit status, without a traceback."""
    stdio.prepare()
    try:
        code = commands.main(prog_name="backstay", standalone_mode=False)
    except (BackstayError, click.ClickException) as error:
        code = _complain(error)
    except click.Abort:
        code = Exit.STOPPED
    except OSError as error:
        code = _complain(stdio.in_our_words(error))
    sys.exit(code or 0)


def _complain(error: BackstayError | click.ClickException) -> int:
    """Print an error, as text or as JSON, and return the exit status."""
    code = Exit.ERROR if isinstance(error, BackstayError) else error.exit_code
    if "--json" in takewhile("--".__ne__, sys.argv[1:]):
        # Imported here: it loads the server's error documents, which `backstay --version` does not need.
        from backstay.cli.output.json_errors import complaint  # noqa: PLC0415

        click.echo(complaint(error, code), err=True)
    elif isinstance(error, BackstayError):
        click.echo(f"error: {safe_text.lines(str(error.args[0]))}", err=True)
        if error.hint:
            click.echo(f"hint: {safe_text.lines(error.hint)}", err=True)
    else:
        error.show()
    return code


class Commands(click.Group):
    """The command group. It exits quietly when the reader of its output closes the pipe."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the commands in the order of the table, which groups related commands."""
        return list(_VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        return _load(cmd_name) if cmd_name in _VERBS else None

    def invoke(self, ctx: click.Context) -> object:
        try:
            answer: object = super().invoke(ctx)
            sys.stdout.flush()
        except BrokenPipeError:
            stdio.abandon_output()
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
    """Durable sessions for AI agents. Without a command, start the server and open the web UI."""
    if context.invoked_subcommand is None:
        context.invoke(_load("serve"))
