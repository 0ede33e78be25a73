"""Creates agents from specifications: a Python attribute, the URL of a model, or a program that speaks ACP."""

import os
import sys
from collections.abc import Callable, Iterable
from functools import partial
from importlib import import_module
from operator import attrgetter
from pathlib import Path

from backstay.agents.adapters import AgentLike, live, maker_of
from backstay.agents.provider.openai_compatible import OpenAICompatible
from backstay.agents.roots import AgentRoots
from backstay.agents.scripted.scripted_agent import ScriptedAgent
from backstay.agents.selection.discovery import ACP, acp_command, acp_variables
from backstay.agents.selection.providers import key_for
from backstay.config import SCRIPTED, Settings
from backstay.errors import ConfigError

_USUAL = Settings()
_HINT = "Write scripted, module:attribute, https://host/v1#model, or acp:program; put name= before it to serve several."


def _no_directories() -> AgentRoots:
    return AgentRoots(())


def parse_agent_specs(
    specs: Iterable[str],
    settings: Settings = _USUAL,
    *,
    demo: bool = False,
    roots: Callable[[], AgentRoots] = _no_directories,
) -> dict[str, AgentLike]:
    """Create the agents, by name.

    A specification is `[name=]` and `module:attribute`, `url#model`, `acp:command` or `scripted`. Without any
    specification there is one scripted agent. With `demo`, the scripted agent may crash its process and has a tool for
    payments.

    Args:
        specs: The specifications.
        settings: Where programs may work, and what they may do.
        demo: Whether this is a demo.
        roots: Returns the directories in which ACP agents may work; called only for such agents.

    Raises:
        ConfigError: A specification is invalid, or two agents have one name.
    """
    found: dict[str, AgentLike] = {}
    for spec in specs:
        name, agent = _one(spec, settings, roots, demo=demo)
        if name in found:
            raise ConfigError(
                f"two agents have the name {name}", hint="Give each a name: --agent name=module:attribute"
            )
        found[name] = agent
    return found or {"default": _scripted(demo=demo)}


def _one(spec: str, settings: Settings, roots: Callable[[], AgentRoots], *, demo: bool) -> tuple[str, AgentLike]:
    name, named, rest = spec.partition("=")
    if not named or ":" in name or "/" in name:
        name, rest = "default", spec
    agent = _agent(rest, settings, roots, demo=demo)
    maker_of(agent)  # raises if it is not an agent
    return name, agent


def _agent(spec: str, settings: Settings, roots: Callable[[], AgentRoots], *, demo: bool) -> AgentLike:
    if spec == SCRIPTED:
        return _scripted(demo=demo)
    if spec.startswith(ACP):
        return _program(spec, settings, roots())
    return _model(spec) if spec.startswith(("http://", "https://")) else _attribute(spec)


def _scripted(*, demo: bool) -> AgentLike:
    return ScriptedAgent(pace=0.05, allow_crash=demo, payments=[] if demo else None)


def _model(url: str) -> AgentLike:
    base, found, model = url.partition("#")
    if not found or not model:
        raise ConfigError("the URL of the agent contains no model name", hint=_HINT)
    return OpenAICompatible(base, model, key_for(base, os.environ))


def _program(spec: str, settings: Settings, roots: AgentRoots) -> AgentLike:
    # Imported here because it is an optional extra, and slower to import than everything else together.
    from backstay.agents.acp import AcpAgent  # noqa: PLC0415

    command = acp_command(spec, os.environ.get("PATH"))
    directory, permission = settings.agent_directory or None, settings.agent_permission
    names = (*acp_variables(spec), *settings.agent_environment)
    make = partial(AcpAgent, command, cwd=directory, roots=roots, permission=permission, pass_environment=names)
    make()  # raises if the program or directory does not exist; starts nothing
    return live(make, has_process=True, configuration=[*command, directory, permission, *roots.paths, *names])


def _attribute(spec: str) -> AgentLike:
    module, found, attribute = spec.partition(":")
    if not found or not module or not attribute:
        raise ConfigError(f"{spec!r} is not an agent", hint=_HINT)
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)  # as `python -m` does: agents are often in the current directory
    try:
        agent: AgentLike = attrgetter(attribute)(import_module(module))
    except (ImportError, AttributeError) as error:
        raise ConfigError(f"{spec!r} cannot be loaded: {error}", hint=_HINT) from error
    return agent
