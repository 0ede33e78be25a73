"""The `backstay` command: every verb of the command line starts here."""

import sys

import click

from backstay.cli.access import link, token
from backstay.cli.agents import agents
from backstay.cli.chatting import chat
from backstay.cli.serving import config, serve
from backstay.errors import BackstayError

EXAMPLES = """\b
Examples:
  backstay serve
  backstay serve --db ./chat.db --agent mybot:agent
  BACKSTAY_DB=./chat.db backstay serve --workers 4
"""


def main() -> None:
    """Run the command line; an expected error is a sentence on stderr and exit status 1."""
    try:
        commands(prog_name="backstay")
    except BackstayError as error:
        click.echo(f"error: {error.args[0]}", err=True)
        if error.advice:
            click.echo(f"hint: {error.advice}", err=True)
        sys.exit(1)


@click.group(epilog=EXAMPLES, invoke_without_command=True)
@click.version_option(package_name="backstay", message="%(prog)s %(version)s")
@click.pass_context
def commands(context: click.Context) -> None:
    """Durable sessions for AI agents. Without a command: serve them, and show the page."""
    if context.invoked_subcommand is None:
        context.invoke(serve)


for verb in (serve, chat, config, token, link, agents):
    commands.add_command(verb)
