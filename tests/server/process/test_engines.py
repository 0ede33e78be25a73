"""The server on every engine: streams, shared state, and tokens."""

from tests.databases import Place
from tests.server.agents import AGENTS
from tests.server.api_calls import accepted, answered, log_of, new_session, until_said
from tests.server.running_server import run_server
from tests.server.stream_reader import Frame, Reader


def test_cut_after_every_event_and_moved_to_another_server_the_pieces_are_the_log(place: Place, notify: bool) -> None:
    with run_server(place, AGENTS, notify=notify) as one, run_server(place, AGENTS, notify=notify) as other:
        token = one.token()
        with one.client() as client:
            session = new_session(client)
            turn = accepted(client, session, "many 20")
            heard: list[Frame] = []
            while not heard or heard[-1].data["body"]["kind"] != "turn_ended":
                port = (one, other)[len(heard) % 2].port
                with Reader(port, token, f"sessions={session}", heard[-1].id if heard else None) as reader:
                    heard.append(next(reader.frames()))

            assert [frame.data for frame in heard] == log_of(one, client, session)
            assert client.get(f"/api/turns/{turn}").json()["state"] == "ended"


def test_the_feed_of_each_engine_has_every_session(place: Place) -> None:
    with run_server(place, AGENTS) as server, server.client() as client:
        with Reader(server.port, server.token(), "feed=true") as reader:
            last = reader.until("snapshot")[-1].id
        made = [new_session(client) for _ in range(3)]
        client.delete(f"/api/sessions/{made[1]}")
        with Reader(server.port, server.token(), "feed=true", last) as reader:
            heard = reader.until("unlisted", id=made[1])

    listed = {frame.data["id"] for frame in heard if frame.name == "listed"}
    assert {made[0], made[2]} <= listed | {frame.data["id"] for frame in heard}


def test_a_turn_is_followed_and_cancelled_through_any_server(place: Place) -> None:
    with run_server(place, AGENTS) as one, run_server(place, AGENTS) as other:
        token = one.token()
        with one.client_with(token) as here, other.client_with(token) as there:
            session = new_session(here)
            turn = accepted(here, session, "wait", agent="patient")
            until_said(there, session, "listening ")

            assert there.post(f"/api/turns/{turn}/cancel").json()["outcome"]["type"] == "cancelled"
            answered(here, session, "go on")


def test_a_token_revoked_at_one_server_holds_at_none(place: Place) -> None:
    with run_server(place, AGENTS) as one, run_server(place, AGENTS) as other, one.client() as here:
        given = here.post("/api/tokens", json={"name": "guest"}).json()
        with other.client_with(given["secret"]) as guest:
            assert guest.get("/api/me").status_code == 200

            here.delete(f"/api/tokens/{given['token']['id']}")

            assert guest.get("/api/me").status_code == 401
