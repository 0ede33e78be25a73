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
from backstay import App, BlockingApp, BlockingClient, BlockingSession, BlockingTurn, Client, Session, Turn
from backstay.client.blocking_client import BlockingSessionClient, BlockingTurnClient
from backstay.client.session_client import SessionClient
from backstay.client.turn_client import TurnClient

"""
PAIRS = {
    ("App", "Client"): Client,
    ("BlockingApp", "BlockingClient"): Client,
    ("Session", "SessionClient"): SessionClient,
    ("BlockingSession", "BlockingSessionClient"): SessionClient,
    ("Turn", "TurnClient"): TurnClient,
    ("BlockingTurn", "BlockingTurnClient"): TurnClient,
}
# They return a handle, whose type differs; the table of facts and the comparison of parameters cover them.
HANDLES = {"edit", "fork", "handle", "resume", "retry", "send", "session", "steer", "turn"}
ASYNC_ONLY = {"close", "run", "stream"}


def shared(pair: tuple[str, str]) -> list[str]:
    """The methods that return the same values in both classes of a pair."""
    kind = PAIRS[pair]
    names = [name for name, one in inspect.getmembers(kind, inspect.isfunction) if not name.startswith("_")]
    left_out = ASYNC_ONLY | (HANDLES - ({"edit"} if kind is TurnClient else set()))
    return [name for name in names if name not in left_out]


def program() -> str:
    text = HEAD
    for local, remote in PAIRS:
        for name in shared((local, remote)):
            text += f"def {local}_{name}(one: {local}, other: {remote}) -> None:\n"
            text += f"    method = one.{name}\n    method = other.{name}\n\n"
    return text


def test_the_methods_of_a_client_have_the_types_of_an_app(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(program())
    (tmp_path / "mypy.ini").write_text(f"[mypy]\nstrict = true\nmypy_path = {SOURCES}\n")
    out, err, _ = api.run(
        [f"--config-file={tmp_path / 'mypy.ini'}", f"--cache-dir={os.devnull}", str(tmp_path / "program.py")]
    )
    assert (err, out.startswith("Success")) == ("", True), out
