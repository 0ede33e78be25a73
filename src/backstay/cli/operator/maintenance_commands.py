"""`backstay backup`, `restore`, `vacuum`, `retain`, `migrate` and `move`: operations on a whole store."""

from pathlib import Path

import click

from backstay.cli.options import Ask, asks_store
from backstay.cli.output import safe_text, screen
from backstay.cli.output.confirmation import confirm
from backstay.errors import BackstayError
from backstay.model.operations.findings import Contents, Copied
from backstay.model.operations.move_progress import MoveProgress
from backstay.store import database_upkeep, is_postgres, open_store
from backstay.store.move.move_store import call_off_move
from backstay.store.move.move_store import move as move_store

BACKUP = """\b
Examples:
  backstay backup backstay-$(date +%F).db
  backstay backup --db ./chat.db "/mnt/backups/chat-$(date +%FT%H%M).db"
"""
RESTORE = """\b
Examples:
  backstay restore backstay-2026-11-18.db
  backstay restore --db ./chat.db /mnt/backups/chat.db --yes
"""
VACUUM = """\b
Examples:
  backstay vacuum
  backstay vacuum --apply
"""
RETAIN = """\b
Examples:
  backstay retain --closed-for 90
  backstay retain --closed-for 90 --fold-after 24 --apply
"""
MIGRATE = """\b
Examples:
  backstay migrate
  backstay migrate --db ./chat.db --json
"""
MOVE = """\b
Examples:
  backstay move ./chat.db postgresql://backstay@db/backstay
  backstay move --call-off ./chat.db
"""
_DAY, _HOUR = 86_400.0, 3_600.0


@click.command(epilog=BACKUP, short_help="Copy a store in use to a file, and check the copy.")
@click.argument("target", type=click.Path(path_type=Path))
@asks_store
def backup(ask: Ask, *, target: Path) -> None:
    """Copy a store, as of one moment, to the new file TARGET while it is in use, and check the copy."""
    with screen.progress() as report:
        made = database_upkeep.backup(ask.db, target, progress=report)
    _print_copied(ask, made)


@click.command(epilog=RESTORE, short_help="Replace a store by a copy of it.")
@click.argument("copy", type=click.Path(path_type=Path))
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@asks_store
def restore(ask: Ask, *, copy: Path, yes: bool) -> None:
    """Replace the store by COPY, a file that `backstay backup` wrote. Stop every process that uses the store first.

    The present contents of the store are lost; COPY stays as it is.
    """
    found = database_upkeep.contents(copy)
    if ask.has_store() and not is_postgres(ask.db) and not yes:
        _ask_first(ask.db, found)
    with screen.progress() as report:
        made = database_upkeep.restore(copy, ask.db, progress=report)
    _print_copied(ask, made)


def _ask_first(db: str, copy: Contents) -> None:
    """Show both stores, and ask."""
    try:
        present = _described(database_upkeep.contents(db))
    except BackstayError as error:
        present = str(error.args[0])
    click.echo(safe_text.one_line(f"present  {db}: {present}"), err=True)
    click.echo(safe_text.one_line(f"copy     {copy.location}: {_described(copy)}"), err=True)
    confirm("Replace the present store by the copy?", otherwise="nothing was replaced")


def _described(found: Contents) -> str:
    active = "" if found.active_at is None else f", last active {screen.moment(found.active_at)}"
    return f"{screen.counted(found.sessions, 'session')}{active}"


def _print_copied(ask: Ask, made: Copied) -> None:
    if ask.json:
        screen.print_json(made)
    else:
        screen.facts([("copied", made.source), ("to", made.target), ("size", screen.size(made.size))])


@click.command(epilog=VACUUM)
@click.option("--apply", is_flag=True, help="Do it; without this, only show how much space would be freed.")
@asks_store
def vacuum(ask: Ask, *, apply: bool) -> None:
    """Return unused space to the disk. Without --apply nothing is changed.

    An SQLite file is rewritten: during this it needs twice the space, and writers wait. A PostgreSQL server does it
    while it serves others.
    """
    before = database_upkeep.room(ask.db)
    after = database_upkeep.vacuum(ask.db) if apply else None
    if ask.json:
        screen.print_json({"before": before, "after": after})
        return
    rows = [("store", before.location), ("takes", screen.size(before.size)), ("unused", screen.size(before.unused))]
    if after is None:
        screen.facts(rows)
        screen.print_line("Nothing was changed. Use --apply to do it.")
    else:
        screen.facts([*rows, ("takes now", screen.size(after.size))])


@click.command(epilog=RETAIN)
@click.option(
    "--closed-for", type=click.FloatRange(0), metavar="DAYS", help="Delete sessions closed at least DAYS ago."
)
@click.option(
    "--fold-after",
    type=click.FloatRange(0),
    metavar="HOURS",
    help="Fold the deltas of turns that ended at least HOURS ago.",
)
@click.option("--apply", is_flag=True, help="Do it; without this, only show what would be removed.")
@asks_store
def retain(ask: Ask, *, closed_for: float | None, fold_after: float | None, apply: bool) -> None:
    """Remove old data of all owners. Without --apply nothing is changed.

    Sessions past their time to live are closed, and uploads that no message used within a day are dropped. With
    --closed-for, ended and expired sessions are deleted with their messages. With --fold-after, the streamed deltas of
    ended turns are removed; their messages are kept.
    """
    keep = None if closed_for is None else closed_for * _DAY
    fold = None if fold_after is None else fold_after * _HOUR
    with ask.database() as store, screen.progress() as report:
        would = store.forecast(keep_closed_for=keep, fold_older_than=fold)
        did = store.collect(keep_closed_for=keep) if apply else None
        rows = (
            store.fold(older_than=fold, progress=lambda done: report("folding", done, done))
            if apply and fold is not None
            else 0
        )
    if ask.json:
        screen.print_json({"would": would, "did": did, "folded_rows": rows})
    elif did is None:
        screen.facts(
            [
                ("would expire", screen.counted(would.expired, "session")),
                ("would delete", screen.counted(would.deleted, "session")),
                ("would drop", screen.counted(would.blobs, "upload")),
                ("would fold", screen.counted(would.folded, "turn")),
            ]
        )
        screen.print_line("Nothing was changed. Use --apply to do it.")
    else:
        gone = f"{screen.counted(did.deleted, 'session')}, {screen.counted(did.messages, 'message')}"
        screen.facts(
            [
                ("expired", screen.counted(did.expired, "session")),
                ("deleted", gone),
                ("dropped", screen.counted(did.blobs, "upload")),
                ("folded", screen.counted(rows, "event")),
            ]
        )


@click.command(epilog=MIGRATE)
@asks_store
def migrate(ask: Ask) -> None:
    """Migrate a store to the newest schema and report the steps. An SQLite file is copied first.

    Every command that opens a store does the same; this one does nothing else.
    """
    if not is_postgres(ask.db):
        ask.refuse_missing()
    before = database_upkeep.schema(ask.db)
    with open_store(ask.db) as store:
        after = store.about().schema
    kept = "" if is_postgres(ask.db) or not before.found else f"{before.location}.before-{after:04}"
    if ask.json:
        screen.print_json({"location": before.location, "from": before.found, "to": after, "applied": before.missing})
    elif not before.missing:
        screen.print_line(f"schema {after} is the newest: nothing to do")
    else:
        rows = [("schema", f"{before.found} → {after}"), *(("applied", step) for step in before.missing)]
        screen.facts([*rows, ("copy before migration", kept)] if kept else rows)


@click.command(epilog=MOVE, short_help="Move a whole store to another, empty database.")
@click.argument("source", metavar="FROM")
@click.argument("target", metavar="TO", required=False)
@click.option("--call-off", is_flag=True, help="Cancel an unfinished move: let the source accept writes again.")
@asks_store
def move(ask: Ask, *, source: str, target: str | None, call_off: bool) -> None:
    """Move a whole store to another, empty database. The old one then rejects writes.

    An interrupted move continues when it is run again. --db is not used.
    """
    if (target is None) != call_off:
        raise click.UsageError("Give FROM and TO, or FROM and --call-off.")
    if target is None:
        call_off_move(source)
        screen.print_json({"called_off": source}) if ask.json else screen.print_line(f"{source} accepts writes again")
        return
    with screen.progress() as report:

        def progress(step: MoveProgress) -> None:
            report(f"{step.step} {step.table}", step.rows, step.total)

        moved = move_store(source, target, progress=progress)
    if ask.json:
        screen.print_json(moved)
        return
    screen.facts([("moved", moved.source), ("to", moved.target)])
    if moved.tables:
        screen.table(["TABLE", "ROWS"], [[table.name, f"{table.rows:,}"] for table in moved.tables])
    else:
        screen.print_line("The move was already complete.")
