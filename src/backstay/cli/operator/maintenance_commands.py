"""`backstay backup`, `restore`, `vacuum`, `retain`, `migrate` and `move`: operations on a whole store."""

from pathlib import Path

import click

from backstay.cli.options import CommandOptions, store_options
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
@store_options
def backup(options: CommandOptions, *, target: Path) -> None:
    """Copy a store, as of one moment, to the new file TARGET while it is in use, and check the copy."""
    with screen.progress() as report:
        made = database_upkeep.backup(options.db, target, progress=report)
    _print_copy(options, made)


@click.command(epilog=RESTORE, short_help="Replace a store by a copy of it.")
@click.argument("copy", type=click.Path(path_type=Path))
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@store_options
def restore(options: CommandOptions, *, copy: Path, yes: bool) -> None:
    """Replace the store by COPY, a file that `backstay backup` wrote. Stop every process that uses the store first.

    The present contents of the store are lost; COPY stays as it is.
    """
    found = database_upkeep.contents(copy)
    if options.has_store() and not is_postgres(options.db) and not yes:
        _confirm_restore(options.db, found)
    with screen.progress() as report:
        made = database_upkeep.restore(copy, options.db, progress=report)
    _print_copy(options, made)


def _confirm_restore(db: str, copy: Contents) -> None:
    """Show both stores and ask for confirmation."""
    try:
        present = _summary(database_upkeep.contents(db))
    except BackstayError as error:
        present = str(error.args[0])
    click.echo(safe_text.one_line(f"present  {db}: {present}"), err=True)
    click.echo(safe_text.one_line(f"copy     {copy.location}: {_summary(copy)}"), err=True)
    confirm("Replace the present store by the copy?", otherwise="nothing was replaced")


def _summary(found: Contents) -> str:
    active = "" if found.active_at is None else f", last active {screen.moment(found.active_at)}"
    return f"{screen.counted(found.sessions, 'session')}{active}"


def _print_copy(options: CommandOptions, made: Copied) -> None:
    if options.json:
        screen.print_json(made)
    else:
        screen.facts([("copied", made.source), ("to", made.target), ("size", screen.size(made.size))])


@click.command(epilog=VACUUM)
@click.option("--apply", is_flag=True, help="Do it; without this, only show how much space would be freed.")
@store_options
def vacuum(options: CommandOptions, *, apply: bool) -> None:
    """Return unused space to the disk. Without --apply nothing is changed.

    An SQLite file is rewritten: during this it needs twice the space, and writers wait. A PostgreSQL server does it
    while it serves others.
    """
    before = database_upkeep.room(options.db)
    after = database_upkeep.vacuum(options.db) if apply else None
    if options.json:
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
@store_options
def retain(options: CommandOptions, *, closed_for: float | None, fold_after: float | None, apply: bool) -> None:
    """Remove old data of all owners. Without --apply nothing is changed.

    Sessions past their time to live are closed, and uploads that no message used within a day are dropped. With
    --closed-for, ended and expired sessions are deleted with their messages. With --fold-after, the streamed deltas of
    ended turns are removed; their messages are kept.
    """
    keep = None if closed_for is None else closed_for * _DAY
    fold = None if fold_after is None else fold_after * _HOUR
    with options.database() as store, screen.progress() as report:
        forecast = store.forecast(keep_closed_for=keep, fold_older_than=fold)
        collected = store.collect(keep_closed_for=keep) if apply else None
        rows = (
            store.fold(older_than=fold, progress=lambda done: report("folding", done, done))
            if apply and fold is not None
            else 0
        )
    if options.json:
        screen.print_json({"would": forecast, "did": collected, "folded_rows": rows})
    elif collected is None:
        screen.facts(
            [
                ("would expire", screen.counted(forecast.expired, "session")),
                ("would delete", screen.counted(forecast.deleted, "session")),
                ("would drop", screen.counted(forecast.blobs, "upload")),
                ("would fold", screen.counted(forecast.folded, "turn")),
            ]
        )
        screen.print_line("Nothing was changed. Use --apply to do it.")
    else:
        deleted = f"{screen.counted(collected.deleted, 'session')}, {screen.counted(collected.messages, 'message')}"
        screen.facts(
            [
                ("expired", screen.counted(collected.expired, "session")),
                ("deleted", deleted),
                ("dropped", screen.counted(collected.blobs, "upload")),
                ("folded", screen.counted(rows, "event")),
            ]
        )


@click.command(epilog=MIGRATE)
@store_options
def migrate(options: CommandOptions) -> None:
    """Migrate a store to the newest schema and report the steps. An SQLite file is copied first.

    Every command that opens a store does the same; this one does nothing else.
    """
    if not is_postgres(options.db):
        options.refuse_missing()
    before = database_upkeep.schema(options.db)
    with open_store(options.db) as store:
        after = store.about().schema
    kept = "" if is_postgres(options.db) or not before.found else f"{before.location}.before-{after:04}"
    if options.json:
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
@store_options
def move(options: CommandOptions, *, source: str, target: str | None, call_off: bool) -> None:
    """Move a whole store to another, empty database. The old one then rejects writes.

    An interrupted move continues when it is run again. --db is not used.
    """
    if (target is None) != call_off:
        raise click.UsageError("Give FROM and TO, or FROM and --call-off.")
    if target is None:
        call_off_move(source)
        screen.print_json({"called_off": source}) if options.json else screen.print_line(
            f"{source} accepts writes again"
        )
        return
    with screen.progress() as report:

        def progress(step: MoveProgress) -> None:
            report(f"{step.step} {step.table}", step.rows, step.total)

        moved = move_store(source, target, progress=progress)
    if options.json:
        screen.print_json(moved)
        return
    screen.facts([("moved", moved.source), ("to", moved.target)])
    if moved.tables:
        screen.table(["TABLE", "ROWS"], [[table.name, f"{table.rows:,}"] for table in moved.tables])
    else:
        screen.print_line("The move was already complete.")
