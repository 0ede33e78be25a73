"""What is said: the parts of a message, and the bodies an agent streams."""

import sys
from collections.abc import Sequence
from typing import Any, Literal, get_args

import msgspec

from backstay.errors import InvalidPayload

# What a count may be on every engine.
LEAST_INTEGER, MOST_INTEGER = -(1 << 63), (1 << 63) - 1

# Arguments, results and custom data are whatever JSON the caller's tools speak; only their codec looks inside.
Json = Any

Role = Literal["user", "assistant", "tool", "system", "summary"]


ROLES: tuple[Role, ...] = get_args(Role)


class Text(msgspec.Struct, frozen=True, gc=False, tag="text"):
    """Words, said by a person or an agent."""

    text: str


class Thought(msgspec.Struct, frozen=True, gc=False, tag="thought"):
    """An agent's reasoning, kept apart from what it says."""

    text: str


class ToolCall(msgspec.Struct, frozen=True, gc=False, tag="tool_call", omit_defaults=True):
    """An agent's wish to run a tool. `id` is unique within its turn and pairs the call with its result.

    With `client`, whoever submitted the turn is to run it: the turn ends, and the result comes with what they say next.
    """

    id: str
    name: str
    arguments: Json = msgspec.field(default_factory=dict)
    approval: bool = False
    idempotent: bool = False
    client: bool = False


class ToolResult(msgspec.Struct, frozen=True, gc=False, tag="tool_result", omit_defaults=True):
    """What the tool call named by `id` gave back."""

    id: str
    output: Json = None
    error: bool = False


class Attachment(msgspec.Struct, frozen=True, gc=False, tag="attachment"):
    """A file that came with a message; `blob` is the SHA-256 of its bytes, uploaded before."""

    blob: str
    name: str
    media_type: str
    size: int


class Custom(msgspec.Struct, frozen=True, gc=False, tag="custom", omit_defaults=True):
    """Anything an application wants to keep in the story without Backstay knowing what it means."""

    kind: str
    data: Json = None


class Usage(msgspec.Struct, frozen=True, gc=False, tag="usage", omit_defaults=True):
    """What a model call cost. Reported, counted, and never part of a message."""

    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    cost: float = 0.0
    model: str | None = None

    def __add__(self, other: "Usage") -> "Usage":
        """Both together, named after the later one. A sum that no store could hold stays at the most that it can."""
        return Usage(
            input_tokens=min(self.input_tokens + other.input_tokens, MOST_INTEGER),
            output_tokens=min(self.output_tokens + other.output_tokens, MOST_INTEGER),
            cached_tokens=min(self.cached_tokens + other.cached_tokens, MOST_INTEGER),
            cost=min(self.cost + other.cost, sys.float_info.max),
            model=other.model,
        )


Part = Text | Thought | ToolCall | ToolResult | Attachment | Custom
Body = Text | Thought | ToolCall | ToolResult | Custom | Usage
Content = str | Part | Sequence[Part]

_PARTS = (Text, Thought, ToolCall, ToolResult, Attachment, Custom)
BODIES = (Text, Thought, ToolCall, ToolResult, Custom, Usage)


def parts_of(content: Content) -> tuple[Part, ...]:
    """Content in its one stored shape, or `InvalidPayload`."""
    if isinstance(content, str):
        return (Text(content),)
    if isinstance(content, _PARTS):
        return (content,)
    if isinstance(content, tuple) and content and all(isinstance(part, _PARTS) for part in content):
        return content
    if isinstance(content, Sequence) and not isinstance(content, bytes | bytearray):
        parts = tuple(part for part in content if isinstance(part, _PARTS))
        if parts and len(parts) == len(content):
            return parts
    raise InvalidPayload(
        f"content is {type(content).__name__}, not text or a non-empty list of parts",
        hint="Pass a str, or parts such as [Text('…'), Attachment(…)].",
    )


def text_of(parts: Sequence[Part]) -> str:
    """The words of these parts alone, as a person would read them."""
    return "\n".join([part.text for part in parts if isinstance(part, Text)])


def check_role(role: Role, parts: Sequence[Part]) -> None:
    """Raise unless a message of this role may have these parts: calls are an agent's, results are a tool's."""
    if role not in ROLES:
        raise InvalidPayload(f"{role!r} is no role", hint=f"Use one of {', '.join(ROLES)}.")
    for part in parts:
        if isinstance(part, ToolCall) and role != "assistant":
            raise InvalidPayload(f"a message of role {role} cannot call tools", hint="Put the call into an answer.")
        if isinstance(part, ToolResult) and role not in ("assistant", "tool"):
            raise InvalidPayload(f"a message of role {role} cannot hold tool results", hint="Use the role tool.")


def check_input(parts: Sequence[Part]) -> None:
    """Raise unless a person could have sent this: something is said, and no tool is called."""
    check_role("user", parts)
    if all(isinstance(part, Text) and not part.text.strip() for part in parts):
        raise InvalidPayload("the message is empty", hint="Say something, or attach a file.")
