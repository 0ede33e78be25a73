"""The `backstay` command: every verb of the command line starts here."""

import os
import sys
from pathlib import Path

import click
import msgspec

from backstay.errors import BackstayError, ConfigError, StoreUnavailable
from backstay.store import About, open_store

_DURABILITY = "accepted input survives a power loss, text still streaming survives a crash of its process"

_EXAMPLES = """\b
Examples:
  backstay serve
  backstay serve --db ./chat.db
  BACKSTAY_DB=./chat.db backstay serve --json
"""


def main() -> None:
    """Run the command line; an expected error is a sentence on stderr and exit status 1."""
    try:
        commands(prog_name="backstay")
    except BackstayError as error:
        click.echo(f"error: {error.args[0]}", err=True)
        if error.advice:
            click.echo(f"hint: {error.advice}", err=True)
        sys.exit(1)


@click.group(epilog=_EXAMPLES)
@click.version_option(package_name="backstay", message="%(prog)s %(version)s")
def commands() -> None:
    """Durable sessions for AI agents."""


def default_database() -> Path:
    """Where sessions live unless told otherwise: the user's data directory."""
    chosen = Path(os.environ.get("XDG_DATA_HOME", ""))
    return (chosen if chosen.is_absolute() else _home() / ".local" / "share") / "backstay" / "backstay.db"


@commands.command(epilog=_EXAMPLES)
@click.option(
    "--db",
    type=click.Path(dir_okay=False, path_type=Path),
    default=default_database,
    envvar="BACKSTAY_DB",
    show_envvar=True,
    show_default="backstay/backstay.db in $XDG_DATA_HOME or ~/.local/share",
    help="The database file; made, with its directory, if it is not there.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of lines for people.")
def serve(db: Path, *, as_json: bool) -> None:
    """Open the store and tell what would be served.

    This version has no HTTP server yet: the command checks that the store opens, describes it and exits.
    """
    _make_private(db.parent)
    with open_store(db) as store:
        about = store.about()
    click.echo(_as_json(about) if as_json else _as_lines(about))


def _home() -> Path:
    try:
        return Path.home()
    except RuntimeError as error:
        raise ConfigError("there is no home directory to keep sessions in", hint="Name a file with --db.") from error


def _make_private(directory: Path) -> None:
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise StoreUnavailable(
            f"cannot make the directory {directory}: {error.strerror}", hint="Name another file with --db."
        ) from error


def _as_json(about: About) -> str:
    story = {"store": about, "durability": _DURABILITY, "http": None}
    return msgspec.json.encode(story).decode()


def _as_lines(about: About) -> str:
    facts = {
        "store": about.url,
        "engine": f"{about.engine} {about.engine_version}",
        "schema": about.schema,
        "sessions": about.sessions,
        "workers": about.workers,
        "durability": _DURABILITY,
        "http": "not in this version; nothing listens",
    }
    return "\n".join(f"{name:<12}{fact}" for name, fact in facts.items())
