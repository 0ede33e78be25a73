"""The docstrings of the public methods name each parameter, and only errors that exist."""

import inspect
import re
from collections.abc import Callable, Iterator

import pytest

import backstay
from backstay import errors
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


FUNCTIONS = dict(functions())
SECTION = re.compile(r"^(Args|Returns|Yields|Raises):\n((?:    .*\n|\n)*)", re.MULTILINE)
ENTRY = re.compile(r"^    (\w+): \S", re.MULTILINE)


def sections(function: Function) -> dict[str, str]:
    return dict(SECTION.findall((inspect.getdoc(function) or "") + "\n"))


@pytest.mark.parametrize("name", FUNCTIONS)
def test_each_public_parameter_is_described(name: str) -> None:
    described = ENTRY.findall(sections(FUNCTIONS[name]).get("Args", ""))
    assert described == [one for one in inspect.signature(FUNCTIONS[name]).parameters if one != "self"]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_each_error_under_raises_is_one_of_ours(name: str) -> None:
    for error in ENTRY.findall(sections(FUNCTIONS[name]).get("Raises", "")):
        assert issubclass(getattr(errors, error), errors.BackstayError)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_docstring_begins_with_one_sentence_on_a_line(name: str) -> None:
    first = (inspect.getdoc(FUNCTIONS[name]) or "").partition("\n")[0]
    assert first.endswith(".")
