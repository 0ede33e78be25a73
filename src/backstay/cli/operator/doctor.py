"""`backstay doctor`: check a store, apply safe fixes, and rescue the data of a damaged file."""

from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

import click

from backstay.cli.options import CommandOptions, store_options
from backstay.cli.output import screen
from backstay.cli.output.exit_status import Exit
from backstay.cli.output.findings_list import print_findings, print_verdict
from backstay.model.operations.findings import Finding, Rescue
from backstay.store import database_upkeep

EXAMPLES = """\b
Examples:
  backstay doctor
  backstay doctor --fix
  backstay doctor --json | jq '.findings[] | select(.level == "wrong")'
  backstay doctor --rescue ./saved

Exit status: 0 nothing is wrong, 1 error, 2 wrong usage, 6 a problem was found, or data could not be rescued.
"""


@click.command(epilog=EXAMPLES, short_help="Check a store and report problems.")
@click.option("--quick", is_flag=True, help="Do not read every database page and every session.")
@click.option("--fix", is_flag=True, help="Apply the fixes that are safe and lose nothing, then check again.")
@click.option(
    "--rescue",
    "folder",
    metavar="DIR",
    type=click.Path(path_type=Path),
    help="Save the readable data of a damaged file into this new directory, and list the rest.",
)
@store_options
def doctor(options: CommandOptions, *, quick: bool, fix: bool, folder: Path | None) -> None:
    """Check a store from the disk to the last message, and report problems and what to do. Changes nothing.

    With --fix: make the files private, end the turns of dead processes, remove dead workers, update or rebuild the
    search index, migrate the schema. Damage is never repaired by guessing: restore a backup, or use --rescue.
    """
    if folder is not None:
        if fix or quick:
            raise click.UsageError("--rescue cannot be combined with --fix or --quick.")
        _rescue(options, folder)
        return
    findings = _check(options, quick=quick)
    repairs = [one.repair for one in findings if one.repair is not None]
    if fix and repairs:
        database_upkeep.repair(options.db, repairs)
        findings = _check(options, quick=quick)
    _print_findings(options, findings, repairs=repairs if fix else [])
    if any(one.level == "wrong" for one in findings):
        click.get_current_context().exit(Exit.UNSOUND)


def _check(options: CommandOptions, *, quick: bool) -> list[Finding]:
    own = Finding(about="Backstay", level="fine", detail=version("backstay"))
    with screen.progress() as report:
        return [own, *database_upkeep.checkup(options.db, quick=quick, progress=report)]


def _print_findings(options: CommandOptions, findings: list[Finding], *, repairs: Sequence[str]) -> None:
    wrong = [one for one in findings if one.level == "wrong"]
    if options.json:
        screen.print_json({"sound": not wrong, "fixed": repairs, "findings": findings})
        return
    print_findings(findings)
    if repairs:
        screen.print_line(f"fixed: {', '.join(dict.fromkeys(repairs))}")
    if any(one.repair for one in findings):
        screen.print_line("Run `backstay doctor --fix` to apply the safe fixes.")
    print_verdict(findings)


def _rescue(options: CommandOptions, folder: Path) -> None:
    with screen.progress() as report:
        rescue = database_upkeep.rescue(options.db, folder.expanduser().absolute(), progress=report)
    if options.json:
        screen.print_json(rescue)
    else:
        _print_rescue(rescue)
    if rescue.unreadable or rescue.loose or not all(one.whole for one in rescue.sessions):
        click.get_current_context().exit(Exit.UNSOUND)


def _print_rescue(rescue: Rescue) -> None:
    rows = [[one.session, "whole" if one.whole else "in part", str(one.messages), one.file] for one in rescue.sessions]
    if rows:
        screen.table(["SESSION", "SAVED", "MESSAGES", "FILE"], rows)
    for one in rescue.sessions:
        if not one.whole:
            screen.facts([(one.session, one.problem)])
    if rescue.loose:
        screen.print_line(f"{screen.counted(rescue.loose, 'message')} of unknown sessions are in loose.json")
    for lost in rescue.unreadable:
        keys = lost.first if lost.first == lost.last else f"{lost.first} to {lost.last}"
        screen.facts([(f"unreadable: {lost.table} ({keys})", lost.problem)])
    screen.print_line(f"{rescue.folder} has the readable data; rescue.json in it has this report.")
    screen.print_line("`backstay import FILE` imports complete sessions; a .partial.json file is only for reading.")
