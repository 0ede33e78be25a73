"""Request options: the directions of a client as fields of a Chat Completions request."""

from collections.abc import Iterable

from backstay.agents.directions import ClientTool, Directions
from backstay.model.content import Json


def described(tools: Iterable[ClientTool]) -> list[dict[str, Json]]:
    """Return the client's tools as the Chat Completions API describes them."""
    return [{"type": "function", "function": _function(tool)} for tool in tools]


def options_of(directions: Directions) -> dict[str, Json]:
    """Return the request fields for these directions, without instructions and tools."""
    wanted = {
        "temperature": directions.temperature,
        "top_p": directions.top_p,
        "max_tokens": directions.max_output_tokens,
        "parallel_tool_calls": directions.parallel_tool_calls,
        "reasoning_effort": (directions.reasoning or {}).get("effort"),
        "verbosity": (directions.text or {}).get("verbosity"),
        "response_format": _format((directions.text or {}).get("format")),
        "tool_choice": _choice(directions.tool_choice),
        "stop": directions.stop or None,
        "seed": directions.seed,
        "presence_penalty": directions.presence_penalty,
        "frequency_penalty": directions.frequency_penalty,
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
