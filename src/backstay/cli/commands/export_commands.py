"""`backstay export`, `import` and `release`: a session as a document, for another store or for a reader."""

import shutil
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from tempfile import TemporaryFile
from typing import BinaryIO

import click

from backstay.cli.options import CommandOptions, session_options
from backstay.cli.output import safe_text, screen
from backstay.cli.output.document_files import ENDINGS, Kind, document_pieces, kind_of, save
from backstay.cli.session_names import SESSION, find
from backstay.cli.session_store import SessionStore
from backstay.errors import InvalidPayload, NothingToDo
from backstay.model.documents.records import records_in
from backstay.model.limits import Limits
from backstay.model.session import SessionInfo
from backstay.store import open_store
from backstay.store.transfer.importer import check_document

# An operator imports a file of their own here: a document of an older version, one JSON object, may use any memory.
_LONGEST = 1 << 40
EXPORT = """\b
Examples:
  backstay export ses_01kb > session.jsonl
  backstay export ses_01kb -o talk.html
  backstay export ses_01kb --format markdown | less
"""
IMPORT = """\b
Examples:
  backstay import session.jsonl
  backstay import --addresses session.jsonl
  backstay export ses_01kb | backstay import --db other.db -
"""
RELEASE = """\b
Examples:
  backstay release ses_01kb
  backstay release ses_01kb --withdraw
"""


@click.command(epilog=EXPORT)
@click.argument("session", type=SESSION)
@click.option(
    "--format",
    "kind",
    type=click.Choice(list(ENDINGS)),
    help="jsonl is complete and can be imported; markdown and html have the current window, for reading. "
    "[default: by the suffix of the file; jsonl]",
)
@click.option(
    "-o", "--output", type=click.Path(path_type=Path), help="The file to write. [default: -, standard output]"
)
@click.option("--force", is_flag=True, help="Overwrite an existing file.")
@session_options
def export(options: CommandOptions, *, session: str, kind: Kind | None, output: Path | None, force: bool) -> None:
    """Export a whole session as one document."""
    output = None if output == Path("-") else output
    wanted = kind or ("jsonl" if output is None else kind_of(output))
    with TemporaryFile() as lines:
        with options.store() as store, screen.progress() as report:
            found = find(store, session, options.owner)
            store.export_to(found.id, lines, owner=options.owner, progress=report)
        if output is None:
            _print(options, found, wanted, lines)
            return
        size = save(output, lines, wanted, replace=force)
    if options.json:
        screen.print_json({"session": found.id, "file": str(output), "bytes": size})
    else:
        screen.note(f"{found.id} was written to {output}, {screen.size(size)}")


@click.command("import", epilog=IMPORT)
@click.argument("source", metavar="FILE|-")
@click.option("--addresses", is_flag=True, help="Point the addresses of the session to it. [default: they are dropped]")
@session_options
def import_session(options: CommandOptions, *, source: str, addresses: bool) -> None:
    """Import an exported session, and print its id.

    If its id exists here, it becomes a copy with a new id. Its waiting turns are held until `backstay release` lets
    them start.
    """
    limits = Limits(document_bytes=_LONGEST)
    with (
        _opened(source) as file,
        _checked(file, options, limits) as document,
        _target(options, limits) as store,
        screen.progress() as report,
    ):
        imported = store.import_session(document, owner=options.owner, addresses=addresses, progress=report)
    if options.json:
        screen.print_json(imported)
        return
    screen.print_line(imported.session.id)
    if imported.copied:
        screen.note("The session exists here already: this is a copy.")
    for spelling in imported.elsewhere:
        screen.note(f"{spelling} points to another session and was not changed.")
    if imported.dropped:
        dropped = screen.counted(len(imported.dropped), "address", "addresses")
        screen.note(f"{dropped} of the document dropped; --addresses would point them here.")
    if imported.held:
        held = screen.counted(len(imported.held), "waiting turn is held", "waiting turns are held")
        screen.note(f"{held}: `backstay release {imported.session.id}` lets them start.")


@click.command(epilog=RELEASE, short_help="Let the held turns of an imported session start.")
@click.argument("session", type=SESSION)
@click.option("--turn", "only", metavar="TURN", help="Only this turn. [default: all held turns]")
@click.option("--withdraw", is_flag=True, help="Withdraw them instead: they never run.")
@session_options
def release(options: CommandOptions, *, session: str, only: str | None, withdraw: bool) -> None:
    """Let the held turns of an imported session start, and print them.

    A process that serves their agent answers them.
    """
    with options.store() as store:
        found = find(store, session, options.owner)
        held = [turn.id for turn in store.waiting(found.id, owner=options.owner) if turn.held]
        if only is not None and only not in held:
            raise NothingToDo(
                f"{only} is not a held turn of {found.id}", hint=f"The held turns are: {', '.join(held) or 'none'}."
            )
        act = store.withdraw if withdraw else store.release
        done = [act(turn, owner=options.owner) for turn in held if only in (None, turn)]
    if options.json:
        screen.print_json({"session": found.id, "turns": done})
        return
    for turn in done:
        screen.print_line(turn.id)
    screen.note(f"{screen.counted(len(done), 'turn')} {'withdrawn' if withdraw else 'released'}")


def _print(options: CommandOptions, session: SessionInfo, kind: Kind, lines: BinaryIO) -> None:
    if kind == "jsonl":
        lines.seek(0)
        for line in lines:
            click.echo(safe_text.in_json(line), nl=False)
    elif options.json:
        screen.print_json({"session": session.id, "format": kind, "text": "".join(document_pieces(lines, kind))})
    else:
        for piece in document_pieces(lines, kind):
            click.echo(piece, nl=False)


def _target(options: CommandOptions, limits: Limits) -> AbstractContextManager[SessionStore]:
    """The server, or the store, which is created if there is none."""
    return open_store(options.db, limits=limits) if options.server is None else options.store()


@contextmanager
def _checked(file: BinaryIO, options: CommandOptions, limits: Limits) -> Iterator[BinaryIO]:
    """The document. If the store does not exist yet, it is checked first: no store is made for an unsound one."""
    if options.has_store():
        yield file
        return
    with TemporaryFile() as copy:
        if not file.seekable():
            shutil.copyfileobj(file, copy)
            file = copy
        start = 0 if file is copy else file.tell()
        file.seek(start)
        check_document(records_in(file, limits.document_bytes), limits)
        file.seek(start)
        yield file


@contextmanager
def _opened(name: str) -> Iterator[BinaryIO]:
    """Open the document for reading."""
    if name == "-":
        yield sys.stdin.buffer
        return
    try:
        file = Path(name).open("rb")  # noqa: SIM115  # closed below
    except OSError as error:
        raise InvalidPayload(
            f"{name} cannot be read: {error.strerror}", hint="Name a file, or - for standard input."
        ) from error
    with file:
        yield file
