"""Casting: the agents that an operator names, by module, by address of a model, or by a program that speaks ACP."""

import os
import sys
from collections.abc import Iterable
from functools import partial
from importlib import import_module
from operator import attrgetter
from pathlib import Path

from backstay.agents.adapters import AgentLike, live, maker_of
from backstay.agents.discovery import ACP, acp_command
from backstay.agents.openai import OpenAICompatible
from backstay.agents.providers import key_for
from backstay.agents.scripted import ScriptedAgent
from backstay.config import SCRIPTED, Settings
from backstay.errors import ConfigError

_USUAL = Settings()
_HINT = "Write scripted, module:attribute, https://host/v1#model, or acp:program; put name= before it to serve several."


def cast(specs: Iterable[str], settings: Settings = _USUAL, *, demo: bool = False) -> dict[str, AgentLike]:
    """The agents by name: each `[name=]` and `module:attribute`, `url#model`, `acp:command` or `scripted`.

    None is scripted. In a `demo` the scripted one may crash its process, and has a till to pay into. The `settings` say
    where a program works and what it may do.
    """
    found: dict[str, AgentLike] = {}
    for spec in specs:
        name, agent = _one(spec, settings, demo=demo)
        if name in found:
            raise ConfigError(f"two agents are called {name}", hint="Name them: --agent name=module:attribute")
        found[name] = agent
    return found or {"default": _scripted(demo=demo)}


def _one(spec: str, settings: Settings, *, demo: bool) -> tuple[str, AgentLike]:
    name, named, rest = spec.partition("=")
    if not named or ":" in name or "/" in name:
        name, rest = "default", spec
    agent = _agent(rest, settings, demo=demo)
    maker_of(agent)  # refuses what is none
    return name, agent


def _agent(spec: str, settings: Settings, *, demo: bool) -> AgentLike:
    if spec == SCRIPTED:
        return _scripted(demo=demo)
    if spec.startswith(ACP):
        return _program(spec, settings)
    return _model(spec) if spec.startswith(("http://", "https://")) else _attribute(spec)


def _scripted(*, demo: bool) -> AgentLike:
    return ScriptedAgent(pace=0.05, allow_crash=demo, payments=[] if demo else None)


def _model(url: str) -> AgentLike:
    base, found, model = url.partition("#")
    if not found or not model:
        raise ConfigError("the address of an agent names no model", hint=_HINT)
    return OpenAICompatible(base, model, key_for(base, os.environ))


def _program(spec: str, settings: Settings) -> AgentLike:
    # Only here: what it imports takes longer than all the rest, and is an extra.
    from backstay.agents.acp import AcpAgent  # noqa: PLC0415

    command = acp_command(spec, os.environ.get("PATH"))
    directory, permission = settings.agent_directory or None, settings.agent_permission
    make = partial(AcpAgent, command, cwd=directory, permission=permission)
    make()  # refuses a program or a directory that is not there; starts nothing
    return live(make, configuration=[*command, directory, permission])


def _attribute(spec: str) -> AgentLike:
    module, found, attribute = spec.partition(":")
    if not found or not module or not attribute:
        raise ConfigError(f"{spec!r} names no agent", hint=_HINT)
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)  # as `python -m` does: an agent lies where its author stands
    try:
        agent: AgentLike = attrgetter(attribute)(import_module(module))
    except (ImportError, AttributeError) as error:
        raise ConfigError(f"{spec!r} cannot be loaded: {error}", hint=_HINT) from error
    return agent
