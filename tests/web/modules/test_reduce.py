"""The reducer of the web UI, run by Node on sessions recorded from a real server."""

import json
from pathlib import Path

from backstay.agents.adapters import AgentLike
from backstay.agents.scripted.scripted_agent import ScriptedAgent
from tests.server.agents import patient
from tests.server.running_server import run_server
from tests.web.modules.node_tests import needs_node, passes
from tests.web.recorded_sessions import RECORDINGS, Recording


@needs_node
def test_the_web_ui_shows_the_same_conversation_whenever_it_is_opened(tmp_path: Path) -> None:
    agents: dict[str, AgentLike] = {"default": ScriptedAgent(), "patient": patient}
    with run_server(tmp_path / "chat.db", agents) as server, server.client() as client:
        recordings = [make(Recording(server, client)) for make in RECORDINGS]
    recorded = tmp_path / "recorded.json"
    recorded.write_text(json.dumps({"recordings": recordings}))

    passes("reduce.test.mjs", 31, BACKSTAY_RECORDED=str(recorded))
