"""The page's reducer, run by Node on stories that a real server told."""

import json
from pathlib import Path

from backstay.agents.adapters import AgentLike
from backstay.agents.scripted.scripted_agent import ScriptedAgent
from tests.server.agents import patient
from tests.server.running_server import run_server
from tests.web.node_tests import needs_node, passes
from tests.web.recorded_sessions import STORIES, Recording


@needs_node
def test_the_page_shows_the_same_story_whenever_it_is_opened(tmp_path: Path) -> None:
    agents: dict[str, AgentLike] = {"default": ScriptedAgent(), "patient": patient}
    with run_server(tmp_path / "chat.db", agents) as server, server.client() as client:
        stories = [told(Recording(server, client)) for told in STORIES]
    recorded = tmp_path / "recorded.json"
    recorded.write_text(json.dumps({"stories": stories}))

    passes("reduce.test.mjs", 31, BACKSTAY_RECORDED=str(recorded))
