"""The reference of the command line: every command, its options and its exit statuses."""

import inspect
from collections.abc import Iterator

import click

from backstay.cli.main import commands
from reference.markdown import code, whole

INTRODUCTION = """\
`backstay COMMAND --help` shows the same with examples.

Every command that opens a store takes `--db PATH|URL` (the store; also `BACKSTAY_DB`), `--config FILE` (the settings
file) and `--owner NAME` (the owner of the sessions; default `local`). Every command takes `--json`: standard output is
then one JSON value and nothing else. `follow` and `chat` write one value per line, and `serve` writes one when it
starts to serve. Without `--json`, the output is tables and text: in colour on a terminal unless `NO_COLOR` is set, and
in a pipe as plain lines that are not cut. Progress and remarks go to standard error, and only to a terminal.

With `--json`, an error is one JSON object on standard error. It has the fields of [a problem of the HTTP
API](errors.md) (`code`, `title`, `hint`, `status`), and `exit`, the exit status. Wrong usage has the code `usage`.

Text of people, agents and tools cannot control the terminal: control characters are shown as symbols (`␛`), and
escaped in JSON. A command that only reads does not create a store; the store must exist.

## Naming a session

By its id (`ses_01kb…`); by a unique beginning of it, with or without `ses_`, or by its last letters; by its number in
`backstay list` (1 to 999), or `last` for the first one there; or by an address that points to it
(`chat://telegram/dm/42`). If several sessions match, the command lists them and does nothing. Shells complete ids: see
[`backstay completion`](#backstay-completion).

## Exit statuses

| status | meaning |
|---|---|
| 0 | done; for `send`, `retry`, `edit` and `chat --json`: every turn completed; for `doctor`: nothing is wrong |
| 1 | an error, reported with a hint on standard error; nothing was changed unless the hint says so |
| 2 | wrong usage |
| 3 | the turn failed |
| 4 | the turn was cancelled |
| 5 | the turn was interrupted: its process died or was stopped |
| 6 | `doctor` found something wrong, or could not rescue everything |
| 130 | stopped with Ctrl-C; `send`, `retry`, `edit` and `chat --json` cancel their turn first |
| 141 | the reader of the output closed the pipe, as `head` does |"""

_EVERYWHERE = {"--db", "--config", "--owner", "--json"}


def page() -> str:
    """Return the page."""
    return whole("The command line", INTRODUCTION, "## Commands", *_commands())


def _commands() -> Iterator[str]:
    for name, command in verbs().items():
        with click.Context(command, info_name=f"backstay {name}") as context:
            yield f"### `backstay {name}`"
            yield code(" ".join([f"backstay {name}", *_arguments(command)]))
            yield inspect.cleandoc(command.help or "").replace("\b\n", "")
            options = [_option(option, context) for option in command.params if isinstance(option, click.Option)]
            if shown := [line for line in options if line]:
                yield "\n".join(shown)


def verbs() -> dict[str, click.Command]:
    """Return every command that is not a group, by its full name."""
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
    """Format an argument as the help does."""
    name = one.human_readable_name.removesuffix("...").strip("[]")
    return (name if one.required else f"[{name}]") + "..." * (one.nargs != 1)


def _option(option: click.Option, context: click.Context) -> str:
    record = option.get_help_record(context)
    if record is None or set(option.opts) & _EVERYWHERE:
        return ""
    names, meaning = record
    spelled = ", ".join(map(code, names.split(" / ")))
    return f"- {spelled}: {' '.join(meaning.split())}"
