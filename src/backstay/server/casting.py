"""Casting: the agents that an operator names, by module or by address of a model."""

import os
import sys
from collections.abc import Iterable
from importlib import import_module
from operator import attrgetter
from pathlib import Path

from backstay.agents.adapters import AgentLike, maker_of
from backstay.agents.ladder import SCRIPTED
from backstay.agents.openai import OpenAICompatible
from backstay.agents.providers import key_for
from backstay.agents.scripted import ScriptedAgent
from backstay.errors import ConfigError

_HINT = "Write scripted, module:attribute, or https://host/v1#model; put name= before it to serve several."


def cast(specs: Iterable[str], *, demo: bool = False) -> dict[str, AgentLike]:
    """The agents by name: each `[name=]` and `module:attribute`, `url#model` or `scripted`; none is scripted.

    In a `demo` the scripted one may crash its process, and has a till to pay into.
    """
    found: dict[str, AgentLike] = {}
    for spec in specs:
        name, agent = _one(spec, demo=demo)
        if name in found:
            raise ConfigError(f"two agents are called {name}", hint="Name them: --agent name=module:attribute")
        found[name] = agent
    return found or {"default": _scripted(demo=demo)}


def _one(spec: str, *, demo: bool) -> tuple[str, AgentLike]:
    name, named, rest = spec.partition("=")
    if not named or ":" in name or "/" in name:
        name, rest = "default", spec
    agent = _agent(rest, demo=demo)
    maker_of(agent)  # refuses what is none
    return name, agent


def _agent(spec: str, *, demo: bool) -> AgentLike:
    if spec == SCRIPTED:
        return _scripted(demo=demo)
    return _model(spec) if spec.startswith(("http://", "https://")) else _attribute(spec)


def _scripted(*, demo: bool) -> AgentLike:
    return ScriptedAgent(pace=0.05, allow_crash=demo, payments=[] if demo else None)


def _model(url: str) -> AgentLike:
    base, found, model = url.partition("#")
    if not found or not model:
        raise ConfigError("the address of an agent names no model", hint=_HINT)
    return OpenAICompatible(base, model, key_for(base, os.environ))


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
