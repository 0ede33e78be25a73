"""A confirmation before an action that cannot be undone."""

import sys

import click

from backstay.cli.output import screen
from backstay.errors import Conflict


def confirm(question: str, *, otherwise: str) -> None:
    """Ask a person; raise `Conflict` with the text `otherwise` if the answer is no or there is none."""
    try:
        agreed = click.confirm(question, err=True)
    except click.Abort:
        if screen.is_terminal(sys.stdin):
            raise
        raise Conflict(f"{otherwise}: the confirmation was not answered", hint="Use --yes.") from None
    if not agreed:
        raise Conflict(otherwise, hint="")
