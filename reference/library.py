"""The reference of the library: its public names, and the methods of its main classes."""

import inspect
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import get_args, get_type_hints, is_typeddict

import msgspec

import backstay
from backstay import agents, commands, events, testing
from backstay.runtime.session_handle import Session
from backstay.runtime.turn_handle import Turn
from backstay.server.http.docstrings import parse
from backstay.store import Store
from reference.markdown import code, description, type_name, whole

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
# Other methods of these serve the runtime or the server of a model.
SHOWN: dict[type, set[str]] = {
    agents.AcpAgent: set(),
    agents.ProviderBackoff: set(),
    backstay.Pool: {"statistics", "trim", "expire"},
    testing.ModelHold: {"reached", "wait", "release"},
    testing.ScriptedModel: {"openai_url", "anthropic_url", "gemini_url", "requests", "answers_left"},
}
# Longer unions first: one may contain another.
ALIASES: dict[object, str] = {
    agents.AgentLike: "AgentLike",
    testing.ModelAnswer: "ModelAnswer",
    backstay.Content: "Content",
    backstay.Body: "Body",
    backstay.Part: "Part",
    backstay.FileSource: "FileSource",
    backstay.Outcome: "Outcome",
    backstay.MessageLike: "MessageLike",
    backstay.AppLike: "AppLike",
    backstay.SessionLike: "SessionLike",
    backstay.TurnLike: "TurnLike",
    backstay.IfBusy: "IfBusy",
    events.EventBody: "EventBody",
}
OTHERS = "Programs find these values in results and fields, and never make them."
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
        "## Other values",
        OTHERS,
        *_others(),
    )


def _names(module: ModuleType) -> Iterator[str]:
    exported = [*module.__all__, *(["open"] if module is backstay else [])]
    for name in sorted(exported, key=str.lower):
        thing = getattr(module, name)
        if inspect.isfunction(thing):
            yield _function(name, thing)
            continue
        yield f"**{code(name)}**  \n{_described(thing)}"
        if inspect.isclass(thing) and thing not in ELSEWHERE:
            yield from _members(thing)


def _others() -> Iterator[str]:
    """The values in fields and results that programs read and never make."""
    for kind in sorted(_reachable(), key=lambda kind: kind.__name__):
        yield f"**{code(kind.__name__)}**  \n{_described(kind)}"


def _reachable() -> set[type]:
    """The values that public methods and fields lead to and that are not exported."""
    public = [getattr(module, name) for module in (backstay, agents, commands, events) for name in module.__all__]
    exported = {thing for thing in public if inspect.isclass(thing)}
    found: set[type] = set()
    waiting: list[object] = [
        annotation
        for kind in (backstay.App, Session, Turn, Store, agents.AgentTurn)
        for name, function in inspect.getmembers(kind, inspect.isfunction)
        if not name.startswith("_")
        for annotation in _annotations(function)
    ]
    waiting += exported
    while waiting:
        kind = waiting.pop()
        waiting += get_args(kind)
        if inspect.isclass(kind) and issubclass(kind, msgspec.Struct) and kind not in found:
            found.add(kind)
            waiting += [field.type for field in msgspec.structs.fields(kind)]
    return found - exported


def _annotations(function: Callable[..., object]) -> list[object]:
    signature = inspect.signature(function)
    return [signature.return_annotation, *(parameter.annotation for parameter in signature.parameters.values())]


def _described(thing: object) -> str:
    """The docstring, with the types of the fields of a value; that of a union is its members."""
    if (members := get_args(thing)) and not inspect.isclass(thing):
        shown = [repr(member) if isinstance(member, str) else _type(member) for member in members]
        return f"One of {', '.join(map(code, shown))}."
    types = _field_types(thing) if inspect.isclass(thing) else {}
    doc = inspect.getdoc(thing)
    described = {name for section in parse(doc).sections for name in section.entries}
    is_value = inspect.isclass(thing) and issubclass(thing, msgspec.Struct)
    further = [f"{code(name)} ({code(kind)})" for name, kind in types.items() if is_value and name not in described]
    return "\n\n".join([description(doc, types), *([f"*Further fields*: {', '.join(further)}."] if further else [])])


def _field_types(kind: type) -> dict[str, str]:
    """The types of the fields of a value, or of the parameters with which an object of another class is made."""
    if issubclass(kind, msgspec.Struct):
        return {field.name: _type(field.type) for field in msgspec.structs.fields(kind)}
    if issubclass(kind, BaseException) or kind in ELSEWHERE:
        return {}
    if is_typeddict(kind):
        return {name: _type(annotation) for name, annotation in kind.__annotations__.items()}
    return {parameter.name: _type(parameter.annotation) for parameter in inspect.signature(kind).parameters.values()}


def _members(kind: type) -> Iterator[str]:
    """The public properties and methods of a class that a program makes or receives."""
    for name, member in vars(kind).items():
        function = member.__func__ if isinstance(member, classmethod | staticmethod) else member
        if name.startswith("_") or not inspect.getdoc(function) or name not in SHOWN.get(kind, name):
            continue
        if isinstance(function, property):
            yield _property(f"{kind.__name__}.{name}", function)
        elif inspect.isfunction(function):
            waited = "await " if inspect.iscoroutinefunction(function) else ""
            yield _function(f"{waited}{kind.__name__}.{name}", function, bound=isinstance(member, classmethod))


def _verbs(kind: type) -> Iterator[str]:
    members = {name: member for base in reversed(kind.__mro__[:-1]) for name, member in vars(base).items()}
    for name, member in members.items():
        if name.startswith("_"):
            continue
        if isinstance(member, property):
            yield _property(name, member)
        elif inspect.isfunction(member):
            yield _function(name, member)


def _property(name: str, member: property) -> str:
    kind = get_type_hints(member.fget).get("return") if member.fget else None
    return f"**{code(name)}** ({code(_type(kind))})  \n{description(member.__doc__)}"


def _function(name: str, function: Callable[..., object], *, bound: bool = False) -> str:
    signature = inspect.signature(function)
    types = {parameter.name: _type(parameter.annotation) for parameter in signature.parameters.values()}
    returned = _type(signature.return_annotation)
    arrow = "" if returned == "None" else f" → {code(returned)}"
    return f"**{code(name + _signature(function, bound=bound))}**{arrow}  \n{description(function.__doc__, types)}"


def _signature(function: Callable[..., object], *, bound: bool = False) -> str:
    """The parameters as they are written in a call: names and defaults. Their types are in the list below it."""
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


def _type(kind: object) -> str:
    return type_name(kind, ALIASES)


def _default(value: object) -> str:
    if value is inspect.Parameter.empty:
        return ""
    return f"={value!r}" if isinstance(value, str | int | float | bool | tuple | None) else "=…"
