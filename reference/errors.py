"""Errors: what can be raised, what to do about it, and what it is over HTTP."""

from collections.abc import Iterator

from backstay.errors import BackstayError
from backstay.server.problems import STATUSES
from reference.markdown import code, sentence, table, whole

INTRODUCTION = """\
Every expected error derives from `backstay.BackstayError`. Its text says what is wrong, its `advice` what to do next. A
verb that raises has changed nothing, with one exception that says so itself: `CommitUnknown`. Over HTTP an error is an
`application/problem+json` document whose `code` is the error's name in lower case: `session_busy`."""


def page() -> str:
    """The page."""
    rows = [
        ["· " * depth + code(kind.__name__), sentence(kind.__doc__), kind.hint, _status(kind)]
        for kind, depth in _tree(BackstayError, 0)
    ]
    return whole("Errors", INTRODUCTION, table(["error", "meaning", "what to do, unless it says more", "HTTP"], rows))


def _tree(kind: type[BackstayError], depth: int) -> Iterator[tuple[type[BackstayError], int]]:
    yield kind, depth
    for child in kind.__subclasses__():
        if child.__module__ == kind.__module__:
            yield from _tree(child, depth + 1)


def _status(kind: type[BackstayError]) -> str:
    return str(next((status for base, status in STATUSES if issubclass(kind, base)), 500))
