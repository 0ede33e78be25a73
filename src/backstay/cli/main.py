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

# Each command with its module, its function there and its line in the list of commands. Only the requested module is
# imported: neither `backstay list` nor `backstay --help` pays for the runtime that runs agents.
_VERBS = {
    "serve": ("operator.serve_command", "serve", "Serve sessions over HTTP until stopped."),
    "chat": ("commands.chat_command", "chat", "Chat in a terminal."),
    "agents": ("operator.agent_commands", "agents", "Show which agent would answer, why, and what else was found."),
    "send": ("commands.send_command", "send", "Send a message and print the answer as it arrives."),
    "list": ("commands.list_command", "list_sessions", "List sessions, newest activity first."),
    "show": ("commands.show_command", "show", "Show a session and its messages."),
    "follow": ("commands.follow_command", "follow", "Print the events of one session, or of all, as they happen."),
    "search": ("commands.search_command", "search", "Search messages, best match first."),
    "lineage": ("commands.lineage_command", "lineage", "Draw the windows of a session as a tree."),
    "at": ("commands.schedule_verbs", "at", "Send a message at a moment."),
    "every": ("commands.schedule_verbs", "every", "Send a message again and again."),
    "schedules": ("commands.schedule_verbs", "schedules", "List, pause, resume, run and delete schedules."),
    "gateway": ("operator.gateway_verbs", "gateway", "Let a chat platform talk to the agent, such as Telegram."),
    "waiting": ("commands.queue_commands", "waiting", "List turns that run and wait, and calls to approve."),
    "cancel": ("commands.queue_commands", "cancel", "Cancel the running turn of a session, in any process."),
    "compact": ("commands.queue_commands", "compact", "Summarise all messages of a session but the last ones."),
    "undo": ("commands.history_commands", "undo", "Undo the last turn."),
    "redo": ("commands.history_commands", "redo", "Restore the turn that the last undo removed."),
    "retry": ("commands.history_commands", "retry", "Run the last message again."),
    "edit": ("commands.history_commands", "edit", "Replace an earlier message and run it."),
    "resume": ("commands.approval_commands", "resume", "Continue the interrupted last turn of SESSION."),
    "approve": (
        "commands.approval_commands",
        "approve",
        "Approve the waiting tool call of SESSION and print the answer.",
    ),
    "deny": ("commands.approval_commands", "deny", "Deny the waiting tool call of SESSION and print the answer."),
    "fork": ("commands.history_commands", "fork", "Create a new session from this one, and print its id."),
    "rename": ("commands.organise_commands", "rename", "Set the title of a session."),
    "pin": ("commands.organise_commands", "pin", "Pin sessions."),
    "unpin": ("commands.organise_commands", "unpin", "Unpin sessions."),
    "archive": ("commands.organise_commands", "archive", "Archive sessions: `backstay list` hides them."),
    "unarchive": ("commands.organise_commands", "unarchive", "Restore archived sessions to the list."),
    "tag": ("commands.organise_commands", "tag", "Add tags to a session, and remove others."),
    "end": ("commands.organise_commands", "end", "End sessions permanently; they stay readable."),
    "delete": ("commands.organise_commands", "delete", "Delete sessions and their messages."),
    "export": ("commands.export_commands", "export", "Export a whole session as one document."),
    "import": ("commands.export_commands", "import_session", "Import an exported session, and print its id."),
    "release": ("commands.export_commands", "release", "Let the held turns of an imported session start."),
    "backup": ("operator.maintenance_commands", "backup", "Copy a store in use to a file, and check the copy."),
    "restore": ("operator.maintenance_commands", "restore", "Replace a store by a copy of it."),
    "vacuum": ("operator.maintenance_commands", "vacuum", "Return unused space to the disk."),
    "retain": ("operator.maintenance_commands", "retain", "Remove old data of all owners."),
    "migrate": (
        "operator.maintenance_commands",
        "migrate",
        "Migrate a store to the newest schema and report the steps.",
    ),
    "move": ("operator.maintenance_commands", "move", "Move a whole store to another, empty database."),
    "doctor": ("operator.doctor", "doctor", "Check a store and report problems."),
    "tokens": ("operator.token_commands", "tokens", "Create, list and revoke the tokens of a server's clients."),
    "link": ("operator.token_commands", "link", "Print a link that signs in one browser."),
    "webhooks": (
        "operator.webhook_commands",
        "webhooks",
        "List and test webhooks, and send again what could not be delivered.",
    ),
    "completion": ("operator.shell_completion", "completion", "Print a completion script for your shell."),
    "config": ("operator.serve_command", "config", "Show every setting, its value, and where it comes from."),
}


def main() -> None:
    """Run the command line. An expected error is printed to stderr and sets the exit status, without a traceback."""
    stdio.prepare()
    try:
        code = commands.main(prog_name="backstay", standalone_mode=False)
    except (BackstayError, click.ClickException) as error:
        code = _print_error(error)
    except click.Abort:
        code = Exit.STOPPED
    except OSError as error:
        code = _print_error(stdio.config_error(error))
    sys.exit(code or 0)


def _print_error(error: BackstayError | click.ClickException) -> int:
    """Print an error, as text or as JSON, and return the exit status."""
    code = Exit.ERROR if isinstance(error, BackstayError) else error.exit_code
    if "--json" in takewhile("--".__ne__, sys.argv[1:]):
        # Imported here: it loads the server's error documents, which `backstay --version` does not need.
        from backstay.cli.output.json_errors import error_line  # noqa: PLC0415

        click.echo(error_line(error, code), err=True)
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

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of commands without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, summary) for name, (_, _, summary) in _VERBS.items()])

    def invoke(self, ctx: click.Context) -> object:
        try:
            answer: object = super().invoke(ctx)
            sys.stdout.flush()
        except BrokenPipeError:
            stdio.abandon_output()
            ctx.exit(Exit.PIPE_CLOSED)
        return answer


def _load(verb: str) -> click.Command:
    module, name, _ = _VERBS[verb]
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
