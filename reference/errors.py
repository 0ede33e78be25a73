"""The reference of errors: their meaning, the next step, and their HTTP status."""

from collections.abc import Iterator

from backstay.errors import BackstayError
from backstay.server.http.problems import STATUSES
from reference.markdown import code, summary, table, whole

INTRODUCTION = """\
Every expected error derives from `backstay.BackstayError`. Its text states what is wrong, its `hint` what to do next. A
method that raises has changed nothing, with one exception: `CommitUnknown`. Over HTTP an error is an
`application/problem+json` document whose `code` is the error's name in lower case: `session_busy`."""


def page() -> str:
    """The page."""
    rows = [
        ["· " * depth + code(kind.__name__), summary(kind.__doc__), kind.hint, _status(kind)]
        for kind, depth in _tree(BackstayError, 0)
    ]
    return whole("Errors", INTRODUCTION, table(["error", "meaning", "default hint", "HTTP"], rows))


def _tree(kind: type[BackstayError], depth: int) -> Iterator[tuple[type[BackstayError], int]]:
    yield kind, depth
    for child in kind.__subclasses__():
        if child.__module__ == kind.__module__:
            yield from _tree(child, depth + 1)


def _status(kind: type[BackstayError]) -> str:
    return str(next((status for base, status in STATUSES if issubclass(kind, base)), 500))
