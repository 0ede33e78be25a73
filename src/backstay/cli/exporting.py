"""`backstay export` and `backstay import`: a session as a document, for another store or for a reader."""

import sys
from pathlib import Path

import click

from backstay.cli import plain, screen
from backstay.cli.documents import ENDINGS, Kind, document, kind_of, write
from backstay.cli.naming import SESSION, find
from backstay.cli.options import Ask, asks
from backstay.errors import InvalidPayload
from backstay.model.export import Export
from backstay.model.session import Session
from backstay.store import open_store

EXPORT = """\b
Examples:
  backstay export ses_01kb > session.json
  backstay export ses_01kb -o talk.html
  backstay export ses_01kb --format markdown | less
"""
IMPORT = """\b
Examples:
  backstay import session.json
  backstay export ses_01kb | backstay import --db other.db -
"""


@click.command(epilog=EXPORT)
@click.argument("session", type=SESSION)
@click.option(
    "--format",
    "kind",
    type=click.Choice(list(ENDINGS)),
    help="json is everything, and can be imported; the others are the current window, to read. "
    "[default: as the file's name ends; json]",
)
@click.option("-o", "--output", type=click.Path(path_type=Path), help="A file to write. [default: standard output]")
@click.option("--force", is_flag=True, help="Write over a file that is there.")
@asks
def export(ask: Ask, *, session: str, kind: Kind | None, output: Path | None, force: bool) -> None:
    """Write a session down, whole, as one document."""
    wanted = kind or ("json" if output is None else kind_of(output))
    with ask.store() as store:
        found = find(store, session, ask.owner)
        text = document(store.export(found.id, owner=ask.owner), wanted)
    if output is None:
        _print(ask, found, wanted, text)
        return
    write(output, text, replace=force)
    if ask.json:
        screen.say_json({"session": found.id, "file": str(output), "bytes": len(text)})
    else:
        screen.note(f"{found.id} is in {output}, {screen.size(len(text))}")


@click.command("import", epilog=IMPORT)
@click.argument("source", metavar="FILE|-")
@asks
def import_session(ask: Ask, *, source: str) -> None:
    """Import a session that was exported as JSON, and print its id.

    If its id is taken here, it becomes a copy with an id of its own.
    """
    export = Export.from_json(_read(source))
    with open_store(ask.db) as store:
        imported = store.import_session(export, owner=ask.owner)
    if ask.json:
        screen.say_json(imported)
        return
    screen.say(imported.session.id)
    if imported.copied:
        screen.note(f"{export.session.id} is here already: this is a copy.")
    for spelling in imported.elsewhere:
        screen.note(f"{spelling} leads to another session and stays there.")


def _print(ask: Ask, session: Session, kind: str, text: bytes) -> None:
    if kind == "json":
        screen.say(plain.in_json(text))
    elif ask.json:
        screen.say_json({"session": session.id, "format": kind, "text": text.decode()})
    else:
        click.echo(text.decode(), nl=False)


def _read(file: str) -> bytes:
    try:
        return sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
    except OSError as error:
        raise InvalidPayload(
            f"{file} cannot be read: {error.strerror}", hint="Name a file, or - for standard input."
        ) from error
