"""A request: all that is asked for beside what is said. It is stored as a part of the turn's input, and told again."""

from collections.abc import Sequence

import msgspec

from backstay.agents.directions import KIND, Directions
from backstay.model.content import Custom, Part
from backstay.model.ids import TurnId
from backstay.server.openai.items import Value


class Request(Directions, frozen=True, kw_only=True):
    """What agents are directed by, and what only this wire remembers.

    `items` is the turn that recorded what came before the input. Everything has its usual value unless it was asked
    for, so that little is stored.
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
        """Those of its fields that a response repeats."""
        return {
            "background": self.background,
            "instructions": self.instructions,
            "max_output_tokens": self.max_output_tokens,
            "max_tool_calls": None,
            "metadata": self.metadata or {},
            "parallel_tool_calls": self.parallel_tool_calls is not False,
            "presence_penalty": 0.0,
            "frequency_penalty": 0.0,
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


USUAL = Request()


def with_request(parts: tuple[Part, ...], request: Request) -> tuple[Part, ...]:
    """An input with what is asked for beside it."""
    asked = {
        name: msgspec.to_builtins(getattr(request, name))
        for name in Request.__struct_fields__
        if getattr(request, name) != getattr(USUAL, name)
    }
    return (*parts, Custom(KIND, asked))


def request_of(parts: Sequence[Part]) -> Request:
    """What an input asks for. Somebody else's part of the same name asks for nothing."""
    for part in parts:
        if isinstance(part, Custom) and part.kind == KIND:
            try:
                return msgspec.convert(part.data, Request)
            except msgspec.ValidationError:
                return USUAL
    return USUAL
