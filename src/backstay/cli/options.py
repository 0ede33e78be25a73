"""Options that several verbs share, and the settings they amount to."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from backstay.config import Chosen, current

F = TypeVar("F", bound=Callable[..., Any])  # Any: click hands over whatever options were declared


def settings_options(command: F) -> F:
    """--db and --config, which every verb that opens a store has."""
    db = click.option(
        "--db",
        metavar="PATH|URL",
        help="The database; a file is made, with its directory, if it is not there. "
        "[env: BACKSTAY_DB; default: backstay/backstay.db in $XDG_DATA_HOME or ~/.local/share]",
    )
    file = click.option(
        "--config",
        "file",
        type=click.Path(dir_okay=False, path_type=Path),
        help="A file of settings. [env: BACKSTAY_CONFIG; default: ~/.config/backstay/config.toml]",
    )
    return db(file(command))


def chosen(file: Path | None, **flags: object) -> Chosen:
    """The settings in force, these flags included; an empty list is one that was not given."""
    return current({name: value for name, value in flags.items() if value != ()}, file=file)
