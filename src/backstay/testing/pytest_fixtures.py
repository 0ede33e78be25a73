"""Fixtures of pytest: `pytest_plugins = ["backstay.testing.pytest_fixtures"]` in a `conftest.py` makes them available.

Only this module imports pytest.
"""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Protocol

import pytest

from backstay.agents.adapters import AgentLike
from backstay.testing.agent_process import AgentProcess
from backstay.testing.manual_clock import ManualClock
from backstay.testing.model_script import ModelAnswer
from backstay.testing.scripted_model import ScriptedModel


class OpenModel(Protocol):
    """The value of the fixture `scripted_model`."""

    def __call__(self, *answers: ModelAnswer) -> ScriptedModel:
        """Open a scripted model with these answers."""
        ...


class StartAgent(Protocol):
    """The value of the fixture `agent_process`."""

    def __call__(self, agent: str | AgentLike, **options: Any) -> AgentProcess:  # Any: those of `AgentProcess`
        """Start a process that serves the agent on the store of the test."""
        ...


@pytest.fixture
def store_path(tmp_path: Path) -> Path:
    """The path of a store that does not exist yet, in the temporary folder of the test."""
    return tmp_path / "backstay.db"


@pytest.fixture
def manual_clock() -> ManualClock:
    """A clock that stands still until the test moves it."""
    return ManualClock()


@pytest.fixture
def scripted_model() -> Iterator[OpenModel]:
    """Opens scripted models: `model = scripted_model("Hello.")`. They are closed after the test."""
    with ExitStack() as stack:
        yield lambda *answers: stack.enter_context(ScriptedModel(*answers))


@pytest.fixture
def agent_process(store_path: Path) -> Iterator[StartAgent]:
    """Starts agents in processes of their own, on `store_path`: `agent_process("mybot:agent")`."""
    with ExitStack() as stack:
        yield lambda agent, **options: stack.enter_context(AgentProcess(store_path, agent, **options))
