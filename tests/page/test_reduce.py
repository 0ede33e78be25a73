"""The page's reducer, run by Node on stories that a real server told."""

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from backstay.agents.adapters import AgentLike
from backstay.agents.scripted import ScriptedAgent
from tests.page.recording import STORIES, Recording
from tests.server.agents import patient
from tests.server.house import a_house

NODE = shutil.which("node")
PATIENCE = 120.0


@pytest.mark.skipif(NODE is None, reason="the page's reducer is tested with Node, which is not installed here")
def test_the_page_shows_the_same_story_whenever_it_is_opened(tmp_path: Path) -> None:
    agents: dict[str, AgentLike] = {"default": ScriptedAgent(), "patient": patient}
    with a_house(tmp_path / "chat.db", agents) as house, house.client() as client:
        stories = [told(Recording(house, client)) for told in STORIES]
    recorded = tmp_path / "recorded.json"
    recorded.write_text(json.dumps({"stories": stories}))

    ran = subprocess.run(
        [str(NODE), "--test", "--test-reporter=spec", str(Path(__file__).with_name("reduce.test.mjs"))],
        env=os.environ | {"BACKSTAY_RECORDED": str(recorded)},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )

    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "pass 26" in ran.stdout
