"""The findings of a checkup, for people."""

from collections.abc import Sequence

from backstay.cli.output import safe_text, screen
from backstay.model.operations.findings import Finding

_SIGNS = {"fine": "ok", "note": "note", "wrong": "WRONG"}
_COLOURS = {"fine": "green", "note": "yellow", "wrong": "red"}


def print_findings(findings: Sequence[Finding]) -> None:
    """Print a line for each finding, and its hint below."""
    width = max(len(one.about) for one in findings)
    for one in findings:
        sign = screen.styled(f"{_SIGNS[one.level]:<5}", fg=_COLOURS[one.level], bold=one.level == "wrong")
        screen.print_line(f"{sign}  {one.about:<{width}}  {safe_text.one_line(one.detail)}")
        if one.hint:
            screen.print_line(f"{'':<5}  {'':<{width}}  → {safe_text.one_line(one.hint)}")


def print_verdict(findings: Sequence[Finding]) -> None:
    """Print how many problems were found."""
    wrong = sum(one.level == "wrong" for one in findings)
    screen.print_line("Nothing is wrong." if not wrong else f"{screen.counted(wrong, 'problem')} found.")
