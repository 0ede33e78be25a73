"""The ladder: who answers when nobody, or somebody, was named; decided once, always explained, never with a secret.

The highest rung that holds decides: an agent that was named, a provider whose key is in the environment, a server of
models on this machine, and at the bottom the scripted agent, which needs nothing. An installed agent that speaks ACP
is offered and passed by: it could change files, so it answers only if it is named.
"""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Literal

import msgspec

from backstay.agents.discovery import ACP, AcpCommand, LocalServer, find_acp_commands, find_servers
from backstay.agents.providers import PROVIDERS, Provider
from backstay.config import SCRIPTED, Chosen, Source, without_secrets

RungName = Literal["named", "key", "local", "acp", "scripted"]

_SOURCES: dict[Source, str] = {
    "flag": "--agent names it",
    "environment": "BACKSTAY_AGENT names it",
    "file": "the config file names it",
    "default": "it was named",
}


class Rung(msgspec.Struct, frozen=True, kw_only=True):
    """One step of the ladder: what was found there, and whether it is the one that answers."""

    name: RungName
    title: str
    found: tuple[str, ...]
    chosen: bool = False


class Ladder(msgspec.Struct, frozen=True, kw_only=True):
    """Who answers, as `casting` reads it, why, and what else there was."""

    agent: tuple[str, ...]
    why: str
    rungs: tuple[Rung, ...]
    offers: tuple[AcpCommand, ...] = ()


def climb(chosen: Chosen, environment: Mapping[str, str], *, whole: bool = False) -> Ladder:
    """Look as far down as needed, or with `whole` at every rung. Takes no longer than is set, and starts nothing."""
    settings, source = chosen.settings, chosen.sources["agent"]
    if not whole and (settings.agent or _key(environment).agent):
        return decide(settings.agent, source, environment, (), ())
    servers = asyncio.run(find_servers(settings.probe, settings.probe_seconds))
    return decide(settings.agent, source, environment, servers, find_acp_commands(environment.get("PATH")))


def decide(
    named: Sequence[str],
    source: Source,
    environment: Mapping[str, str],
    servers: Sequence[LocalServer],
    offers: Sequence[AcpCommand],
) -> Ladder:
    """The ladder for what was found."""
    steps = [_named(named, source), _key(environment), _local(servers), _acp(offers), _scripted(offers)]
    answering = next(number for number, step in enumerate(steps) if step.agent)
    rungs = tuple(
        Rung(name=step.name, title=step.title, found=step.found, chosen=number == answering)
        for number, step in enumerate(steps)
    )
    best = steps[answering]
    return Ladder(agent=best.agent, why=best.why, rungs=rungs, offers=tuple(offers))


class _Step(msgspec.Struct, frozen=True, kw_only=True):
    """A rung before it is known which one decides: with an agent it holds."""

    name: RungName
    title: str
    found: tuple[str, ...] = ()
    agent: tuple[str, ...] = ()
    why: str = ""


def _named(named: Sequence[str], source: Source) -> _Step:
    shown = tuple(_presentable(spec) for spec in named)
    why = f"{', '.join(shown)} answers: {_SOURCES[source]}."
    return _Step(name="named", title="named by flag or config", found=shown, agent=tuple(named), why=why)


def _key(environment: Mapping[str, str]) -> _Step:
    title = "a provider's key in the environment"
    found: list[str] = []
    agent, why = "", ""
    for provider in PROVIDERS:
        if environment.get(f"{provider.prefix}_API_KEY"):
            model = provider.wanted_model(environment)
            found.append(_opened(provider, model, environment))
            if model and not agent:
                agent = f"{provider.url(environment)}#{model}"
                why = f"{model} of {provider.name} answers: {provider.prefix}_API_KEY is set."
    return _Step(name="key", title=title, found=tuple(found), agent=(agent,) if agent else (), why=why)


def _opened(provider: Provider, model: str | None, environment: Mapping[str, str]) -> str:
    where = without_secrets(provider.url(environment))
    if model is None:
        return f"{provider.prefix}_API_KEY for {where}, but {provider.prefix}_MODEL names no model"
    return f"{provider.prefix}_API_KEY: {model} at {where}"


def _local(servers: Sequence[LocalServer]) -> _Step:
    found = tuple(_served(server) for server in servers)
    for server in servers:
        if server.models:
            why = f"{server.models[0]} answers: {server.name} serves it at {server.base_url}."
            agent = f"{server.base_url}#{server.models[0]}"
            return _Step(name="local", title="a local server of models", found=found, agent=(agent,), why=why)
    return _Step(name="local", title="a local server of models", found=found)


def _served(server: LocalServer) -> str:
    more = f" and {len(server.models) - 1} more" if len(server.models) > 1 else ""
    what = f"{server.models[0]}{more}" if server.models else server.finding
    return f"{server.name} at {server.base_url}: {what}"


def _acp(offers: Sequence[AcpCommand]) -> _Step:
    found = tuple(f"{offer.name}: {' '.join(offer.command)}  (--agent {offer.agent})" for offer in offers)
    return _Step(name="acp", title="an installed agent that speaks ACP", found=found)


def _scripted(offers: Sequence[AcpCommand]) -> _Step:
    why = "The scripted agent answers: none is named, and no usable key and no local model were found."
    if offers:
        why = f"{why} {offers[0].name} is installed and can: --agent {offers[0].agent}"
    return _Step(name="scripted", title="the scripted agent", found=("always there",), agent=(SCRIPTED,), why=why)


def _presentable(spec: str) -> str:
    """An agent's name as it may be shown. What stands behind the program of a command line may be a key."""
    name, found, line = spec.partition(ACP)
    if found and (not name or name.endswith("=")):
        program, *more = line.split(maxsplit=1) or [""]
        return f"{name}{ACP}{program}{' …' if more else ''}"
    return without_secrets(spec)
