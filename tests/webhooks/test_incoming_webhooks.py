"""Incoming webhooks: a signed request becomes one turn; any other one costs nothing and reveals nothing."""

import base64
import hashlib
import hmac
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from backstay.config import Settings
from backstay.model.gateways.webhook_settings import IncomingWebhook
from backstay.server.application import Server
from backstay.server.auth.authenticator import new_secret
from backstay.server.http.problems import Refused
from backstay.server.webhooks.incoming_message import IncomingHook
from backstay.server.webhooks.json_path import JsonPath
from backstay.server.webhooks.webhook_signature import sign, verify
from tests.server.agents import AGENTS
from tests.server.running_server import RunningServer, run_server

pytestmark = pytest.mark.engines("sqlite")

SECRET = b"another secret of the tests"
BODY = {"message": {"text": "the build is red", "from": ["ci"]}, "build": 7, "room": "main/α"}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    folder = tmp_path_factory.mktemp("hooks")
    (folder / "secret").write_bytes(b"an older one, of the same kind\n" + SECRET)
    common = {"secret_file": str(folder / "secret")}
    hooks = {
        "plain": common,
        "build": common | {"text": "message.text", "sender": "message.from[0]", "conversation": "room", "id": "build"},
        "code": common | {"format": "github", "text": "$.message.text"},
        "pay": common | {"format": "stripe", "owner": "kim"},
        "small": common | {"body_bytes": 10},
    }
    with run_server(folder / "chat.db", AGENTS, webhooks={"in": hooks}) as server:
        yield server


def signed(content: bytes, *, id: str = "m1", ago: float = 0, secret: bytes = SECRET) -> dict[str, str]:
    """The headers of the standard form, made without our code."""
    timestamp = str(int(time.time() - ago))  # noqa: TID251  # the sender is another program
    mac = hmac.new(secret, f"{id}.{timestamp}.".encode() + content, hashlib.sha256).digest()
    signature = f"v1,{base64.b64encode(mac).decode()}"
    return {"webhook-id": id, "webhook-timestamp": timestamp, "webhook-signature": f"v1,AAAA {signature}"}


def post(server: RunningServer, name: str, content: bytes | str, headers: dict[str, str]) -> httpx2.Response:
    body = content.encode() if isinstance(content, str) else content
    with server.client_with(None) as client:
        return client.post(f"/hooks/{name}", content=body, headers=headers)


def texts(server: RunningServer, session: str, owner: str | None = None) -> list[str]:
    with server.client(owner) as client:
        found = client.get(f"/api/sessions/{session}/messages").json()["messages"]
    return [part["text"] for message in found if message["role"] == "user" for part in message["parts"]]


def test_a_signed_request_becomes_one_turn(server: RunningServer) -> None:
    first = post(server, "plain", "the door is open", signed(b"the door is open"))
    again = post(server, "plain", "the door is open", signed(b"the door is open"))
    other = post(server, "plain", "the door is shut", signed(b"the door is shut", id="m2"))

    assert (first.status_code, first.json()["repeated"]) == (202, False)
    assert (again.status_code, again.json()) == (202, first.json() | {"repeated": True})
    assert other.json()["session"] == first.json()["session"]
    with server.client() as client:
        turn = client.get(f"/api/turns/{first.json()['turn']}").json()
        addresses = client.get(f"/api/sessions/{turn['session']}/addresses").json()["addresses"]
    assert addresses == ["chat://webhook/plain/main"]
    assert turn["request_id"] == "hook/plain/m1"


def test_text_sender_conversation_and_id_are_read_from_the_body(server: RunningServer) -> None:
    content = json.dumps(BODY).encode()
    first = post(server, "build", content, signed(content, id="a"))
    later = json.dumps(BODY | {"sent": "a second time"}).encode()
    again = post(server, "build", later, signed(later, id="b"))

    assert texts(server, first.json()["session"]) == ["ci: the build is red"]
    assert again.json() == first.json() | {"repeated": True}


def test_requests_of_github_and_stripe_are_accepted_once(server: RunningServer) -> None:
    content = json.dumps(BODY).encode()
    github = {"x-hub-signature-256": "sha256=" + hmac.new(SECRET, content, hashlib.sha256).hexdigest()}
    code = [post(server, "code", content, github | {"x-github-delivery": str(n)}).json() for n in range(2)]
    paid = []
    for ago in (1, 2):
        at = str(int(time.time()) - ago)  # noqa: TID251  # the sender is another program
        mac = hmac.new(SECRET, f"{at}.".encode() + content, hashlib.sha256).hexdigest()
        paid.append(post(server, "pay", content, {"stripe-signature": f"t={at},v1=00,v1={mac}"}).json())

    # An id in a header that is not signed could be forged: the body counts.
    assert [one["repeated"] for one in (*code, *paid)] == [False, True, False, True]
    assert texts(server, code[0]["session"]) == ["the build is red"]
    assert json.loads(texts(server, paid[0]["session"], "kim")[0]) == BODY


def test_forged_and_replayed_requests_are_refused(server: RunningServer) -> None:
    content = b"let me in"
    good = signed(content, id="x")
    forged = [
        post(server, "plain", content, signed(content, secret=b"a guess of sixteen")),
        post(server, "plain", b"let me out", good),
        post(server, "plain", content, good | {"webhook-id": "y"}),
        post(server, "plain", content, good | {"webhook-timestamp": str(int(good["webhook-timestamp"]) + 1)}),
        post(server, "plain", content, {}),
        post(server, "code", content, good),
        post(server, "unknown", content, good),
    ]
    stale = [post(server, "plain", content, signed(content, id="x", ago=ago)) for ago in (301, -302)]

    assert {one.status_code for one in forged} == {401}
    # Nobody learns which webhooks exist.
    assert len({(one.text, tuple(sorted(set(one.headers) - {"x-request-id", "date"}))) for one in forged}) == 1
    assert [(one.status_code, one.json()["code"]) for one in stale] == [(401, "stale")] * 2
    with server.client() as client:
        assert client.get("/api/search", params={"q": "let"}).json()["hits"] == []


async def test_a_request_that_nobody_signed_does_not_touch_the_store(tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes(SECRET)
    hooks = {"in": {"plain": {"secret_file": str(tmp_path / "secret")}}}
    settings = msgspec.convert({"db": str(tmp_path / "chat.db"), "webhooks": hooks}, Settings)
    # The store is not open: whoever touches it fails.
    transport = httpx2.ASGITransport(app=Server(settings, {}))
    token = {"authorization": f"Bearer {new_secret()}", "cookie": f"backstay={new_secret()}"}
    async with httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
        for name in ("plain", "unknown"):
            forged = await client.post(f"/hooks/{name}", content=b"x", headers=token | signed(b"y"))
            assert forged.status_code == 401
        good = await client.post("/hooks/plain", content=b"x", headers=token | signed(b"x"))

    assert good.status_code == 503


def test_a_large_body_is_refused_before_any_work(server: RunningServer) -> None:
    content = b"x" * 11

    assert post(server, "small", content, signed(content)).status_code == 413
    assert post(server, "small", content[1:], signed(content[1:])).status_code == 202
    with server.client_with(None) as client:
        assert client.get("/hooks/small").status_code == 405


@pytest.mark.parametrize(
    ("content", "code"),
    [(b"{", "malformed"), (b"[" * 9_000, "malformed"), (b"\xff", "malformed"), (b"{}", "invalid"), (b"7", "invalid")],
    ids=["half", "deep", "binary", "empty", "number"],
)
def test_a_signed_body_without_the_message_is_a_clear_error(server: RunningServer, content: bytes, code: str) -> None:
    answer = post(server, "build", content, signed(content))

    assert answer.status_code in (400, 422)
    assert answer.json()["code"] == code


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
)
HOOK = IncomingHook("fuzzed", IncomingWebhook(text="text", sender="a[0].b", conversation="c", id="d"), (SECRET,))


@given(body=JSON | st.fixed_dictionaries({"text": JSON, "a": JSON, "c": JSON, "d": JSON}))
def test_any_body_is_a_message_or_a_clear_error(body: Any) -> None:
    content = json.dumps(body).encode()
    found = HOOK.verify(sign([SECRET], "m", 1_000, content), content, 1_000.0)
    try:
        message = HOOK.message(found, content)
    except Refused as error:
        assert error.status in (400, 422)  # noqa: PT017
    else:
        assert message.text
        assert message.request_id.startswith("hook/fuzzed/")


@given(
    headers=st.dictionaries(
        st.sampled_from(
            ["webhook-id", "webhook-timestamp", "webhook-signature", "stripe-signature", "x-hub-signature-256"]
        ),
        st.text(st.characters(max_codepoint=255))
        | st.from_regex(r"(t=\d+,)?v1[,=][0-9a-zA-Z=]*( v1,\w*)*", fullmatch=True),
    ),
    content=st.binary(),
)
def test_no_headers_but_the_right_ones_are_a_signature(headers: dict[str, str], content: bytes) -> None:
    assert verify("standard", [SECRET], headers, content) is None
    assert verify("stripe", [SECRET], headers, content) is None
    assert verify("github", [SECRET], headers, content) is None


@pytest.mark.parametrize(
    ("path", "found"),
    [("a.b", "1"), ("$.a.b", "1"), ("l[1]", "x"), ("l[0].t", "true"), ("l[9]", None), ("a", None), ("a.b.c", None)],
)
def test_a_path_finds_a_value(path: str, found: str | None) -> None:
    assert JsonPath.parse(path).text_in({"a": {"b": 1}, "l": [{"t": True}, "x"]}) == found
