"""Every operation with data of another owner: not found, not revealed, not changed."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import msgspec
import pytest

from backstay import open_store
from backstay.server.application import OPERATIONS
from backstay.server.http.operation import OCTETS, AnyOperation
from backstay.server.openai.operations import OPERATIONS as WIRE
from backstay.store.commands import gateway_commands
from tests.databases import Place
from tests.push.fake_push_service import FakePushService, fake_push_service
from tests.server.agents import AGENTS
from tests.server.api_calls import accepted, answered, new_session, until_said
from tests.server.running_server import RunningServer, run_server
from tests.server.stream_reader import Reader
from tests.webhooks.fake_receiver import SECRET

# These tests are about code above the store, or about rules of its contract: the engine cannot matter.
pytestmark = pytest.mark.engines("sqlite")

CANARY = "canary-7f3a9c"

# A body that each operation would accept, from its owner.
BODIES: dict[str, Any] = {
    "file_session": {"title": "mine"},
    "point_address": {"address": "chat://telegram/dm/42"},
    "submit_turn": {"text": "hello"},
    "steer_turn": {"text": "hello"},
    "record_messages": {"messages": [{"role": "user", "parts": [{"type": "text", "text": "hello"}]}]},
    "edit_waiting_turn": {"text": "hello"},
    "edit_message": {"text": "hello"},
    "decide_call": {"approved": True},
    "save_draft": {"text": "hello"},
    "mark_read": {"number": 1},
    "update_conversation": {"metadata": {"a": "b"}},
    "create_items": {"items": [{"role": "user", "content": "hello"}]},
    "pair_person": {"code": "ABCD-2345"},
}
EVERYTHING = (*OPERATIONS, *WIRE)
# A model has no owner: every authenticated client may use it.
NAMED = [operation for operation in EVERYTHING if "{" in operation.path and operation.name != "read_model"]


@pytest.fixture
def push_service() -> Iterator[FakePushService]:
    with fake_push_service() as service:
        yield service


@pytest.fixture
def server(path: Place, tmp_path: Path, push_service: FakePushService) -> Iterator[RunningServer]:
    """A server that tells a URL, and devices, of the victim's sessions."""
    (tmp_path / "secret").write_bytes(SECRET)
    hook = {"url": f"{push_service.url}/hook", "secret_file": str(tmp_path / "secret"), "owner": "victim"}
    webhooks, services = {"out": {"theirs": hook}}, [push_service.place]
    with run_server(path, AGENTS, webhooks=webhooks, push_services=services) as server, open_store(path) as store:
        store.run(gateway_commands.open_gateway("telegram/4242", owner="victim"))
        yield server


@pytest.fixture
def victim(server: RunningServer, push_service: FakePushService) -> Iterator[dict[str, str]]:
    """A session with every kind of state, and the id of one object of each kind."""
    with server.client("victim") as client:
        session = new_session(client)
        client.patch(f"/api/sessions/{session}", json={"title": CANARY})
        answered(client, session, CANARY)
        message = client.get(f"/api/sessions/{session}/messages").json()["messages"][0]["id"]
        turn = accepted(client, session, CANARY, agent="patient")
        until_said(client, session, "listening ")
        waiting = accepted(client, session, CANARY)
        client.put(f"/api/sessions/{session}/draft", json={"text": CANARY})
        upload = client.post("/api/uploads").json()["id"]
        octets = {"content-type": "application/octet-stream"}
        done = client.post("/api/uploads").json()["id"]
        client.put(f"/api/uploads/{done}", content=CANARY.encode(), headers=octets)
        blob = client.post(f"/api/uploads/{done}/finish", json={}).json()["hash"]
        token = client.post("/api/tokens", json={"name": CANARY}).json()["token"]["id"]
        wanted = {"when": "day 9:00", "text": CANARY, "session": session}
        schedule = client.post("/api/schedules", json=wanted).json()["id"]
        device = {"subscription": push_service.subscription("phone"), "name": CANARY}
        before = seen(client, session)
        yield {
            "webhook": "theirs",
            "platform": "telegram",
            "account": "4242",
            "person": "4711",
            "device": str(client.post("/api/push/devices", json=device).json()["number"]),
            "schedule": schedule,
            "session": session,
            "turn": turn,
            "waiting": waiting,
            "message": message,
            "upload": upload,
            "blob": blob,
            "token": token,
            "call": "c1",
            "conversation": session.replace("ses_", "conv_"),
            "response_id": turn.replace("trn_", "resp_"),
            "item": message,
        }
        assert seen(client, session) == before, "somebody else changed it"


def seen(client: httpx2.Client, session: str) -> dict[str, Any]:
    """Everything that its owner sees of it, except state that changes by itself."""
    found = client.get(f"/api/sessions/{session}").json()
    return {name: found[name] for name in ("revision", "title", "turns", "waiting", "running", "length", "state")}


def body_of(operation: AnyOperation, names: dict[str, str]) -> dict[str, Any]:
    if operation.body is OCTETS:
        return {"content": b"more", "headers": {"content-type": "application/octet-stream"}}
    if operation.name == "reorder_waiting":
        return {"json": {"turns": [names["waiting"]]}}
    if operation.takes_body:
        return {"json": BODIES.get(operation.name, {})}
    return {}


@pytest.mark.parametrize("kind", ["foreign", "absent", "nonsense"])
def test_no_operation_finds_data_of_another_owner(server: RunningServer, victim: dict[str, str], kind: str) -> None:
    with server.client("stranger") as stranger:
        answers = {
            operation.name: stranger.request(
                operation.method, filled(operation.path, victim, kind), **body_of(operation, victim)
            )
            for operation in NAMED
        }

    wrong = {name: (answer.status_code, answer.text) for name, answer in answers.items() if answer.status_code != 404}
    assert wrong == {}
    assert [name for name, answer in answers.items() if CANARY in answer.text] == []


def filled(path: str, names: dict[str, str], kind: str) -> str:
    """The path with ids of another owner, or with ids that do not exist."""

    def name(match: re.Match[str]) -> str:
        own = names["waiting" if "waiting" in path and match[1] == "turn" else match[1]]
        if kind == "foreign":
            return own
        return own[:-4] + ("zzzz" if own[:4] != "zzzz" else "yyyy") if kind == "absent" else "nonsense"

    return re.sub(r"\{(\w+)\}", name, path)


def test_a_waiting_turn_of_another_owner_is_not_found(server: RunningServer, victim: dict[str, str]) -> None:
    with server.client("stranger") as stranger:
        waiting = f"/api/turns/{victim['waiting']}"
        assert stranger.patch(waiting, json={"text": "hello"}).status_code == 404
        assert stranger.delete(waiting).status_code == 404
        assert stranger.post(f"{waiting}/cancel").status_code == 404


def test_the_same_refusal_whether_it_is_foreign_or_absent(server: RunningServer, victim: dict[str, str]) -> None:
    with server.client("stranger") as stranger:
        foreign = stranger.get(f"/api/sessions/{victim['session']}")
        absent = stranger.get(f"/api/sessions/{victim['session'][:-4]}zzzz")

    def without_name(answer: httpx2.Response) -> Any:
        return re.sub(r"ses_\w+", "ses", answer.text)

    assert without_name(foreign) == without_name(absent)
    assert dict(foreign.headers).keys() == dict(absent.headers).keys()


@pytest.mark.parametrize("kind", ["foreign", "absent"])
def test_a_session_of_another_owner_cannot_be_followed(
    server: RunningServer, victim: dict[str, str], kind: str
) -> None:
    with server.client("stranger") as stranger:
        own = new_session(stranger)
    session = victim["session"] if kind == "foreign" else victim["session"][:-4] + "zzzz"
    token = server.token("stranger")

    for query, last in (
        (f"sessions={session}", None),
        (f"sessions={own},{session}", None),
        (f"sessions={session}", f"_{session[4:]}-1-1"),
    ):
        with Reader(server.port, token, query, last) as reader:
            assert reader.status == 404
            assert CANARY not in str(reader.body())


def test_a_cursor_with_a_session_of_another_owner_reveals_nothing(
    server: RunningServer, victim: dict[str, str]
) -> None:
    with server.client("stranger") as stranger:
        own = new_session(stranger)
    forged = f"0_{victim['session'][4:]}-u-0"

    with Reader(server.port, server.token("stranger"), f"sessions={own}&feed=true", forged) as reader:
        heard = reader.until("event", kind="session_created")

    assert {frame.data.get("session", own) for frame in heard} == {own}
    assert CANARY not in str(heard)


def test_a_file_of_another_owner_cannot_be_attached(server: RunningServer, victim: dict[str, str]) -> None:
    part = {"type": "attachment", "blob": victim["blob"], "name": "x", "media_type": "text/plain", "size": 13}
    with server.client("stranger") as stranger:
        session = new_session(stranger)
        assert stranger.post(f"/api/sessions/{session}/turns", json={"parts": [part]}).status_code in (404, 422)


def test_every_operation_needs_a_caller_but_signing_in(server: RunningServer, victim: dict[str, str]) -> None:
    with server.client_with(None) as nobody:
        answers = {
            operation.name: nobody.request(
                operation.method, filled(operation.path, victim, "foreign"), **body_of(operation, victim)
            )
            for operation in EVERYTHING
            if not operation.public
        }

    assert {answer.status_code for answer in answers.values()} == {401}
    told = [msgspec.json.decode(answer.content) for answer in answers.values()]
    assert {body.get("error", body)["code"] for body in told} <= {"unauthenticated", "invalid_api_key"}


@pytest.mark.parametrize("kind", ["foreign", "absent"])
def test_a_session_or_turn_of_another_owner_cannot_be_named_in_a_request(
    server: RunningServer, victim: dict[str, str], kind: str
) -> None:
    def name(what: str) -> str:
        return victim[what] if kind == "foreign" else victim[what][:-4] + "zzzz"

    asked = {"model": "default", "input": "hello"}
    said = {"model": "default", "messages": [{"role": "user", "content": "hello"}]}
    with server.client("stranger") as stranger:
        answers = [
            stranger.post("/v1/responses", json=asked | {"conversation": name("conversation")}),
            stranger.post("/v1/responses", json=asked | {"conversation": {"id": name("conversation")}}),
            stranger.post("/v1/responses", json=asked | {"previous_response_id": name("response_id")}),
            stranger.get(f"/v1/responses/{name('response_id')}", params={"stream": "true", "starting_after": 1}),
            *(
                stranger.post("/v1/chat/completions", json=said, headers={"x-session-id": name(what)})
                for what in ("session", "conversation")
            ),
        ]

    # OpenAI answers an unknown earlier response with 400.
    assert [answer.status_code for answer in answers] == [404, 404, 400, 404, 404, 404]
    assert CANARY not in "".join(answer.text for answer in answers)


def test_an_item_of_another_owner_is_not_found_in_an_own_conversation(
    server: RunningServer, victim: dict[str, str]
) -> None:
    with server.client("stranger") as stranger:
        own = stranger.post("/v1/conversations", json={}).json()["id"]
        for method in ("GET", "DELETE"):
            assert stranger.request(method, f"/v1/conversations/{own}/items/{victim['message']}").status_code == 404
        after = stranger.get(f"/v1/conversations/{own}/items", params={"after": victim["message"]})
        assert after.status_code == 404


@pytest.mark.parametrize("kept", ["everything", "windows", "turns"])
def test_an_import_does_not_reveal_ids_of_another_owner(
    server: RunningServer, client: httpx2.Client, kept: str
) -> None:
    """A document with ids of another owner's session is answered like one with ids that do not exist."""
    session = new_session(client)
    answered(client, session, "hello")
    foreign = client.get(f"/api/sessions/{session}/export").text
    prefixes = {"everything": "", "windows": "ses|trn|msg", "turns": "ses|win|msg"}[kept]
    nobodys = _ID.sub(_another, foreign)
    partly = re.sub(rf"({prefixes})_[0-9a-z]{{26}}", _another, foreign) if prefixes else foreign
    with server.client("stranger") as stranger:
        taken, free = (_imported(stranger, one) for one in (partly, nobodys))

        assert taken["copied"] == free["copied"]
        for answer, document in ((taken, partly), (free, nobodys)):
            assert not set(_ID.findall(json.dumps(answer))) & set(_ID.findall(document))


_ID = re.compile(r"(?:ses|win|trn|msg)_[0-9a-z]{26}")


def _another(found: "re.Match[str]") -> str:
    """An id that does not exist, the same for the same one."""
    letters = found[0].translate(str.maketrans("0123456789", "1032547698"))
    return letters if letters != found[0] else found[0][:-1] + ("a" if found[0][-1] != "a" else "b")


def _imported(client: httpx2.Client, document: str) -> dict[str, Any]:
    answer = client.post("/api/imports", content=document, headers={"content-type": "application/json"})
    assert answer.status_code == 201, answer.text
    told: dict[str, Any] = answer.json()
    return told


def test_an_owner_over_its_quota_is_refused_and_others_are_not(path: Place) -> None:
    with (
        run_server(path, AGENTS, sessions_per_owner=1) as server,
        server.client() as client,
        server.client("other") as other,
    ):
        new_session(client)

        refused = client.post("/api/sessions", json={})

        assert (refused.status_code, refused.json()["code"]) == (429, "quota_exceeded")
        assert "sessions" in refused.json()["title"]
        assert other.post("/api/sessions", json={}).status_code == 201
