"""Local, remote, async and blocking handles have the same methods and the same parameters."""

import inspect
from collections.abc import Iterable

import pytest

import backstay
from backstay.client.blocking_client import BlockingClient, BlockingSessionClient, BlockingTurnClient
from backstay.client.client import Client, connect
from backstay.client.session_client import SessionClient
from backstay.client.turn_client import TurnClient
from backstay.runtime.app import App
from backstay.runtime.session_handle import Session
from backstay.runtime.turn_handle import Turn

REMOTE: list[tuple[type, type]] = [(App, Client), (Session, SessionClient), (Turn, TurnClient)]
BLOCKING: list[tuple[type, type]] = [
    (Client, BlockingClient),
    (SessionClient, BlockingSessionClient),
    (TurnClient, BlockingTurnClient),
]
# For the process that runs agents, and for servers that serve many owners.
OF_A_PROCESS: dict[type, set[str]] = {
    App: {
        "abandoned",
        "holder",
        "host",
        "limits",
        "load",
        "observe_with",
        "owned_by",
        "pool",
        "redeem",
        "run",
        "run_for_all",
        "start_background",
        "subscribe",
        "run_upkeep",
    }
}
OF_A_CLIENT: dict[type, set[str]] = {Client: {"run", "stream", "url"}}
# What `with` does, and a handle that is made without waiting.
ASYNC_ONLY: dict[type, set[str]] = {Client: {"close"}}


def public(kind: type) -> dict[str, object]:
    return {name: member for name, member in inspect.getmembers(kind) if not name.startswith("_")}


def methods(kind: type) -> Iterable[str]:
    return [name for name, member in public(kind).items() if inspect.isfunction(member)]


@pytest.mark.parametrize(("local", "remote"), REMOTE)
def test_a_client_has_every_method_of_an_app(local: type, remote: type) -> None:
    assert set(public(local)) - OF_A_PROCESS.get(local, set()) == set(public(remote)) - OF_A_CLIENT.get(remote, set())


@pytest.mark.parametrize(("local", "remote"), REMOTE)
def test_the_methods_of_a_client_have_the_parameters_of_an_app(local: type, remote: type) -> None:
    for name in set(methods(remote)) - OF_A_CLIENT.get(remote, set()):
        one, other = inspect.signature(getattr(local, name)), inspect.signature(getattr(remote, name))
        assert one.parameters == other.parameters, name


@pytest.mark.parametrize(("waited", "blocking"), BLOCKING)
def test_a_blocking_client_has_the_methods_of_an_async_one(waited: type, blocking: type) -> None:
    assert set(public(waited)) - ASYNC_ONLY.get(waited, set()) == set(public(blocking))
    for name in methods(blocking):
        one, other = getattr(waited, name), getattr(blocking, name)
        assert inspect.signature(one).parameters == inspect.signature(other).parameters, name


def test_a_blocking_client_is_connected_with_the_parameters_of_an_async_one() -> None:
    assert inspect.signature(connect).parameters == inspect.signature(backstay.connect_blocking).parameters
