"""The loop that all agents with a model share: call the model, run its tools, repeat until it has answered."""

import asyncio
import random
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import aclosing
from typing import ClassVar, Generic, NamedTuple, TypedDict

import msgspec

from backstay.agents.attached_files import AttachedFiles
from backstay.agents.directions import ClientTool, Directions, directions_of
from backstay.agents.port import AgentTurn
from backstay.agents.provider.answer import Answer, ModelCall
from backstay.agents.provider.call_ids import CallIds
from backstay.agents.provider.conversation import Conversation
from backstay.agents.provider.step_output import StepOutput, without_record
from backstay.agents.provider.thought_signature import signature_of
from backstay.agents.provider.toolbox import Refusal, RequestedToolCall, Toolbox
from backstay.agents.provider.transport.model_endpoint import ModelEndpoint
from backstay.agents.provider.transport.retry_policy import ProviderBackoff, RetryPolicy
from backstay.agents.provider.transport.stream_chunk import ChunkT
from backstay.agents.tool_servers.tool_server import ToolServer
from backstay.agents.tool_servers.tool_servers import ToolServers
from backstay.agents.tools import Function, Tool
from backstay.errors import AgentFailed, ConfigError
from backstay.model.content import Body, Custom, Json, ToolCall, ToolResult
from backstay.model.history.call_arguments import parse_arguments
from backstay.model.message import Message

Bodies = AsyncGenerator[Body, None]
Declared = Sequence[ClientTool]
system_random = random.SystemRandom().random


class AgentSettings(TypedDict, total=False):
    """The settings that all agents with a model share.

    Attributes:
        tools: Functions with type hints and a docstring, `Tool`s, or MCP servers (`mcp("npx …")`).
        accepts: Media types of files that the model reads, such as `image/*`. Text files are always sent as text.
        system: The system prompt.
        step_limit: The highest number of model calls in one turn.
        connect_timeout: Seconds to wait for a connection.
        read_timeout: Seconds to wait for the next bytes of an answer.
        backoff: How often and how long to wait before a retry.
        pause: Waits for a number of seconds; tests replace it.
        chance: Returns a random number from 0 to 1; tests replace it.
    """

    tools: Iterable[Tool | Function | ToolServer]
    accepts: Iterable[str]
    system: str | None
    step_limit: int
    connect_timeout: float
    read_timeout: float
    backoff: ProviderBackoff | None
    pause: Callable[[float], Awaitable[None]]
    chance: Callable[[], float]


class EndpointLimits(TypedDict, total=False):
    """The settings that concern connections."""

    connect_timeout: float
    read_timeout: float


def limits_of(settings: AgentSettings) -> EndpointLimits:
    """Return the settings that concern connections."""
    limits = EndpointLimits()
    if "connect_timeout" in settings:
        limits["connect_timeout"] = settings["connect_timeout"]
    if "read_timeout" in settings:
        limits["read_timeout"] = settings["read_timeout"]
    return limits


class _TurnContext(NamedTuple):
    """A turn with its tools, its files, its requests, the names of the client's tools, and the ids of calls."""

    turn: AgentTurn
    toolbox: Toolbox
    files: AttachedFiles
    conversation: Conversation
    client_tools: frozenset[str]
    ids: CallIds


class ModelAgent(ABC, Generic[ChunkT]):
    """Calls a model, runs the requested tools through the turn's ledger, and repeats until the model has answered."""

    # The media types of files that models of this provider read, unless the settings say otherwise.
    accepts: ClassVar[tuple[str, ...]] = ()

    def __init__(self, endpoint: ModelEndpoint[ChunkT], model: str, settings: AgentSettings) -> None:
        self._step_limit = settings.get("step_limit", 20)
        if self._step_limit < 1:
            raise ConfigError(f"step_limit is {self._step_limit}", hint="It must be at least 1.")
        tools = tuple(settings.get("tools", ()))
        self._toolbox = Toolbox(tool for tool in tools if not isinstance(tool, ToolServer))
        self._servers = ToolServers([tool for tool in tools if isinstance(tool, ToolServer)])
        self._accepts = tuple(settings.get("accepts", self.accepts))
        self._endpoint, self._model, self._system = endpoint, model, settings.get("system")
        self._retry_policy = RetryPolicy(
            settings.get("backoff") or ProviderBackoff(),
            settings.get("pause", asyncio.sleep),
            settings.get("chance", system_random),
        )

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._endpoint!r})"

    @abstractmethod
    def _start_conversation(
        self, system: str, messages: Sequence[Message], directions: Directions, files: AttachedFiles, tools: Declared
    ) -> Conversation:
        """Return the requests for a turn with this history, these directions, the files that were read, and tools."""

    @abstractmethod
    def _answer(self) -> Answer[ChunkT]:
        """Return an empty answer, for one call of the model."""

    async def stream(self, turn: AgentTurn) -> AsyncIterator[Body]:
        """Answer the turn. Steering inputs are passed to the model between two steps."""
        context = await self._prepare(turn)
        async with aclosing(self._make_pending_calls(context)) as bodies:
            async for body in bodies:
                yield body
        for step in range(1, self._step_limit + 1):
            answer, output = self._answer(), StepOutput()
            async with aclosing(self._step(context, answer, output, last=step == self._step_limit)) as bodies:
                async for body in bodies:
                    yield body
            called = [call.name for call in answer.calls]
            if turn.cancelled or step == self._step_limit or not context.client_tools.isdisjoint(called):
                return
            steering = await turn.steering()
            if not (steering or called):
                return
            context.conversation.transcript.read(output.messages(turn.id))
            for message in steering:
                context.conversation.transcript.add_user_message(await context.files.parts(message.parts))

    async def aclose(self) -> None:
        """Close the connections to the provider and to the MCP servers."""
        try:
            await self._servers.aclose()
        finally:
            await self._endpoint.aclose()

    async def _prepare(self, turn: AgentTurn) -> _TurnContext:
        directions = directions_of(turn.input.parts)
        toolbox = self._toolbox.with_remote(await self._servers.tools())
        clash = next((tool.name for tool in directions.tools if tool.name in toolbox), None)
        if clash is not None:
            raise AgentFailed(
                f"the client declared a tool {clash!r}, but the agent has a tool of that name",
                hint="Rename the client's tool.",
            )
        system = "\n\n".join(words for words in (self._system, directions.instructions) if words)
        files = AttachedFiles(turn, self._accepts)
        return _TurnContext(
            turn=turn,
            toolbox=toolbox,
            files=files,
            conversation=self._start_conversation(
                system, await files.history(), directions, files, [*toolbox.declared(), *directions.tools]
            ),
            client_tools=frozenset(tool.name for tool in directions.tools),
            ids=CallIds(turn),
        )

    async def _make_pending_calls(self, context: _TurnContext) -> Bodies:
        """Make the calls that waited for a person when the turn was interrupted. The model has requested them."""
        if not (pending := context.turn.pending_calls):
            return
        output = StepOutput()
        calls = [
            ModelCall(id=context.ids.take(call.id), name=call.name, arguments=_encode(call.arguments))
            for call in pending
        ]
        async with aclosing(self._run_calls(context, calls, output)) as bodies:
            async for body in bodies:
                yield body
        context.conversation.transcript.read(output.messages(context.turn.id))

    async def _step(self, context: _TurnContext, answer: Answer[ChunkT], output: StepOutput, *, last: bool) -> Bodies:
        """Call the model once, run the tools it requests, and yield the calls that the client must run."""
        async with aclosing(self._stream_answer(context, answer)) as bodies:
            async for body in bodies:
                yield output.add(body)
        if context.turn.cancelled:
            return
        calls = [msgspec.structs.replace(call, id=context.ids.take(call.id)) for call in answer.calls]
        for call in calls:
            if call.signature:
                yield output.add(signature_of(self._model, call.signature, call.id))
        own_calls = [call for call in calls if call.name not in context.client_tools]
        if own_calls and last:
            raise AgentFailed(
                f"the model still requested tool calls after {self._step_limit} steps; its last calls were not run",
                hint="Send a message to let it continue, or raise step_limit.",
            )
        async with aclosing(self._run_calls(context, own_calls, output)) as bodies:
            async for body in bodies:
                yield body
        for call in calls:
            if call.name in context.client_tools:
                yield _client_call(call)

    async def _stream_answer(self, context: _TurnContext, answer: Answer[ChunkT]) -> Bodies:
        request = context.conversation.encode()
        async with aclosing(self._retry_policy.chunks(lambda: self._endpoint.request_chunks(request))) as chunks:
            async for chunk in chunks:
                if context.turn.cancelled:
                    return
                for body in answer.add(chunk):
                    yield body
        if answer.usage:
            yield answer.usage
        if answer.cut:
            yield Custom("answer_cut", {"reason": answer.cut})
        if answer.silent:
            raise AgentFailed(f"the model {self._model!r} sent an empty answer")

    async def _run_calls(self, context: _TurnContext, calls: Sequence[ModelCall], output: StepOutput) -> Bodies:
        """Run the valid calls. An invalid call becomes a failed call, whose error the model can read."""
        validated = [context.toolbox.validate(call) for call in calls]
        for call in validated:
            if isinstance(call, Refusal):
                yield output.add(ToolCall(call.id, call.name, call.arguments))
                yield output.add(ToolResult(call.id, call.reason, error=True))
        requested = [call for call in validated if isinstance(call, RequestedToolCall)]
        results = await context.toolbox.run(context.turn, requested)
        recorded = context.turn.recorded({call.id for call in requested})
        output.extend(recorded)
        made = {body.id for body in recorded}
        for call, result in zip(requested, results, strict=True):
            if call.id not in made:
                yield output.add(without_record(ToolCall(call.id, call.name, call.arguments), result))


def _encode(arguments: Json) -> str:
    return msgspec.json.encode(arguments).decode()


def _client_call(call: ModelCall) -> ToolCall:
    """Return a call for the client to run. Arguments that would change when they are stored are passed on as text."""
    return ToolCall(call.id, call.name, parse_arguments(call.arguments), client=True)
