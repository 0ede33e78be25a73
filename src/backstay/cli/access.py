"""`backstay tokens` and `backstay link`: whoever may open the database decides who may ask the server."""

import click

from backstay.cli import screen
from backstay.cli.options import Ask, asks
from backstay.model.ids import TokenId
from backstay.store import open_store

EXAMPLES = """\b
Examples:
  backstay tokens add robot
  backstay tokens add robot --owner anna
  backstay tokens list
  backstay tokens revoke tok_01kb…
"""
ADD = """\b
Examples:
  backstay tokens add robot
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


@click.group(epilog=EXAMPLES, short_help="Give, list and revoke the tokens of a server's clients.")
def tokens() -> None:
    """Give, list and revoke the tokens by which programs are known to a server."""


@tokens.command("add", epilog=ADD)
@click.argument("name")
@asks
def add(ask: Ask, *, name: str) -> None:
    """Print a new token called NAME. It is shown this once; the store knows only its hash."""
    from backstay.server.keys import digest, new_secret  # noqa: PLC0415  # it loads what runs agents

    secret = new_secret()
    with open_store(ask.db) as store:
        made = store.add_token(owner=ask.owner, name=name, hash=digest(secret))
    if ask.json:
        screen.say_json({"token": made, "secret": secret})
    else:
        screen.say(secret)


@tokens.command("list", epilog=LIST)
@asks
def show(ask: Ask) -> None:
    """Show an owner's tokens and signed-in browsers.

    Not their secrets: nobody knows them.
    """
    with ask.store() as store:
        found = store.tokens(owner=ask.owner)
    if ask.json:
        screen.say_json({"tokens": found})
    elif found:
        rows = [[one.id, screen.moment(one.created_at), one.kind, one.name] for one in found]
        screen.table(["TOKEN", "MADE", "KIND", "NAME"], rows)
    else:
        screen.note(f"{ask.owner!r} has no tokens. `backstay tokens add NAME` makes one.")


@tokens.command("revoke", epilog=REVOKE)
@click.argument("token")
@asks
def revoke(ask: Ask, *, token: str) -> None:
    """Make a token worthless, in every server, from now on."""
    with ask.store() as store:
        gone = store.revoke_token(TokenId(token), owner=ask.owner)
    if ask.json:
        screen.say_json({"revoked": gone})
    else:
        screen.facts([(f"revoked {gone.id}", gone.name)])


@click.command(epilog=LINK, short_help="Print the path of a link that signs one browser in.")
@asks
def link(ask: Ask) -> None:
    """Print the path of a link that signs one browser in, once, within 15 minutes."""
    from backstay.server.firsttoken import make_link  # noqa: PLC0415  # as above

    with open_store(ask.db) as store:
        path = f"/login#{make_link(store, ask.owner)}"
    if ask.json:
        screen.say_json({"path": path})
    else:
        screen.say(path)
