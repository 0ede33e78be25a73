"""A type checker accepts a client's method wherever it accepts the method of an app."""

import inspect
import os
from pathlib import Path

import pytest

from backstay.client.client import Client
from backstay.client.session_client import SessionClient
from backstay.client.turn_client import TurnClient

# The oldest supported dependencies are tried without a type checker.
api = pytest.importorskip("mypy.api")

SOURCES = Path(__file__).parents[2] / "src"
HEAD = """\
from collections.abc import Callable
from typing import Generic, ParamSpec

import backstay
from backstay import App, BlockingApp, BlockingClient, BlockingSession, BlockingTurn, Client, Session, Turn
from backstay.client.blocking_client import BlockingSessionClient, BlockingTurnClient
from backstay.client.session_client import SessionClient
from backstay.client.turn_client import TurnClient

P = ParamSpec("P")


class Parameters(Generic[P]):
    def __init__(self, function: Callable[P, object]) -> None: ...

    def accepts(self, other: Callable[P, object]) -> None: ...


"""
PAIRS = {
    ("App", "Client"): Client,
    ("BlockingApp", "BlockingClient"): Client,
    ("Session", "SessionClient"): SessionClient,
    ("BlockingSession", "BlockingSessionClient"): SessionClient,
    ("Turn", "TurnClient"): TurnClient,
    ("BlockingTurn", "BlockingTurnClient"): TurnClient,
}
# They return a handle, whose type differs: only their parameters are compared.
HANDLES = {"edit", "fork", "handle", "resume", "retry", "send", "session", "steer", "turn"}
ASYNC_ONLY = {"close", "run", "stream"}
# Made without waiting, so a blocking app has none.
ASYNC_APPS_ONLY = {"handle"}
# A program that works with both kinds of handles, async and blocking, and with the part of an app of one owner.
USES = """
async def ask(app: backstay.AppLike, text: str) -> str:
    session: backstay.SessionLike = await app.session()
    turn: backstay.TurnLike = await session.send(text, request_id="one")
    async for event in turn.events():
        print(event.number)
    await (await session.fork()).rename("a copy")
    await turn.approve((await turn.calls())[0].call)
    return (await session.messages())[-1].text


def ask_and_wait(app: backstay.BlockingAppLike, text: str) -> str:
    session: backstay.BlockingSessionLike = app.session()
    turn: backstay.BlockingTurnLike = session.send(text)
    return str(turn.outcome()) + session.messages()[-1].text


async def everywhere(app: App, client: Client, one: BlockingApp, other: BlockingClient) -> None:
    await ask(app, "hi")
    await ask(app.owned_by("alice"), "hi")
    await ask(client, "hi")
    ask_and_wait(one, "hi")
    ask_and_wait(other, "hi")
"""
# What only one of the two can do, and a difference between two methods, are errors.
MISUSES = {
    "a method of a process": ("async def f(app: backstay.AppLike) -> None:\n    await app.load()", "union-attr"),
    "an unknown argument": (
        "async def f(session: backstay.SessionLike) -> None:\n    await session.send('hi', agnt='x')",
        "call-arg",
    ),
    "another parameter": (
        "def one(a: int) -> None: ...\ndef other(a: str) -> None: ...\nParameters(one).accepts(other)",
        "arg-type",
    ),
}


def method_names(local: str, kind: type) -> list[str]:
    """The public methods that both classes of a pair have."""
    names = [name for name, one in inspect.getmembers(kind, inspect.isfunction) if not name.startswith("_")]
    left_out = ASYNC_ONLY | (ASYNC_APPS_ONLY if local.startswith("Blocking") else set())
    return [name for name in names if name not in left_out]


def comparison(local: str, remote: str, name: str) -> str:
    """A function that is well typed if both methods have one type, or one list of parameters if they return handles."""
    returns_handle = name in HANDLES and (local.removeprefix("Blocking"), name) != ("Turn", "edit")
    both = [f"Parameters(one.{name}).accepts(other.{name})", f"Parameters(other.{name}).accepts(one.{name})"]
    lines = both if returns_handle else [f"method = one.{name}", f"method = other.{name}"]
    return f"def {local}_{name}(one: {local}, other: {remote}) -> None:\n" + "".join(f"    {line}\n" for line in lines)


def comparisons() -> str:
    """A program that compares all methods and uses both kinds of handles."""
    pairs = [comparison(*pair, name) for pair, kind in PAIRS.items() for name in method_names(pair[0], kind)]
    return HEAD + "".join(pairs) + USES


@pytest.fixture(scope="module")
def errors(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    """The errors of mypy in each program; one run for both, which reads the sources once."""
    folder = tmp_path_factory.mktemp("typing")
    misuses = HEAD + "\n\n".join(misuse for misuse, _ in MISUSES.values()).replace("f(", "g(", 1)
    programs = {"same.py": comparisons(), "different.py": misuses}
    for name, program in programs.items():
        (folder / name).write_text(program)
    (folder / "mypy.ini").write_text(f"[mypy]\nstrict = true\nmypy_path = {SOURCES}\n")
    files = [str(folder / name) for name in programs]
    out, err, _ = api.run([f"--config-file={folder / 'mypy.ini'}", f"--cache-dir={os.devnull}", *files])
    assert not err
    return {name: [line for line in out.splitlines() if f"{name}:" in line] for name in programs}


def test_the_methods_of_a_client_have_the_types_of_an_app(errors: dict[str, list[str]]) -> None:
    assert errors["same.py"] == []


def test_a_difference_between_an_app_and_a_client_is_a_type_error(errors: dict[str, list[str]]) -> None:
    found = "\n".join(errors["different.py"])
    assert [code for _, code in MISUSES.values() if f"[{code}]" not in found] == []
