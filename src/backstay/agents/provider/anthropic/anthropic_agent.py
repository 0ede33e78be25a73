"""An agent that uses a model of Anthropic through the Messages API."""

from collections.abc import Mapping, Sequence
from typing import Literal, Unpack

import msgspec

from backstay.agents.attached_files import AttachedFiles
from backstay.agents.directions import ClientTool, Directions
from backstay.agents.provider.anthropic.anthropic_stream import AnthropicAnswer, AnthropicEvent
from backstay.agents.provider.anthropic.anthropic_transcript import AnthropicTranscript
from backstay.agents.provider.conversation import Conversation
from backstay.agents.provider.model_agent import AgentSettings, Declared, ModelAgent, limits_of
from backstay.agents.provider.transport.model_endpoint import ModelEndpoint, ProviderApi
from backstay.model.content import Json
from backstay.model.message import Message

ANTHROPIC_URL = "https://api.anthropic.com"
_CACHE = {"type": "ephemeral"}
_VERSION = "2023-06-01"
_NO_PARAMETERS: dict[str, Json] = {"type": "object", "properties": {}}


def _headers(key: str) -> dict[str, str]:
    return {"x-api-key": key}


_API = ProviderApi(
    "/v1/messages", msgspec.json.Decoder(AnthropicEvent).decode, _headers, {"anthropic-version": _VERSION}
)


class AnthropicAgent(ModelAgent[AnthropicEvent]):
    """Calls a Claude model, runs the requested tools through the turn's ledger, and repeats until it has answered.

    It behaves like `OpenAICompatible`: tools, retries, directions and stable prompts. The prompt is marked for the
    provider's cache. Thoughts are stored with their signatures and sent back, as the API requires with tools.

    Args:
        model: The name of the model, such as `claude-sonnet-4-5`.
        api_key: The API key. It is never shown in errors or logs.
        base_url: The base URL of the API, without `/v1`.
        max_tokens: The highest number of tokens of one answer, without thoughts.
        thinking: The highest number of tokens of thoughts, or `"adaptive"` to let the model decide; None: no thoughts.
        options: Further fields of each request, such as `temperature`.
        settings: `tools`, `accepts` (by default images and PDF), `system`, `step_limit`, `connect_timeout`,
            `read_timeout`, `backoff`, as in `OpenAICompatible`.

    Raises:
        ConfigError: `base_url` or `api_key` is not valid, `step_limit` is less than 1, or a tool cannot be described.
    """

    accepts = ("image/png", "image/jpeg", "image/gif", "image/webp", "application/pdf")
    takes = frozenset(Directions.__struct_fields__) - {
        "reasoning",
        "text",
        "seed",
        "presence_penalty",
        "frequency_penalty",
    }

    def __init__(
        self,
        model: str,
        api_key: str | None = None,
        *,
        base_url: str = ANTHROPIC_URL,
        max_tokens: int = 8192,
        thinking: int | Literal["adaptive"] | None = None,
        options: Mapping[str, Json] | None = None,
        **settings: Unpack[AgentSettings],
    ) -> None:
        super().__init__(ModelEndpoint(base_url, model, api_key, _API, **limits_of(settings)), model, settings)
        self._max_tokens, self._thinking = max_tokens, thinking
        self._request = dict(options or {}) | {"model": model, "stream": True}

    def _start_conversation(
        self, system: str, messages: Sequence[Message], directions: Directions, files: AttachedFiles, tools: Declared
    ) -> Conversation:
        transcript = AnthropicTranscript(system, messages, self._model, files=files)
        declared = [_described(tool) for tool in tools]
        fields = (
            self._request
            | self._limits(directions)
            | _options_of(directions)
            | ({"tools": declared} if declared else {})
        )
        # The provider caches up to the end of the system prompt, and, by the mark of the request itself, up to the last
        # message. A mark in that message would have to move, and would change it in the next request.
        if transcript.system:
            fields["system"] = [{"type": "text", "text": "\n\n".join(transcript.system), "cache_control": _CACHE}]
        fields["cache_control"] = _CACHE
        return Conversation(transcript, fields, "messages", transcript.messages)

    def _answer(self) -> AnthropicAnswer:
        return AnthropicAnswer(self._model)

    def _limits(self, directions: Directions) -> dict[str, Json]:
        most = directions.max_output_tokens or self._max_tokens
        match self._thinking:
            case None:
                return {"max_tokens": most}
            case int(budget):
                # The limit of the API includes thoughts.
                return {"max_tokens": most + budget, "thinking": {"type": "enabled", "budget_tokens": budget}}
            case kind:
                return {"max_tokens": most, "thinking": {"type": kind}}


def _described(tool: ClientTool) -> dict[str, Json]:
    described: dict[str, Json] = {"name": tool.name, "input_schema": tool.parameters or _NO_PARAMETERS}
    return described | ({"description": tool.description} if tool.description else {})


def _options_of(directions: Directions) -> dict[str, Json]:
    wanted = {
        "temperature": directions.temperature,
        "top_p": directions.top_p,
        "stop_sequences": directions.stop or None,
        "tool_choice": _choice(directions),
    }
    return {name: value for name, value in wanted.items() if value is not None}


def _choice(directions: Directions) -> dict[str, Json] | None:
    match directions.tool_choice:
        case "required":
            choice: dict[str, Json] | None = {"type": "any"}
        case "auto" | "none" as kind:
            choice = {"type": kind}
        case {"type": "function", "name": name}:
            choice = {"type": "tool", "name": name}
        case _:
            choice = None
    if (
        directions.parallel_tool_calls is False
        and (directions.tools or choice)
        and (choice or {}).get("type") != "none"
    ):
        return (choice or {"type": "auto"}) | {"disable_parallel_tool_use": True}
    return choice
