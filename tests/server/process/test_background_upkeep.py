"""Upkeep of the store by a server, without requests."""

import pytest

from backstay.config import choose
from backstay.errors import ConfigError
from tests.databases import Place
from tests.server.agents import AGENTS
from tests.server.api_calls import accepted, answered, log_of, new_session, until, until_ended
from tests.server.running_server import run_server
from tests.server.stream_reader import Reader

OFTEN = 0.02


def test_sessions_closed_for_long_enough_are_deleted_and_leave_the_list(path: Place) -> None:
    with run_server(path, AGENTS, keep_closed_days=1e-9, upkeep_seconds=OFTEN) as server, server.client() as client:
        kept, closed = new_session(client), new_session(client)
        with Reader(server.port, server.token(), "feed=true") as reader:
            client.post(f"/api/sessions/{closed}/end")
            reader.until("unlisted", id=closed)

        assert client.get(f"/api/sessions/{closed}").status_code == 404
        assert client.get(f"/api/sessions/{kept}").status_code == 200


def test_a_server_deletes_nothing_unless_configured(path: Place) -> None:
    with run_server(path, AGENTS, fold_seconds=0, upkeep_seconds=OFTEN) as server, server.client() as client:
        closed, other = new_session(client), new_session(client)
        client.post(f"/api/sessions/{closed}/end")
        answered(client, other, "one two three")
        # Turns that were folded since then have been through a whole round of upkeep.
        until(lambda: any(event["body"]["kind"] == "turn_folded" for event in log_of(server, client, other)), "folded")

        assert client.get(f"/api/sessions/{closed}").json()["state"] == "ended"


def test_a_window_that_gets_too_long_for_the_model_is_compacted(path: Place) -> None:
    with run_server(path, AGENTS, compact_tokens=60) as server, server.client() as client:
        session = new_session(client)
        with Reader(server.port, server.token(), f"sessions={session}") as reader:
            for number in range(3):
                turn = accepted(client, session, f"question {number}, " + "which is not a short one " * 4)
                until_ended(client, session, turn)
            reader.until("event", kind="window_opened", reason="compaction")


@pytest.mark.parametrize(
    "nonsense", [{"upkeep_seconds": 0}, {"keep_closed_days": -1}, {"fold_seconds": -1}, {"compact_tokens": -1}]
)
def test_a_server_with_invalid_upkeep_settings_does_not_start(nonsense: dict[str, object]) -> None:
    with pytest.raises(ConfigError) as refused:
        choose(nonsense, {"HOME": "/nowhere"})

    assert refused.value.hint
