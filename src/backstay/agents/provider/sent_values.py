"""Values of tool calls in a form that every provider accepts."""

import json
import re

import msgspec

from backstay.model.content import Json


def sent_name(name: str) -> str:
    """Return a tool name that every provider accepts, also if a model or another agent invented it."""
    return re.sub(r"[^a-zA-Z0-9_-]", "_", name)[:64] or "unnamed"


def arguments_object(arguments: Json) -> dict[str, Json]:
    """Return arguments as a JSON object, also those that are kept as text because of a number in them."""
    value = _decoded(arguments) if isinstance(arguments, str) else arguments
    return value if isinstance(value, dict) else {"arguments": arguments}


def _decoded(text: str) -> Json:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def output_text(output: Json) -> str:
    """Return the result of a tool as text."""
    return output if isinstance(output, str) else msgspec.json.encode(output).decode()
