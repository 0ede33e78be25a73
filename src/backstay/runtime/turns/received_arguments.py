"""The arguments that a tool's function receives, so that two spellings of one call can be recognised."""

import inspect
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import msgspec

from backstay.agents.tools import Tool
from backstay.errors import InvalidPayload
from backstay.model.codec import arguments_hash
from backstay.model.content import Json


def received_hash(tool: Tool, arguments: Mapping[str, Json]) -> str:
    """The hash of the arguments as the function receives them: defaults are filled in, and values have its types."""
    parameters = _parameters(tool)
    received = {name: _as_received(parameters.get(name), value) for name, value in arguments.items()}
    for name, parameter in parameters.items():
        if name not in received and parameter.default is not parameter.empty:
            received[name] = _plain(parameter.default)
    # A default that JSON cannot express cannot be spelled out either.
    return arguments_hash({name: value for name, value in received.items() if value is not msgspec.UNSET})


def _parameters(tool: Tool) -> Mapping[str, inspect.Parameter]:
    # The annotations are evaluated if they can be: they may name types that cannot be imported here.
    for evaluate in (True, False):
        with suppress(Exception):
            return inspect.signature(tool.function, eval_str=evaluate).parameters
    return {}  # It is not a function, or its signature cannot be read.


def _as_received(parameter: inspect.Parameter | None, value: Json) -> Json:
    """The value in the parameter's type, written as JSON again; unchanged if it has no type."""
    if parameter is None or parameter.annotation is parameter.empty:
        return value
    try:
        converted = msgspec.convert(value, parameter.annotation)
    except (msgspec.ValidationError, TypeError, ValueError):
        return value
    plain = _plain(converted)
    return value if plain is msgspec.UNSET else plain


def _plain(value: object) -> Any:  # Any: JSON, or UNSET
    """The value as JSON; `UNSET` if JSON cannot express it."""
    try:
        plain = msgspec.to_builtins(value, str_keys=True, order="deterministic")
        arguments_hash(plain)
    except (msgspec.ValidationError, InvalidPayload, TypeError, ValueError, OverflowError, RecursionError):
        return msgspec.UNSET
    return plain
