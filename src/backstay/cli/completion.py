"""`backstay completion`: what a shell needs to complete commands, options and session ids."""

import click
from click.shell_completion import get_completion_class

from backstay.cli import screen

EXAMPLES = """\b
Examples:
  backstay completion bash >> ~/.bashrc
  backstay completion zsh > ~/.zfunc/_backstay
  backstay completion fish > ~/.config/fish/completions/backstay.fish
"""


@click.command(epilog=EXAMPLES, short_help="Print a script that lets your shell complete commands.")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.option("--json", "as_json", is_flag=True, help="Answer in JSON, for machines.")
@click.pass_context
def completion(ctx: click.Context, shell: str, *, as_json: bool) -> None:
    """Print a script that lets SHELL complete commands, options and the ids of sessions."""
    made = get_completion_class(shell)
    if made is None:
        raise click.UsageError(f"This version of click knows no completion for {shell}.")
    script = made(ctx.find_root().command, {}, "backstay", "_BACKSTAY_COMPLETE")
    # Not `source()`: for bash that first starts a shell to ask how old it is.
    text = script.source_template % script.source_vars()
    screen.say_json({"shell": shell, "script": text}) if as_json else screen.say(text)
