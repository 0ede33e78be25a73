"""Snapshots, badges and server information over HTTP: the data with which the web UI opens."""

from pathlib import Path

import httpx2
import pytest

from backstay.agents.scripted.scripted_agent import ScriptedAgent
from tests.server.api_calls import accepted, answered, new_session, text_of, until_said
from tests.server.running_server import RunningServer, run_server
from tests.server.stream_reader import Reader

# These tests are about code above the store, or about rules of its contract: the engine cannot matter.
pytestmark = pytest.mark.engines("sqlite")


@pytest.fixture
def server(shared_server: RunningServer) -> RunningServer:
    return shared_server.for_somebody_new()


def test_a_client_that_follows_from_its_snapshot_misses_nothing(server: RunningServer, client: httpx2.Client) -> None:
    session = new_session(client)
    answered(client, session, "hello")
    turn = accepted(client, session, "a long story", agent="patient")
    until_said(client, session, "listening ")

    snapshot = client.get(f"/api/sessions/{session}/snapshot").json()
    number = snapshot["session"]["last_event"]
    client.post(f"/api/sessions/{session}/steer", json={"text": "enough"})
    with Reader(server.port, server.token(), f"sessions={session}:{number}") as reader:
        heard = reader.until("event", kind="turn_ended", turn=turn)

    assert [text_of(message) for message in snapshot["messages"]] == ["hello", "hello ", "a long story"]
    assert [text_of(message) for message in snapshot["output"]] == ["listening "]
    assert [told["state"] for told in snapshot["turns"]] == ["ended", "running"]
    assert heard[0].data["number"] == number + 1


def test_a_snapshot_around_a_message_has_it_in_its_middle(client: httpx2.Client) -> None:
    session = new_session(client)
    for text in ("one", "two", "three"):
        answered(client, session, text)
    wanted = client.get(f"/api/sessions/{session}/messages").json()["messages"][2]["id"]

    found = client.get(f"/api/sessions/{session}/snapshot", params={"around": wanted, "last": 3}).json()["messages"]

    assert [text_of(message) for message in found] == ["one ", "two", "two "]


@pytest.mark.parametrize(
    "query", ["last=0", "last=1001", "before=-1", "around=nonsense", "window=nonsense", "what=else"]
)
def test_a_snapshot_with_invalid_parameters_is_rejected(client: httpx2.Client, query: str) -> None:
    session = new_session(client)

    assert client.get(f"/api/sessions/{session}/snapshot?{query}").status_code in (404, 422)


def test_badges_have_read_marks_and_omit_sessions_of_other_owners(server: RunningServer, client: httpx2.Client) -> None:
    session = new_session(client)
    answered(client, session, "hello")
    client.put(f"/api/sessions/{session}/read", json={"number": 3})
    client.put(f"/api/sessions/{session}/draft", json={"text": "and then"})
    with server.client("stranger") as stranger:
        foreign = new_session(stranger)

    told = client.get("/api/badges", params={"sessions": f"{session},{foreign},{session}"}).json()["badges"]

    marks = {"draft": "and then", "read_to": 3}
    assert told == [{"session": session, "marks": marks, "asks": False, "outcome": "completed"}]


@pytest.mark.parametrize("sessions", ["", "nonsense", "ses_x", ","])
def test_badges_without_sessions_are_rejected(client: httpx2.Client, sessions: str) -> None:
    assert client.get("/api/badges", params={"sessions": sessions}).status_code == 422


def test_only_interrupted_turns_are_resumed(client: httpx2.Client) -> None:
    session = new_session(client)
    turn = answered(client, session, "hello")

    refused = client.post(f"/api/turns/{turn}/resume")

    assert refused.status_code == 409
    assert refused.json()["title"]
    assert client.get(f"/api/sessions/{session}").json()["turns"] == 1


def test_a_server_lists_its_agents_and_which_are_scripted(tmp_path: Path) -> None:
    agents = {"default": ScriptedAgent()}
    with run_server(tmp_path / "chat.db", agents, demo=True) as server, server.client("anna") as client:
        about = client.get("/api/about").json()

    assert about["facts"]["agents"] == about["facts"]["scripted"] == ["default"]
    assert (about["owner"], about["demo"], about["facts"]["engine"]) == ("anna", True, "SQLite")
