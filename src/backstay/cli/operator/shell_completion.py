"""`backstay completion`: shell completion of commands, options and session ids."""

import click
from click.shell_completion import get_completion_class

from backstay.cli.output import screen

EXAMPLES = """\b
Examples:
  backstay completion bash >> ~/.bashrc
  backstay completion zsh > ~/.zfunc/_backstay
  backstay completion fish > ~/.config/fish/completions/backstay.fish
"""


@click.command(epilog=EXAMPLES, short_help="Print a completion script for your shell.")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.pass_context
def completion(ctx: click.Context, shell: str, *, as_json: bool) -> None:
    """Print a script that lets SHELL complete commands, options and session ids."""
    made = get_completion_class(shell)
    if made is None:
        raise click.UsageError(f"This version of click has no completion for {shell}.")
    script = made(ctx.find_root().command, {}, "backstay", "_BACKSTAY_COMPLETE")
    # Not `source()`: for bash, it starts a shell to check its version.
    text = script.source_template % script.source_vars()
    screen.print_json({"shell": shell, "script": text}) if as_json else screen.print_line(text)
