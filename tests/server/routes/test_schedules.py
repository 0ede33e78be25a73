"""Schedules over HTTP: the server's time zone, and firing switched off."""

import httpx2
import pytest

from backstay.config import choose
from backstay.errors import ConfigError
from tests.databases import Place
from tests.server.agents import AGENTS
from tests.server.running_server import run_server

pytestmark = pytest.mark.engines("sqlite")

WANTED = {"when": "day 9:00", "text": "tea?", "address": "chat://telegram/dm/42"}


def test_a_time_without_a_zone_is_in_that_of_the_server(place: Place) -> None:
    with run_server(place, AGENTS, time_zone="Asia/Tokyo") as server, server.client() as client:
        made = client.post("/api/schedules", json=WANTED)
        other = client.post("/api/schedules", json=WANTED | {"zone": "UTC"})

        assert (made.status_code, made.json()["when"]) == (201, "day 09:00 Asia/Tokyo")
        assert made.headers["location"] == f"/api/schedules/{made.json()['id']}"
        assert other.json()["when"] == "day 09:00 UTC"


def test_an_unknown_time_zone_in_the_settings_is_refused_at_the_start() -> None:
    with pytest.raises(ConfigError, match="time_zone: 'Nowhere' is not a time zone"):
        choose({"db": "x.db", "time_zone": "Nowhere"}, {})


@pytest.mark.parametrize(
    "wrong",
    [
        {"when": "often"},
        {"session": "ses_1"},
        {"address": None},
        {"if_missed": "never"},
        {"text": ""},
        {"zone": "Nowhere"},
        {"unknown": 1},
    ],
)
def test_a_wrong_request_is_refused_and_creates_nothing(client: httpx2.Client, wrong: dict[str, object]) -> None:
    before = client.get("/api/schedules").json()
    answer = client.post("/api/schedules", json=WANTED | wrong)
    assert answer.status_code == 422, answer.text
    assert client.get("/api/schedules").json() == before
