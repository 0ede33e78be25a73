"""Outgoing webhooks: each event is told to the URL, signed, under one id, again until it is accepted or given up."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2
import msgspec
import pytest

from backstay.errors import ConfigError
from backstay.server.webhooks.outgoing_hooks import check_webhooks
from tests.cli.installed_command import CommandResult, run_cli_in
from tests.server.agents import AGENTS
from tests.server.api_calls import until
from tests.server.running_server import RunningServer, run_server
from tests.webhooks.fake_receiver import SECRET, FakeReceiver, fake_receiver

pytestmark = pytest.mark.engines("sqlite")


@pytest.fixture
def receiver() -> Iterator[FakeReceiver]:
    with fake_receiver() as receiver:
        yield receiver


@contextmanager
def telling(folder: Path, receiver: FakeReceiver, **hook: Any) -> Iterator[RunningServer]:
    """A server that tells the receiver."""
    (folder / "secret").write_bytes(SECRET)
    out = {"ops": {"url": receiver.url, "secret_file": str(folder / "secret")} | hook}
    with run_server(folder / "chat.db", AGENTS, webhooks={"out": out}) as server:
        yield server


def ask(client: httpx2.Client, text: str, **more: Any) -> dict[str, Any]:
    answer = client.post("/api/turns", json={"text": text} | more)
    assert answer.status_code == 202, answer.text
    return dict(answer.json())


def test_the_end_of_a_turn_is_told_with_its_answer(tmp_path: Path, receiver: FakeReceiver) -> None:
    with telling(tmp_path, receiver) as server, server.client() as client:
        asked = ask(client, "three words here")
        receiver.wait_for(lambda: len(receiver.accepted) == 1)

    (body,) = receiver.bodies("turn_ended")
    assert body["turn"]["id"] == asked["id"]
    assert body["session"] == {"id": asked["session"], "title": None}
    assert (body["outcome"], body["text"], body["hook"]) == ({"type": "completed"}, "three words here", "ops")
    assert body["id"].startswith(asked["session"] + ".")
    assert receiver.forged == 0


def test_a_call_that_waits_for_a_person_is_told(tmp_path: Path, receiver: FakeReceiver) -> None:
    with telling(tmp_path, receiver) as server, server.client() as client:
        asked = ask(client, "go", agent="careful")
        receiver.wait_for(lambda: bool(receiver.bodies("approval_wanted")))

    (body,) = receiver.bodies("approval_wanted")
    assert body["turn"]["id"] == asked["id"]
    assert (body["call"]["name"], body["call"]["arguments"]) == ("launch", {"where": "the moon"})


def test_changes_of_a_session_are_told_without_text_if_so_configured(tmp_path: Path, receiver: FakeReceiver) -> None:
    hook = {"events": ["turn_ended", "session_changed"], "text": False}
    with telling(tmp_path, receiver, **hook) as server, server.client() as client:
        session = ask(client, "secret words")["session"]
        receiver.wait_for(lambda: bool(receiver.bodies("turn_ended")))
        client.delete(f"/api/sessions/{session}").raise_for_status()
        receiver.wait_for(lambda: "session_deleted" in [one["change"] for one in receiver.bodies("session_changed")])

    assert [one["change"] for one in receiver.bodies("session_changed")] == ["session_created", "session_deleted"]
    (ended,) = receiver.bodies("turn_ended")
    assert "text" not in ended


def test_a_request_that_fails_is_sent_again_under_the_same_id(tmp_path: Path, receiver: FakeReceiver) -> None:
    receiver.plan = [503, 0, 429]
    with telling(tmp_path, receiver, retry_seconds=0.01) as server, server.client() as client:
        ask(client, "again")
        # The second attempt was accepted, but its answer was cut off: the receiver knows the id.
        receiver.wait_for(lambda: [got.attempt for got in receiver.accepted] == [2, 4])

    assert list(receiver.attempts.values()) == [4]
    assert len(receiver.bodies("turn_ended")) == 1


@pytest.mark.parametrize(("status", "reason"), [(410, "HTTP 410"), (302, "redirects are not followed")])
def test_a_request_that_is_refused_is_listed_and_can_be_sent_again(
    tmp_path: Path, receiver: FakeReceiver, status: int, reason: str
) -> None:
    receiver.plan = [status]
    with telling(tmp_path, receiver) as server, server.client() as client:
        ask(client, "one")
        receiver.wait_for(lambda: bool(receiver.attempts))
        ask(client, "two")
        receiver.wait_for(lambda: len(receiver.accepted) == 1)
        (listed,) = client.get("/api/webhooks").json()["outgoing"]
        (failed,) = client.get("/api/webhooks/ops/failed").json()["failed"]
        assert (listed["name"], listed["failed"]) == ("ops", 1)
        assert receiver.url not in str(listed)  # a path may be secret
        assert reason in failed["reason"]
        notification = f"{failed['session']}.{failed['event']}"

        assert client.post("/api/webhooks/ops/retry", json={"notification": notification}).json() == {"retried": 1}

        receiver.wait_for(lambda: len(receiver.accepted) == 2)
        assert [got.body["text"] for got in receiver.accepted] == ["two", "one"]
        assert receiver.accepted[1].id == notification
        assert client.post("/api/webhooks/ops/retry", json={}).json() == {"retried": 0}


def test_commands_list_what_failed_and_send_it_again(tmp_path: Path, receiver: FakeReceiver) -> None:
    receiver.plan = [410, 410]
    with telling(tmp_path, receiver) as server, server.client() as client:
        webhooks = json.dumps(msgspec.to_builtins(server.settings.webhooks))

        def run(*arguments: str) -> CommandResult:
            return run_cli_in(tmp_path, server.place, "webhooks", *arguments, BACKSTAY_WEBHOOKS=webhooks)

        assert (tested := run("test", "ops")).code == 1
        assert tested.out == "not accepted: HTTP 410\n"
        ask(client, "hello")
        receiver.wait_for(lambda: len(receiver.attempts) == 2)
        until(lambda: json.loads(run("list", "--json").out)["outgoing"][0]["failed"] == 1, "one failed")
        (failed,) = json.loads(run("failed", "ops", "--json").out)["failed"]
        notification = f"{failed['session']}.{failed['event']}"

        assert "HTTP 410" in run("failed", "ops").out
        assert run("retry", "ops", notification).out == "1 to be sent again\n"

        receiver.wait_for(lambda: [got.id for got in receiver.accepted] == [notification])
        assert run("retry", "other").code == 1
        assert run("test", "ops").out == "accepted: HTTP 204\n"


def test_a_webhook_is_tested_at_once(tmp_path: Path, receiver: FakeReceiver) -> None:
    receiver.plan = [204, 500]
    with telling(tmp_path, receiver) as server, server.client() as client:
        good = client.post("/api/webhooks/ops/test").json()
        bad = client.post("/api/webhooks/ops/test").json()
        missing = client.post("/api/webhooks/other/test")

    assert good == {"accepted": True, "answer": "HTTP 204"}
    assert bad == {"accepted": False, "answer": "HTTP 500"}
    assert missing.status_code == 404
    assert [got.body["type"] for got in receiver.accepted] == ["test"]


def test_other_owners_are_neither_told_about_nor_shown(tmp_path: Path, receiver: FakeReceiver) -> None:
    with telling(tmp_path, receiver) as server, server.client("kim") as kim, server.client() as client:
        ask(kim, "private")
        ask(client, "mine")
        receiver.wait_for(lambda: bool(receiver.accepted))
        assert kim.get("/api/webhooks").json() == {"incoming": [], "outgoing": []}
        for path in ("test", "retry"):
            assert kim.post(f"/api/webhooks/ops/{path}", json={}).status_code == 404

    assert [body["text"] for body in receiver.bodies("turn_ended")] == ["mine"]


def test_what_ended_while_no_server_ran_is_told_later(tmp_path: Path, receiver: FakeReceiver) -> None:
    with telling(tmp_path, receiver) as server, server.client() as client:
        session = ask(client, "before")["session"]
        receiver.wait_for(lambda: len(receiver.accepted) == 1)
    with run_server(tmp_path / "chat.db", AGENTS) as server, server.client() as client:
        turn = ask(client, "meanwhile", session=session)["id"]
        with client.stream("GET", f"/api/turns/{turn}/events") as _:
            pass

    with telling(tmp_path, receiver):
        receiver.wait_for(lambda: len(receiver.accepted) == 2)

    assert [got.body["text"] for got in receiver.accepted] == ["before", "meanwhile"]


@pytest.mark.parametrize("secret", [b"", b"short", b"whsec_!"], ids=["empty", "short", "not base64"])
def test_a_webhook_without_a_good_secret_stops_the_start(tmp_path: Path, secret: bytes) -> None:
    with fake_receiver() as receiver, telling(tmp_path, receiver) as server:
        settings = server.settings
    (tmp_path / "secret").write_bytes(secret)

    with pytest.raises(ConfigError, match=r"out\.ops"):
        check_webhooks(settings)
