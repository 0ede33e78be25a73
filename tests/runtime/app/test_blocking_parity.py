"""The two skins of the library, async and blocking, offer the same methods."""

import inspect
from collections.abc import Iterable
from typing import get_args, get_origin

import pytest

import backstay
from backstay.runtime.app import App, open_app
from backstay.runtime.blocking import BlockingApp, BlockingSession, BlockingTurn
from backstay.runtime.session_handle import Session
from backstay.runtime.turn_handle import Turn
from backstay.store import Store, commands
from backstay.store.commands import Read, Write

PAIRS = [(App, BlockingApp), (Session, BlockingSession), (Turn, BlockingTurn)]
# For servers, which are async; and what `with` does for a script.
ASYNC_ONLY: dict[type, set[str]] = {
    App: {
        "close",
        "handle",
        "holder",
        "observe_with",
        "owned_by",
        "redeem",
        "run",
        "run_for_all",
        "start_background",
        "subscribe",
    },
}


def public(kind: type) -> dict[str, object]:
    return {name: member for name, member in inspect.getmembers(kind) if not name.startswith("_")}


def methods(kind: type) -> Iterable[str]:
    return [name for name, member in public(kind).items() if inspect.isfunction(member)]


@pytest.mark.parametrize(("kind", "blocking"), PAIRS)
def test_both_skins_have_the_same_public_members(kind: type, blocking: type) -> None:
    assert set(public(kind)) - ASYNC_ONLY.get(kind, set()) == set(public(blocking))


@pytest.mark.parametrize(("kind", "blocking"), PAIRS)
def test_both_skins_have_the_same_parameters_and_docstrings(kind: type, blocking: type) -> None:
    for name in methods(blocking):
        one, other = getattr(kind, name), getattr(blocking, name)
        assert inspect.signature(one).parameters == inspect.signature(other).parameters, name
        assert (one.__name__, one.__doc__) == (other.__name__, other.__doc__)


def test_a_blocking_app_is_opened_with_the_parameters_of_an_async_one() -> None:
    opened, blocking = inspect.signature(open_app), inspect.signature(backstay.open_blocking)
    assert opened.parameters == blocking.parameters
    assert blocking.return_annotation is BlockingApp


def verbs() -> Iterable[str]:
    return [name for name in commands.__all__ if inspect.isfunction(getattr(commands, name))]


@pytest.mark.parametrize("verb", verbs())
def test_the_store_has_each_command_as_a_method(verb: str) -> None:
    command = getattr(commands, verb)
    method = getattr(Store, {"list_sessions": "list"}.get(verb, verb))
    one, other = inspect.signature(command), inspect.signature(method)
    assert list(one.parameters.values()) == list(other.parameters.values())[1:]
    assert command.__doc__ == method.__doc__
    assert get_origin(one.return_annotation) in (Write, Read)
    assert get_args(one.return_annotation) == (other.return_annotation,)
