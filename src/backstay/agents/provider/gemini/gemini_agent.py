"""An agent that uses a model of Google through the Gemini API."""

from collections.abc import Mapping, Sequence
from typing import Unpack
from urllib.parse import quote

import msgspec

from backstay.agents.attached_files import AttachedFiles
from backstay.agents.directions import ClientTool, Directions
from backstay.agents.provider.conversation import Conversation
from backstay.agents.provider.gemini.gemini_stream import GeminiAnswer, GeminiChunk
from backstay.agents.provider.gemini.gemini_transcript import GeminiTranscript
from backstay.agents.provider.model_agent import AgentSettings, Declared, ModelAgent, limits_of
from backstay.agents.provider.transport.model_endpoint import ModelEndpoint, ProviderApi
from backstay.model.content import Json
from backstay.model.message import Message

GEMINI_URL = "https://generativelanguage.googleapis.com/v1beta"

_decode = msgspec.json.Decoder(GeminiChunk).decode


def _headers(key: str) -> dict[str, str]:
    return {"x-goog-api-key": key}


class GeminiAgent(ModelAgent[GeminiChunk]):
    """Calls a Gemini model, runs the requested tools through the turn's ledger, and repeats until it has answered.

    It behaves like `OpenAICompatible`: tools, retries, directions and stable prompts. The provider caches prompts that
    begin alike without a mark. Signatures of thoughts are stored and sent back, as newer models require with tools.

    Args:
        model: The name of the model, such as `gemini-flash-latest`.
        api_key: The API key. It is never shown in errors or logs.
        base_url: The base URL of the API, with its version.
        thoughts: Whether to request summaries of the model's thoughts. Models that do not think refuse it.
        options: Further fields of `generationConfig`, such as `temperature`.
        settings: `tools`, `accepts` (by default images, audio, video and PDF), `system`, `step_limit`,
            `connect_timeout`, `read_timeout`, `backoff`, as in `OpenAICompatible`.

    Raises:
        ConfigError: `base_url` or `api_key` is not valid, `step_limit` is less than 1, or a tool cannot be described.
    """

    accepts = ("image/*", "audio/*", "video/*", "application/pdf")
    takes = frozenset(Directions.__struct_fields__) - {"parallel_tool_calls", "reasoning"}

    def __init__(
        self,
        model: str,
        api_key: str | None = None,
        *,
        base_url: str = GEMINI_URL,
        thoughts: bool = True,
        options: Mapping[str, Json] | None = None,
        **settings: Unpack[AgentSettings],
    ) -> None:
        path = f"/models/{quote(model.removeprefix('models/'), safe='')}:streamGenerateContent?alt=sse"
        api = ProviderApi(path, _decode, _headers)
        super().__init__(ModelEndpoint(base_url, model, api_key, api, **limits_of(settings)), model, settings)
        self._generation: dict[str, Json] = {"thinkingConfig": {"includeThoughts": True}} if thoughts else {}
        self._generation |= dict(options or {})

    def _start_conversation(
        self, system: str, messages: Sequence[Message], directions: Directions, files: AttachedFiles, tools: Declared
    ) -> Conversation:
        transcript = GeminiTranscript(system, messages, self._model, files=files)
        declared = [_described(tool) for tool in tools]
        fields = {
            "generationConfig": self._generation | _options_of(directions),
            "tools": [{"functionDeclarations": declared}] if declared else None,
            "toolConfig": _choice(directions.tool_choice),
            "systemInstruction": {"parts": [{"text": text} for text in transcript.system]}
            if transcript.system
            else None,
        }
        present = {name: value for name, value in fields.items() if value}
        return Conversation(transcript, present, "contents", transcript.messages)

    def _answer(self) -> GeminiAnswer:
        return GeminiAnswer(self._model)


def _described(tool: ClientTool) -> dict[str, Json]:
    described: dict[str, Json] = {"name": tool.name, "description": tool.description or tool.name}
    # The API refuses an object without properties.
    has_parameters = bool((tool.parameters or {}).get("properties"))
    return described | ({"parametersJsonSchema": tool.parameters} if has_parameters else {})


def _options_of(directions: Directions) -> dict[str, Json]:
    wanted = {
        "temperature": directions.temperature,
        "topP": directions.top_p,
        "maxOutputTokens": directions.max_output_tokens,
        "stopSequences": directions.stop or None,
        "seed": directions.seed,
        "presencePenalty": directions.presence_penalty,
        "frequencyPenalty": directions.frequency_penalty,
        **_format((directions.text or {}).get("format")),
    }
    return {name: value for name, value in wanted.items() if value is not None}


def _format(wanted: Json) -> dict[str, Json]:
    match wanted:
        case {"type": "json_schema", "schema": schema}:
            return {"responseMimeType": "application/json", "responseJsonSchema": schema}
        case {"type": "json_object"}:
            return {"responseMimeType": "application/json"}
        case _:
            return {}


def _choice(choice: Json) -> dict[str, Json] | None:
    match choice:
        case "required":
            return {"functionCallingConfig": {"mode": "ANY"}}
        case "auto" | "none":
            return {"functionCallingConfig": {"mode": choice.upper()}}
        case {"type": "function", "name": name}:
            return {"functionCallingConfig": {"mode": "ANY", "allowedFunctionNames": [name]}}
        case _:
            return None
