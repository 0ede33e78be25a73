"""The tools of a model: their descriptions, the validation of calls, and their execution."""

import logging
import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import msgspec

from backstay.agents.directions import ClientTool
from backstay.agents.port import AgentTurn
from backstay.agents.provider.answer import ModelCall
from backstay.agents.provider.tool_schema import Parameters, RemoteParameters, typed
from backstay.agents.tools import Function, MayHaveRun, Tool, ToolFailed, tool
from backstay.concurrency.child_tasks import run_concurrently
from backstay.errors import ConfigError, Rejected
from backstay.model.codec import check_body
from backstay.model.content import Json, ToolCall, ToolResult
from backstay.model.limits import Limits

if TYPE_CHECKING:
    from backstay.agents.tool_servers.remote_tool import RemoteTool

log = logging.getLogger("backstay.agents.provider")

_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}").fullmatch
_MOST_QUOTED = 2_000
_MOST_NAMED = 64


class RequestedToolCall(msgspec.Struct, frozen=True, kw_only=True):
    """A valid tool call."""

    id: str
    tool: Tool
    arguments: dict[str, Json]

    @property
    def name(self) -> str:
        return self.tool.name


class Refusal(msgspec.Struct, frozen=True, kw_only=True):
    """An invalid tool call and the reason; the model may correct it."""

    id: str
    name: str
    arguments: dict[str, Json]
    reason: str


class Toolbox:
    """Tools by name."""

    def __init__(self, tools: Iterable[Tool | Function]) -> None:
        self._tools: dict[str, Tool] = {}
        self._parameters: dict[str, Parameters | RemoteParameters] = {}
        for given in tools:
            self._put(given if isinstance(given, Tool) else tool(given))

    def __contains__(self, name: str) -> bool:
        return name in self._tools

    def with_remote(self, remote: "Sequence[RemoteTool]") -> "Toolbox":
        """Return a toolbox that also has these tools of servers, except those whose names are taken."""
        if not remote:
            return self
        both = Toolbox(())
        both._tools, both._parameters = dict(self._tools), dict(self._parameters)
        for one in remote:
            name = one.tool.name
            if name in both._tools:
                log.warning("two tools have one name; give mcp() a prefix", extra={"tool": name})
                continue
            both._tools[name], both._parameters[name] = one.tool, RemoteParameters(one.schema)
        return both

    def declared(self) -> list[ClientTool]:
        """Return the tools as declarations, like those of a client."""
        return [
            ClientTool(name=name, description=found.description, parameters=self._parameters[name].schema)
            for name, found in self._tools.items()
        ]

    def validate(self, call: ModelCall) -> RequestedToolCall | Refusal:
        """Validate a call. Nothing runs here."""
        try:
            arguments = msgspec.json.decode(call.arguments.strip() or "{}", type=dict[str, Json])
        except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
            quoted = {"unreadable": call.arguments[:_MOST_QUOTED]}
            return _refusal(call, quoted, f"the arguments are not a JSON object: {error}")
        try:
            check_body(ToolCall(call.id, call.name, arguments), Limits())
        except Rejected as error:
            return _refusal(call, {}, f"the arguments cannot be stored: {error}")
        return self._match(call, arguments)

    async def run(self, turn: AgentTurn, calls: Sequence[RequestedToolCall]) -> list[ToolResult]:
        """Run the calls concurrently through the turn's ledger, started in their order."""
        return await run_concurrently([_made(turn, call) for call in calls], "tool call")

    def _put(self, given: Tool) -> None:
        if not _NAME(given.name):
            raise ConfigError(
                f"{given.name!r} is not a valid tool name for a model",
                hint="Use up to 64 letters, digits, _ and -: @tool(name='…').",
            )
        if given.name in self._tools:
            raise ConfigError(f"two tools are named {given.name!r}", hint="Rename one of them: @tool(name='…').")
        parameters = self._parameters[given.name] = Parameters(given)
        self._tools[given.name] = typed(given, parameters)

    def _match(self, call: ModelCall, arguments: dict[str, Json]) -> RequestedToolCall | Refusal:
        found = self._tools.get(call.name)
        if found is None:
            names = ", ".join(self._tools) or "none"
            return _refusal(call, arguments, f"there is no tool {call.name[:_MOST_NAMED]!r}; the tools are: {names}")
        try:
            self._parameters[call.name].read(arguments)
        except msgspec.ValidationError as error:
            return _refusal(call, arguments, f"the arguments do not fit {call.name}: {error}")
        return RequestedToolCall(id=call.id, tool=found, arguments=arguments)


def _refusal(call: ModelCall, arguments: dict[str, Json], reason: str) -> Refusal:
    return Refusal(id=call.id, name=call.name[:_MOST_NAMED] or "unnamed", arguments=arguments, reason=reason)


async def _made(turn: AgentTurn, call: RequestedToolCall) -> ToolResult:
    """Run a call and return its result; an error becomes a result that the model can read."""
    try:
        return ToolResult(call.id, await turn.call(call.tool, call.arguments, id=call.id))
    except (ToolFailed, MayHaveRun) as error:
        return ToolResult(call.id, str(error), error=True)
