"""Content: the parts of a message, and the bodies that an agent streams."""

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, get_args

import msgspec

from backstay.errors import InvalidPayload

# The range of an integer on every engine.
LEAST_INTEGER, MOST_INTEGER = -(1 << 63), (1 << 63) - 1

# Arguments, results and custom data are any JSON that the caller's tools use; only the codec checks them.
Json = Any

Role = Literal["user", "assistant", "tool", "system", "summary"]


ROLES: tuple[Role, ...] = get_args(Role)


class Text(msgspec.Struct, frozen=True, gc=False, tag="text"):
    """Text of a person or an agent.

    Attributes:
        text: The text.
    """

    text: str


class Thought(msgspec.Struct, frozen=True, gc=False, tag="thought"):
    """An agent's reasoning, separate from its answer.

    Attributes:
        text: The reasoning.
    """

    text: str


class ToolCall(msgspec.Struct, frozen=True, gc=False, tag="tool_call", omit_defaults=True):
    """An agent's request to run a tool.

    Attributes:
        id: Unique within the turn; pairs the call with its result.
        name: The name of the tool.
        arguments: A JSON object.
        approval: Whether a person must approve the call before it runs.
        idempotent: Whether it may be repeated with the same key after a crash.
        client: Whether the client that submitted the turn runs the tool. The turn then ends, and the result comes with
            the client's next input.
    """

    id: str
    name: str
    arguments: Json = msgspec.field(default_factory=dict)
    approval: bool = False
    idempotent: bool = False
    client: bool = False


class Attachment(msgspec.Struct, frozen=True, gc=False, tag="attachment"):
    """A file of a message. Its bytes are uploaded before the message is sent.

    Attributes:
        blob: The SHA-256 of the bytes.
        name: The file name that readers see.
        media_type: The type of the content, such as `image/png`.
        size: The number of bytes.
    """

    blob: str
    name: str
    media_type: str
    size: int


class ToolResult(msgspec.Struct, frozen=True, gc=False, tag="tool_result", omit_defaults=True):
    """The result of a tool call.

    Attributes:
        id: The id of the call.
        output: The result as JSON.
        error: Whether the tool failed.
        files: The files that the tool returned. Their bytes are uploaded before.
    """

    id: str
    output: Json = None
    error: bool = False
    files: tuple[Attachment, ...] = ()


class Custom(msgspec.Struct, frozen=True, gc=False, tag="custom", omit_defaults=True):
    """Content of an application's own kind, which Backstay stores and does not interpret.

    Attributes:
        kind: The kind, such as `map` or `vote`.
        data: Any JSON.
    """

    kind: str
    data: Json = None


class Usage(msgspec.Struct, frozen=True, gc=False, tag="usage", omit_defaults=True):
    """The cost of a model call. It is reported and summed up, and is never part of a message.

    Attributes:
        input_tokens: Tokens that the model read.
        output_tokens: Tokens that the model wrote.
        cached_tokens: Tokens of the input that came from a cache.
        cost: The price, in the currency that the agent uses.
        model: The name of the model.
        reasoning_tokens: Tokens of the output that are reasoning.
    """

    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    cost: float = 0.0
    model: str | None = None
    reasoning_tokens: int = 0

    def __add__(self, other: "Usage") -> "Usage":
        """The sum, with the model of the later one. Numbers that would exceed 64 bits stay at the maximum."""
        return Usage(
            input_tokens=min(self.input_tokens + other.input_tokens, MOST_INTEGER),
            output_tokens=min(self.output_tokens + other.output_tokens, MOST_INTEGER),
            cached_tokens=min(self.cached_tokens + other.cached_tokens, MOST_INTEGER),
            cost=min(self.cost + other.cost, sys.float_info.max),
            model=other.model,
            reasoning_tokens=min(self.reasoning_tokens + other.reasoning_tokens, MOST_INTEGER),
        )


# Custom parts that serve agents: people are not shown them.
HIDDEN_KINDS = frozenset({"input_refused", "repeated_call", "thought_signature"})

Part = Text | Thought | ToolCall | ToolResult | Attachment | Custom
Body = Text | Thought | ToolCall | ToolResult | Custom | Usage
PartsLike = str | Part | Sequence[Part]
# An input as callers pass it; `input_parts` reads the dictionaries, which have the shape of OpenAI's API.
Content = PartsLike | Mapping[str, Json] | Sequence[str | Part | Mapping[str, Json]]

_PARTS = (Text, Thought, ToolCall, ToolResult, Attachment, Custom)
BODIES = (Text, Thought, ToolCall, ToolResult, Custom, Usage)


def parts_of(content: PartsLike) -> tuple[Part, ...]:
    """Content as a tuple of parts, its stored form.

    Raises:
        InvalidPayload: It is neither text nor a non-empty sequence of parts.
    """
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


def attachments_in(parts: Iterable[Part]) -> Iterator[Attachment]:
    """The attachments among these parts, and those of tool results."""
    for part in parts:
        if isinstance(part, Attachment):
            yield part
        elif isinstance(part, ToolResult):
            yield from part.files


def text_of(parts: Sequence[Part]) -> str:
    """The text of these parts, without thoughts, calls and files."""
    # Most messages are one text.
    if len(parts) == 1 and type(only := parts[0]) is Text:
        return only.text
    return "\n".join([part.text for part in parts if isinstance(part, Text)])


def check_role(role: Role, parts: Sequence[Part]) -> None:
    """Check that a message of this role may have these parts.

    Tool calls need the role "assistant", results "assistant" or "tool".

    Raises:
        InvalidPayload: The role is unknown, or a part does not belong to it.
    """
    if role not in ROLES:
        raise InvalidPayload(f"{role!r} is not a role", hint=f"Use one of {', '.join(ROLES)}.")
    for part in parts:
        if isinstance(part, ToolCall) and role != "assistant":
            raise InvalidPayload(
                f"a message with role {role} cannot contain tool calls",
                hint="Put the tool call into an assistant message.",
            )
        if isinstance(part, ToolResult) and role not in ("assistant", "tool"):
            raise InvalidPayload(f"a message with role {role} cannot contain tool results", hint="Use the role tool.")


def check_input(parts: Sequence[Part]) -> None:
    """Check that a person could have sent these parts: not empty, and without tool calls or results.

    Raises:
        InvalidPayload: The message is empty, or has a part that only an agent or a tool may send.
    """
    check_role("user", parts)
    if all(isinstance(part, Text) and not part.text.strip() for part in parts):
        raise InvalidPayload("the message is empty", hint="Add text, or attach a file.")
