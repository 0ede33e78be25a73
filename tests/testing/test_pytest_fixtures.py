"""The fixtures work in a test suite that names them, with plain tests and with the plugin of anyio."""

import os
import subprocess
import sys
from pathlib import Path

CONFTEST = 'pytest_plugins = ["backstay.testing.pytest_fixtures"]\n'
AGENTS = """
from backstay import Text


async def echo(turn):
    yield Text(f"heard {turn.input.text}")
"""
TESTS = """
import backstay
import pytest

from backstay import Completed
from backstay.agents import OpenAICompatible
from backstay.testing import finish_turn, run_turn
from echoing import echo


@pytest.fixture
def anyio_backend():
    return "asyncio"


@pytest.mark.anyio
async def test_a_model_and_a_clock(scripted_model, manual_clock):
    model = scripted_model("Hello.")
    run = await run_turn(OpenAICompatible(model.openai_url, "tiny"), "hi", clock=manual_clock)
    assert (run.text, run.info.created_at) == ("Hello.", manual_clock.now())


@pytest.mark.anyio
async def test_a_process(agent_process, store_path):
    agent_process(echo)
    async with backstay.open(store_path) as app:
        session = await app.session()
        assert (await finish_turn(session, await session.send("hi"))).text == "heard hi"


def test_without_a_loop(agent_process, store_path):
    agent_process("echoing:echo")
    with backstay.open_blocking(store_path) as app:
        assert app.session().send("hi").outcome() == Completed()
"""


def test_a_suite_that_names_the_fixtures_can_use_them(tmp_path: Path) -> None:
    for name, text in {"conftest.py": CONFTEST, "echoing.py": AGENTS, "test_echo.py": TESTS}.items():
        (tmp_path / name).write_text(text)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}

    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-W", "error", "-p", "no:cacheprovider", "-p", "no:schemathesis", "."],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )

    assert "3 passed" in done.stdout, done.stdout + done.stderr


def test_the_harness_does_not_import_pytest() -> None:
    program = "import sys, backstay.testing; sys.exit('pytest' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
