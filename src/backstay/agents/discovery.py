"""Discovery: what on this machine could answer, found without starting anything and within a bounded time."""

import asyncio
import os
import shlex
import shutil
from collections.abc import Iterable
from typing import Literal

import httpx2
import msgspec

from backstay.errors import ConfigError

Finding = Literal["models", "no models", "something else", "too slow", "nothing"]

_MOST_BYTES = 1 << 20
# A model that only measures texts cannot answer one.
_SILENT_MODELS = ("embed", "rerank")


class Model(msgspec.Struct, frozen=True):
    id: str


class ModelList(msgspec.Struct, frozen=True):
    """What a server of models says at `/v1/models`."""

    data: tuple[Model, ...]


class LocalServer(msgspec.Struct, frozen=True, kw_only=True):
    """A place on this machine where models are often served, and what was found there."""

    name: str
    base_url: str
    finding: Finding
    models: tuple[str, ...] = ()


class AcpCommand(msgspec.Struct, frozen=True, kw_only=True):
    """A program that speaks the Agent Client Protocol, and how it is started to do so."""

    name: str
    agent: str
    command: tuple[str, ...]
    path: str | None = None


# How an agent that speaks ACP is named: this, then what it is called here or the command line that starts it.
ACP = "acp:"
ACP_COMMANDS = (
    AcpCommand(name="Claude Code", agent="acp:claude", command=("claude-agent-acp",)),
    AcpCommand(name="Claude Code", agent="acp:claude", command=("claude-code-acp",)),
    AcpCommand(name="Codex", agent="acp:codex", command=("codex-acp",)),
    AcpCommand(name="Gemini CLI", agent="acp:gemini", command=("gemini", "--acp")),
    AcpCommand(name="Goose", agent="acp:goose", command=("goose", "acp")),
    AcpCommand(name="Hermes", agent="acp:hermes", command=("hermes-acp",)),
    AcpCommand(name="OpenCode", agent="acp:opencode", command=("opencode", "acp")),
)


async def find_servers(places: Iterable[str], seconds: float) -> tuple[LocalServer, ...]:
    """What answers at these places (`name=url`), all asked at once; whoever takes longer is not waited for."""
    named = [_place(place) for place in places]
    if not named:
        return ()
    # No proxy stands between us and this machine, and a redirect leads to somebody else.
    async with httpx2.AsyncClient(trust_env=False, verify=False, timeout=seconds) as client:  # loopback
        asked = [_ask(client, name, url, seconds) for name, url in named]
        return tuple(await asyncio.gather(*asked))


def find_acp_commands(path: str | None) -> tuple[AcpCommand, ...]:
    """The agents among the programs of this PATH. They are looked up, never run: such an agent may change files."""
    found = ((known, shutil.which(known.command[0], path=path)) for known in ACP_COMMANDS if path)
    return tuple(msgspec.structs.replace(known, path=where) for known, where in found if where)


def acp_command(agent: str, path: str | None) -> tuple[str, ...]:
    """The command line of an agent that is named `acp:…`: one that is known and found on this PATH, or any other."""
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
        raise ConfigError(f"{agent!r} names no command", hint=f"Write {ACP}gemini, or {ACP}'/path/to/agent --flag'")
    return words


async def _ask(client: httpx2.AsyncClient, name: str, url: str, seconds: float) -> LocalServer:
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
    """The models served here; a web server that happens to listen here has no list of them."""
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
        raise ConfigError(f"{text!r} names no place to look for models", hint="Write name=http://127.0.0.1:11434/v1")
    return name, url.rstrip("/")
