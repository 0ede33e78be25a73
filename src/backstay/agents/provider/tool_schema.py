"""JSON schemas of tools: the description of parameters for a model, and the validation of its arguments."""

import functools
import inspect
import operator
from collections.abc import Mapping
from typing import Any

import msgspec

from backstay.agents.tools import Tool
from backstay.errors import ConfigError
from backstay.model.content import Json

_KEY = "key"
_PLAIN = (bool, int, float, str, type(None))


class Parameters:
    """The parameters of a tool's function, from its type hints, without `key`, which the runtime passes."""

    def __init__(self, tool: Tool) -> None:
        try:
            fields = [_field(parameter) for parameter in _signature(tool) if parameter.name != _KEY]
            self._shape = msgspec.defstruct(tool.name, fields, kw_only=True, forbid_unknown_fields=True)
            self.schema: dict[str, Json] = _inlined(msgspec.json.schema(self._shape))
        except (TypeError, ValueError, NameError) as error:
            raise ConfigError(
                f"tool {tool.name!r} cannot be described to a model: {error}",
                hint="Give its function named parameters with type hints that JSON can express.",
            ) from error

    def read(self, arguments: Mapping[str, Json]) -> dict[str, object]:
        """Convert arguments to the function's types; raise `msgspec.ValidationError` with the name of a wrong one."""
        values = msgspec.structs.asdict(msgspec.convert(dict(arguments), self._shape))
        return {name: value for name, value in values.items() if value is not msgspec.UNSET}


class RemoteParameters:
    """The parameters of a tool that a server runs and validates; its schema is sent to the model as it is."""

    def __init__(self, schema: dict[str, Json]) -> None:
        self.schema = schema

    def read(self, arguments: Mapping[str, Json]) -> dict[str, object]:
        """Return the arguments: the server validates them."""
        return dict(arguments)


def typed(tool: Tool, parameters: Parameters) -> Tool:
    """Wrap a tool so that its function receives its own types for JSON arguments and returns JSON."""

    def arguments(named: dict[str, object]) -> dict[str, object]:
        key = {_KEY: named.pop(_KEY)} if _KEY in named else {}
        return parameters.read(named) | key

    @functools.wraps(tool.function)
    def call(**named: object) -> object:
        return msgspec.to_builtins(tool.function(**arguments(named)), str_keys=True)

    @functools.wraps(tool.function)
    async def call_async(**named: object) -> object:
        return msgspec.to_builtins(await tool.function(**arguments(named)), str_keys=True)

    return msgspec.structs.replace(tool, function=call_async if inspect.iscoroutinefunction(tool.function) else call)


def _signature(tool: Tool) -> list[inspect.Parameter]:
    parameters = list(inspect.signature(tool.function, eval_str=True).parameters.values())
    for parameter in parameters:
        if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            raise TypeError(f"parameter {parameter} cannot be given by name")
    return parameters


def _field(parameter: inspect.Parameter) -> tuple[str, Any] | tuple[str, Any, Any]:  # Any: types and their defaults
    """Return a struct field for the parameter. The schema has simple defaults; others are applied by the function."""
    hint = Any if parameter.annotation is parameter.empty else parameter.annotation
    if parameter.default is parameter.empty:
        return parameter.name, hint
    if isinstance(parameter.default, _PLAIN):
        return parameter.name, hint, parameter.default
    return parameter.name, operator.or_(hint, msgspec.UnsetType), msgspec.UNSET


def _inlined(schema: dict[str, Json]) -> dict[str, Json]:
    """Return the schema of the object itself, with only the definitions that it refers to."""
    definitions = schema.pop("$defs")
    inlined = dict(definitions.pop(schema["$ref"].rpartition("/")[2]))
    del inlined["title"]
    return inlined | ({"$defs": definitions} if definitions else {})
