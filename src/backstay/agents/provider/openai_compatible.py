"""An agent that uses a model through the Chat Completions API, which most providers and local servers offer."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence

import msgspec

from backstay.agents.attached_files import AttachedFiles
from backstay.agents.directions import Directions
from backstay.agents.provider.completion import Completion, CompletionChunk
from backstay.agents.provider.conversation import Conversation
from backstay.agents.provider.model_agent import AgentSettings, Declared, ModelAgent, system_random
from backstay.agents.provider.request_options import described, options_of
from backstay.agents.provider.transcript import Transcript
from backstay.agents.provider.transport.model_endpoint import ModelEndpoint, ProviderApi
from backstay.agents.provider.transport.retry_policy import ProviderBackoff
from backstay.agents.tool_servers.tool_server import ToolServer
from backstay.agents.tools import Function, Tool
from backstay.model.content import Json
from backstay.model.message import Message


def _bearer(key: str) -> dict[str, str]:
    return {"authorization": f"Bearer {key}"}


_API = ProviderApi("/chat/completions", msgspec.json.Decoder(CompletionChunk).decode, _bearer)


class OpenAICompatible(ModelAgent[CompletionChunk]):
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
        tools: Functions with type hints and a docstring, `Tool`s, or MCP servers (`mcp("npx …")`).
        accepts: Media types of files that the model reads, such as `image/*` and `application/pdf`. They are sent as
            image, file and audio parts; text files are always sent as text. Any other file of the input is refused.
        system: The system prompt.
        options: Further fields of each request, such as `temperature`.
        step_limit: The highest number of model calls in one turn.
        short_call_ids: Whether the provider accepts only tool-call ids of nine letters and digits; by default for hosts
            of Mistral.
        connect_timeout: Seconds to wait for a connection.
        read_timeout: Seconds to wait for the next bytes of an answer.
        backoff: How often and how long to wait before a retry.
        pause: Waits for a number of seconds; tests replace it.
        chance: Returns a random number from 0 to 1; tests replace it.

    Raises:
        ConfigError: `base_url`, `api_key` or `step_limit` is not valid. Or a tool has an invalid name, the name of
            another tool, or parameters that JSON cannot express.
    """

    takes = frozenset(Directions.__struct_fields__)

    def __init__(
        self,
        base_url: str,
        model: str,
        api_key: str | None = None,
        *,
        tools: Iterable[Tool | Function | ToolServer] = (),
        accepts: Iterable[str] = (),
        system: str | None = None,
        options: Mapping[str, Json] | None = None,
        step_limit: int = 20,
        short_call_ids: bool | None = None,
        connect_timeout: float = 10.0,
        read_timeout: float = 120.0,
        backoff: ProviderBackoff | None = None,
        pause: Callable[[float], Awaitable[None]] = asyncio.sleep,
        chance: Callable[[], float] = system_random,
    ) -> None:
        endpoint = ModelEndpoint(
            base_url, model, api_key, _API, connect_timeout=connect_timeout, read_timeout=read_timeout
        )
        settings = AgentSettings(
            tools=tools,
            accepts=accepts,
            system=system,
            step_limit=step_limit,
            backoff=backoff,
            pause=pause,
            chance=chance,
        )
        super().__init__(endpoint, model, settings)
        self._short_ids = endpoint.host.endswith("mistral.ai") if short_call_ids is None else short_call_ids
        self._request = dict(options or {}) | {
            "model": model,
            "stream": True,
            "stream_options": {"include_usage": True},
        }

    def _start_conversation(
        self, system: str, messages: Sequence[Message], directions: Directions, files: AttachedFiles, tools: Declared
    ) -> Conversation:
        declared = described(list(tools))
        fields = self._request | options_of(directions) | ({"tools": declared} if declared else {})
        transcript = Transcript(system, messages, short_ids=self._short_ids, files=files)
        return Conversation(transcript, fields, "messages", transcript.messages)

    def _answer(self) -> Completion:
        return Completion(self._model)
