"""Tools: functions that an agent may call, and whether they may run twice."""

import inspect
from collections.abc import Callable
from typing import Any, overload

import msgspec

from backstay.errors import BackstayError


class ToolFailed(BackstayError):
    """A tool call failed; the agent can read the reason and continue.

    A tool raises it to give the model a message. For any other exception the model sees only its type.

    Args:
        message: The message for the model.
        hint: What to do next.
    """

    # Set by the runtime when the tool's traceback is already in the log.
    logged = False


class MayHaveRun(BackstayError):
    """An earlier call of this tool with these arguments may have run, and the tool is not declared idempotent.

    Every further equal call in this turn, and in the turns that resume it, raises this too. A tool raises it if it
    cannot know whether it had its effect: the call stays without a result.

    Args:
        message: Which call may have run.
        hint: What to do next.
    """

    hint = "Do not call it again in this turn. Ask the person, or check whether the tool took effect."


class ToolFile(msgspec.Struct, frozen=True, kw_only=True):
    """A file that a tool returns, alone or inside of its JSON. It becomes an attachment of the tool's result.

    Attributes:
        data: The bytes, or the path of a file to read.
        name: The name that readers see; None: the name of the path.
        media_type: The type of the content, such as `image/png`; None: guessed from the name.
    """

    data: bytes | str
    name: str | None = None
    media_type: str | None = None


Function = Callable[..., Any]  # Any: tools take and return any JSON


class Tool(msgspec.Struct, frozen=True, kw_only=True):
    """A function that an agent may call.

    Attributes:
        name: The name under which the model calls it.
        function: A plain or async function. If it has a parameter `key`, it receives the idempotency key of the call.
        description: What the tool does, for the model.
        idempotent: Whether it may run again with the same key.
        approval: Whether it runs only after a person has approved the call with its arguments.
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
    """Make a tool from a function. Use it as a decorator, with or without arguments.

    Args:
        function: The function, plain or async.
        name: The name for the model; by default the function's name.
        description: The description for the model; by default the function's docstring.
        idempotent: Whether the tool may run again with the same key after a crash.
        approval: Whether a person must approve each call before it runs.

    Returns:
        The tool; or, without `function`, a decorator that makes one.
    """

    def made(function: Function) -> Tool:
        return Tool(
            name=name or function.__name__,
            function=function,
            description=inspect.cleandoc(function.__doc__ or "") if description is None else description,
            idempotent=idempotent,
            approval=approval,
        )

    return made if function is None else made(function)
