"""`backstay agents`: shows which agent is selected, and the alternatives that were found."""

import os
from pathlib import Path

import click
import msgspec

from backstay.cli.options import chosen
from backstay.cli.output import safe_text

EXAMPLES = """\b
Examples:
  backstay agents
  backstay agents --agent http://127.0.0.1:11434/v1#llama3.2
  backstay agents --agent acp:gemini
  BACKSTAY_PROBE= backstay agents --json
"""


@click.command(epilog=EXAMPLES)
@click.option(
    "--config",
    "file",
    type=click.Path(dir_okay=False, path_type=Path),
    help="The settings file. [env: BACKSTAY_CONFIG; default: ~/.config/backstay/config.toml]",
)
@click.option(
    "--agent", multiple=True, metavar="[NAME=]MODULE:ATTR|URL#MODEL|acp:COMMAND|scripted", help="As for `serve`."
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def agents(file: Path | None, agent: tuple[str, ...], *, as_json: bool) -> None:
    """Show which agent would answer, why, and what else was found. Starts nothing and shows no key."""
    from backstay.agents.selection.selection import select_agent  # noqa: PLC0415  # it loads the HTTP client

    selection = select_agent(chosen(file, agent=agent), os.environ, whole=True)
    if as_json:
        click.echo(msgspec.json.encode(selection).decode())
        return
    click.echo(selection.why)
    for number, choice in enumerate(selection.choices, 1):
        mark = "→" if choice.chosen else " "
        click.echo(f"\n{mark} {number}  {choice.title}")
        for line in choice.found or ("nothing",):
            click.echo(f"     {safe_text.one_line(line)}")
    if selection.offers:
        click.echo("\nAn ACP agent can change files, so it is never started automatically. To use one here:")
        for line in dict.fromkeys(f"backstay chat --agent {offer.agent}" for offer in selection.offers):
            click.echo(f"     {line}")
