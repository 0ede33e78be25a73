"""The reference of the library: its public names, and the methods of its main classes."""

import inspect
from collections.abc import Callable, Iterator
from types import ModuleType

import backstay
from backstay import agents, testing
from backstay.runtime.session_handle import Session
from backstay.runtime.turn_handle import Turn
from backstay.store import Store
from reference.markdown import code, description, whole

INTRODUCTION = """\
Everything that a program needs is in `backstay`; the [glossary](../glossary.md) defines the terms. The app of
`backstay.open_blocking` has the same methods as that of `backstay.open`, without `await`. The client of
`backstay.connect` has them too, except those that concern the process of an app."""


def page() -> str:
    """The page."""
    return whole(
        "The library",
        INTRODUCTION,
        "## backstay",
        *_names(backstay),
        "## backstay.agents",
        *_names(agents),
        "## backstay.testing",
        *_names(testing),
        "## An app: `async with backstay.open(…) as app`",
        *_verbs(backstay.App),
        "## A session: `await app.session(…)`",
        *_verbs(Session),
        "## A turn: `await session.send(…)`",
        *_verbs(Turn),
        "## A store: `with backstay.open_store(…) as store`",
        *_verbs(Store),
    )


def _names(module: ModuleType) -> Iterator[str]:
    exported = [*module.__all__, *(["open"] if module is backstay else [])]
    for name in sorted(exported, key=str.lower):
        thing = getattr(module, name)
        shown = f"{name}{_signature(thing)}" if inspect.isfunction(thing) else name
        yield f"**{code(shown)}**  \n{description(inspect.getdoc(thing))}"


def _verbs(kind: type) -> Iterator[str]:
    members = {name: member for base in reversed(kind.__mro__[:-1]) for name, member in vars(base).items()}
    for name, member in members.items():
        if name.startswith("_"):
            continue
        if isinstance(member, property):
            yield f"**{code(name)}**  \n{description(member.__doc__)}"
        elif inspect.isfunction(member):
            yield f"**{code(name + _signature(member))}**  \n{description(member.__doc__)}"


def _signature(function: Callable[..., object]) -> str:
    """The parameters as they are written in a call: names and defaults, without types."""
    shown = []
    star = False
    for parameter in inspect.signature(function).parameters.values():
        if parameter.name == "self":
            continue
        if parameter.kind is parameter.KEYWORD_ONLY and not star:
            star = True
            shown.append("*")
        shown.append(parameter.name + _default(parameter.default))
    return f"({', '.join(shown)})"


def _default(value: object) -> str:
    if value is inspect.Parameter.empty:
        return ""
    return f"={value!r}" if isinstance(value, str | int | float | bool | tuple | None) else "=…"
