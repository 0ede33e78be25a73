"""Complaints for machines: why a command did not do what it was asked, as one JSON object on standard error."""

import click
import msgspec

from backstay.cli import plain
from backstay.errors import BackstayError
from backstay.server.problems import Problem, problem_of


class Complaint(Problem, frozen=True, kw_only=True, omit_defaults=True):
    """A problem as a server would tell it, and the status with which the command ends."""

    exit: int


def complaint(error: BackstayError | click.ClickException, exit: int) -> str:
    """What went wrong, on one line."""
    problem = problem_of(error) if isinstance(error, BackstayError) else _misused(error)
    facts = msgspec.structs.asdict(problem) | {"title": _encodable(problem.title), "hint": _encodable(problem.hint)}
    return plain.in_json(msgspec.json.encode(Complaint(**facts, exit=exit)))


def _misused(error: click.ClickException) -> Problem:
    """The command line makes no sense."""
    context = error.ctx if isinstance(error, click.UsageError) else None
    hint = f"`{context.command_path if context else 'backstay'} --help` shows how it is used."
    return Problem(status=400, code="usage", title=error.format_message(), hint=hint)


def _encodable(text: str) -> str:
    """What was typed may hold bytes that are no text; they are spelled out."""
    return text.encode(errors="backslashreplace").decode()
