"""Wishes: what a client asks for, in the words of the Chat Completions wire."""

from collections.abc import Iterable

from backstay.agents.directions import ClientTool, Directions
from backstay.model.content import Json


def described(tools: Iterable[ClientTool]) -> list[dict[str, Json]]:
    """The client's tools as the wire wants them."""
    return [{"type": "function", "function": _function(tool)} for tool in tools]


def options_of(asked: Directions) -> dict[str, Json]:
    """The fields of a request that follow from what is asked for; instructions and tools aside."""
    wanted = {
        "temperature": asked.temperature,
        "top_p": asked.top_p,
        "max_tokens": asked.max_output_tokens,
        "parallel_tool_calls": asked.parallel_tool_calls,
        "reasoning_effort": (asked.reasoning or {}).get("effort"),
        "verbosity": (asked.text or {}).get("verbosity"),
        "response_format": _format((asked.text or {}).get("format")),
        "tool_choice": _choice(asked.tool_choice),
    }
    return {name: value for name, value in wanted.items() if value is not None}


def _function(tool: ClientTool) -> dict[str, Json]:
    told = {"description": tool.description, "parameters": tool.parameters, "strict": tool.strict}
    return {"name": tool.name} | {name: value for name, value in told.items() if value is not None}


def _choice(choice: Json) -> Json:
    if isinstance(choice, dict) and choice.get("type") == "function" and "name" in choice:
        return {"type": "function", "function": {"name": choice["name"]}}
    return choice


def _format(wanted: Json) -> Json:
    if isinstance(wanted, dict) and wanted.get("type") == "json_schema":
        return {"type": "json_schema", "json_schema": {name: wanted[name] for name in wanted if name != "type"}}
    return None if wanted == {"type": "text"} else wanted
