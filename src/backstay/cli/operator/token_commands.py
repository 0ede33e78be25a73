"""`backstay tokens` and `backstay link`: access to a server, for those who can open its database or have a token."""

import re
from collections.abc import Sequence

import click

from backstay.cli.options import CommandOptions, session_options
from backstay.cli.output import screen
from backstay.errors import NotFound
from backstay.model.token import Token, TokenAccess
from backstay.store import open_store

EXAMPLES = """\b
Examples:
  backstay tokens add robot
  backstay tokens add robot --owner anna
  backstay tokens add dashboard --read-only --expires-in 90d
  backstay tokens list
  backstay tokens revoke robot
  backstay tokens list --server https://chat.example.org
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
  backstay tokens list --owner anna
  backstay tokens list --json | jq -r '.tokens[].id'
"""
REVOKE = """\b
Examples:
  backstay tokens revoke robot
  backstay tokens revoke robot --owner anna
  backstay tokens revoke tok_01kb…
"""
LINK = """\b
Examples:
  backstay link
  xdg-open "$(backstay link)"
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
    """Create, list and revoke the tokens that authenticate programs to a server.

    With --server, those of the owner of the token that is used.
    """


@tokens.command("add", epilog=ADD)
@click.argument("name")
@click.option("--read-only", is_flag=True, help="Allow the token to read everything and to change nothing.")
@click.option("--expires-in", type=DURATION, help="How long it is valid: 90d, 12h, 30m, 45s. [default: forever]")
@session_options
def add(options: CommandOptions, *, name: str, read_only: bool, expires_in: float | None) -> None:
    """Create a token called NAME and print it. It is shown only once; the store keeps only its hash."""
    made, secret = _created(options, name, "read" if read_only else "full", expires_in)
    if options.json:
        screen.print_json({"token": made, "secret": secret})
    else:
        screen.print_line(secret)
        screen.note(f"{made.id} was added for {made.owner!r}; `backstay tokens revoke {name}` revokes it.")


def _created(options: CommandOptions, name: str, access: TokenAccess, seconds: float | None) -> tuple[Token, str]:
    """Create a token, and return it with its secret."""
    if options.server is not None:
        from backstay.client import api_calls  # noqa: PLC0415  # a command on a database loads no HTTP client

        with options.client() as client:
            created = client.run(api_calls.create_token(name, access, seconds))
        return created.token, created.secret
    from backstay.server.auth.authenticator import digest, new_secret  # noqa: PLC0415  # it loads the runtime

    secret = new_secret()
    with open_store(options.db) as store:
        made = store.add_token(owner=options.owner, name=name, hash=digest(secret), access=access, seconds=seconds)
    return made, secret


@tokens.command("list", epilog=LIST)
@session_options
def show(options: CommandOptions) -> None:
    """Show the tokens and signed-in browsers of all owners.

    With --owner, only those of one. The secrets are not shown: they are not stored.
    """
    if options.server is not None:
        from backstay.client import api_calls  # noqa: PLC0415  # as above

        with options.client() as client:
            found = client.run(api_calls.tokens()).tokens
    else:
        with options.database() as store:
            found = store.tokens(owner=_named_owner(options))
    if options.json:
        screen.print_json({"tokens": found})
    elif found:
        screen.table(["TOKEN", "MADE", "EXPIRES", "KIND", "ACCESS", "OWNER", "NAME"], [_row(one) for one in found])
    else:
        owner = _named_owner(options)
        whose = "There are" if owner is None else f"{owner!r} has"
        screen.note(f"{whose} no tokens. `backstay tokens add NAME` creates one.")


def _row(one: Token) -> list[str]:
    until = "never" if one.expires_at is None else screen.moment(one.expires_at)
    return [one.id, screen.moment(one.created_at), until, one.kind, one.access, one.owner, one.name]


@tokens.command("revoke", epilog=REVOKE)
@click.argument("name", metavar="NAME|ID")
@session_options
def revoke(options: CommandOptions, *, name: str) -> None:
    """Revoke a token on every server, at once. Without --owner, the token may be of any owner."""
    if options.server is not None:
        from backstay.client import api_calls  # noqa: PLC0415  # as above

        with options.client() as client:
            found = _only(name, client.run(api_calls.tokens()).tokens)
            revoked = client.run(api_calls.revoke_token(found.id))
    else:
        with options.database() as store:
            found = _only(name, store.tokens(owner=_named_owner(options)))
            revoked = store.revoke_token(found.id, owner=found.owner)
    if options.json:
        screen.print_json({"revoked": revoked})
    else:
        screen.facts([(f"revoked {revoked.id}", revoked.name)])


def _named_owner(options: CommandOptions) -> str | None:
    """Return the owner that a flag, a variable or the settings file names; None means all owners."""
    return None if options.effective.sources["owner"] == "default" else options.owner


def _only(name: str, tokens: Sequence[Token]) -> Token:
    """Return the token with this id or name; raise `NotFound` if there is none, or if several have the name."""
    found = [one for one in tokens if name in (one.id, one.name)]
    if not found:
        raise NotFound(f"there is no valid token with the name or id {name!r}", hint="See `backstay tokens list`.")
    if len(found) > 1:
        lines = [f"  {one.id}  {screen.moment(one.created_at)}  {one.owner}" for one in found]
        raise NotFound("\n".join([f"{name!r} is the name of several tokens:", *lines]), hint="Give the id of one.")
    return found[0]


@click.command(epilog=LINK, short_help="Print a link that signs in one browser.")
@session_options
def link(options: CommandOptions) -> None:
    """Print a link that signs in one browser, once, within 15 minutes.

    It leads to --server, or to the server that last started with this database, or else to the address in the settings.
    """
    url = _link_of_database(options) if options.server is None else _link_of_server(options)
    if options.json:
        screen.print_json({"url": url})
    else:
        screen.print_line(url)


def _link_of_server(options: CommandOptions) -> str:
    from backstay.client import api_calls  # noqa: PLC0415  # as above

    with options.client() as client:
        return client.url.rstrip("/") + client.run(api_calls.make_link()).path


def _link_of_database(options: CommandOptions) -> str:
    from backstay.server.auth.first_token import make_link, recorded_origins, token_path  # noqa: PLC0415  # as above
    from backstay.server.auth.server_urls import origins_of  # noqa: PLC0415

    with options.database() as store:
        origins = recorded_origins(token_path(options.settings)) or origins_of(options.settings, options.settings.port)
        return f"{origins[0]}/login#{make_link(store, options.owner)}"
