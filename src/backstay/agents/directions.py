"""Directions: what a client asks of the agent for one turn, beside what it says.

They travel as a part of the turn's input, so they are as durable as the input, wait with it, and are gone with it. An
agent says in its attribute `takes` which of them it follows; a server refuses the others instead of dropping them.
"""

from collections.abc import Sequence

import msgspec

from backstay.agents.adapters import AgentLike, Live
from backstay.model.content import Custom, Json, Part

KIND = "request"


class ClientTool(msgspec.Struct, frozen=True, kw_only=True):
    """A tool that the client runs itself: the agent may only ask for it, by a `ToolCall` with `client`."""

    name: str
    description: str | None = None
    parameters: dict[str, Json] | None = None
    strict: bool | None = None


class Directions(msgspec.Struct, frozen=True, kw_only=True):
    """What is asked for; everything that is left out is the agent's own choice.

    `reasoning` and `text` are as OpenAI's Responses have them.
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

    @property
    def given(self) -> frozenset[str]:
        """The names of those that are asked for."""
        return frozenset(name for name in Directions.__struct_fields__ if getattr(self, name) not in (None, ()))


NONE = Directions()


def directions_of(parts: Sequence[Part]) -> Directions:
    """What an input asks for beside its words."""
    for part in parts:
        if isinstance(part, Custom) and part.kind == KIND and isinstance(part.data, dict):
            try:
                return msgspec.convert(part.data, Directions)
            except msgspec.ValidationError:
                return NONE  # somebody else's part of the same name asks for nothing
    return NONE


def takes(agent: AgentLike) -> frozenset[str]:
    """Which directions an agent follows."""
    made = agent.make if isinstance(agent, Live) else agent
    return frozenset(getattr(made, "takes", ()))
