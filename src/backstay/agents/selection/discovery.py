"""Finds model servers and ACP agents on this machine, in a limited time and without starting anything."""

import asyncio
import os
import shlex
import shutil
from collections.abc import Iterable
from typing import Literal

import httpx2
import msgspec

from backstay.concurrency.child_tasks import run_concurrently
from backstay.errors import ConfigError

Finding = Literal["models", "no models", "something else", "too slow", "nothing"]

_MOST_BYTES = 1 << 20
# Embedding and reranking models cannot chat.
_SILENT_MODELS = ("embed", "rerank")


class DiscoveredModel(msgspec.Struct, frozen=True):
    id: str


class ModelList(msgspec.Struct, frozen=True):
    """The response of a model server at `/v1/models`."""

    data: tuple[DiscoveredModel, ...]


class LocalServer(msgspec.Struct, frozen=True, kw_only=True):
    """A usual address of a local model server, and the result of its probe."""

    name: str
    base_url: str
    finding: Finding
    models: tuple[str, ...] = ()


class AcpCommand(msgspec.Struct, frozen=True, kw_only=True):
    """A program that speaks the Agent Client Protocol, and the command line that starts it in that mode.

    `variables` are the environment variables that it reads: its own settings and the keys of its provider.
    """

    name: str
    agent: str
    command: tuple[str, ...]
    variables: tuple[str, ...]
    path: str | None = None


# The prefix of the spec of an ACP agent; a known name or a command line follows.
ACP = "acp:"
_CLAUDE = ("ANTHROPIC_*", "CLAUDE_*")
ACP_COMMANDS = (
    AcpCommand(name="Claude Code", agent="acp:claude", command=("claude-agent-acp",), variables=_CLAUDE),
    AcpCommand(name="Claude Code", agent="acp:claude", command=("claude-code-acp",), variables=_CLAUDE),
    AcpCommand(
        name="Codex",
        agent="acp:codex",
        command=("codex-acp",),
        variables=("CODEX_*", "OPENAI_API_KEY", "OPENAI_BASE_URL"),
    ),
    AcpCommand(name="Gemini CLI", agent="acp:gemini", command=("gemini", "--acp"), variables=("GEMINI_*", "GOOGLE_*")),
    AcpCommand(name="Goose", agent="acp:goose", command=("goose", "acp"), variables=("GOOSE_*",)),
    AcpCommand(name="Hermes", agent="acp:hermes", command=("hermes-acp",), variables=("HERMES_*",)),
    AcpCommand(name="OpenCode", agent="acp:opencode", command=("opencode", "acp"), variables=("OPENCODE_*",)),
)


async def find_servers(places: Iterable[str], seconds: float) -> tuple[LocalServer, ...]:
    """Query these addresses (`name=url`) concurrently; one that needs more than `seconds` counts as too slow.

    Raises:
        ConfigError: An address is not of the form `name=url`.
    """
    named = [_place(place) for place in places]
    if not named:
        return ()
    # Loopback needs no proxy, and a redirect would lead to another host.
    async with httpx2.AsyncClient(trust_env=False, verify=False, timeout=seconds) as client:  # loopback
        return tuple(await run_concurrently([_probe(client, name, url, seconds) for name, url in named]))


def find_acp_commands(path: str | None) -> tuple[AcpCommand, ...]:
    """Return the known agents on this PATH. They are looked up, never run: such an agent may change files."""
    found = ((known, shutil.which(known.command[0], path=path)) for known in ACP_COMMANDS if path)
    return tuple(msgspec.structs.replace(known, path=where) for known, where in found if where)


def acp_command(agent: str, path: str | None) -> tuple[str, ...]:
    """Return the command line for an `acp:…` spec: of a known agent on this PATH, or as written.

    Raises:
        ConfigError: The known agent is not installed, or the command line is empty or has an open quote.
    """
    known = [one for one in ACP_COMMANDS if one.agent == agent]
    if known:
        found = [one for one in find_acp_commands(path or os.defpath) if one.agent == agent]
        if not found:
            programs = " or ".join(one.command[0] for one in known)
            raise ConfigError(
                f"{known[0].name} is not installed: there is no {programs} on the PATH",
                hint=f"Install it, or give the path to it: {ACP}/path/to/{' '.join(known[0].command)}",
            )
        return found[0].command
    try:
        words = tuple(shlex.split(agent.removeprefix(ACP)))
    except ValueError as error:
        raise ConfigError(f"the command line of an agent cannot be read: {error}", hint="Close the quotes.") from error
    if not words:
        raise ConfigError(f"{agent!r} has no command", hint=f"Write {ACP}gemini, or {ACP}'/path/to/agent --flag'")
    return words


def acp_variables(agent: str) -> tuple[str, ...]:
    """Return the environment variables that a known `acp:…` agent reads; empty for other programs."""
    return next((one.variables for one in ACP_COMMANDS if one.agent == agent), ())


async def _probe(client: httpx2.AsyncClient, name: str, url: str, seconds: float) -> LocalServer:
    try:
        async with asyncio.timeout(seconds):
            finding, models = await _models(client, url)
    except (TimeoutError, httpx2.TimeoutException):
        finding, models = "too slow", ()
    except httpx2.ConnectError:
        finding, models = "nothing", ()
    except (httpx2.HTTPError, httpx2.InvalidURL):
        finding, models = "something else", ()
    return LocalServer(name=name, base_url=url, finding=finding, models=models)


async def _models(client: httpx2.AsyncClient, url: str) -> tuple[Finding, tuple[str, ...]]:
    """Return the models served at this URL. Another kind of web server has no such list."""
    body = bytearray()
    async with client.stream("GET", f"{url}/models", headers={"accept": "application/json"}) as response:
        if response.status_code != 200:
            return "something else", ()
        async for piece in response.aiter_bytes():
            body += piece
            if len(body) > _MOST_BYTES:
                return "something else", ()
    try:
        listed = msgspec.json.decode(bytes(body), type=ModelList)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return "something else", ()
    models = tuple(model.id for model in listed.data if _can_answer(model.id))
    return ("models", models) if models else ("no models", ())


def _can_answer(model: str) -> bool:
    return bool(model) and model.isprintable() and not any(word in model.lower() for word in _SILENT_MODELS)


def _place(text: str) -> tuple[str, str]:
    name, found, url = text.partition("=")
    if not found or not name or not url.startswith(("http://", "https://")):
        raise ConfigError(f"{text!r} is not the address of a model server", hint="Write name=http://127.0.0.1:11434/v1")
    return name, url.rstrip("/")
