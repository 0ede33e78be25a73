"""Asking: what a request wants beyond what it says; checked, so that nothing that means something is dropped."""

from collections.abc import Sequence
from typing import Any

import msgspec

from backstay.agents.directions import ClientTool, Directions, takes
from backstay.errors import NotFound
from backstay.model.content import Part
from backstay.model.message import NewMessage
from backstay.server.openai.faults import BadParameter, unsupported
from backstay.server.openai.items import Value
from backstay.server.service import Service

DEFAULT = "default"


class Words(msgspec.Struct, frozen=True, kw_only=True):
    """What is said: finished messages that come before, and the input of the turn."""

    before: list[NewMessage]
    input: tuple[Part, ...]


def words_of(messages: Sequence[NewMessage]) -> Words:
    """The last thing a person says is the turn's input; all else goes before it. Perhaps nobody says anything."""
    last = messages[-1] if messages else None
    if last is not None and last.role == "user" and last.text.strip():
        return Words(before=[*messages[:-1]], input=last.parts)
    return Words(before=[*messages], input=())


def agent_named(service: Service, model: str | None) -> str:
    """The agent that a model's name means; the usual one if none is named."""
    agents = service.agents
    if model is None and (DEFAULT in agents or len(agents) == 1):
        return DEFAULT if DEFAULT in agents else next(iter(agents))
    if model is None or model not in agents:
        named = ", ".join(agents) or "none"
        raise NotFound(
            f"there is no model {str(model)[:64]!r}", hint=f"A model is an agent that is served here: {named}."
        )
    return model


# What is asked for when nobody asks.
_USUAL = {"temperature": 1.0, "top_p": 1.0}


def check_directions(service: Service, agent: str, asked: Directions) -> None:
    """Raise unless the agent follows everything that is asked for and is not as usual."""
    unusual = {name for name in asked.given if getattr(asked, name) != _USUAL.get(name)}
    ignored = sorted(unusual - takes(service.agents[agent]))
    if ignored:
        raise unsupported(ignored[0], f"the agent {agent!r} does not follow it")


def choice_of(choice: str | Value | None, tools: Sequence[object]) -> str | Value | None:
    """Which tool shall be called; None if it is as usual, which without tools it always is."""
    return None if choice == "auto" or not tools else choice


def client_tools(tools: Sequence[Value], *, nested: bool = False) -> tuple[ClientTool, ...]:
    """The tools that a client runs itself; nobody else's can be declared."""
    return tuple(_tool(tool, f"tools[{index}]", nested=nested) for index, tool in enumerate(tools))


def _tool(tool: Value, param: str, *, nested: bool) -> ClientTool:
    if tool.get("type") != "function":
        raise BadParameter(
            f"{param}.type",
            f"{param} is of type {str(tool.get('type'))[:64]!r}",
            hint="Declare functions; the server's agents bring their own tools.",
            code="unsupported_tool",
        )
    declared: Any = tool.get("function") if nested else tool  # Any: whatever JSON was sent
    try:
        return msgspec.convert(declared, ClientTool)
    except msgspec.ValidationError as error:
        raise BadParameter(param, f"{param} is no function: {error}", hint="Give it a name and parameters.") from error
