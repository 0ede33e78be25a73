"""`backstay tokens` and `backstay link`: access to the server, managed by anyone who can open the database."""

import re

import click

from backstay.cli.options import Ask, asks
from backstay.cli.output import screen
from backstay.model.ids import TokenId
from backstay.model.token import Token, TokenAccess
from backstay.store import open_store

EXAMPLES = """\b
Examples:
  backstay tokens add robot
  backstay tokens add robot --owner anna
  backstay tokens add dashboard --read-only --expires-in 90d
  backstay tokens list
  backstay tokens revoke tok_01kb…
"""
ADD = """\b
Examples:
  backstay tokens add robot
  backstay tokens add dashboard --read-only --expires-in 90d
  BACKSTAY_TOKEN=$(backstay tokens add robot) backstay chat --server http://127.0.0.1:8642
"""
LIST = """\b
Examples:
  backstay tokens list
  backstay tokens list --json | jq -r '.tokens[].id'
"""
REVOKE = """\b
Examples:
  backstay tokens revoke tok_01kb…
"""
LINK = """\b
Examples:
  backstay link
  xdg-open "http://127.0.0.1:8642$(backstay link)"
"""


class Duration(click.ParamType):  # type: ignore[type-arg]  # it takes one only in newer versions of click
    """A parameter that is a duration; its value is in seconds."""

    name = "duration"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> float:
        found = _DURATION.fullmatch(str(value))
        if found is None or not float(found[1]):
            self.fail(f"{value!r} is not a duration. Write 90d, 12h, 30m or 45s.", param, ctx)
        return float(found[1]) * _UNITS[found[2]]


DURATION = Duration()
_DURATION = re.compile(r"(\d{1,9}(?:\.\d{1,3})?)([smhdw])", re.ASCII)
_UNITS = {"s": 1.0, "m": 60.0, "h": 3_600.0, "d": 86_400.0, "w": 604_800.0}


@click.group(epilog=EXAMPLES, short_help="Create, list and revoke the tokens of a server's clients.")
def tokens() -> None:
    """Create, list and revoke the tokens that authenticate programs to a server."""


@tokens.command("add", epilog=ADD)
@click.argument("name")
@click.option("--read-only", is_flag=True, help="Allow the token to read everything and to change nothing.")
@click.option("--expires-in", type=DURATION, help="How long it is valid: 90d, 12h, 30m, 45s. [default: forever]")
@asks
def add(ask: Ask, *, name: str, read_only: bool, expires_in: float | None) -> None:
    """Create a token called NAME and print it. It is shown only once; the store keeps only its hash."""
    from backstay.server.auth.authenticator import digest, new_secret  # noqa: PLC0415  # it loads the runtime

    secret = new_secret()
    with open_store(ask.db) as store:
        access: TokenAccess = "read" if read_only else "full"
        made = store.add_token(owner=ask.owner, name=name, hash=digest(secret), access=access, seconds=expires_in)
    if ask.json:
        screen.print_json({"token": made, "secret": secret})
    else:
        screen.print_line(secret)


@tokens.command("list", epilog=LIST)
@asks
def show(ask: Ask) -> None:
    """Show an owner's tokens and signed-in browsers.

    The secrets are not shown: they are not stored.
    """
    with ask.store() as store:
        found = store.tokens(owner=ask.owner)
    if ask.json:
        screen.print_json({"tokens": found})
    elif found:
        screen.table(["TOKEN", "MADE", "EXPIRES", "KIND", "ACCESS", "NAME"], [_row(one) for one in found])
    else:
        screen.note(f"{ask.owner!r} has no tokens. `backstay tokens add NAME` creates one.")


def _row(one: Token) -> list[str]:
    until = "never" if one.expires_at is None else screen.moment(one.expires_at)
    return [one.id, screen.moment(one.created_at), until, one.kind, one.access, one.name]


@tokens.command("revoke", epilog=REVOKE)
@click.argument("token")
@asks
def revoke(ask: Ask, *, token: str) -> None:
    """Revoke a token, for every server, from now on."""
    with ask.store() as store:
        gone = store.revoke_token(TokenId(token), owner=ask.owner)
    if ask.json:
        screen.print_json({"revoked": gone})
    else:
        screen.facts([(f"revoked {gone.id}", gone.name)])


@click.command(epilog=LINK, short_help="Print the path of a link that signs in one browser.")
@asks
def link(ask: Ask) -> None:
    """Print the path of a link that signs in one browser, once, within 15 minutes."""
    from backstay.server.auth.first_token import make_link  # noqa: PLC0415  # as above

    with open_store(ask.db) as store:
        path = f"/login#{make_link(store, ask.owner)}"
    if ask.json:
        screen.print_json({"path": path})
    else:
        screen.print_line(path)
