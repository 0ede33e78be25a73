"""Request options: the directions of a client as fields of a Chat Completions request."""

from collections.abc import Iterable

from backstay.agents.directions import ClientTool, Directions
from backstay.model.content import Json


def described(tools: Iterable[ClientTool]) -> list[dict[str, Json]]:
    """Return the client's tools as the Chat Completions API describes them."""
    return [{"type": "function", "function": _function(tool)} for tool in tools]


def options_of(asked: Directions) -> dict[str, Json]:
    """Return the request fields for these directions, without instructions and tools."""
    wanted = {
        "temperature": asked.temperature,
        "top_p": asked.top_p,
        "max_tokens": asked.max_output_tokens,
        "parallel_tool_calls": asked.parallel_tool_calls,
        "reasoning_effort": (asked.reasoning or {}).get("effort"),
        "verbosity": (asked.text or {}).get("verbosity"),
        "response_format": _format((asked.text or {}).get("format")),
        "tool_choice": _choice(asked.tool_choice),
        "stop": asked.stop or None,
        "seed": asked.seed,
        "presence_penalty": asked.presence_penalty,
        "frequency_penalty": asked.frequency_penalty,
    }
    return {name: value for name, value in wanted.items() if value is not None}


def _function(tool: ClientTool) -> dict[str, Json]:
    optional = {"description": tool.description, "parameters": tool.parameters, "strict": tool.strict}
    return {"name": tool.name} | {name: value for name, value in optional.items() if value is not None}


def _choice(choice: Json) -> Json:
    if isinstance(choice, dict) and choice.get("type") == "function" and "name" in choice:
        return {"type": "function", "function": {"name": choice["name"]}}
    return choice


def _format(wanted: Json) -> Json:
    if isinstance(wanted, dict) and wanted.get("type") == "json_schema":
        return {"type": "json_schema", "json_schema": {name: wanted[name] for name in wanted if name != "type"}}
    return None if wanted == {"type": "text"} else wanted
