"""The gate: authentication, origins, rate limits, and security headers."""

import socket
import stat
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx2
import pytest

from backstay import open_store
from backstay.config import Settings, choose
from backstay.errors import ConfigError
from backstay.server.auth.authenticator import new_secret
from backstay.server.auth.first_token import ensure_token
from backstay.server.process.worker import listen
from tests.databases import Place, everything_in
from tests.server.agents import AGENTS
from tests.server.api_calls import new_session, raw_answer
from tests.server.running_server import PATIENCE, RunningServer, run_server
from tests.server.stream_reader import Reader

# These tests are about code above the store, or about rules of its contract: the engine cannot matter.
pytestmark = pytest.mark.engines("sqlite")

# Everything that is served, static files and unknown paths included.
EVERYWHERE = [
    "/",
    "/api/me",
    "/api/events?feed=true",
    "/api/openapi.json",
    "/healthz",
    "/metrics",
    "/login",
    "/nowhere",
]


@pytest.fixture
def asking(shared_server: RunningServer) -> Iterator[httpx2.Client]:
    """A client that changes nothing."""
    with shared_server.client() as client:
        yield client


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example", "localhost.evil.example:80", "", "[::2]"])
def test_another_host_is_rejected_everywhere(asking: httpx2.Client, host: str) -> None:
    assert {asking.get(where, headers={"host": host}).status_code for where in EVERYWHERE} == {421}


@pytest.mark.parametrize(
    "host",
    ["[::1]evil.example", "[::1]:80@evil.example", "[::1", "127.0.0.1:evil.example", "localhost:80@evil.example"],
)
def test_a_malformed_host_is_turned_away(asking: httpx2.Client, host: str) -> None:
    assert {asking.get(where, headers={"host": host}).status_code for where in ("/", "/api/me", "/healthz")} == {421}


@pytest.mark.parametrize(
    "origin",
    [
        "https://evil.example",
        "null",
        "http://127.0.0.1:1",
        "http://localhost",
        "x",
        "http://[",
        "http://127.0.0.1@evil.example",
    ],
)
def test_a_page_of_another_site_is_rejected_everywhere(asking: httpx2.Client, origin: str) -> None:
    assert {asking.get(where, headers={"origin": origin}).status_code for where in EVERYWHERE} == {403}


def test_two_host_headers_are_rejected(shared_server: RunningServer) -> None:
    answer = raw_answer(shared_server.port, b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\n\r\n")
    assert answer.split()[1] in (b"400", b"421")


def test_the_web_ui_and_named_origins_are_allowed(path: Place) -> None:
    with run_server(path, AGENTS, allowed_origins=["https://friend.example"]) as server, server.client() as client:
        ours = {"origin": f"http://127.0.0.1:{server.port}"}
        assert client.get("/api/me", headers=ours).status_code == 200
        friendly = client.get("/api/me", headers={"origin": "https://friend.example"})
        assert friendly.status_code == 200
        assert friendly.headers["access-control-allow-origin"] == "https://friend.example"


def test_the_own_origin_is_recognised_with_and_without_default_ports(asking: httpx2.Client) -> None:
    """Browsers leave them out of an origin; a proxy may put them into the host."""
    for host, origin, status in (
        ("localhost", "https://localhost", 200),
        ("localhost:443", "https://localhost", 200),
        ("localhost:80", "http://localhost", 200),
        ("localhost:8443", "https://localhost", 403),
        ("localhost:443", "http://localhost", 403),
        ("localhost:80", "https://localhost", 403),
    ):
        asked = asking.get("/api/me", headers={"host": host, "origin": origin})
        assert asked.status_code == status, (host, origin)


@pytest.mark.parametrize(
    "where", ["/api/me", "/api/sessions", "/api/openapi.json", "/metrics", "/nowhere", "/v1/models"]
)
@pytest.mark.parametrize(
    "shown",
    [None, "Bearer", "Bearer nonsense", f"Bearer {new_secret()}", f"Basic {new_secret()}", "Bearer bsk_" + "é" * 43],
    ids=["nothing", "no secret", "nonsense", "a stranger's", "another scheme", "no ASCII"],
)
def test_an_unauthenticated_client_sees_nothing(shared_server: RunningServer, where: str, shown: str | None) -> None:
    headers = {} if shown is None else {"authorization": shown.encode()}
    with shared_server.client_with(None) as client:
        answer = client.get(where, headers=[(name.encode(), value) for name, value in headers.items()])

    assert answer.status_code == 401
    assert answer.headers["www-authenticate"].startswith("Bearer")
    result = answer.json()["error"] if where.startswith("/v1/") else answer.json()
    assert result["code"] == ("invalid_api_key" if where.startswith("/v1/") else "unauthenticated")


@pytest.mark.parametrize("where", ["/healthz", "/readyz", "/login", "/static/login.js"])
def test_health_and_the_sign_in_page_are_public(shared_server: RunningServer, where: str) -> None:
    with shared_server.client_with(None) as client:
        assert client.get(where).status_code == 200


@pytest.mark.parametrize("name", ["..%2fapp.py", "../app.py", "nothing.js", "%00", "."])
def test_only_our_own_files_are_served(shared_server: RunningServer, name: str) -> None:
    with shared_server.client_with(None) as client:
        assert client.get(f"/static/{name}").status_code in (401, 404)


@pytest.mark.parametrize("where", EVERYWHERE)
def test_each_response_has_the_security_headers(shared_server: RunningServer, where: str) -> None:
    with shared_server.client() as client, client.stream("GET", where) as answer:
        policy = answer.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "frame-ancestors 'none'" in policy
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["referrer-policy"] == "no-referrer"
        assert "cache-control" in answer.headers
        assert "server" not in answer.headers


def test_hsts_is_sent_only_to_clients_that_use_https(path: Place) -> None:
    with run_server(path, AGENTS, https=True) as server, server.client_with(None) as client:
        result = {client.get(where).headers["strict-transport-security"] for where in EVERYWHERE}
        assert result == {"max-age=31536000"}
        assert client.get("/", headers={"host": "evil.example"}).headers["strict-transport-security"]
    with run_server(path, AGENTS) as server, server.client_with(None) as client:
        assert "strict-transport-security" not in client.get("/").headers


# --- browsers -------------------------------------------------------------------------------------------------------


@contextmanager
def signed_in(server: RunningServer, client: httpx2.Client) -> Iterator[httpx2.Client]:
    """A browser that followed a link."""
    link = client.post("/api/links").json()["path"]
    with server.client_with(None) as browser:
        browser.headers["origin"] = server.url
        answer = browser.post("/api/login", json={"code": link.partition("#")[2]})
        assert answer.status_code == 204
        yield browser


def test_a_link_signs_a_browser_in_once(server: RunningServer, client: httpx2.Client) -> None:
    code = client.post("/api/links").json()["path"].partition("#")[2]
    with server.client_with(None) as browser, server.client_with(None) as thief:
        answer = browser.post("/api/login", json={"code": code})

        assert answer.status_code == 204
        cookie = answer.headers["set-cookie"]
        assert all(word in cookie for word in ("HttpOnly", "SameSite=Strict", "Path=/", "Max-Age="))
        assert browser.get("/api/me").json()["browser"] is True
        assert thief.post("/api/login", json={"code": code}).status_code == 401


def test_signing_in_always_sets_a_new_cookie(server: RunningServer, client: httpx2.Client) -> None:
    code = client.post("/api/links").json()["path"].partition("#")[2]
    chosen = new_secret()
    with server.client_with(None, cookies={"backstay": chosen}) as browser:
        answer = browser.post("/api/login", json={"code": code})

        assert chosen not in answer.headers["set-cookie"]
    with server.client_with(None, cookies={"backstay": chosen}) as thief:
        assert thief.get("/api/me").status_code == 401


def test_under_tls_the_cookie_is_bound_to_host_and_tls(path: Place) -> None:
    with run_server(path, AGENTS, https=True) as server, server.client() as client:
        code = client.post("/api/links").json()["path"].partition("#")[2]
        cookie = client.post("/api/login", json={"code": code}).headers["set-cookie"]

    assert cookie.startswith("__Host-backstay=")
    assert "Secure" in cookie


def test_a_cookie_writes_only_from_the_own_origin(server: RunningServer, client: httpx2.Client) -> None:
    with signed_in(server, client) as browser:
        assert browser.post("/api/sessions", json={}).status_code == 201
        del browser.headers["origin"]

        assert browser.get("/api/sessions").status_code == 200
        assert browser.post("/api/sessions", json={}).status_code == 403
        for site, status in [("cross-site", 403), ("same-site", 403), ("same-origin", 201)]:
            sent = browser.post("/api/sessions", json={}, headers={"sec-fetch-site": site})
            assert sent.status_code == status
        form = browser.post(
            "/api/sessions", data={"x": "y"}, headers={"sec-fetch-site": "same-origin", "origin": server.url}
        )
        assert form.status_code == 415


def test_cookies_of_other_servers_on_this_machine_do_not_sign_out(server: RunningServer, client: httpx2.Client) -> None:
    """Browsers send the cookies of a host to all of its ports."""
    with signed_in(server, client) as browser:
        ours = f"backstay={browser.cookies['backstay']}"
    with server.client_with(None) as again:
        for other in ('prefs={"a": 1}', "told", "user@home=1", "list[0]=1", 'open="quote', "é=1", "="):
            for result in (f"{other}; {ours}", f"{ours}; {other}"):
                answer = again.get("/api/me", headers={b"cookie": result.encode()})
                assert answer.json()["browser"] is True, result


def test_a_cookie_secret_is_not_an_api_token_and_vice_versa(server: RunningServer, client: httpx2.Client) -> None:
    with signed_in(server, client) as browser:
        secret = browser.cookies["backstay"]
    with server.client_with(secret) as impostor:
        assert impostor.get("/api/me").status_code == 401
    with server.client_with(None, cookies={"backstay": server.token()}) as impostor:
        assert impostor.get("/api/me").status_code == 401


def test_signing_out_makes_the_cookie_worthless_everywhere(server: RunningServer, client: httpx2.Client) -> None:
    with signed_in(server, client) as browser:
        secret = browser.cookies["backstay"]
        assert browser.post("/api/logout").status_code == 204
    with server.client_with(None, cookies={"backstay": secret}) as again:
        assert again.get("/api/me").status_code == 401


# --- tokens ---------------------------------------------------------------------------------------------------------


def test_a_token_is_shown_once_listed_by_name_and_worthless_when_revoked(
    server: RunningServer, client: httpx2.Client
) -> None:
    given = client.post("/api/tokens", json={"name": "laptop"}).json()
    with server.client_with(given["secret"]) as laptop:
        assert laptop.get("/api/me").json()["token"] == given["token"]["id"]
        listed = client.get("/api/tokens")
        assert "laptop" in [token["name"] for token in listed.json()["tokens"]]
        assert given["secret"] not in listed.text

        client.delete(f"/api/tokens/{given['token']['id']}")

        assert laptop.get("/api/me").status_code == 401


def test_the_store_has_no_tokens_in_clear_text(server: RunningServer, client: httpx2.Client) -> None:
    secret = client.post("/api/tokens", json={"name": "laptop"}).json()["secret"]
    server.stop()

    written = everything_in(server.place)
    assert b"laptop" in written
    assert secret.encode() not in written


def test_the_first_token_is_made_once_and_only_its_user_can_read_it(path: Place, tmp_path: Path) -> None:
    settings = Settings(db=str(path), token_file=str(tmp_path / "token"))
    with open_store(path) as store:
        first = ensure_token(store, settings).read_text()
        file = ensure_token(store, settings)

        assert file.read_text() == first
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        [token] = store.tokens(owner="local")
        store.revoke_token(token.id, owner="local")
        assert ensure_token(store, settings).read_text() != first
        file.chmod(0o644)
        with pytest.raises(ConfigError, match="read by other users"):
            ensure_token(store, settings)


def test_concurrent_starts_create_one_first_token(path: Place, tmp_path: Path) -> None:
    settings = Settings(db=str(path), token_file=str(tmp_path / "token"))
    found: list[str] = []
    with open_store(path) as store:
        threads = [
            threading.Thread(target=lambda: found.append(ensure_token(store, settings).read_text())) for _ in range(8)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

        assert (len(found), len(set(found)), len(store.tokens(owner="local"))) == (8, 1, 1)


def test_no_path_redirects_elsewhere(asking: httpx2.Client) -> None:
    """Only the proxy knows by what name and scheme clients come."""
    for where in ("/api/me/", "/v1/models/", "/login/", "//api/me", "/api//me"):
        answer = asking.get(where)
        assert (answer.status_code, "location" in answer.headers) == (404, False), where


@pytest.mark.parametrize("where", ["/healthz", "/", "/api/me"])
def test_a_disallowed_method_is_answered_with_the_allowed_ones(asking: httpx2.Client, where: str) -> None:
    answer = asking.post(where)
    assert answer.status_code == 405
    assert "GET" in answer.headers["allow"]


# --- limits ---------------------------------------------------------------------------------------------------------


def test_a_client_over_the_rate_limit_gets_429_and_others_do_not(path: Place) -> None:
    few: dict[str, Any] = {"requests_per_second": 0.001, "request_burst": 5}
    with run_server(path, AGENTS, **few) as server, server.client() as client, server.client("another") as other:
        statuses = [client.get("/api/me").status_code for _ in range(7)]
        refused = client.get("/api/me")

        assert statuses == [200] * 5 + [429] * 2
        assert int(refused.headers["retry-after"]) >= 1
        assert other.get("/api/me").status_code == 200


def test_guessing_tokens_is_rate_limited_without_blocking_sign_in(path: Place) -> None:
    with (
        run_server(path, AGENTS, requests_per_second=0.001, request_burst=5) as server,
        server.client_with(None) as client,
    ):
        statuses = [
            client.get("/api/me", headers={"authorization": f"Bearer {new_secret()}"}).status_code for _ in range(7)
        ]

        assert statuses == [401] * 5 + [429] * 2
        assert client.get("/healthz").status_code == 200
        assert client.get("/login").status_code == 200


FEW: dict[str, Any] = {"requests_per_second": 0.001, "request_burst": 5}


def test_more_tokens_of_an_owner_buy_no_more_requests(tmp_path: Path) -> None:
    with run_server(tmp_path / "gate.db", AGENTS, **FEW) as server, server.client() as client:
        minted = client.post("/api/tokens", json={"name": "second"}).json()["secret"]
        statuses = [client.get("/api/me").status_code for _ in range(5)]

        assert statuses == [200] * 4 + [429]
        with server.client_with(minted) as second:
            assert second.get("/api/me").status_code == 429


@pytest.mark.parametrize("flooded", ["/", "/static/nothing.js", "/login", "/healthz"])
def test_a_flood_of_one_kind_of_request_leaves_the_other_kinds_alone(tmp_path: Path, flooded: str) -> None:
    kinds = {"/": 401, "/login": 200, "/healthz": 200, "/api/me": 401}
    with run_server(tmp_path / "gate.db", AGENTS, **FEW) as server, server.client_with(None) as stranger:
        while stranger.get(flooded).status_code != 429:
            pass
        same = "/" if flooded.startswith("/static") else flooded
        others = {where: status for where, status in kinds.items() if where != same}
        assert {where: stranger.get(where).status_code for where in others} == others
        with server.client() as client:
            assert client.get("/api/me").status_code == 200


def _statuses(stranger: httpx2.Client, forwarded: str, count: int) -> list[int]:
    headers = {"x-forwarded-for": forwarded}
    return [stranger.get("/api/me", headers=headers).status_code for _ in range(count)]


def test_behind_a_trusted_proxy_each_address_has_its_own_limits(tmp_path: Path) -> None:
    trusted = {**FEW, "forwarded_allow_ips": ("127.0.0.1",)}
    with run_server(tmp_path / "gate.db", AGENTS, **trusted) as server, server.client_with(None) as stranger:
        assert _statuses(stranger, "203.0.113.7", 6) == [401] * 5 + [429]
        assert _statuses(stranger, "203.0.113.8", 1) == [401]
        # Only the address that the proxy itself added counts, not those that the client made up.
        assert _statuses(stranger, "203.0.113.9, 203.0.113.7", 1) == [429]


@pytest.mark.parametrize("wrong", ["proxy.example.org", "10.0.0.1/8", "*", ""])
def test_a_trusted_proxy_that_is_not_an_address_is_refused(wrong: str) -> None:
    with pytest.raises(ConfigError, match="forwarded_allow_ips"):
        choose({"db": "x.db", "forwarded_allow_ips": [wrong]}, {})


def test_a_forwarded_address_of_an_untrusted_peer_is_ignored(tmp_path: Path) -> None:
    with run_server(tmp_path / "gate.db", AGENTS, **FEW) as server, server.client_with(None) as stranger:
        statuses = [_statuses(stranger, f"203.0.113.{number}", 1)[0] for number in range(7)]
        assert statuses == [401] * 5 + [429] * 2


def test_headers_that_are_too_large_are_refused(shared_server: RunningServer) -> None:
    answer = raw_answer(shared_server.port, b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nX: " + b"x" * 100_000)
    assert answer.split()[1] in (b"400", b"431")


@pytest.mark.parametrize(
    ("asked", "then"),
    [
        (b"", b""),
        (b"", b"GET /healthz HTTP/1.1\r\nHost: local"),
        (b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n", b"GET /heal"),
        (b"POST /api/sessions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n", b"x"),
    ],
    ids=["nothing", "half a head", "half of a second head", "half of a body that was refused"],
)
def test_a_client_with_a_slow_request_head_is_disconnected(tmp_path: Path, asked: bytes, then: bytes) -> None:
    with (
        run_server(tmp_path / "chat.db", AGENTS, head_seconds=0.2) as server,
        socket.create_connection(("127.0.0.1", server.port), PATIENCE) as plain,
        suppress(ConnectionError),  # on a slow machine it is disconnected before it has sent that much
    ):
        if asked:
            plain.sendall(asked)
            plain.recv(10_000)
        plain.sendall(then)
        while plain.recv(10_000):
            pass


def test_a_stream_outlives_the_request_head_timeout(tmp_path: Path) -> None:
    with (
        run_server(tmp_path / "chat.db", AGENTS, head_seconds=2, heartbeat_seconds=0.02) as server,
        Reader(server.port, server.token(), "feed=true") as reader,
    ):
        list(reader.frames(most_bytes=3_000))  # signs of life for more than two seconds
        assert not reader.ended


def test_a_body_that_does_not_arrive_times_out(path: Place) -> None:
    head = (
        b"POST /api/sessions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\nContent-Type: application/json\r\n"
    )
    with (
        run_server(path, AGENTS, body_seconds=0.2) as server,
        socket.create_connection(("127.0.0.1", server.port)) as plain,
    ):
        plain.sendall(head + f"Authorization: Bearer {server.token()}\r\n\r\n{{".encode())
        plain.settimeout(PATIENCE)
        assert plain.recv(1_000).split()[1] == b"408"


def test_no_answer_waits_for_the_word_that_its_beginning_has_arrived(path: Place) -> None:
    with listen(Settings(db=str(path), port=0)) as listener, socket.create_connection(listener.getsockname()):
        accepted, _ = listener.accept()
        with accepted:
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


def test_without_auth_each_local_client_is_the_owner(path: Place) -> None:
    with run_server(path, AGENTS, auth=False, owner="me") as server, server.client_with(None) as client:
        assert client.get("/api/me").json()["owner"] == "me"
        assert client.post("/api/sessions", json={}).status_code == 201
        assert client.post("/api/sessions", json={}, headers={"sec-fetch-site": "cross-site"}).status_code == 403
        assert client.get("/api/me", headers={"host": "evil.example"}).status_code == 421


@pytest.mark.parametrize(
    "flags",
    [
        {"host": "0.0.0.0"},
        {"host": "0.0.0.0", "auth": False, "allowed_hosts": ("x.example",)},
        {"host": "192.168.1.5"},
        {"host": "::"},
        {"port": 70_000},
        {"workers": 0},
    ],
)
def test_an_unsafe_configuration_does_not_start(flags: dict[str, object], tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as refused:
        choose(flags, {}, home=tmp_path)

    assert refused.value.hint


def test_a_public_server_with_hosts_and_auth_answers_to_those_hosts_alone(path: Place) -> None:
    with run_server(path, AGENTS, allowed_hosts=["chat.example"]) as server, server.client() as client:
        assert client.get("/api/me", headers={"host": "chat.example"}).status_code == 200
        assert client.get("/api/me", headers={"host": "localhost"}).status_code == 421
        new = client.post("/api/sessions", json={}, headers={"host": "chat.example:443"})
        assert new.status_code == 201


def test_a_session_is_in_no_other_owners_list_search_or_feed(server: RunningServer) -> None:
    with server.client("anna") as anna, server.client("boris") as boris:
        session = new_session(anna)
        anna.patch(f"/api/sessions/{session}", json={"title": "the secret heron"})

        assert boris.get("/api/sessions").json()["sessions"] == []
        assert boris.get("/api/search", params={"q": "heron"}).json()["hits"] == []
        assert session not in boris.get("/api/tokens").text
