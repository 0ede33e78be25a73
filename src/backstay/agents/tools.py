"""Tools: functions an agent may call, and what is known about running them twice."""

import inspect
from collections.abc import Callable
from typing import Any, overload

import msgspec

from backstay.errors import BackstayError


class ToolFailed(BackstayError):
    """A tool raised; the agent may read why and go on."""


class MayHaveRun(BackstayError):
    """A tool call was interrupted before its result was known, and the tool does not say that it can be repeated."""

    hint = "Ask the person, or look at what the tool would have changed."


Function = Callable[..., Any]  # Any: tools take and return whatever JSON they like


class Tool(msgspec.Struct, frozen=True, kw_only=True):
    """A function that an agent may call.

    An `idempotent` tool may be run again with the same key. A tool that asks for `approval` runs only after a person
    has agreed to these arguments. If the function has a parameter `key`, it is handed the call's key.
    """

    name: str
    function: Function
    description: str = ""
    idempotent: bool = False
    approval: bool = False

    @property
    def takes_key(self) -> bool:
        return "key" in inspect.signature(self.function).parameters


@overload
def tool(function: Function, /) -> Tool: ...


@overload
def tool(
    *, name: str | None = None, description: str | None = None, idempotent: bool = False, approval: bool = False
) -> Callable[[Function], Tool]: ...


def tool(
    function: Function | None = None,
    /,
    *,
    name: str | None = None,
    description: str | None = None,
    idempotent: bool = False,
    approval: bool = False,
) -> Tool | Callable[[Function], Tool]:
    """Make a tool of a function: as a decorator, with or without arguments."""

    def made(function: Function) -> Tool:
        return Tool(
            name=name or function.__name__,
            function=function,
            description=inspect.cleandoc(function.__doc__ or "") if description is None else description,
            idempotent=idempotent,
            approval=approval,
        )

    return made if function is None else made(function)
