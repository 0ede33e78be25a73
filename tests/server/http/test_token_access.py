"""Permissions and expiry of tokens: read-only, expiring; and data for operators only."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest

import backstay
from backstay import open_store
from backstay.errors import StoreReplaced
from backstay.server.application import OPERATIONS
from backstay.server.auth.authenticator import digest, new_secret
from backstay.server.openai import operations as openai
from tests.databases import Place
from tests.server.agents import AGENTS
from tests.server.api_calls import answered, new_session
from tests.server.running_server import RunningServer, run_server
from tests.server.server_process import serving
from tests.server.stream_reader import Reader

WRITES = [(one.method, one.path) for one in (*OPERATIONS, *openai.OPERATIONS) if one.method != "GET" and not one.public]
IDS = {
    "session": "ses_x",
    "turn": "trn_x",
    "message": "msg_x",
    "token": "tok_x",
    "schedule": "sch_x",
    "upload": "upl_x",
    "call": "c",
}


@contextmanager
def holding(server: RunningServer, client: httpx2.Client, **wanted: Any) -> Iterator[httpx2.Client]:
    """A client with a token of this kind."""
    given = client.post("/api/tokens", json={"name": "guest"} | wanted).raise_for_status().json()
    with server.client_with(given["secret"]) as guest:
        yield guest


def until_refused(guest: httpx2.Client) -> httpx2.Response:
    """Send requests until the token is rejected."""
    while (answer := guest.get("/api/me")).is_success:
        pass
    return answer


# --- read-only ------------------------------------------------------------------------------------------------------


def test_a_read_only_token_reads_everything_of_its_owner(server: RunningServer, client: httpx2.Client) -> None:
    session = new_session(client)
    answered(client, session, "hello")
    with holding(server, client, access="read") as guest:
        assert guest.get("/api/me").json()["access"] == "read"
        for path in ("/api/sessions", f"/api/sessions/{session}/messages", f"/api/sessions/{session}/export"):
            assert guest.get(path).status_code == 200, path
        assert guest.get("/v1/models").status_code == 200
        secret = str(guest.headers["authorization"]).removeprefix("Bearer ")
        with Reader(server.port, secret, f"sessions={session}") as reader:
            assert reader.status == 200


@pytest.mark.parametrize(("method", "path"), WRITES, ids=[f"{method} {path}" for method, path in WRITES])
def test_a_read_only_token_is_refused_by_every_operation_that_writes(
    writes: httpx2.Client, method: str, path: str
) -> None:
    for name, value in IDS.items():
        path = path.replace(f"{{{name}}}", value)
    answer = writes.request(method, path, json={})

    assert answer.status_code == 403
    told = answer.json()["error"] if path.startswith("/v1/") else answer.json()
    assert told["code"] == "read_only"
    assert "this token is read-only" in answer.text


@pytest.fixture(scope="module")
def writes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx2.Client]:
    """A client that may only read; the database does not matter."""
    with (
        run_server(tmp_path_factory.mktemp("server") / "chat.db", AGENTS) as server,
        server.client() as client,
        holding(server, client, access="read") as guest,
    ):
        yield guest


def test_a_read_only_token_changes_nothing(server: RunningServer, client: httpx2.Client) -> None:
    session = new_session(client)
    before = client.get(f"/api/sessions/{session}").json()
    with holding(server, client, access="read") as guest:
        assert guest.post(f"/api/sessions/{session}/turns", json={"text": "x"}).status_code == 403
        assert guest.patch(f"/api/sessions/{session}", json={"title": "x"}).status_code == 403
        upload = guest.post("/api/uploads", content=b"x", headers={"content-type": "application/octet-stream"})
        assert upload.status_code == 403
        assert guest.post("/api/tokens", json={"name": "more"}).status_code == 403
        assert guest.post("/api/links").status_code == 403

    assert client.get(f"/api/sessions/{session}").json() == before


# --- expiry ---------------------------------------------------------------------------------------------------------


def test_an_expired_token_has_its_own_error(server: RunningServer, client: httpx2.Client) -> None:
    with holding(server, client, expires_in=0.5) as guest:
        answer = until_refused(guest)
        wire = guest.get("/v1/models")

        assert (answer.status_code, answer.json()["code"]) == (401, "token_expired")
        assert "this token expired on" in answer.json()["title"]
        assert 'error="invalid_token"' in answer.headers["www-authenticate"]
        assert (wire.status_code, wire.json()["error"]["code"]) == (401, "invalid_api_key")
        assert "this token expired on" in wire.json()["error"]["message"]
        assert guest.get("/healthz").status_code == 200
    assert [token["name"] for token in client.get("/api/tokens").json()["tokens"]].count("guest") == 0


def test_a_stream_ends_when_its_token_expires(path: Place) -> None:
    """Long before the next sign of life."""
    with run_server(path, AGENTS, heartbeat_seconds=3_600) as server, server.client() as client:
        session = new_session(client)

        def follow(seconds: float) -> int:
            given = client.post("/api/tokens", json={"name": "guest", "expires_in": seconds}).json()
            with Reader(server.port, given["secret"], f"sessions={session}") as reader:
                if reader.status != 200:
                    return reader.status
                list(reader.frames())
                assert reader.ended
            with server.client_with(given["secret"]) as guest:
                assert guest.get("/api/me").json()["code"] == "token_expired"
            return reader.status

        # On a slow machine a token may expire before it is used.
        assert any(follow(seconds) == 200 for seconds in (1, 4, 16, 64))


def test_tokens_made_with_an_expiring_token_expire_with_it(server: RunningServer, client: httpx2.Client) -> None:
    with holding(server, client, expires_in=600) as guest:
        mine = guest.get("/api/me").json()["expires_at"]
        given = [guest.post("/api/tokens", json={"name": "heir"} | more).json() for more in ({}, {"expires_in": 6_000})]

        assert [one["token"]["expires_at"] for one in given] == [mine, mine]
        sooner = guest.post("/api/tokens", json={"name": "heir", "expires_in": 60}).json()
        assert sooner["token"]["expires_at"] < mine
        assert guest.post("/api/links").status_code == 403


@pytest.mark.parametrize("wanted", [{"expires_in": 0}, {"expires_in": -1}, {"access": "all"}, {"expires_in": "x"}])
def test_an_invalid_token_is_rejected(client: httpx2.Client, wanted: dict[str, Any]) -> None:
    assert client.post("/api/tokens", json={"name": "x"} | wanted).status_code == 422


# --- operators ------------------------------------------------------------------------------------------------------


def test_only_the_operator_sees_metrics(server: RunningServer, client: httpx2.Client) -> None:
    with server.client("anna") as anna, holding(server, client, access="read") as reader:
        assert (client.get("/metrics").status_code, reader.get("/metrics").status_code) == (200, 200)
        refused = anna.get("/metrics")
        assert (refused.status_code, refused.json()["code"]) == (403, "forbidden")
        assert (client.get("/api/me").json()["operator"], anna.get("/api/me").json()["operator"]) == (True, False)


def test_only_the_operator_sees_where_models_are_served(tmp_path: Path) -> None:
    secret = new_secret()
    with open_store(tmp_path / "chat.db") as store:
        store.add_token(owner="anna", name="anna", hash=digest(secret))
    internal = "127.0.0.1:9/v1"
    with (
        serving(tmp_path, "--db", "chat.db", "--agent", f"http://{internal}#tiny") as served,
        served.client() as operator,
        served.client(secret) as anna,
    ):
        assert internal in operator.get("/api/about").text
        assert internal not in anna.get("/api/about").raise_for_status().text


def test_only_the_operator_sees_where_the_store_is(bare_places: Callable[[], Place], tmp_path: Path) -> None:
    path = bare_places()
    with run_server(path) as server, server.client() as operator, server.client("anna") as anna:
        anna.get("/api/me").raise_for_status()
        there = tmp_path / "there.db"
        backstay.move(path, there)

        answers = [client.post("/api/sessions", json={}) for client in (operator, anna)]
        chat = anna.post("/v1/conversations", json={})

    assert [(answer.status_code, answer.json()["code"]) for answer in answers] == [(503, "store_moved")] * 2
    assert "it is at" in answers[0].json()["title"]
    for answer in (answers[1], chat):
        assert "The store was moved to another place" in answer.text
        assert not any(place in answer.text for place in (str(path), str(there)))


@pytest.mark.engines("sqlite")
def test_a_stranger_does_not_see_where_the_store_is(path: Path) -> None:
    with run_server(path) as server, server.client_with(new_secret()) as stranger:
        assert stranger.get("/readyz").status_code == 200
        Path(f"{path}-wal").unlink()
        with pytest.raises(StoreReplaced), open_store(path):
            pass

        refused = [stranger.get("/readyz"), stranger.get("/api/me")]

    assert [(answer.status_code, answer.json()["code"]) for answer in refused] == [(503, "store_replaced")] * 2
    assert not any(str(path) in answer.text for answer in refused)
