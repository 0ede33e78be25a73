"""Signatures of functions with keyword options that are declared once, as a `TypedDict`, for all of them."""

import inspect
from collections.abc import Callable, Mapping
from typing import Any, TypeVar, get_args

F = TypeVar("F", bound=Callable[..., Any])  # Any: the signature of the decorated function is kept


def with_options(defaults: Mapping[str, object]) -> Callable[[F], F]:
    """Show each option of a function with `**options: Unpack[…]` in its signature, with its default.

    Type checkers read the annotation by themselves; `help`, editors at run time and the reference read the signature.
    """

    def decorate(function: F) -> F:
        signature = inspect.signature(function)
        *parameters, options = signature.parameters.values()
        types = get_args(options.annotation)[0].__annotations__
        parameters += [
            inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=defaults[name], annotation=types[name])
            for name in types
        ]
        function.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]  # read by `inspect`
        return function

    return decorate
