"""Errors of the command line as one JSON object on standard error."""

import click
import msgspec

from backstay.cli.output import safe_text
from backstay.client.server_errors import response_of
from backstay.errors import BackstayError
from backstay.server.http.problems import Problem, problem_of


class ErrorDocument(Problem, frozen=True, kw_only=True, omit_defaults=True):
    """An error in the form of the HTTP API, and the exit status of the command."""

    exit: int


def error_line(error: BackstayError | click.ClickException, exit: int) -> str:
    """Return the error as one line of JSON."""
    problem = _problem(error) if isinstance(error, BackstayError) else _misused(error)
    facts = msgspec.structs.asdict(problem) | {"title": _encodable(problem.title), "hint": _encodable(problem.hint)}
    return safe_text.in_json(msgspec.json.encode(ErrorDocument(**facts, exit=exit)))


def _problem(error: BackstayError) -> Problem:
    """Return the problem; that of an error of a server has the status and the code that the server sent."""
    problem, response = problem_of(error), response_of(error)
    return problem if response is None else msgspec.structs.replace(problem, **response._asdict())


def _misused(error: click.ClickException) -> Problem:
    """Return the problem for a wrong command line."""
    context = error.ctx if isinstance(error, click.UsageError) else None
    hint = f"Run `{context.command_path if context else 'backstay'} --help`."
    return Problem(status=400, code="usage", title=error.format_message(), hint=hint)


def _encodable(text: str) -> str:
    """Escape bytes that are not valid text, which a command line may contain."""
    return text.encode(errors="backslashreplace").decode()
