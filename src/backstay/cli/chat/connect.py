"""Start a chat from the command line options: choose the exchange, the session, the input and the output."""

import asyncio
import os
import shlex
import socket
from functools import partial

import click
import httpx2
import msgspec

from backstay.agents.selection.agent_specs import parse_agent_specs
from backstay.agents.selection.selection import select_agent
from backstay.cli.chat.chat_io import PipeInput, PipeIO, history_file, is_terminal
from backstay.cli.chat.chat_loop import ChatLoop
from backstay.cli.chat.direct import DirectExchange
from backstay.cli.chat.exchange import Exchange, find_session
from backstay.cli.chat.json_chat import JsonChat
from backstay.cli.chat.remote import RemoteExchange
from backstay.cli.chat.slash_commands import NAMES
from backstay.cli.chat.terminal_style import plain_text
from backstay.cli.local_token import local_token
from backstay.cli.output import safe_text
from backstay.cli.output.exit_status import Exit
from backstay.cli.output.tracebacks import tracebacks
from backstay.cli.session_names import workspace
from backstay.client.client import connect
from backstay.client.server_connection import base_url
from backstay.config import Chosen, is_loopback
from backstay.errors import ConfigError
from backstay.model.addresses.address import Address, WorkspaceAddress
from backstay.model.session import SessionInfo
from backstay.runtime.app import open_app
from backstay.runtime.timing import Timing
from backstay.runtime.titles import first_words
from backstay.server.auth.agent_roots import agent_roots

# When a person exits, a running turn is interrupted after this many seconds; its partial output is kept.
_GRACE = 0.5
# Requests are retried for this many seconds only, because a person waits. A message is retried until it is accepted.
_RETRIES = 2.0


class ChatTarget(msgspec.Struct, frozen=True, kw_only=True):
    """The session and the agent that the options select."""

    session: str | None
    address: str | None
    workspace: str | None
    new: bool
    to: str
    as_json: bool
    # The options of the command line that are needed to come back, apart from the session.
    options: tuple[str, ...] = ()

    def place(self, host: str | None) -> Address | None:
        """Return the address given, or that of the directory; None if the session is given by its id."""
        if self.session is not None:
            return None
        if self.address is not None:
            return Address.parse(self.address)
        return workspace(self.workspace or ".", host=host)


def chat_with_database(chosen: Chosen, wanted: ChatTarget) -> Exit:
    """Chat in a session of the database; the agent runs in this process."""
    return asyncio.run(_in_database(chosen, wanted))


def chat_with_server(chosen: Chosen, url: str, token: str | None, wanted: ChatTarget) -> Exit:
    """Chat in a session of a server; the agent runs on the server."""
    base = base_url(url, "--server")
    return asyncio.run(_at_server(base, token or local_token(chosen, base), wanted))


async def _in_database(chosen: Chosen, wanted: ChatTarget) -> Exit:
    settings = chosen.settings
    selection = await asyncio.to_thread(select_agent, chosen, os.environ)
    place = wanted.place(None)
    directory = place.path if isinstance(place, WorkspaceAddress) else "."
    agents = parse_agent_specs(selection.agent, settings, roots=partial(agent_roots, settings, [directory]))
    if wanted.to not in agents:
        raise ConfigError(f"no agent is called {wanted.to!r}", hint=f"There are: {', '.join(agents)}.")
    titler = first_words if settings.titles else None
    opened = open_app(settings.db, agents=agents, owner=settings.owner, timing=Timing(grace=_GRACE), titler=titler)
    async with opened as app:
        exchange = DirectExchange(app, name=_shown(settings.db), owner=settings.owner, agent=wanted.to)
        return await _chat(exchange, wanted, place, selection.why)


async def _at_server(base: httpx2.URL, token: str, wanted: ChatTarget) -> Exit:
    # For a server on another machine, the workspace address must name our host.
    place = wanted.place(None if is_loopback(base.host) else socket.gethostname())
    async with connect(str(base), token=token, retry_seconds=_RETRIES) as client:
        return await _chat(RemoteExchange(client, agent=wanted.to), wanted, place, f"The agent of {base} answers.")


async def _chat(exchange: Exchange, wanted: ChatTarget, place: Address | None, why: str) -> Exit:
    session = await _session(exchange, wanted, place)
    if wanted.as_json:
        async with PipeInput().open() as program:
            with tracebacks():
                return await JsonChat(exchange, session).run(program)
    chat_loop = ChatLoop(exchange, place)
    if not is_terminal():
        async with PipeIO(plain_text).open() as pipe:
            with tracebacks():
                await chat_loop.run(pipe, session)
        return Exit.COMPLETED
    # Imported here, so that a chat from a pipe does not pay for prompt_toolkit.
    from backstay.cli.chat.terminal_io import TerminalIO  # noqa: PLC0415

    click.echo(f"{why}\n/help lists the commands.")
    chat_io = TerminalIO(chat_loop.tail, busy=chat_loop.busy, commands=NAMES, history=history_file(os.environ))
    async with chat_io.open():
        with tracebacks(chat_io.write_above):
            await chat_loop.run(chat_io, session)
    again = shlex.join(["backstay", "chat", "--session", chat_loop.session, *wanted.options])
    click.echo(f"Continue with: {safe_text.one_line(again)}")
    return Exit.COMPLETED


async def _session(exchange: Exchange, wanted: ChatTarget, place: Address | None) -> SessionInfo:
    if place is None:
        return await find_session(exchange, wanted.session or "")
    return await (exchange.create(place) if wanted.new else exchange.resolve(place))


def _shown(db: str) -> str:
    """Return the URL of the database without the user, password and parameters."""
    scheme, found, rest = db.partition("://")
    return f"{scheme}://{rest.rpartition('@')[2].partition('?')[0]}" if found else db
