"""The command line: every command, its options, and how it ends."""

import inspect
from collections.abc import Iterator

import click

from backstay.cli.main import commands
from reference.markdown import code, whole

INTRODUCTION = """\
`backstay COMMAND --help` says the same with examples.

Every command that opens a store takes `--db PATH|URL` (which store; also `BACKSTAY_DB`), `--config FILE` (settings
from a file) and `--owner NAME` (whose sessions; `local` unless told otherwise). Every command takes `--json`: then
standard output holds one JSON value and nothing else; `follow` and `chat` write one to a line, and `serve` one when it
serves. Without `--json`, people get tables and text: in colour on a terminal unless `NO_COLOR` is set, and in a pipe as
plain lines of full width. Progress and remarks go to standard error, and only to a terminal.

With `--json`, an error is one JSON object on standard error: what [a server's problem](errors.md) has (`code`, `title`,
`hint`, `status`), and `exit`, the status with which the command ends. Wrong usage has the code `usage`.

Text that people, agents and tools wrote cannot steer the terminal: control characters are shown as pictures (`␛`), in
JSON they are escaped. A command that only looks makes no file; the store it names must be there.

## Naming a session

By its id (`ses_01kb…`); by as many of its first letters as are unique, with or without `ses_`; or by the spelling of
an address that leads to it (`chat://telegram/dm/42`). If several fit, they are listed and nothing is done. Shells
complete ids: see [`backstay completion`](#backstay-completion).

## Exit statuses

| status | meaning |
|---|---|
| 0 | done; for `send`, `retry`, `edit` and `chat --json`: every turn completed; for `doctor`: nothing is wrong |
| 1 | an error, said with a hint on standard error; unless the hint says otherwise, nothing was changed |
| 2 | wrong usage |
| 3 | the turn failed: its agent did |
| 4 | the turn was cancelled by somebody |
| 5 | the turn was interrupted: its process died or was stopped |
| 6 | `doctor` found something wrong, or could not rescue everything |
| 130 | stopped with Ctrl-C; `send`, `retry`, `edit` and `chat --json` cancel their turn first |
| 141 | whoever read the output stopped reading, as `head` does |"""

_EVERYWHERE = {"--db", "--config", "--owner", "--json"}


def page() -> str:
    """The page."""
    return whole("The command line", INTRODUCTION, "## Commands", *_told())


def _told() -> Iterator[str]:
    for name, command in verbs().items():
        with click.Context(command, info_name=f"backstay {name}") as context:
            yield f"### `backstay {name}`"
            yield code(" ".join([f"backstay {name}", *_arguments(command)]))
            yield inspect.cleandoc(command.help or "").replace("\b\n", "")
            options = [_option(option, context) for option in command.params if isinstance(option, click.Option)]
            if shown := [line for line in options if line]:
                yield "\n".join(shown)


def verbs() -> dict[str, click.Command]:
    """Every command that does something, by what is typed for it."""
    return dict(_below(commands, ""))


def _below(group: click.Group, path: str) -> Iterator[tuple[str, click.Command]]:
    with click.Context(group) as context:
        for name in group.list_commands(context):
            command = group.get_command(context, name)
            if isinstance(command, click.Group):
                yield from _below(command, f"{path}{name} ")
            elif command is not None:
                yield f"{path}{name}", command


def _arguments(command: click.Command) -> list[str]:
    return [_argument(one) for one in command.params if isinstance(one, click.Argument)]


def _argument(one: click.Argument) -> str:
    """As the help writes it."""
    name = one.human_readable_name.removesuffix("...").strip("[]")
    return (name if one.required else f"[{name}]") + "..." * (one.nargs != 1)


def _option(option: click.Option, context: click.Context) -> str:
    record = option.get_help_record(context)
    if record is None or set(option.opts) & _EVERYWHERE:
        return ""
    names, meaning = record
    spelled = ", ".join(map(code, names.split(" / ")))
    return f"- {spelled}: {' '.join(meaning.split())}"
