"""An agent that uses a model through the Chat Completions API, which most providers and local servers offer."""

import asyncio
import random
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import aclosing
from typing import NamedTuple

import msgspec

from backstay.agents.directions import Directions, directions_of
from backstay.agents.port import AgentTurn
from backstay.agents.provider.completion import Completion, ModelCall
from backstay.agents.provider.model_endpoint import ModelEndpoint
from backstay.agents.provider.request_options import described, options_of
from backstay.agents.provider.retry_policy import Persistence, ProviderBackoff
from backstay.agents.provider.toolbox import Refusal, RequestedToolCall, Toolbox
from backstay.agents.provider.transcript import Transcript
from backstay.agents.tools import Function, Tool
from backstay.errors import AgentFailed, ConfigError
from backstay.model.content import Body, Custom, Json, ToolCall, ToolResult

Bodies = AsyncGenerator[Body, None]


class ProviderOptions(NamedTuple):
    """A turn with its transcript, the fields of its request, and the names of the tools that the client runs."""

    turn: AgentTurn
    transcript: Transcript
    request: dict[str, Json]
    theirs: frozenset[str]


_random = random.SystemRandom().random
_CUT = ("length", "content_filter")


class OpenAICompatible:
    """Calls a model, runs the requested tools through the turn's ledger, and repeats until the model has answered.

    Tool calls of one step run concurrently; the model receives the error of a call that fails.

    Transient failures (429, 5xx, no connection, silence for `read_timeout` seconds) are retried as `backoff` says, but
    only before the first output of the model. After that the turn fails, and the output so far is kept.

    Directions of the client are passed to the model. The client runs the tools that it declared: the turn ends with
    the call, and the result arrives with the next input.

    Args:
        base_url: The base URL of the API, such as `https://api.openai.com/v1` or `http://localhost:11434/v1`.
        model: The name of the model.
        api_key: The API key, if the server needs one. It is never shown in errors or logs.
        tools: Functions with type hints and a docstring, or `Tool`s.
        system: The system prompt.
        options: Further fields of each request, such as `temperature`.
        step_limit: The highest number of model calls in one turn.
        connect_timeout: Seconds to wait for a connection.
        read_timeout: Seconds to wait for the next bytes of an answer.
        backoff: How often and how long to wait before a retry.
        pause: Waits for a number of seconds; tests replace it.
        chance: Returns a random number from 0 to 1; tests replace it.

    Raises:
        ConfigError: `base_url` or `api_key` is not valid, `step_limit` is less than 1, or a tool has an invalid name,
            the name of another tool, or parameters that JSON cannot express.
    """

    takes = frozenset(Directions.__struct_fields__)

    def __init__(
        self,
        base_url: str,
        model: str,
        api_key: str | None = None,
        *,
        tools: Iterable[Tool | Function] = (),
        system: str | None = None,
        options: Mapping[str, Json] | None = None,
        step_limit: int = 20,
        connect_timeout: float = 10.0,
        read_timeout: float = 120.0,
        backoff: ProviderBackoff | None = None,
        pause: Callable[[float], Awaitable[None]] = asyncio.sleep,
        chance: Callable[[], float] = _random,
    ) -> None:
        if step_limit < 1:
            raise ConfigError(f"step_limit is {step_limit}", hint="It must be at least 1.")
        self._toolbox = Toolbox(tools)
        self._endpoint = ModelEndpoint(
            base_url, model, api_key, connect_timeout=connect_timeout, read_timeout=read_timeout
        )
        self._persistence = Persistence(backoff or ProviderBackoff(), pause, chance)
        self._model, self._system, self._step_limit = model, system, step_limit
        self._request = dict(options or {}) | {
            "model": model,
            "stream": True,
            "stream_options": {"include_usage": True},
        }

    def __repr__(self) -> str:
        return f"OpenAICompatible({self._endpoint!r})"

    async def stream(self, turn: AgentTurn) -> AsyncIterator[Body]:
        """Answer the turn. Steering inputs are passed to the model between two steps."""
        asked = directions_of(turn.input.parts)
        request = self._request_fields(asked)
        system = "\n\n".join(words for words in (self._system, asked.instructions) if words)
        transcript = Transcript(system, turn.messages)
        theirs = frozenset(tool.name for tool in asked.tools)
        for step in range(1, self._step_limit + 1):
            completion = Completion(self._model)
            asking = ProviderOptions(turn, transcript, request, theirs)
            async with aclosing(self._step(asking, completion, last=step == self._step_limit)) as bodies:
                async for body in bodies:
                    yield body
            if turn.cancelled or step == self._step_limit or any(call.name in theirs for call in completion.calls):
                return
            steering = await turn.steering()
            for message in steering:
                transcript.add_user_message(message.parts)
            if not (steering or completion.calls):
                return

    async def aclose(self) -> None:
        """Close the connections to the provider."""
        await self._endpoint.aclose()

    def _request_fields(self, asked: Directions) -> dict[str, Json]:
        """Return the fields of the requests for a turn, without the messages."""
        clash = next((tool.name for tool in asked.tools if tool.name in self._toolbox), None)
        if clash is not None:
            raise AgentFailed(
                f"the client declared a tool {clash!r}, which the agent has too", hint="Rename the client's tool."
            )
        tools = [*self._toolbox.described(), *described(asked.tools)]
        return self._request | options_of(asked) | ({"tools": tools} if tools else {})

    async def _step(self, asking: "ProviderOptions", completion: Completion, *, last: bool) -> Bodies:
        """Call the model once, run the tools it requests, and yield the calls that the client must run."""
        turn, transcript = asking.turn, asking.transcript
        async with aclosing(self._stream_completion(asking, completion)) as bodies:
            async for body in bodies:
                yield body
        if turn.cancelled:
            return
        transcript.add_text(completion.text)
        ours = [call for call in completion.calls if call.name not in asking.theirs]
        if ours and last:
            raise AgentFailed(
                f"the model still requested tool calls after {self._step_limit} steps; its last calls were not run",
                hint="Send a message to let it continue, or raise step_limit.",
            )
        async with aclosing(self._serve(turn, transcript, ours)) as bodies:
            async for body in bodies:
                yield body
        for call in completion.calls:
            if call.name in asking.theirs:
                yield _handed_over(call)

    async def _stream_completion(self, asking: "ProviderOptions", completion: Completion) -> Bodies:
        turn = asking.turn
        request = msgspec.json.encode(asking.request | {"messages": asking.transcript.messages})
        async with aclosing(self._persistence.chunks(lambda: self._endpoint.ask(request))) as chunks:
            async for chunk in chunks:
                if turn.cancelled:
                    return
                for body in completion.add(chunk):
                    yield body
        if completion.usage:
            yield completion.usage
        if completion.finish_reason in _CUT:
            yield Custom("answer_cut", {"reason": completion.finish_reason})
        if completion.silent:
            raise AgentFailed(f"the model {self._model!r} sent an empty answer")

    async def _serve(self, turn: AgentTurn, transcript: Transcript, calls: Sequence[ModelCall]) -> Bodies:
        """Run the valid calls. An invalid call gets an error result for the model and an event as a failed call."""
        validated = [self._toolbox.validate(call) for call in calls]
        step = len(transcript.messages)
        results: dict[str, ToolResult] = {}
        for number, call in enumerate(validated):
            transcript.call(call.id, call.name, call.arguments)
            if isinstance(call, Refusal):
                results[call.id] = ToolResult(call.id, call.reason, error=True)
                name = f"refused-{step}-{number}"
                yield ToolCall(name, call.name, call.arguments)
                yield ToolResult(name, call.reason, error=True)
        requested = [call for call in validated if isinstance(call, RequestedToolCall)]
        results |= {result.id: result for result in await self._toolbox.run(turn, requested)}
        for call in validated:
            transcript.result(call.id, results[call.id].output, error=results[call.id].error)


def _handed_over(call: ModelCall) -> ToolCall:
    """Return a call for the client to run. Arguments that are not valid JSON are passed on as text."""
    try:
        arguments: Json = msgspec.json.decode(call.arguments.strip() or "{}")
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        arguments = call.arguments
    return ToolCall(call.id, call.name, arguments, client=True)
