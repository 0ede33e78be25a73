"""From what a person asked for to a talk: the exchange, the session, and the stage that fits where they sit."""

import asyncio
import os
import socket

import click
import httpx2
import msgspec

from backstay.agents.ladder import climb
from backstay.cli.chat.choosing import choose
from backstay.cli.chat.commands import NAMES
from backstay.cli.chat.direct import DirectExchange
from backstay.cli.chat.exchange import Exchange
from backstay.cli.chat.machine import Machine
from backstay.cli.chat.paint import plain_text
from backstay.cli.chat.remote import RemoteExchange
from backstay.cli.chat.stage import PipeInput, PipeStage, history_file, is_terminal
from backstay.cli.chat.talk import Talk
from backstay.cli.exits import Exit
from backstay.cli.naming import workspace
from backstay.config import Chosen, is_loopback
from backstay.errors import ConfigError
from backstay.model.address import Address
from backstay.model.session import Session
from backstay.runtime.app import open_app
from backstay.server.casting import cast
from backstay.server.firsttoken import read_token, token_path


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """Which session a person wants to talk in, and to which agent."""

    session: str | None
    address: str | None
    workspace: str | None
    new: bool
    to: str
    by_machine: bool

    def place(self, host: str | None) -> Address | None:
        """The address that leads to it: as it was named, or that of the directory; None for a session by its id."""
        if self.session is not None:
            return None
        if self.address is not None:
            return Address.parse(self.address)
        return workspace(self.workspace or ".", host=host)


def talk_to_database(told: Chosen, wanted: Wanted) -> Exit:
    """Talk in a session of the database; its agent answers in this process."""
    return asyncio.run(_in_database(told, wanted))


def talk_to_server(told: Chosen, url: str, token: str | None, wanted: Wanted) -> Exit:
    """Talk in a session that a server has; its agents answer there."""
    base = _checked(url)
    return asyncio.run(_at_server(base, token or _token(told), wanted))


async def _in_database(told: Chosen, wanted: Wanted) -> Exit:
    settings = told.settings
    ladder = await asyncio.to_thread(climb, told, os.environ)
    agents = cast(ladder.agent, settings)
    if wanted.to not in agents:
        raise ConfigError(f"no agent is called {wanted.to!r}", hint=f"There are: {', '.join(agents)}.")
    async with open_app(settings.db, agents=agents, owner=settings.owner) as app:
        exchange = DirectExchange(app, name=_shown(settings.db), owner=settings.owner, agent=wanted.to)
        return await _talk(exchange, wanted, wanted.place(None), ladder.why)


async def _at_server(base: httpx2.URL, token: str, wanted: Wanted) -> Exit:
    here = is_loopback(base.host)
    client = httpx2.AsyncClient(
        base_url=base,
        headers={"authorization": f"Bearer {token}"},
        timeout=httpx2.Timeout(60.0, connect=10.0),
        # What is on this machine is behind no proxy.
        trust_env=not here,
    )
    async with client:
        # A server on another machine must be told on which one the directory is.
        place = wanted.place(None if here else socket.gethostname())
        return await _talk(RemoteExchange(client, agent=wanted.to), wanted, place, f"The agent of {base} answers.")


async def _talk(exchange: Exchange, wanted: Wanted, place: Address | None, why: str) -> Exit:
    session = await _session(exchange, wanted, place)
    if wanted.by_machine:
        async with PipeInput().open() as program:
            return await Machine(exchange, session).run(program)
    talk = Talk(exchange, place)
    if not is_terminal():
        async with PipeStage(plain_text).open() as pipe:
            await talk.run(pipe, session)
        return Exit.COMPLETED
    # Whoever reads from a pipe does not pay for the line that is typed on.
    from backstay.cli.chat.prompt import PromptStage  # noqa: PLC0415

    click.echo(f"{why}\n/help shows what can be done here.")
    stage = PromptStage(talk.tail, busy=talk.busy, commands=NAMES, history=history_file(os.environ))
    async with stage.open():
        await talk.run(stage, session)
    click.echo(f"Come back with: backstay chat --session {talk.session}")
    return Exit.COMPLETED


async def _session(exchange: Exchange, wanted: Wanted, place: Address | None) -> Session:
    if place is None:
        return await choose(exchange, wanted.session or "")
    return await (exchange.create(place) if wanted.new else exchange.resolve(place))


def _checked(url: str) -> httpx2.URL:
    hint = "Write its address, such as http://127.0.0.1:8642"
    try:
        base = httpx2.URL(url.rstrip("/") + "/")
    except httpx2.InvalidURL as error:
        raise ConfigError("--server is not a URL", hint=hint) from error
    if base.scheme not in ("http", "https") or not base.host or base.userinfo or base.query or base.fragment:
        raise ConfigError("--server is not the address of a server", hint=hint)
    return base


def _token(told: Chosen) -> str:
    """The token that the server of this database has left beside it."""
    path = token_path(told.settings)
    secret = read_token(path)
    if secret is None:
        raise ConfigError(
            f"there is no token at {path}", hint="Give one with --token, or name the server's file with --token-file."
        )
    return secret


def _shown(db: str) -> str:
    """Where the database is, without a password."""
    scheme, found, rest = db.partition("://")
    return f"{scheme}://{rest.rpartition('@')[2].partition('?')[0]}" if found else db
