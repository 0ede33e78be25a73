"""An agent whose model speaks OpenAI's Chat Completions, as most providers and local servers do."""

import asyncio
import random
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import aclosing
from typing import NamedTuple

import msgspec

from backstay.agents.backoff import Backoff, Persistence
from backstay.agents.completion import Completion, ModelCall
from backstay.agents.directions import Directions, directions_of
from backstay.agents.endpoint import Endpoint
from backstay.agents.port import AgentTurn
from backstay.agents.toolbox import Refusal, Toolbox, Wish
from backstay.agents.tools import Function, Tool
from backstay.agents.transcript import Transcript
from backstay.agents.wishes import described, options_of
from backstay.errors import AgentFailed, ConfigError
from backstay.model.content import Body, Custom, Json, ToolCall, ToolResult

Words = AsyncGenerator[Body, None]


class Asking(NamedTuple):
    """A turn that a model answers: what it is asked with, and the names of the tools that the client runs."""

    turn: AgentTurn
    talk: Transcript
    request: dict[str, Json]
    theirs: frozenset[str]


_random = random.SystemRandom().random
_CUT = ("length", "content_filter")


class OpenAICompatible:
    """Asks a model, runs the tools it wants through the turn's ledger, and asks again until it has answered.

    `base_url` ends where the API begins (`https://api.openai.com/v1`, `http://localhost:11434/v1`). Tools are
    functions with type hints and a docstring, or `Tool`s; calls of one step run side by side, and what goes wrong in
    one is told to the model. `step_limit` bounds how often the model is asked in one turn. `options` are further
    fields of the request, such as `temperature`.

    Passing faults (429, 5xx, no connection, silence for `read_timeout` seconds) are tried again as `backoff` says,
    but only before the model has said anything. Afterwards the turn fails, and what was said is kept.

    What a client asks for beside its words is handed to the model. A tool that the client declared is left to the
    client: the turn ends with the call, and the result comes with what is said next.
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
        backoff: Backoff | None = None,
        pause: Callable[[float], Awaitable[None]] = asyncio.sleep,
        chance: Callable[[], float] = _random,
    ) -> None:
        if step_limit < 1:
            raise ConfigError(f"step_limit is {step_limit}", hint="The model must be asked at least once.")
        self._toolbox = Toolbox(tools)
        self._endpoint = Endpoint(base_url, model, api_key, connect_timeout=connect_timeout, read_timeout=read_timeout)
        self._persistence = Persistence(backoff or Backoff(), pause, chance)
        self._model, self._system, self._step_limit = model, system, step_limit
        self._request = dict(options or {}) | {
            "model": model,
            "stream": True,
            "stream_options": {"include_usage": True},
        }

    def __repr__(self) -> str:
        return f"OpenAICompatible({self._endpoint!r})"

    async def stream(self, turn: AgentTurn) -> AsyncIterator[Body]:
        """Answer the turn. Between two steps the model is told what the person has said meanwhile."""
        asked = directions_of(turn.input.parts)
        request = self._asking(asked)
        system = "\n\n".join(words for words in (self._system, asked.instructions) if words)
        talk = Transcript(system, turn.messages)
        theirs = frozenset(tool.name for tool in asked.tools)
        for step in range(1, self._step_limit + 1):
            completion = Completion(self._model)
            asking = Asking(turn, talk, request, theirs)
            async with aclosing(self._step(asking, completion, last=step == self._step_limit)) as bodies:
                async for body in bodies:
                    yield body
            if turn.cancelled or step == self._step_limit or any(call.name in theirs for call in completion.calls):
                return
            steering = await turn.steering()
            for heard in steering:
                talk.hear(heard.parts)
            if not (steering or completion.calls):
                return

    async def aclose(self) -> None:
        """Close the connections to the provider."""
        await self._endpoint.aclose()

    def _asking(self, asked: Directions) -> dict[str, Json]:
        """The request for a turn, without what was said."""
        clash = next((tool.name for tool in asked.tools if tool.name in self._toolbox), None)
        if clash is not None:
            raise AgentFailed(
                f"the client declared a tool {clash!r}, which the agent has too", hint="Give the client's another name."
            )
        tools = [*self._toolbox.described(), *described(asked.tools)]
        return self._request | options_of(asked) | ({"tools": tools} if tools else {})

    async def _step(self, asking: "Asking", completion: Completion, *, last: bool) -> Words:
        """Ask the model once, run the tools it asks for, and hand over those that the client runs."""
        turn, talk = asking.turn, asking.talk
        async with aclosing(self._listen(asking, completion)) as bodies:
            async for body in bodies:
                yield body
        if turn.cancelled:
            return
        talk.say(completion.text)
        ours = [call for call in completion.calls if call.name not in asking.theirs]
        if ours and last:
            raise AgentFailed(
                f"the model still wanted to call tools after {self._step_limit} steps; its last calls were not run",
                hint="Send a message to let it go on, or raise step_limit.",
            )
        async with aclosing(self._serve(turn, talk, ours)) as bodies:
            async for body in bodies:
                yield body
        for call in completion.calls:
            if call.name in asking.theirs:
                yield _handed_over(call)

    async def _listen(self, asking: "Asking", completion: Completion) -> Words:
        turn = asking.turn
        request = msgspec.json.encode(asking.request | {"messages": asking.talk.messages})
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
            raise AgentFailed(f"the model {self._model!r} ended its answer without having begun one")

    async def _serve(self, turn: AgentTurn, talk: Transcript, calls: Sequence[ModelCall]) -> Words:
        """Run what can be run. What cannot is told to the model and kept in the story as a call that failed."""
        understood = [self._toolbox.understand(call) for call in calls]
        step = len(talk.messages)
        results: dict[str, ToolResult] = {}
        for number, call in enumerate(understood):
            talk.call(call.id, call.name, call.arguments)
            if isinstance(call, Refusal):
                results[call.id] = ToolResult(call.id, call.reason, error=True)
                name = f"refused-{step}-{number}"
                yield ToolCall(name, call.name, call.arguments)
                yield ToolResult(name, call.reason, error=True)
        wishes = [call for call in understood if isinstance(call, Wish)]
        results |= {result.id: result for result in await self._toolbox.run(turn, wishes)}
        for call in understood:
            talk.result(call.id, results[call.id].output, error=results[call.id].error)


def _handed_over(call: ModelCall) -> ToolCall:
    """A call that the client is to make. Arguments that are no JSON object are handed on as they are."""
    try:
        arguments: Json = msgspec.json.decode(call.arguments.strip() or "{}")
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        arguments = call.arguments
    return ToolCall(call.id, call.name, arguments, client=True)
