"""`backstay serve` runs the server; `backstay config` shows its settings."""

import os
import sys
from pathlib import Path

import click
import msgspec

from backstay.cli.options import chosen, settings_options
from backstay.cli.output import screen
from backstay.cli.output.browser import is_opened, open_web_ui
from backstay.config import described

EXAMPLES = """\b
Examples:
  backstay serve --db ./chat.db
  backstay serve --agent mybot:agent --reload --debug
  backstay serve --agent http://localhost:11434/v1#llama3.2
  backstay serve --agent acp:gemini --agent-directory ~/project
  backstay serve --host 0.0.0.0 --allowed-host chat.example.org --https --workers 4
"""
CONFIG = """\b
Examples:
  backstay config
  BACKSTAY_PORT=9000 backstay config
  backstay config --json | jq '.settings.db'
"""


@click.command(epilog=EXAMPLES)
@settings_options
@click.option("--host", help="The address to listen on. [default: 127.0.0.1]")
@click.option("--port", type=int, help="The port to listen on; 0 picks a free port. [default: 8642]")
@click.option(
    "--agent",
    multiple=True,
    metavar="[NAME=]MODULE:ATTR|URL#MODEL|acp:COMMAND|scripted",
    help="The agent that answers. Repeat it, with names, for several agents. "
    "[default: the best that `backstay agents` finds]",
)
@click.option(
    "--agent-directory", help="The directory in which an ACP agent works, in sessions without a workspace address."
)
@click.option(
    "--agent-root",
    "agent_roots",
    multiple=True,
    metavar="DIR",
    help="A directory that ACP agents may work under. [default: the agent directory, or else the current directory]",
)
@click.option(
    "--agent-permission",
    type=click.Choice(["ask", "allow", "deny"]),
    help="The answer when an ACP agent asks to use a tool; `ask` asks a person. [default: ask]",
)
@click.option(
    "--demo/--no-demo", "demo", default=None, help="Allow the scripted agent to crash the server, as a demonstration."
)
@click.option(
    "--debug/--no-debug", "debug", default=None, help="Show clients an agent's traceback; only on a loopback address."
)
@click.option(
    "--reload/--no-reload",
    "reload",
    default=None,
    help="Restart when a Python file in this directory changes.",
)
@click.option("--workers", type=int, help="The number of server processes. [default: 1]")
@click.option(
    "--allowed-host", "allowed_hosts", multiple=True, help="A host name that clients may use; required beyond loopback."
)
@click.option("--allowed-origin", "allowed_origins", multiple=True, help="Another origin whose pages may call the API.")
@click.option("--https/--http", "https", default=None, help="Clients connect through an HTTPS proxy, or directly.")
@click.option("--auth/--no-auth", "auth", default=None, help="Require a token; optional only on a loopback address.")
@click.option("--token-file", help="The file of the first token. [default: beside the database]")
@click.option("--log-level", type=click.Choice(["debug", "info", "warning", "error"]), help="[default: info]")
@click.option("--log-format", type=click.Choice(["json", "text"]), help="[default: json]")
@click.option(
    "--open/--no-open",
    "open_browser",
    default=None,
    help="Open the web UI in a browser. [default: if there is a display]",
)
@click.option("--json", "as_json", is_flag=True, help="Print the server's address and store as one JSON object.")
def serve(file: Path | None, *, as_json: bool, open_browser: bool | None, **flags: object) -> None:
    """Serve sessions over HTTP until stopped."""
    # Imported here, so that only this command pays for the web framework.
    from backstay.agents.selection.selection import select_agent  # noqa: PLC0415
    from backstay.server.serve import Serving  # noqa: PLC0415
    from backstay.server.serve import serve as serve_http  # noqa: PLC0415

    # The sign-in link is a secret: print it only to a terminal, since other outputs may end in a log that others read.
    for_a_person = screen.is_terminal(sys.stdout)

    def announce(serving: Serving) -> None:
        shown = serving if for_a_person else msgspec.structs.replace(serving, sign_in=None)
        click.echo(msgspec.json.encode(shown).decode() if as_json else _as_lines(shown))
        open_web_ui(serving.sign_in or serving.url, open_browser)

    def _as_lines(serving: Serving) -> str:
        facts = {
            "serving": serving.url,
            "sign in": _sign_in(serving),
            "token": serving.token_file or "not needed",
            "store": serving.store.url,
            "engine": f"{serving.store.engine} {serving.store.engine_version}",
            "sessions": serving.store.sessions,
            "workers": serving.workers,
        }
        return "\n".join([serving.why, *(f"{name:<12}{fact}" for name, fact in facts.items())])

    def _sign_in(serving: Serving) -> str:
        if serving.sign_in is not None:
            return f"{serving.sign_in}  (once, within 15 minutes)"
        return "not needed" if serving.token_file is None else "`backstay link` prints a link"

    effective = chosen(file, **flags)
    link = for_a_person or is_opened(open_browser)
    serve_http(effective.settings, select_agent(effective, os.environ), announce, link=link)


@click.command(epilog=CONFIG)
@settings_options
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def config(file: Path | None, db: str | None, *, as_json: bool) -> None:
    """Show every setting, its value, and where it comes from."""
    effective = chosen(file, db=db)
    if as_json:
        facts = {name: {"value": value, "from": source} for name, value, source in described(effective)}
        screen.print_json({"file": effective.file, "settings": facts, "unknown": effective.unknown})
        return
    screen.facts([("file", effective.file or "none")])
    screen.table(
        ["SETTING", "VALUE", "FROM"],
        [[name, _written(value), source] for name, value, source in described(effective)],
        fold=1,
    )


def _written(value: object) -> str:
    """Format a setting as in an environment variable."""
    if isinstance(value, tuple):
        return ",".join(map(str, value))
    return str(value).lower() if isinstance(value, bool) else str(value)
