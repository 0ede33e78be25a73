"""`backstay export` and `backstay import`: a session as a document, for another store or for a reader."""

import os
import sys
from pathlib import Path

import click

from backstay.cli import pages, plain, screen
from backstay.cli.naming import SESSION, find
from backstay.cli.options import Ask, asks
from backstay.errors import ConfigError, InvalidPayload
from backstay.model.export import Export
from backstay.model.session import Session
from backstay.store import Store, open_store

EXPORT = """\b
Examples:
  backstay export ses_01kb > session.json
  backstay export ses_01kb --format html -o talk.html
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
    type=click.Choice(["json", "markdown", "html"]),
    default="json",
    show_default=True,
    help="json is everything, and can be imported; the others are the current window, to read.",
)
@click.option("-o", "--output", type=click.Path(path_type=Path), help="A file to write. [default: standard output]")
@click.option("--force", is_flag=True, help="Write over a file that is there.")
@asks
def export(ask: Ask, *, session: str, kind: str, output: Path | None, force: bool) -> None:
    """Write a session down, whole, as one document."""
    with ask.store() as store:
        found = find(store, session, ask.owner)
        text = _document(store, found, kind)
    if output is None:
        _print(ask, found, kind, text)
        return
    _write(output, text, force=force)
    if ask.json:
        screen.say_json({"session": found.id, "file": str(output), "bytes": len(text)})
    else:
        screen.note(f"{found.id} is in {output}, {screen.size(len(text))}")


@click.command("import", epilog=IMPORT)
@click.argument("document", metavar="FILE|-")
@asks
def import_session(ask: Ask, *, document: str) -> None:
    """Take in a session that was exported as JSON, and print its id.

    If its id is taken here, it becomes a copy with an id of its own.
    """
    export = Export.from_json(_read(document))
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


def _document(store: Store, session: Session, kind: str) -> bytes:
    if kind == "json":
        return store.export(session.id, owner=session.owner).to_json()
    page = store.messages(session.id, owner=session.owner)
    addresses = store.addresses(session.id, owner=session.owner)
    draw = pages.html if kind == "html" else pages.markdown
    return draw(session, addresses, page.messages).encode()


def _read(file: str) -> bytes:
    try:
        return sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
    except OSError as error:
        raise InvalidPayload(
            f"{file} cannot be read: {error.strerror}", hint="Name a file, or - for standard input."
        ) from error


def _write(path: Path, text: bytes, *, force: bool) -> None:
    """Write a private file, whole or not at all."""
    if path.exists() and not force:
        raise ConfigError(f"{path} is there already", hint="Name another file, or say --force.")
    unfinished = path.with_name(f".{path.name}.part")
    try:
        with open(unfinished, "wb", opener=lambda name, flags: os.open(name, flags, 0o600)) as file:
            file.write(text)
        unfinished.replace(path)
    except OSError as error:
        unfinished.unlink(missing_ok=True)
        raise ConfigError(f"{path} cannot be written: {error.strerror}", hint="Name another file.") from error
