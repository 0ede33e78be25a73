"""`backstay backup`, `vacuum`, `retain`, `migrate` and `move`: what an operator does to a whole store."""

from pathlib import Path

import click

from backstay.cli import screen
from backstay.cli.options import Ask, asks
from backstay.model.move import MoveProgress
from backstay.store import is_postgres, open_store, upkeep
from backstay.store.moving.move import call_off_move
from backstay.store.moving.move import move as move_store

BACKUP = """\b
Examples:
  backstay backup backstay-$(date +%F).db
  backstay backup --db ./chat.db /mnt/backups/chat.db --replace
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


@click.command(epilog=BACKUP, short_help="Copy a store to a file while others use it, and check it.")
@click.argument("target", type=click.Path(path_type=Path))
@click.option("--replace", is_flag=True, help="Replace a file that is there, once the copy is complete.")
@asks
def backup(ask: Ask, *, target: Path, replace: bool) -> None:
    """Copy a store as it is at one moment to the file TARGET, while others use it, and check the copy."""
    with screen.progress() as tell:
        made = upkeep.backup(ask.db, target, replace=replace, tell=tell)
    if ask.json:
        screen.say_json(made)
    else:
        screen.facts([("copied", made.source), ("to", made.target), ("size", screen.size(made.size))])


@click.command(epilog=VACUUM)
@click.option("--apply", is_flag=True, help="Do it; without this, only what there is to gain is shown.")
@asks
def vacuum(ask: Ask, *, apply: bool) -> None:
    """Give unused room back to the disk. Without --apply nothing is changed.

    A file is written anew: meanwhile that takes as much room again, and writers wait. A PostgreSQL server does it
    beside its work.
    """
    before = upkeep.room(ask.db)
    after = upkeep.vacuum(ask.db) if apply else None
    if ask.json:
        screen.say_json({"before": before, "after": after})
        return
    told = [("store", before.place), ("takes", screen.size(before.size)), ("unused", screen.size(before.unused))]
    if after is None:
        screen.facts(told)
        screen.say("Nothing was changed. --apply does it.")
    else:
        screen.facts([*told, ("takes now", screen.size(after.size))])


@click.command(epilog=RETAIN)
@click.option("--closed-for", type=click.FloatRange(0), metavar="DAYS", help="Delete what ended so many days ago.")
@click.option("--fold-after", type=click.FloatRange(0), metavar="HOURS", help="Fold the deltas of older turns.")
@click.option("--apply", is_flag=True, help="Do it; without this, only what would go is shown.")
@asks
def retain(ask: Ask, *, closed_for: float | None, fold_after: float | None, apply: bool) -> None:
    """Remove what was kept long enough, for all owners. Without --apply nothing is changed.

    Sessions whose time to live is over are closed, and uploads that no message used within a day are dropped; with
    --closed-for, sessions that ended or expired are deleted, with all they said; with --fold-after, the words of ended
    turns, which are kept as they were streamed and as messages, are kept as messages only.
    """
    keep = None if closed_for is None else closed_for * _DAY
    fold = None if fold_after is None else fold_after * _HOUR
    with ask.store() as store, screen.progress() as tell:
        would = store.forecast(keep_closed_for=keep, fold_older_than=fold)
        did = store.collect(keep_closed_for=keep) if apply else None
        rows = (
            store.fold(older_than=fold, progress=lambda done: tell("folding", done, done))
            if apply and fold is not None
            else 0
        )
    if ask.json:
        screen.say_json({"would": would, "did": did, "folded_rows": rows})
    elif did is None:
        screen.facts(
            [
                ("would expire", screen.counted(would.expired, "session")),
                ("would delete", screen.counted(would.deleted, "session")),
                ("would drop", screen.counted(would.blobs, "upload")),
                ("would fold", screen.counted(would.folded, "turn")),
            ]
        )
        screen.say("Nothing was changed. --apply does it.")
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
@asks
def migrate(ask: Ask) -> None:
    """Bring a store to the newest schema and say what was done. A file is copied before it is changed.

    Every command that opens a store does the same; this one does nothing else.
    """
    if not is_postgres(ask.db):
        ask.refuse_missing()
    before = upkeep.schema(ask.db)
    with open_store(ask.db) as store:
        after = store.about().schema
    kept = "" if is_postgres(ask.db) or not before.found else f"{before.place}.before-{after:04}"
    if ask.json:
        screen.say_json({"place": before.place, "from": before.found, "to": after, "applied": before.missing})
    elif not before.missing:
        screen.say(f"schema {after} is the newest: nothing was done")
    else:
        told = [("schema", f"{before.found} → {after}"), *(("applied", step) for step in before.missing)]
        screen.facts([*told, ("copy of what was", kept)] if kept else told)


@click.command(epilog=MOVE, short_help="Bring a whole store to another, empty database.")
@click.argument("source", metavar="FROM")
@click.argument("target", metavar="TO", required=False)
@click.option("--call-off", is_flag=True, help="Let the source of an unfinished move take writes again.")
@asks
def move(ask: Ask, *, source: str, target: str | None, call_off: bool) -> None:
    """Bring a whole store to another database, which must be empty, and close the old one for writing.

    A move that was cut off goes on when it is run again. --db is not used.
    """
    if (target is None) != call_off:
        raise click.UsageError("Give FROM and TO; or FROM and --call-off.")
    if target is None:
        call_off_move(source)
        screen.say_json({"called_off": source}) if ask.json else screen.say(f"{source} takes writes again")
        return
    with screen.progress() as tell:

        def progress(step: MoveProgress) -> None:
            tell(f"{step.step} {step.table}", step.rows, step.total)

        moved = move_store(source, target, progress=progress)
    if ask.json:
        screen.say_json(moved)
        return
    screen.facts([("moved", moved.source), ("to", moved.target)])
    if moved.tables:
        screen.table(["TABLE", "ROWS"], [[table.name, f"{table.rows:,}"] for table in moved.tables])
    else:
        screen.say("It had been finished before.")
