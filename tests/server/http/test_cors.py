"""Pages of allowed origins may send requests, with a token and without cookies."""

from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest

from tests.server.agents import AGENTS
from tests.server.running_server import RunningServer, run_server

FRIEND = "https://friend.example"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RunningServer]:
    with run_server(tmp_path / "chat.db", AGENTS, allowed_origins=[FRIEND, "https://other.example"]) as server:
        yield server


def preflight(server: RunningServer, origin: str, where: str = "/api/sessions") -> httpx2.Response:
    """The preflight of a browser before a page's request; it has no token."""
    headers = {
        "origin": origin,
        "access-control-request-method": "POST",
        "access-control-request-headers": "authorization,content-type,idempotency-key",
    }
    with server.client_with(None) as browser:
        return browser.options(where, headers=headers)


@pytest.mark.parametrize("where", ["/api/sessions", "/api/events", "/v1/responses", "/api/sessions/ses_x/turns"])
def test_a_preflight_of_a_named_origin_is_answered_without_a_token(server: RunningServer, where: str) -> None:
    answer = preflight(server, FRIEND, where)

    assert answer.status_code == 204
    assert answer.headers["access-control-allow-origin"] == FRIEND
    allowed = answer.headers["access-control-allow-methods"].split(", ")
    assert set(allowed) >= {"GET", "POST", "PUT", "PATCH", "DELETE"}
    headers = answer.headers["access-control-allow-headers"].lower().split(", ")
    assert set(headers) >= {"authorization", "content-type", "idempotency-key"}
    assert "Origin" in answer.headers["vary"]
    assert "access-control-allow-credentials" not in answer.headers


def test_a_page_of_a_named_origin_can_read_responses_with_a_token(server: RunningServer) -> None:
    with server.client() as page:
        page.headers["origin"] = FRIEND
        made = page.post("/api/sessions", json={}, headers={"sec-fetch-site": "cross-site"})
        missing = page.get("/api/sessions/ses_nothing")
        page.headers["authorization"] = "Bearer nonsense"
        stranger = page.get("/api/me")

        assert (made.status_code, missing.status_code, stranger.status_code) == (201, 404, 401)
        for answer in (made, missing, stranger):
            assert answer.headers["access-control-allow-origin"] == FRIEND
            assert "Origin" in answer.headers["vary"]
        assert "etag" in made.headers["access-control-expose-headers"].lower()


def test_cacheable_responses_vary_by_origin(server: RunningServer) -> None:
    with server.client() as client:
        for where in ("/static/login.js", "/healthz"):
            kept_apart = client.get(where, headers={"accept-encoding": "gzip"}).headers["vary"].lower()
            assert "origin" in kept_apart, where


def test_another_origin_is_rejected_and_its_page_reads_nothing(server: RunningServer) -> None:
    with server.client() as client:
        asked = client.get("/api/me", headers={"origin": "https://evil.example"})
    for answer in (asked, preflight(server, "https://evil.example"), preflight(server, "null")):
        assert answer.status_code == 403
        assert "access-control-allow-origin" not in answer.headers


def test_without_named_origins_nothing_is_shared(tmp_path: Path) -> None:
    with run_server(tmp_path / "chat.db", AGENTS) as server, server.client() as client:
        assert preflight(server, FRIEND).status_code == 403
        own = client.get("/api/me", headers={"origin": server.url})
        assert (own.status_code, "access-control-allow-origin" in own.headers) == (200, False)


def test_a_preflight_changes_nothing_and_differs_from_plain_options(server: RunningServer) -> None:
    with server.client() as client:
        before = client.get("/api/sessions").json()
        assert preflight(server, FRIEND).status_code == 204
        assert client.get("/api/sessions").json() == before
        assert client.options("/api/sessions", headers={"origin": FRIEND}).status_code == 405


def test_a_cookie_does_not_count_for_another_site(server: RunningServer) -> None:
    with server.client() as client:
        code = client.post("/api/links").json()["path"].partition("#")[2]
    with server.client_with(None) as browser:
        browser.post("/api/login", json={"code": code}).raise_for_status()
        sent = browser.post("/api/sessions", json={}, headers={"origin": FRIEND, "sec-fetch-site": "same-site"})

        assert sent.status_code == 403


def test_without_auth_a_named_origin_may_write_and_no_other(tmp_path: Path) -> None:
    with (
        run_server(tmp_path / "chat.db", AGENTS, auth=False, allowed_origins=[FRIEND]) as server,
        server.client_with(None) as page,
    ):
        across = {"sec-fetch-site": "cross-site"}
        assert page.post("/api/sessions", json={}, headers=across | {"origin": FRIEND}).status_code == 201
        assert page.post("/api/sessions", json={}, headers=across).status_code == 403
