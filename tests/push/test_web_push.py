"""Web Push: devices are told that a turn has ended or that a person is needed, and only they can read it."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest

from backstay.config import Settings
from backstay.server.push.push_encryption import ServerKey, encrypt
from backstay.server.push.push_service import PushService
from tests.push.fake_push_service import FakePushService, b64, fake_push_service
from tests.server.agents import AGENTS
from tests.server.api_calls import until
from tests.server.running_server import RunningServer, run_server

pytestmark = pytest.mark.engines("sqlite")


@pytest.fixture
def service() -> Iterator[FakePushService]:
    with fake_push_service() as service:
        yield service


@contextmanager
def pushing(folder: Path, service: FakePushService) -> Iterator[RunningServer]:
    """A server that may call the push service."""
    with run_server(folder / "chat.db", AGENTS, push_services=[service.place]) as server:
        yield server


def subscribe(client: httpx2.Client, service: FakePushService, device: str = "phone", **more: Any) -> int:
    body = {"subscription": service.subscription(device), "name": device} | more
    answer = client.post("/api/push/devices", json=body)
    assert answer.status_code == 200, answer.text
    return int(answer.json()["number"])


def ask(client: httpx2.Client, text: str, **more: Any) -> str:
    answer = client.post("/api/turns", json={"text": text} | more)
    assert answer.status_code == 202, answer.text
    return str(answer.json()["session"])


def test_devices_are_told_that_a_turn_has_ended_and_that_a_person_is_needed(
    tmp_path: Path, service: FakePushService
) -> None:
    with pushing(tmp_path, service) as server, server.client() as client:
        subscribe(client, service, "phone")
        subscribe(client, service, "laptop", text=True)
        session = ask(client, "a secret")
        client.patch(f"/api/sessions/{session}", json={"title": "Tea"}).raise_for_status()
        service.wait_for(lambda: len(service.got) == 2)
        needy = ask(client, "go", agent="careful")
        service.wait_for(lambda: len(service.got) == 4)
        key = client.get("/api/push").json()["public_key"]

    bodies = {(got.device, got.message["session"]): got for got in service.got}
    assert bodies["phone", session].message["body"] == "Done"
    assert bodies["laptop", session].message["body"] == "Done: a secret"
    assert "secret" not in str(bodies["phone", session].message)
    assert bodies["phone", needy].message["body"] == "Needs your approval"
    assert bodies["phone", needy].message["needs_you"]
    assert [bodies["phone", one].headers["urgency"] for one in (session, needy)] == ["normal", "high"]
    assert bodies["phone", session].headers["topic"] != bodies["phone", needy].headers["topic"]
    assert (service.refused, service.server_key) == ([], key)


def test_a_session_can_be_silent(tmp_path: Path, service: FakePushService) -> None:
    with pushing(tmp_path, service) as server, server.client() as client:
        subscribe(client, service)
        session = str(client.post("/api/sessions").json()["id"])
        choice = {"done": False, "needs_you": True}
        assert client.put(f"/api/sessions/{session}/push", json=choice).json() == choice
        ask(client, "silent", session=session)
        ask(client, "go", session=session, agent="careful")
        service.wait_for(lambda: bool(service.got))
        assert client.get(f"/api/sessions/{session}/push").json() == choice

    assert [got.message["body"] for got in service.got] == ["Needs your approval"]


@pytest.mark.parametrize("status", [404, 410])
def test_a_device_that_is_gone_is_removed(tmp_path: Path, service: FakePushService, status: int) -> None:
    service.plan = [status]
    with pushing(tmp_path, service) as server, server.client() as client:
        subscribe(client, service)
        ask(client, "hello")
        until(lambda: client.get("/api/push").json()["devices"] == [], "the device is removed")
        subscribe(client, service, "laptop")
        ask(client, "news")
        service.wait_for(lambda: bool(service.got))

    assert [got.device for got in service.got] == ["laptop"]


def test_a_service_that_fails_is_asked_again_after_a_restart(tmp_path: Path, service: FakePushService) -> None:
    service.plan = [503]
    with pushing(tmp_path, service) as server, server.client() as client:
        subscribe(client, service)
        key = client.get("/api/push").json()["public_key"]
        session = ask(client, "hello")
        service.wait_for(lambda: service.requests == 1)

    with pushing(tmp_path, service) as server, server.client() as client:
        service.wait_for(lambda: len(service.got) == 1)
        assert client.get("/api/push").json()["public_key"] == key

    assert service.got[0].message["session"] == session


def test_devices_belong_to_their_owner(tmp_path: Path, service: FakePushService) -> None:
    with pushing(tmp_path, service) as server, server.client() as client, server.client("kim") as kim:
        number = subscribe(client, service)
        subscribe(kim, service, "theirs")
        assert [one["name"] for one in kim.get("/api/push").json()["devices"]] == ["theirs"]
        assert kim.delete(f"/api/push/devices/{number}").status_code == 404
        ask(kim, "private")
        service.wait_for(lambda: bool(service.got))
        assert client.delete(f"/api/push/devices/{number}").status_code == 204

    assert [got.device for got in service.got] == ["theirs"]


@pytest.mark.parametrize(
    ("endpoint", "is_called"),
    [
        ("https://fcm.googleapis.com/fcm/send/x", True),
        ("https://web.push.apple.com/x", True),
        ("https://push.apple.com/x", False),
        ("http://fcm.googleapis.com/x", False),
        ("https://fcm.googleapis.com:8443/x", False),
        ("https://fcm.googleapis.com.example.org/x", False),
        ("https://user@fcm.googleapis.com/x", False),
        ("https://169.254.169.254/latest", False),
        ("http://127.0.0.1:9/x", False),
        ("http://127.0.0.1:7/x", True),
        ("https://[::1", False),
    ],
)
def test_only_push_services_are_called(endpoint: str, is_called: bool) -> None:
    service = PushService(Settings(push_services=("127.0.0.1:7",)))

    assert service.is_service(endpoint) is is_called


def test_foreign_addresses_and_wrong_keys_are_refused(tmp_path: Path, service: FakePushService) -> None:
    with pushing(tmp_path, service) as server, server.client() as client:
        good = service.subscription("phone")
        wrong = [
            good | {"endpoint": "http://127.0.0.1:1/x"},
            good | {"keys": good["keys"] | {"p256dh": "AAAA"}},
            good | {"keys": good["keys"] | {"p256dh": "B" + "A" * 86}},
            good | {"keys": good["keys"] | {"auth": "!"}},
        ]
        for subscription in wrong:
            answer = client.post("/api/push/devices", json={"subscription": subscription, "name": "x"})
            assert answer.status_code == 422, answer.text
        assert client.get("/api/push").json()["devices"] == []


def test_the_encryption_is_that_of_the_standard() -> None:
    """The example of RFC 8291, section 5."""
    encrypted = encrypt(
        b"When I grow up, I want to be a watermelon",
        "BCVxsr7N_eNgVRqvHtD0zTZsEc6-VV-JvLexhqUzORcxaOzi6-AYWXvTBHm4bjyPjs7Vd8pZGH6SRpkNtoIAiw4",
        "BTBZMqHH6r4Tts7J_aSIgg",
        salt=bytes.fromhex("0c6bfaadad67958803092d454676f397"),
        private_key="yfWPiYE-n46HLnH0KqZOF1fJJU3MYrct3AELtAQ-oRw",
    )

    assert b64(encrypted) == (
        "DGv6ra1nlYgDCS1FRnbzlwAAEABBBP4z9KsN6nGRTbVYI_c7VJSPQTBtkgcy27mlmlMoZIIgDll6e3vCYLocInmYWAmS6TlzAC8wEqKK6PBru3"
        "jl7A_yl95bQpu6cVPTpK4Mqgkf1CXztLVBSt2Ks3oZwbuwXPXLWyouBWLVWGNWQexSgSxsj_Qulcy4a-fN"
    )
    assert ServerKey("yfWPiYE-n46HLnH0KqZOF1fJJU3MYrct3AELtAQ-oRw").public == (
        "BP4z9KsN6nGRTbVYI_c7VJSPQTBtkgcy27mlmlMoZIIgDll6e3vCYLocInmYWAmS6TlzAC8wEqKK6PBru3jl7A8"
    )
