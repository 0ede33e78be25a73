"""The request parameters besides the input. They are stored as a part of the turn's input, and repeated later."""

from collections.abc import Sequence

import msgspec

from backstay.agents.directions import KIND, Directions
from backstay.model.content import Custom, Part
from backstay.model.ids import TurnId
from backstay.server.openai.encoding.items import Value


class StoredRequest(Directions, frozen=True, kw_only=True):
    """Directions for the agent, and parameters that only the OpenAI-compatible API uses.

    `items` is the turn that recorded the messages before the input. Fields keep their defaults unless the client set
    them, so that little is stored.
    """

    items: TurnId | None = None
    background: bool = False
    conversation: bool = False
    store: bool = True
    previous_response_id: str | None = None
    metadata: dict[str, str] | None = None
    truncation: str | None = None
    user: str | None = None
    safety_identifier: str | None = None
    prompt_cache_key: str | None = None

    def shown(self) -> Value:
        """The fields that a response repeats."""
        return {
            "background": self.background,
            "instructions": self.instructions,
            "max_output_tokens": self.max_output_tokens,
            "max_tool_calls": None,
            "metadata": self.metadata or {},
            "parallel_tool_calls": self.parallel_tool_calls is not False,
            "presence_penalty": self.presence_penalty or 0.0,
            "frequency_penalty": self.frequency_penalty or 0.0,
            "previous_response_id": self.previous_response_id,
            "prompt_cache_key": self.prompt_cache_key,
            "reasoning": {"effort": None, "summary": None} | (self.reasoning or {}),
            "safety_identifier": self.safety_identifier,
            "service_tier": "default",
            "store": self.store,
            "temperature": self.temperature,
            "text": {"format": {"type": "text"}} | (self.text or {}),
            "tool_choice": self.tool_choice or "auto",
            "tools": [{"type": "function", **msgspec.to_builtins(tool)} for tool in self.tools],
            "top_logprobs": 0,
            "top_p": self.top_p,
            "truncation": self.truncation or "disabled",
            "user": self.user,
        }


USUAL = StoredRequest()


def with_request(parts: tuple[Part, ...], request: StoredRequest) -> tuple[Part, ...]:
    """Add the request to the parts of an input."""
    asked = {
        name: msgspec.to_builtins(getattr(request, name))
        for name in StoredRequest.__struct_fields__
        if getattr(request, name) != getattr(USUAL, name)
    }
    return (*parts, Custom(KIND, asked))


def request_of(parts: Sequence[Part]) -> StoredRequest:
    """The request stored in an input; the default request if there is none or its data has another format."""
    for part in parts:
        if isinstance(part, Custom) and part.kind == KIND:
            try:
                return msgspec.convert(part.data, StoredRequest)
            except msgspec.ValidationError:
                return USUAL
    return USUAL
