"""Clients of OpenAI's API, unmodified, in Python and Node: each program talks, uses tools and comes back."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.clients.client_programs import HERE, PYTHON, DirectedAgent, run_program
from tests.server.agents import AGENTS
from tests.server.running_server import RunningServer, run_server

PROGRAMS: dict[str, tuple[str | Path, Path]] = {
    "openai (Python)": (PYTHON, HERE / "python" / "openai_client.py"),
    "langchain (Python)": (PYTHON, HERE / "python" / "langchain_client.py"),
    "litellm": (PYTHON, HERE / "python" / "litellm_client.py"),
    "llm": (PYTHON, HERE / "python" / "llm_client.py"),
    "instructor": (PYTHON, HERE / "python" / "instructor_client.py"),
    "agents sdk": (PYTHON, HERE / "python" / "agents_sdk.py"),
    "openai (Node)": ("node", HERE / "node" / "openai.mjs"),
    "langchain (Node)": ("node", HERE / "node" / "langchain.mjs"),
    "ai sdk": ("node", HERE / "node" / "ai_sdk.mjs"),
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    agents = AGENTS | {"directed": DirectedAgent()}  # type: ignore[operator]  # a Mapping that is a dict
    with run_server(tmp_path_factory.mktemp("clients") / "store.db", agents) as server:
        yield server


@pytest.mark.parametrize("name", PROGRAMS)
def test_an_unmodified_client_talks_uses_tools_and_comes_back(name: str, server: RunningServer, tmp_path: Path) -> None:
    run_program([*PROGRAMS[name]], tmp_path, server.for_somebody_new())


def test_a_stateless_client_leaves_no_session(server: RunningServer, tmp_path: Path) -> None:
    fresh = server.for_somebody_new()
    program = """
from openai import OpenAI
ai = OpenAI(max_retries=0)
for _ in range(5):
    ai.chat.completions.create(model="default", messages=[{"role": "user", "content": "x"}], store=False)
    ai.responses.create(model="default", input="x", store=False)
"""
    run_program([PYTHON, "-c", program], tmp_path, fresh)

    with fresh.client() as client:
        assert client.get("/api/sessions").json()["sessions"] == []
