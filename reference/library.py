"""The library: its names, and the verbs of what they give."""

import inspect
from collections.abc import Callable, Iterator

import backstay
from backstay.runtime.session import SessionHandle
from backstay.runtime.turn import TurnHandle
from backstay.store.port import Store
from reference.markdown import code, sentence, whole

INTRODUCTION = """\
Everything a program needs is in `backstay`; the words are in the [glossary](../glossary.md). `backstay.open_blocking`
gives the same verbs as `backstay.open`, without `await`."""


def page() -> str:
    """The page."""
    return whole(
        "The library",
        INTRODUCTION,
        "## backstay",
        *_names(),
        "## An app: `async with backstay.open(…) as app`",
        *_verbs(backstay.App),
        "## A session: `await app.session(…)`",
        *_verbs(SessionHandle),
        "## A turn: `await session.send(…)`",
        *_verbs(TurnHandle),
        "## A store: `with backstay.open_store(…) as store`",
        *_verbs(Store),
    )


def _names() -> Iterator[str]:
    for name in sorted(backstay.__all__, key=str.lower):
        thing = getattr(backstay, name)
        shown = f"{name}{_signature(thing)}" if inspect.isfunction(thing) else name
        yield f"**{code(shown)}**  \n{sentence(inspect.getdoc(thing))}"


def _verbs(kind: type) -> Iterator[str]:
    for name, member in vars(kind).items():
        if name.startswith("_"):
            continue
        if isinstance(member, property):
            yield f"**{code(name)}**  \n{sentence(member.__doc__)}"
        elif inspect.isfunction(member):
            yield f"**{code(name + _signature(member))}**  \n{sentence(member.__doc__)}"


def _signature(function: Callable[..., object]) -> str:
    """The parameters, as somebody types them: names and defaults, no types."""
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
