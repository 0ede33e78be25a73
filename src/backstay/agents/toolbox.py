"""A toolbox: the tools that a model may call, and what becomes of its calls."""

import asyncio
import re
from collections.abc import Iterable, Sequence

import msgspec

from backstay.agents.completion import ModelCall
from backstay.agents.port import AgentTurn
from backstay.agents.schema import Parameters, typed
from backstay.agents.tools import Function, MayHaveRun, Tool, ToolFailed, tool
from backstay.errors import ConfigError, Rejected
from backstay.model.codec import check_body
from backstay.model.content import Json, ToolCall, ToolResult
from backstay.model.limits import Limits

_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}").fullmatch
_MOST_QUOTED = 2_000
_MOST_NAMED = 64


class Wish(msgspec.Struct, frozen=True, kw_only=True):
    """A call that can be made."""

    id: str
    tool: Tool
    arguments: dict[str, Json]

    @property
    def name(self) -> str:
        return self.tool.name


class Refusal(msgspec.Struct, frozen=True, kw_only=True):
    """A call that cannot be made, and why; the model may correct it."""

    id: str
    name: str
    arguments: dict[str, Json]
    reason: str


class Toolbox:
    """Tools by name."""

    def __init__(self, tools: Iterable[Tool | Function]) -> None:
        self._tools: dict[str, Tool] = {}
        self._parameters: dict[str, Parameters] = {}
        for given in tools:
            self._put(given if isinstance(given, Tool) else tool(given))

    def __contains__(self, name: str) -> bool:
        return name in self._tools

    def described(self) -> list[dict[str, Json]]:
        """The tools as the wire wants them."""
        return [
            {
                "type": "function",
                "function": {
                    "name": name,
                    "description": found.description,
                    "parameters": self._parameters[name].schema,
                },
            }
            for name, found in self._tools.items()
        ]

    def understand(self, call: ModelCall) -> Wish | Refusal:
        """What the model wants, if it can be done. Nothing runs here."""
        try:
            arguments = msgspec.json.decode(call.arguments.strip() or "{}", type=dict[str, Json])
        except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
            quoted = {"unreadable": call.arguments[:_MOST_QUOTED]}
            return _refusal(call, quoted, f"the arguments are not a JSON object: {error}")
        try:
            check_body(ToolCall(call.id, call.name, arguments), Limits())
        except Rejected as error:
            return _refusal(call, {}, f"the arguments cannot be kept: {error}")
        return self._match(call, arguments)

    async def run(self, turn: AgentTurn, wishes: Sequence[Wish]) -> list[ToolResult]:
        """Make the calls side by side, through the turn's ledger, begun in their order."""
        tasks = [asyncio.create_task(_made(turn, wish), name=f"tool {wish.tool.name}") for wish in wishes]
        try:
            return await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def _put(self, given: Tool) -> None:
        if not _NAME(given.name):
            raise ConfigError(
                f"{given.name!r} cannot be the name of a model's tool",
                hint="Use up to 64 letters, digits, _ and -: @tool(name='…').",
            )
        if given.name in self._tools:
            raise ConfigError(f"two tools are named {given.name!r}", hint="Name one of them: @tool(name='…').")
        parameters = self._parameters[given.name] = Parameters(given)
        self._tools[given.name] = typed(given, parameters)

    def _match(self, call: ModelCall, arguments: dict[str, Json]) -> Wish | Refusal:
        found = self._tools.get(call.name)
        if found is None:
            names = ", ".join(self._tools) or "none"
            return _refusal(call, arguments, f"there is no tool {call.name[:_MOST_NAMED]!r}; there are: {names}")
        try:
            self._parameters[call.name].read(arguments)
        except msgspec.ValidationError as error:
            return _refusal(call, arguments, f"the arguments do not fit {call.name}: {error}")
        return Wish(id=call.id, tool=found, arguments=arguments)


def _refusal(call: ModelCall, arguments: dict[str, Json], reason: str) -> Refusal:
    return Refusal(id=call.id, name=call.name[:_MOST_NAMED] or "unnamed", arguments=arguments, reason=reason)


async def _made(turn: AgentTurn, wish: Wish) -> ToolResult:
    """The call's result, also when it is bad news that the model should know."""
    try:
        return ToolResult(wish.id, await turn.call(wish.tool, wish.arguments))
    except (ToolFailed, MayHaveRun) as error:
        return ToolResult(wish.id, str(error), error=True)
