"""Gateways over HTTP: their owner sees how they are and lets people in. Nobody sees the token."""

import re
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest

from backstay.agents.scripted.scripted_agent import ScriptedAgent
from tests.gateways.fake_telegram import TOKEN, FakeTelegram, fake_telegram
from tests.server.api_calls import until
from tests.server.running_server import RunningServer, run_server

pytestmark = pytest.mark.engines("sqlite")

BOT = "/api/gateways/telegram/7"


@pytest.fixture
def telegram() -> Iterator[FakeTelegram]:
    with fake_telegram() as fake:
        yield fake


@pytest.fixture
def bot(tmp_path: Path, telegram: FakeTelegram) -> Iterator[RunningServer]:
    """A server with a bot that lets people in by a code."""
    file = tmp_path / "token"
    file.write_text(TOKEN)
    file.chmod(0o600)
    settings = {"telegram": {"token_file": str(file), "server": telegram.url}}
    with run_server(tmp_path / "chat.db", {"default": ScriptedAgent()}, gateways=settings) as server:
        yield server


def listed(client: httpx2.Client) -> list[dict[str, object]]:
    """The gateways that a client sees; the answer does not have the token."""
    answer = client.get("/api/gateways")
    assert answer.status_code == 200, answer.text
    assert TOKEN not in answer.text
    return list(answer.json()["gateways"])


def test_the_owner_lets_a_person_in_and_removes_them(bot: RunningServer, telegram: FakeTelegram) -> None:
    telegram.write("hello")
    telegram.wait_for(lambda: len(telegram.texts()) == 1)
    code = re.findall(r"[0-9A-Z]{4}-[0-9A-Z]{4}", telegram.texts()[0])[0]
    with bot.client() as client:
        (gateway,) = listed(client)
        assert [(one["person"], one["paired_at"]) for one in gateway["people"]] == [("42", None)]  # type: ignore[attr-defined]  # JSON
        assert code.replace("-", "") not in client.get("/api/gateways").text, "who confirms must have seen it"

        assert client.post(f"{BOT}/pair", json={"code": "WRONG"}).status_code == 404
        assert client.post(f"{BOT}/pair", json={"code": code}).json()["person"] == "42"
        telegram.write("now?")
        telegram.wait_for(lambda: len(telegram.texts()) == 2)
        assert client.post(f"{BOT}/invite").json()["pairing_until"] is not None
        assert client.delete(f"{BOT}/people/42").status_code == 200
        assert client.delete(f"{BOT}/people/42").status_code == 404
        metrics = client.get("/metrics").text
        assert 'backstay_gateway_messages_total{gateway="telegram/7",result="received"} 1' in metrics
        assert 'backstay_gateway_polling{gateway="telegram/7"} 1' in metrics


def test_another_owner_sees_and_changes_nothing(bot: RunningServer, telegram: FakeTelegram) -> None:
    with bot.client() as client, bot.client("stranger") as stranger:
        until(lambda: bool(listed(client)), "the bot polls")

        assert stranger.get("/api/gateways").json() == {"gateways": [], "checkable": False}
        assert stranger.post("/api/gateways/check").status_code == 403
        assert stranger.post(f"{BOT}/invite").status_code == 404
        assert stranger.post(f"{BOT}/pair", json={"code": "ABCD-2345"}).status_code == 404
        assert stranger.delete(f"{BOT}/people/42").status_code == 404


def test_a_check_names_a_webhook_and_the_list_shows_the_failure(bot: RunningServer, telegram: FakeTelegram) -> None:
    telegram.webhook = "https://elsewhere.example/hook"
    with bot.client() as client:
        assert client.get("/api/gateways").json()["checkable"]
        checked = client.post("/api/gateways/check")
        assert TOKEN not in checked.text
        wrong = {one["about"]: one["hint"] for one in checked.json()["findings"] if one["level"] == "wrong"}
        assert "--fix" in wrong["webhook"]
        until(lambda: "webhook" in str(listed(client)[0]["problem"]), "the poller stores why it receives nothing")


def test_a_refused_token_is_shown_and_the_server_serves(tmp_path: Path, telegram: FakeTelegram) -> None:
    file = tmp_path / "token"
    file.write_text("7:another-token")
    settings = {"telegram": {"token_file": str(file), "server": telegram.url}}
    with (
        run_server(tmp_path / "chat.db", {"default": ScriptedAgent()}, gateways=settings) as server,
        server.client() as client,
    ):
        until(lambda: "does not accept" in str(listed(client)[0]["problem"]), "the refusal is shown")
        assert listed(client)[0]["state"] == "failing"
        assert client.get("/api/sessions").status_code == 200
