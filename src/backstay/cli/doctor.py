"""`backstay doctor`: what is wrong with a store, what can be done, and what can be saved."""

from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

import click

from backstay.cli import plain, screen
from backstay.cli.exits import Exit
from backstay.cli.options import Ask, asks
from backstay.model.upkeep import Finding, Rescue
from backstay.store import upkeep

EXAMPLES = """\b
Examples:
  backstay doctor
  backstay doctor --fix
  backstay doctor --json | jq '.findings[] | select(.level == "wrong")'
  backstay doctor --rescue ./saved

Exit status: 0 nothing is wrong, 1 error, 2 wrong usage, 6 something is wrong, or could not be rescued.
"""
_SIGNS = {"fine": "ok", "note": "note", "wrong": "WRONG"}
_COLOURS = {"fine": "green", "note": "yellow", "wrong": "red"}


@click.command(epilog=EXAMPLES, short_help="Say what is wrong with a store, and what to do.")
@click.option("--quick", is_flag=True, help="Do not read every page and every session.")
@click.option("--fix", is_flag=True, help="Do what is safe and loses nothing, then look again.")
@click.option(
    "--rescue",
    "folder",
    metavar="DIR",
    type=click.Path(path_type=Path),
    help="Save all that is readable of a damaged file into this new directory, and name what is not.",
)
@asks
def doctor(ask: Ask, *, quick: bool, fix: bool, folder: Path | None) -> None:
    """Look at a store from the disk to the last message, and say what is wrong and what to do. Changes nothing.

    With --fix: make the files private, end the turns of dead processes, forget dead workers, bring the search index
    up to date or make it anew, migrate the schema. Damage is never repaired by guessing: restore a backup, or --rescue.
    """
    if folder is not None:
        if fix or quick:
            raise click.UsageError("--rescue goes with neither --fix nor --quick.")
        _rescue(ask, folder)
        return
    findings = _look(ask, quick=quick)
    mends = [one.mend for one in findings if one.mend is not None]
    if fix and mends:
        upkeep.mend(ask.db, mends)
        findings = _look(ask, quick=quick)
    _tell(ask, findings, mends=mends if fix else [])
    if any(one.level == "wrong" for one in findings):
        click.get_current_context().exit(Exit.UNSOUND)


def _look(ask: Ask, *, quick: bool) -> list[Finding]:
    own = Finding(about="Backstay", level="fine", said=version("backstay"))
    with screen.progress() as tell:
        return [own, *upkeep.checkup(ask.db, quick=quick, tell=tell)]


def _tell(ask: Ask, findings: list[Finding], *, mends: Sequence[str]) -> None:
    wrong = [one for one in findings if one.level == "wrong"]
    if ask.json:
        screen.say_json({"sound": not wrong, "fixed": mends, "findings": findings})
        return
    width = max(len(one.about) for one in findings)
    for one in findings:
        sign = screen.styled(f"{_SIGNS[one.level]:<5}", fg=_COLOURS[one.level], bold=one.level == "wrong")
        screen.say(f"{sign}  {one.about:<{width}}  {plain.one_line(one.said)}")
        if one.advice:
            screen.say(f"{'':<5}  {'':<{width}}  → {plain.one_line(one.advice)}")
    if mends:
        screen.say(f"fixed: {', '.join(dict.fromkeys(mends))}")
    if any(one.mend for one in findings):
        screen.say("`backstay doctor --fix` does what is safe.")
    screen.say("Nothing is wrong." if not wrong else f"{screen.counted(len(wrong), 'thing')} wrong.")


def _rescue(ask: Ask, folder: Path) -> None:
    with screen.progress() as tell:
        told = upkeep.rescue(ask.db, folder.expanduser().absolute(), tell=tell)
    if ask.json:
        screen.say_json(told)
    else:
        _tell_rescue(told)
    if told.unreadable or told.loose or not all(one.whole for one in told.sessions):
        click.get_current_context().exit(Exit.UNSOUND)


def _tell_rescue(told: Rescue) -> None:
    rows = [[one.session, "whole" if one.whole else "in part", str(one.messages), one.file] for one in told.sessions]
    if rows:
        screen.table(["SESSION", "SAVED", "MESSAGES", "FILE"], rows)
    for one in told.sessions:
        if not one.whole:
            screen.facts([(one.session, one.problem)])
    if told.loose:
        screen.say(f"{screen.counted(told.loose, 'message')} of unknown sessions are in loose.json")
    for lost in told.unreadable:
        keys = lost.first if lost.first == lost.last else f"{lost.first} to {lost.last}"
        screen.facts([(f"unreadable: {lost.table} ({keys})", lost.problem)])
    screen.say(f"{told.folder} has what could be read; rescue.json in it says all of this.")
    screen.say("`backstay import FILE` takes in what is whole; a .partial.json is to be read.")
