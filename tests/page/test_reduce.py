"""The page's reducer, run by Node on stories that a real server told."""

import json
from pathlib import Path

from backstay.agents.adapters import AgentLike
from backstay.agents.scripted import ScriptedAgent
from tests.page.node import needs_node, passes
from tests.page.recording import STORIES, Recording
from tests.server.agents import patient
from tests.server.house import a_house


@needs_node
def test_the_page_shows_the_same_story_whenever_it_is_opened(tmp_path: Path) -> None:
    agents: dict[str, AgentLike] = {"default": ScriptedAgent(), "patient": patient}
    with a_house(tmp_path / "chat.db", agents) as house, house.client() as client:
        stories = [told(Recording(house, client)) for told in STORIES]
    recorded = tmp_path / "recorded.json"
    recorded.write_text(json.dumps({"stories": stories}))

    passes("reduce.test.mjs", 26, BACKSTAY_RECORDED=str(recorded))
