"""The docstrings of public functions, methods and classes name each parameter, and only errors that exist."""

import inspect
import re
from collections.abc import Callable, Iterator

import pytest

import backstay
from backstay import agents, errors, events, testing
from backstay.runtime.app import App, open_app
from backstay.runtime.owner_sessions import OwnerSessions
from backstay.runtime.session_handle import Session
from backstay.runtime.turn_handle import Turn
from backstay.store import Store, commands

Function = Callable[..., object]


def functions() -> Iterator[tuple[str, Function]]:
    yield "open", open_app
    yield "open_blocking", backstay.open_blocking
    yield "open_store", backstay.open_store
    for name in commands.__all__:
        if inspect.isfunction(found := getattr(commands, name)):
            yield f"commands.{name}", found
    for kind in (App, OwnerSessions, Session, Turn, Store):
        for name, member in vars(kind).items():
            if inspect.isfunction(member) and not name.startswith("_"):
                yield f"{kind.__name__}.{name}", member


# Programs only receive these. Their methods are in `FUNCTIONS`, or those of a client refer to them.
APP = {"App", "BlockingApp", "BlockingSession", "BlockingTurn", "OwnerSessions", "Pool", "Session", "Store", "Turn"}
HANDLES = APP | {"BlockingClient", "Client"}


def classes() -> Iterator[tuple[str, type]]:
    for module in (backstay, agents, commands, events, testing):
        for name in module.__all__:
            if inspect.isclass(kind := getattr(module, name)):
                yield name, kind


def parameters(function: Function) -> list[str]:
    try:
        return [name for name in inspect.signature(function).parameters if name not in ("self", "args", "kwargs")]
    except ValueError:  # an exception class has no signature of its own
        return []


def described(one: Function) -> str:
    """The documentation of a class or method, and of the method to which it refers."""
    own = inspect.getdoc(one) or ""
    reference = re.search(r"see `(App|Session|Turn)\.(\w+)`", own)
    if reference is None:
        return own
    return own + (inspect.getdoc(getattr(getattr(backstay, reference[1]), reference[2])) or "")


FUNCTIONS = dict(functions())
CLASSES = dict(classes())
SECTION = re.compile(r"^(Args|Returns|Yields|Raises):\n((?:    .*\n|\n)*)", re.MULTILINE)
ENTRY = re.compile(r"^    (\w+): \S", re.MULTILINE)


def sections(function: Function) -> dict[str, str]:
    return dict(SECTION.findall((inspect.getdoc(function) or "") + "\n"))


@pytest.mark.parametrize("name", FUNCTIONS)
def test_each_public_parameter_is_described(name: str) -> None:
    described = ENTRY.findall(sections(FUNCTIONS[name]).get("Args", ""))
    assert described == [one for one in inspect.signature(FUNCTIONS[name]).parameters if one != "self"]


@pytest.mark.parametrize("name", sorted(CLASSES.keys() - HANDLES))
def test_each_field_and_parameter_of_a_public_class_is_mentioned(name: str) -> None:
    documented: list[Function] = [CLASSES[name]]
    documented += [one for key, one in vars(CLASSES[name]).items() if inspect.isfunction(one) and key[0] != "_"]
    for one in documented:
        words = set(re.findall(r"\w+", described(one)))
        assert not set(parameters(one)) - words, one


@pytest.mark.parametrize("name", FUNCTIONS)
def test_each_error_under_raises_exists(name: str) -> None:
    for error in ENTRY.findall(sections(FUNCTIONS[name]).get("Raises", "")):
        # A method that is given a file also raises the errors of that file.
        assert error == "OSError" or issubclass(getattr(errors, error), errors.BackstayError)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_docstring_begins_with_one_sentence_on_a_line(name: str) -> None:
    first = (inspect.getdoc(FUNCTIONS[name]) or "").partition("\n")[0]
    assert first.endswith(".")
