"""Directions: request parameters of a client for one turn, in addition to its message.

They are a part of the turn's input, so they are stored, queued and deleted with it. The attribute `takes` of an agent
names the directions that it follows; the server rejects the others instead of ignoring them.
"""

from collections.abc import Sequence

import msgspec

from backstay.agents.adapters import AgentLike, Live
from backstay.model.content import Custom, Json, Part

KIND = "request"


class ClientTool(msgspec.Struct, frozen=True, kw_only=True):
    """A tool that the client runs itself: the agent can only request it, with a `ToolCall` that has `client` set.

    Attributes:
        name: The name of the tool.
        description: What the tool does, for the model.
        parameters: The JSON schema of its arguments.
        strict: Whether the arguments must match the schema exactly.
    """

    name: str
    description: str | None = None
    parameters: dict[str, Json] | None = None
    strict: bool | None = None


class Directions(msgspec.Struct, frozen=True, kw_only=True):
    """The parameters of a request; the agent decides those that are not set.

    Attributes:
        instructions: Instructions for this turn only.
        tools: Tools that the client runs itself.
        tool_choice: Which tools the model may or must call, as in OpenAI's API.
        parallel_tool_calls: Whether the model may request several calls at once.
        temperature: The sampling temperature.
        top_p: The probability mass that sampling considers.
        max_output_tokens: The highest number of tokens of the answer.
        reasoning: Options of reasoning, in the form of OpenAI's Responses API.
        text: The format of the answer, in the form of OpenAI's Responses API.
        stop: Texts at which the answer ends.
        seed: A seed for reproducible sampling.
        presence_penalty: A penalty for tokens that have occurred.
        frequency_penalty: A penalty for tokens by their frequency.
    """

    instructions: str | None = None
    tools: tuple[ClientTool, ...] = ()
    tool_choice: Json = None
    parallel_tool_calls: bool | None = None
    temperature: float | None = None
    top_p: float | None = None
    max_output_tokens: int | None = None
    reasoning: dict[str, Json] | None = None
    text: dict[str, Json] | None = None
    stop: tuple[str, ...] = ()
    seed: int | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None

    @property
    def given(self) -> frozenset[str]:
        """The names of the parameters that are set."""
        return frozenset(name for name in Directions.__struct_fields__ if getattr(self, name) not in (None, ()))


NONE = Directions()


def directions_of(parts: Sequence[Part]) -> Directions:
    """Return the directions in the parts of an input."""
    for part in parts:
        if isinstance(part, Custom) and part.kind == KIND and isinstance(part.data, dict):
            try:
                return msgspec.convert(part.data, Directions)
            except msgspec.ValidationError:
                return NONE  # a custom part of the same kind that is not ours
    return NONE


def takes(agent: AgentLike) -> frozenset[str]:
    """Return the names of the directions that an agent follows."""
    made = agent.make if isinstance(agent, Live) else agent
    return frozenset(getattr(made, "takes", ()))
