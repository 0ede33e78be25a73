"""`backstay agents`: the ladder by which it is decided who answers, and what was found on it."""

import os
from pathlib import Path

import click
import msgspec

from backstay.cli import plain
from backstay.cli.options import chosen

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
    help="A file of settings. [env: BACKSTAY_CONFIG; default: ~/.config/backstay/config.toml]",
)
@click.option(
    "--agent", multiple=True, metavar="[NAME=]MODULE:ATTR|URL#MODEL|acp:COMMAND|scripted", help="As for serve."
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of a table for people.")
def agents(file: Path | None, agent: tuple[str, ...], *, as_json: bool) -> None:
    """Show who would answer, why, and what else was found. Starts nothing and shows no key."""
    from backstay.agents.ladder import climb  # noqa: PLC0415  # only here: it can ask over HTTP

    ladder = climb(chosen(file, agent=agent), os.environ, whole=True)
    if as_json:
        click.echo(msgspec.json.encode(ladder).decode())
        return
    click.echo(ladder.why)
    for number, rung in enumerate(ladder.rungs, 1):
        mark = "→" if rung.chosen else " "
        click.echo(f"\n{mark} {number}  {rung.title}")
        for line in rung.found or ("nothing",):
            click.echo(f"     {plain.one_line(line)}")
    if ladder.offers:
        click.echo("\nAn agent that speaks ACP can change files and is never started unasked. To let it answer here:")
        for line in dict.fromkeys(f"backstay chat --agent {offer.agent}" for offer in ladder.offers):
            click.echo(f"     {line}")
