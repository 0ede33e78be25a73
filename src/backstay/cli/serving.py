"""`backstay serve` and `backstay config`: the server, and what it was told."""

import os
from pathlib import Path

import click
import msgspec

from backstay.cli import screen
from backstay.cli.browser import open_page
from backstay.cli.options import chosen, settings_options
from backstay.config import described

EXAMPLES = """\b
Examples:
  backstay serve --db ./chat.db
  backstay serve --agent mybot:agent
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
@click.option("--host", help="Where to listen. [default: 127.0.0.1]")
@click.option("--port", type=int, help="Where to listen; 0 takes a free one. [default: 8642]")
@click.option(
    "--agent",
    multiple=True,
    metavar="[NAME=]MODULE:ATTR|URL#MODEL|acp:COMMAND|scripted",
    help="Who answers; may be given several times, with names. [default: the best that `backstay agents` finds]",
)
@click.option("--agent-directory", help="Where an ACP agent works in sessions that are about no directory.")
@click.option(
    "--agent-permission",
    type=click.Choice(["ask", "allow", "deny"]),
    help="What an ACP agent is answered that asks whether it may use a tool. [default: ask, a person]",
)
@click.option(
    "--demo/--no-demo", "demo", default=None, help="Whether the scripted agent may crash the server, to show it."
)
@click.option("--workers", type=int, help="How many processes serve. [default: 1]")
@click.option("--allowed-host", "allowed_hosts", multiple=True, help="A name clients may ask for; needed in public.")
@click.option("--allowed-origin", "allowed_origins", multiple=True, help="Another site whose pages may ask.")
@click.option("--https/--http", "https", default=None, help="Whether clients come by HTTPS, through a proxy.")
@click.option("--auth/--no-auth", "auth", default=None, help="Whether a token is needed; only loopback may go without.")
@click.option("--token-file", help="Where the first token is kept. [default: beside the database]")
@click.option("--log-level", type=click.Choice(["debug", "info", "warning", "error"]), help="[default: info]")
@click.option("--log-format", type=click.Choice(["json", "text"]), help="[default: json]")
@click.option(
    "--open/--no-open", "page", default=None, help="Whether to show the page. [default: if there is a display]"
)
@click.option("--json", "as_json", is_flag=True, help="Say what is served as one JSON object.")
def serve(file: Path | None, *, as_json: bool, page: bool | None, **flags: object) -> None:
    """Serve sessions over HTTP until told to stop."""
    # Only this verb pays for the web framework.
    from backstay.agents.ladder import climb  # noqa: PLC0415
    from backstay.server.serve import Serving  # noqa: PLC0415
    from backstay.server.serve import serve as serve_http  # noqa: PLC0415

    def announce(serving: Serving) -> None:
        click.echo(msgspec.json.encode(serving).decode() if as_json else _as_lines(serving))
        open_page(serving.sign_in or serving.url, page)

    def _as_lines(serving: Serving) -> str:
        facts = {
            "serving": serving.url,
            "sign in": f"{serving.sign_in}  (once, within 15 minutes)" if serving.sign_in else "not needed",
            "token": serving.token_file or "not needed",
            "store": serving.store.url,
            "engine": f"{serving.store.engine} {serving.store.engine_version}",
            "sessions": serving.store.sessions,
            "workers": serving.workers,
        }
        return "\n".join([serving.why, *(f"{name:<12}{fact}" for name, fact in facts.items())])

    told = chosen(file, **flags)
    serve_http(told.settings, climb(told, os.environ), announce)


@click.command(epilog=CONFIG)
@settings_options
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of lines for people.")
def config(file: Path | None, db: str | None, *, as_json: bool) -> None:
    """Show every setting, its value, and where it comes from."""
    told = chosen(file, db=db)
    if as_json:
        facts = {name: {"value": value, "from": source} for name, value, source in described(told)}
        screen.say_json({"file": told.file, "settings": facts})
        return
    screen.facts([("file", told.file or "none")])
    screen.table(
        ["SETTING", "VALUE", "FROM"],
        [[name, _written(value), source] for name, value, source in described(told)],
        fold=1,
    )


def _written(value: object) -> str:
    """A setting as it is written in the environment."""
    if isinstance(value, tuple):
        return ",".join(map(str, value))
    return str(value).lower() if isinstance(value, bool) else str(value)
