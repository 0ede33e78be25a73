"""`backstay chat`: a conversation in a terminal, with a database or with a server."""

import logging
from pathlib import Path
from typing import Any

import click

from backstay.cli.naming import SESSION
from backstay.cli.options import chosen

EXAMPLES = """\b
Examples:
  backstay chat
  backstay chat --workspace ~/project --new
  backstay chat --db postgresql://localhost/backstay --agent mybot:agent
  backstay chat --server http://127.0.0.1:8642
  echo "What is 6 * 7?" | backstay chat --new
  echo '{"text": "What is 6 * 7?"}' | backstay chat --json | jq -rj '.event.body.text // empty'

Exit status with --json: 0 every turn completed; otherwise how the first ended that did not, as for `send`.
"""


@click.command(epilog=EXAMPLES)
@click.option("--db", metavar="PATH|URL", help="The database. [env: BACKSTAY_DB; default: your data directory]")
@click.option(
    "--server",
    metavar="URL",
    envvar="BACKSTAY_SERVER",
    help="Talk to a server instead of a database. [env: BACKSTAY_SERVER]",
)
@click.option(
    "--token",
    envvar="BACKSTAY_TOKEN",
    help="What the server knows you by. [env: BACKSTAY_TOKEN; default: from --token-file]",
)
@click.option("--token-file", help="Where the token lies. [default: beside the database]")
@click.option("--session", type=SESSION, metavar="ID", help="Go on in this session; the first letters are enough.")
@click.option("--address", help="Go on in the session behind this address.")
@click.option("--workspace", metavar="PATH", help="Go on in the session of this directory. [default: where you are]")
@click.option("--new", is_flag=True, help="Begin a new session; the address or directory leads to it from now on.")
@click.option(
    "--agent",
    multiple=True,
    metavar="[NAME=]MODULE:ATTR|URL#MODEL|acp:COMMAND|scripted",
    help="Who answers, with --db. [default: the best that `backstay agents` finds]",
)
@click.option("--to", default="default", show_default=True, metavar="NAME", help="Which of several agents is asked.")
@click.option("--owner", help="Whose sessions, with --db. [default: local]")
@click.option(
    "--config",
    "file",
    type=click.Path(dir_okay=False, path_type=Path),
    help="A file of settings. [env: BACKSTAY_CONFIG; default: ~/.config/backstay/config.toml]",
)
@click.option("--json", "as_json", is_flag=True, help="Talk in JSON, for machines.")
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
    """Talk in a terminal. The same session can be open elsewhere; all see the same story.

    Ctrl-C cancels the turn that runs; twice, it leaves. /help lists what else can be done. From a pipe, each line is
    said when the one before is answered.

    With --json each line of the input is {"text": "…"}, or {"call": ID, "approved": true or false} for a tool that
    asks, and each line of the output is an event, as `backstay follow --json` writes it.
    """
    if sum(named is not None for named in (session, address, workspace)) > 1:
        raise click.UsageError("--session, --address and --workspace exclude each other.")
    if session is not None and new:
        raise click.UsageError("--session and --new exclude each other.")
    # Only this verb pays for drawing on a terminal.
    from backstay.cli.chat.opening import Wanted, talk_to_database, talk_to_server  # noqa: PLC0415

    # What the runtime has to say to an operator's log would be drawn over the conversation.
    logging.getLogger("backstay").addHandler(logging.NullHandler())
    told = chosen(file, **flags)
    wanted = Wanted(session=session, address=address, workspace=workspace, new=new, to=to, by_machine=as_json)
    ending = talk_to_database(told, wanted) if server is None else talk_to_server(told, server, token, wanted)
    click.get_current_context().exit(ending)
