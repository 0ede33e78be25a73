"""`backstay chat`: a conversation in a terminal, with a database or with a server."""

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from backstay.cli.options import chosen
from backstay.cli.session_names import SESSION

EXAMPLES = """\b
Examples:
  backstay chat
  backstay chat --workspace ~/project --new
  backstay chat --db postgresql://localhost/backstay --agent mybot:agent
  backstay chat --server http://127.0.0.1:8642
  echo "What is 6 * 7?" | backstay chat --new
  echo '{"text": "What is 6 * 7?"}' | backstay chat --json | jq -rj '.event.body.text // empty'

Exit status with --json: 0 if every turn completed; otherwise the status of the first other outcome, as for `send`.
"""
_REPEATED = frozenset({"db", "server", "token_file", "agent", "to", "owner", "file"})


@click.command(epilog=EXAMPLES)
@click.option("--db", metavar="PATH|URL", help="The database. [env: BACKSTAY_DB; default: your data directory]")
@click.option(
    "--server",
    metavar="URL",
    envvar="BACKSTAY_SERVER",
    help="Connect to a server instead of a database. [env: BACKSTAY_SERVER]",
)
@click.option(
    "--token",
    envvar="BACKSTAY_TOKEN",
    help="The token for the server. [env: BACKSTAY_TOKEN; default: from --token-file]",
)
@click.option("--token-file", help="The file of the token. [default: beside the database]")
@click.option(
    "--session",
    type=SESSION,
    metavar="ID",
    help="Continue this session; the first or last letters are enough, or `last`.",
)
@click.option("--address", help="Continue the session of this address.")
@click.option("--workspace", metavar="PATH", help="Continue the session of this directory. [default: the current one]")
@click.option("--new", is_flag=True, help="Create a new session; the address or directory then points to it.")
@click.option(
    "--agent",
    multiple=True,
    metavar="[NAME=]MODULE:ATTR|URL#MODEL|acp:COMMAND|scripted",
    help="The agent that answers, with --db. [default: the best that `backstay agents` finds]",
)
@click.option(
    "--to", default="default", show_default=True, metavar="NAME", help="The agent to ask, if there are several."
)
@click.option("--owner", help="The owner of the sessions, with --db. [default: local]")
@click.option(
    "--config",
    "file",
    type=click.Path(dir_okay=False, path_type=Path),
    help="The settings file. [env: BACKSTAY_CONFIG; default: ~/.config/backstay/config.toml]",
)
@click.option("--json", "as_json", is_flag=True, help="Read and write JSON lines.")
def chat(
    file: Path | None,
    *,
    as_json: bool,
    server: str | None,
    token: str | None,
    session: str | None,
    address: str | None,
    workspace: str | None,
    new: bool,
    to: str,
    **flags: Any,  # Any: the settings among the options
) -> None:
    """Chat in a terminal. Other clients can have the same session open; all show the same events.

    Ctrl-C cancels the running turn; a second Ctrl-C exits. /help lists the commands. With input from a pipe, each line
    is sent after the answer to the line before.

    With --json each line of the input is {"text": "…"}, or {"call": ID, "approved": true or false} for a tool that
    needs approval, and each line of the output is an event, as `backstay follow --json` writes it.
    """
    if sum(named is not None for named in (session, address, workspace)) > 1:
        raise click.UsageError("--session, --address and --workspace exclude each other.")
    if session is not None and new:
        raise click.UsageError("--session and --new exclude each other.")
    # Imported here, so that only this command pays for the terminal library.
    from backstay.cli.chat.connect import ChatTarget, chat_with_database, chat_with_server  # noqa: PLC0415

    # Without a handler, Python prints the runtime's warnings to stderr, in the middle of the conversation.
    logging.getLogger("backstay").addHandler(logging.NullHandler())
    effective = chosen(file, **flags)
    wanted = ChatTarget(
        session=session,
        address=address,
        workspace=workspace,
        new=new,
        to=to,
        as_json=as_json,
        options=tuple(_repeated(click.get_current_context())),
    )
    ending = (
        chat_with_database(effective, wanted) if server is None else chat_with_server(effective, server, token, wanted)
    )
    click.get_current_context().exit(ending)


def _repeated(context: click.Context) -> Iterator[str]:
    """Yield the options of the command line without which another chat would be continued. A token is a secret."""
    for option in context.command.params:
        source = context.get_parameter_source(option.name or "")
        if option.name in _REPEATED and source is ParameterSource.COMMANDLINE:
            value = context.params[option.name]
            for one in value if isinstance(value, tuple) else (value,):
                yield from (option.opts[0], str(one))
