"""`backstay token` and `backstay link`: whoever may open the database decides who may ask the server."""

from datetime import UTC, datetime
from pathlib import Path

import click
import msgspec

from backstay.cli.options import chosen, settings_options
from backstay.model.ids import TokenId
from backstay.store import open_store


@click.group()
def token() -> None:
    """Give, list and revoke the tokens by which programs are known."""


@token.command("add")
@click.argument("name")
@settings_options
@click.option("--owner", help="Whose sessions it opens. [default: local]")
def add(name: str, file: Path | None, db: str | None, owner: str | None) -> None:
    """Print a new token called NAME. It is shown this once; the store knows only its hash."""
    from backstay.server.keys import digest, new_secret  # noqa: PLC0415  # only here

    settings = chosen(file, db=db, owner=owner).settings
    secret = new_secret()
    with open_store(settings.db) as store:
        store.add_token(owner=settings.owner, name=name, hash=digest(secret))
    click.echo(secret)


@token.command("list")
@settings_options
@click.option("--owner", help="Whose tokens. [default: local]")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of lines for people.")
def show(file: Path | None, db: str | None, owner: str | None, *, as_json: bool) -> None:
    """Show an owner's tokens and signed-in browsers; not their secrets, which nobody knows."""
    settings = chosen(file, db=db, owner=owner).settings
    with open_store(settings.db) as store:
        tokens = store.tokens(owner=settings.owner)
    if as_json:
        click.echo(msgspec.json.encode({"tokens": tokens}))
        return
    for one in tokens:
        made = datetime.fromtimestamp(one.created_at / 1000, UTC)
        click.echo(f"{one.id}  {made:%Y-%m-%d %H:%M}  {one.kind:<8}{one.name}")


@token.command("revoke")
@click.argument("token_id")
@settings_options
@click.option("--owner", help="Whose token. [default: local]")
def revoke(token_id: str, file: Path | None, db: str | None, owner: str | None) -> None:
    """Make a token worthless, in every server, from now on."""
    settings = chosen(file, db=db, owner=owner).settings
    with open_store(settings.db) as store:
        gone = store.revoke_token(TokenId(token_id), owner=settings.owner)
    click.echo(f"revoked {gone.id} {gone.name}")


@click.command()
@settings_options
@click.option("--owner", help="Who is signed in. [default: local]")
def link(file: Path | None, db: str | None, owner: str | None) -> None:
    """Print the path of a link that signs one browser in, once, within 15 minutes."""
    from backstay.server.firsttoken import make_link  # noqa: PLC0415  # only here

    settings = chosen(file, db=db, owner=owner).settings
    with open_store(settings.db) as store:
        click.echo(f"/login#{make_link(store, settings.owner)}")
