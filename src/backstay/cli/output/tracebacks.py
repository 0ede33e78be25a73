"""Prints the tracebacks of agents that run in this process."""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import click

from backstay.cli.output import safe_text

Write = Callable[[str], None]


class _Tracebacks(logging.Handler):
    """Writes each record with its traceback, without terminal control characters."""

    def __init__(self, write: Write) -> None:
        # Backstay's own errors are logged as warnings, and are already quoted in the turn's outcome.
        super().__init__(logging.ERROR)
        self._write = write

    def emit(self, record: logging.LogRecord) -> None:
        self._write(safe_text.lines(self.format(record)) + "\n")


def to_stderr(text: str) -> None:
    """Write to standard error."""
    click.echo(text, err=True, nl=False)


@contextmanager
def tracebacks(write: Write = to_stderr) -> Iterator[None]:
    """Inside the block, write the traceback of every exception that an agent or a tool of this process raises."""
    handler, logger = _Tracebacks(write), logging.getLogger("backstay.runtime.agent")
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)
