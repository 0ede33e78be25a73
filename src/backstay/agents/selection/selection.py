"""Agent selection: which agent answers when none, or one, was named. Decided once and explained, without secrets.

The first of these that is available is selected: a named agent, a provider whose API key is in the environment, a
model server on this machine, and last the scripted agent, which needs nothing. An installed ACP agent is listed but
never selected automatically: it could change files, so it answers only if it is named.
"""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Literal

import msgspec

from backstay.agents.selection.discovery import ACP, AcpCommand, LocalServer, find_acp_commands, find_servers
from backstay.agents.selection.providers import PROVIDERS, Provider
from backstay.config import SCRIPTED, Chosen, Source, without_secrets

ChoiceName = Literal["named", "key", "local", "acp", "scripted"]

_SOURCES: dict[Source, str] = {
    "flag": "chosen by --agent",
    "environment": "chosen by BACKSTAY_AGENT",
    "file": "chosen by the config file",
    "default": "chosen by the program",
}


class AgentChoice(msgspec.Struct, frozen=True, kw_only=True):
    """One choice: its finding, and whether it was selected."""

    name: ChoiceName
    title: str
    found: tuple[str, ...]
    chosen: bool = False


class AgentSelection(msgspec.Struct, frozen=True, kw_only=True):
    """The result: the selected agent as a spec for `parse_agent_specs`, the reason, and all choices."""

    agent: tuple[str, ...]
    why: str
    choices: tuple[AgentChoice, ...]
    offers: tuple[AcpCommand, ...] = ()


def select_agent(chosen: Chosen, environment: Mapping[str, str], *, whole: bool = False) -> AgentSelection:
    """Check the choices until one is available, or all of them with `whole`.

    The search for servers is limited to `probe_seconds`, and no program is started.
    """
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
) -> AgentSelection:
    """Select an agent from the findings."""
    steps = [_named(named, source), _key(environment), _local(servers), _acp(offers), _scripted(offers)]
    answering = next(number for number, step in enumerate(steps) if step.agent)
    choices = tuple(
        AgentChoice(name=step.name, title=step.title, found=step.found, chosen=number == answering)
        for number, step in enumerate(steps)
    )
    best = steps[answering]
    return AgentSelection(agent=best.agent, why=best.why, choices=choices, offers=tuple(offers))


class _Step(msgspec.Struct, frozen=True, kw_only=True):
    """A choice before the selection; it is available if it has an agent."""

    name: ChoiceName
    title: str
    found: tuple[str, ...] = ()
    agent: tuple[str, ...] = ()
    why: str = ""


def _named(named: Sequence[str], source: Source) -> _Step:
    shown = tuple(_presentable(spec) for spec in named)
    why = f"{', '.join(shown)} {'answers' if len(shown) == 1 else 'answer'}: {_SOURCES[source]}."
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
                agent = f"{provider.api}{provider.url(environment)}#{model}"
                why = f"{model} of {provider.name} answers: {provider.prefix}_API_KEY is set."
    return _Step(name="key", title=title, found=tuple(found), agent=(agent,) if agent else (), why=why)


def _opened(provider: Provider, model: str | None, environment: Mapping[str, str]) -> str:
    where = without_secrets(provider.url(environment))
    if model is None:
        return f"{provider.prefix}_API_KEY for {where}, but {provider.prefix}_MODEL is not set"
    return f"{provider.prefix}_API_KEY: {model} at {where}"


def _local(servers: Sequence[LocalServer]) -> _Step:
    found = tuple(_served(server) for server in servers)
    for server in servers:
        if server.models:
            why = f"{server.models[0]} answers: {server.name} serves it at {server.base_url}."
            agent = f"{server.base_url}#{server.models[0]}"
            return _Step(name="local", title="a local model server", found=found, agent=(agent,), why=why)
    return _Step(name="local", title="a local model server", found=found)


def _served(server: LocalServer) -> str:
    more = f" and {len(server.models) - 1} more" if len(server.models) > 1 else ""
    what = f"{server.models[0]}{more}" if server.models else server.finding
    return f"{server.name} at {server.base_url}: {what}"


def _acp(offers: Sequence[AcpCommand]) -> _Step:
    found = tuple(f"{offer.name}: {' '.join(offer.command)}  (--agent {offer.agent})" for offer in offers)
    return _Step(name="acp", title="an installed agent that speaks ACP", found=found)


def _scripted(offers: Sequence[AcpCommand]) -> _Step:
    why = "The scripted agent answers: no agent is named, and no API key or local model was found."
    if offers:
        why = f"{why} {offers[0].name} is installed: use it with --agent {offers[0].agent}"
    return _Step(name="scripted", title="the scripted agent", found=("always available",), agent=(SCRIPTED,), why=why)


def _presentable(spec: str) -> str:
    """Return an agent spec without secrets. The arguments of a command line may hold a key, so they are left out."""
    name, found, line = spec.partition(ACP)
    if found and (not name or name.endswith("=")):
        program, *more = line.split(maxsplit=1) or [""]
        return f"{name}{ACP}{program}{' …' if more else ''}"
    return without_secrets(spec)
