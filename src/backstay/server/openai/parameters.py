"""Validation of request parameters. A parameter that has a meaning but no effect here is rejected, never ignored."""

from collections.abc import Sequence
from typing import Any

import msgspec

from backstay.agents.directions import ClientTool, Directions, takes
from backstay.model.content import Attachment, Part
from backstay.model.message import NewMessage
from backstay.server.openai.encoding.items import Value
from backstay.server.openai.openai_errors import BadParameter, unsupported
from backstay.server.server_state import ServerState

DEFAULT = "default"


class TurnInput(msgspec.Struct, frozen=True, kw_only=True):
    """The messages of a request: those that are recorded before, and the input of the turn."""

    before: list[NewMessage]
    input: tuple[Part, ...]


class UnknownModel(BadParameter):
    """No agent of this server has the name of the model."""

    def __init__(self, message: str, *, hint: str) -> None:
        super().__init__("model", message, hint=hint, code="model_not_found")
        self.status = 404


def turn_input_of(messages: Sequence[NewMessage]) -> TurnInput:
    """Split off the last message as the turn's input, if it is a user's with text or files; else the input is empty."""
    last = messages[-1] if messages else None
    if last is not None and last.role == "user" and (last.text.strip() or _has_files(last)):
        return TurnInput(before=[*messages[:-1]], input=last.parts)
    return TurnInput(before=[*messages], input=())


def _has_files(message: NewMessage) -> bool:
    return any(isinstance(part, Attachment) for part in message.parts)


def agent_named(service: ServerState, model: str | None) -> str:
    """The agent with the name `model`; the default agent if there is no name.

    Raises:
        UnknownModel: There is no such agent, or no default.
    """
    agents = service.agents
    if model is None and (DEFAULT in agents or len(agents) == 1):
        return DEFAULT if DEFAULT in agents else next(iter(agents))
    if model is None or model not in agents:
        named = ", ".join(agents) or "none"
        raise UnknownModel(
            f"model {str(model)[:64]!r} does not exist", hint=f"The models are the agents of this server: {named}."
        )
    return model


# The defaults of the API: an agent need not support a parameter that has its default value.
_USUAL = {"temperature": 1.0, "top_p": 1.0}


def check_directions(service: ServerState, agent: str, asked: Directions) -> None:
    """Raise unless the agent supports every parameter that differs from its default."""
    unusual = {name for name in asked.given if getattr(asked, name) != _USUAL.get(name)}
    ignored = sorted(unusual - takes(service.agents[agent]))
    if ignored:
        raise unsupported(ignored[0], f"the agent {agent!r} does not support it")


def choice_of(choice: str | Value | None, tools: Sequence[object]) -> str | Value | None:
    """The requested tool choice; None if it is the default or there are no tools."""
    return None if choice == "auto" or not tools else choice


def client_tools(tools: Sequence[Value], *, nested: bool = False) -> tuple[ClientTool, ...]:
    """The function tools that the client declares and runs itself; other types of tools are rejected."""
    return tuple(_tool(tool, f"tools[{index}]", nested=nested) for index, tool in enumerate(tools))


def _tool(tool: Value, param: str, *, nested: bool) -> ClientTool:
    if tool.get("type") != "function":
        raise BadParameter(
            f"{param}.type",
            f"{param} is of type {str(tool.get('type'))[:64]!r}",
            hint="Declare functions only; the agents of this server have their own tools.",
            code="unsupported_tool",
        )
    declared: Any = tool.get("function") if nested else tool  # Any: arbitrary JSON
    try:
        return msgspec.convert(declared, ClientTool)
    except msgspec.ValidationError as error:
        raise BadParameter(
            param, f"{param} is not a valid function: {error}", hint="Give it a name and parameters."
        ) from error
