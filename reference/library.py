"""The reference of the library: its public names, and the methods of its main classes."""

import inspect
from collections.abc import Callable, Iterator
from types import ModuleType, UnionType
from typing import Annotated, Literal, Union, get_args, get_origin

import msgspec

import backstay
from backstay import agents, testing
from backstay.runtime.session_handle import Session
from backstay.runtime.turn_handle import Turn
from backstay.store import Store
from reference.markdown import code, description, whole

# Their methods have sections of their own, or are those of another class.
ELSEWHERE = {
    backstay.App,
    backstay.BlockingApp,
    backstay.BlockingClient,
    backstay.BlockingSession,
    backstay.BlockingTurn,
    backstay.Client,
    backstay.OwnerSessions,
    backstay.Session,
    backstay.Store,
    backstay.Turn,
}
INTRODUCTION = """\
Everything that a program needs is in `backstay`; the [glossary](../glossary.md) defines the terms. The app of
`backstay.open_blocking` has the same methods as that of `backstay.open`, without `await`. The client of
`backstay.connect` has them too, except those that concern the process of an app. Functions that take either are typed
with `AppLike`, `SessionLike` and `TurnLike`, or their blocking forms."""


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
        yield f"**{code(shown)}**  \n{_described(thing)}"
        if inspect.isclass(thing) and thing not in ELSEWHERE:
            yield from _members(thing)


def _described(thing: object) -> str:
    """The docstring, with the types of the fields of a value; that of a union is its members."""
    if (members := get_args(thing)) and not inspect.isclass(thing):
        return f"One of {', '.join(_type(member) for member in members)}."
    fields = msgspec.structs.fields(thing) if isinstance(thing, type) and issubclass(thing, msgspec.Struct) else ()
    return description(inspect.getdoc(thing), {field.name: _type(field.type) for field in fields})


def _members(kind: type) -> Iterator[str]:
    """The public properties and methods of a class that a program makes or receives."""
    for name, member in vars(kind).items():
        of_the_class = isinstance(member, classmethod | staticmethod)
        function = member.__func__ if isinstance(member, classmethod | staticmethod) else member
        if name.startswith("_") or not inspect.getdoc(function):
            continue
        if isinstance(function, property):
            yield f"**{code(f'{kind.__name__}.{name}')}**  \n{description(function.__doc__)}"
        elif inspect.isfunction(function):
            shown = _signature(function, bound=isinstance(member, classmethod))
            waited = "await " if inspect.iscoroutinefunction(function) and not of_the_class else ""
            yield f"**{code(f'{waited}{kind.__name__}.{name}{shown}')}**  \n{description(function.__doc__)}"


def _type(kind: object) -> str:
    """A type as it is written, without its modules."""
    if kind is type(None):
        return "None"
    if isinstance(kind, type) and not get_args(kind):
        return kind.__name__
    if origin := get_origin(kind):
        if origin is Callable:
            return "Callable"
        parts = [_type(part) for part in get_args(kind) if part is not ...]
        if origin in (Union, UnionType):
            return " | ".join(parts)
        if origin is Annotated:
            return parts[0]
        if origin is Literal:
            return " | ".join(map(repr, get_args(kind)))
        ends = ", ..." if ... in get_args(kind) else ""
        return f"{getattr(origin, '__name__', origin)}[{', '.join(parts)}{ends}]"
    return str(kind).rpartition(".")[2]


def _verbs(kind: type) -> Iterator[str]:
    members = {name: member for base in reversed(kind.__mro__[:-1]) for name, member in vars(base).items()}
    for name, member in members.items():
        if name.startswith("_"):
            continue
        if isinstance(member, property):
            yield f"**{code(name)}**  \n{description(member.__doc__)}"
        elif inspect.isfunction(member):
            yield f"**{code(name + _signature(member))}**  \n{description(member.__doc__)}"


def _signature(function: Callable[..., object], *, bound: bool = False) -> str:
    """The parameters as they are written in a call: names and defaults, without types."""
    shown = []
    star = False
    for parameter in [*inspect.signature(function).parameters.values()][bound:]:
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
