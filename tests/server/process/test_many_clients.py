"""A thousand clients of one session: each gets all events, in order."""

from typing import Any

import pytest

from tests.databases import Place
from tests.server.agents import AGENTS
from tests.server.api_calls import accepted, answered, log_of, new_session, until
from tests.server.running_server import run_server
from tests.server.stream_reader import Reader

CLIENTS = 1_000


@pytest.mark.engines("sqlite")  # the server reads the store once for all of them
def test_a_thousand_clients_get_all_events_in_order(path: Place) -> None:
    room: dict[str, Any] = {"streams_per_token": CLIENTS, "streams_per_owner": CLIENTS, "heartbeat_seconds": 600.0}
    with run_server(path, AGENTS, **room) as server, server.client() as client:
        session = new_session(client)
        answered(client, session, "before they came")
        token = server.token()
        readers = [Reader(server.port, token, f"sessions={session}") for _ in range(CLIENTS)]
        try:
            assert {reader.status for reader in readers} == {200}
            assert f"backstay_streams {CLIENTS}\n" in client.get("/metrics").text

            turn = accepted(client, session, "one two three four five")
            told = [hear_out(reader, turn) for reader in readers]

            log = [event["number"] for event in log_of(server, client, session)]
            assert all(numbers == log for numbers in told)
        finally:
            for reader in readers:
                reader.close()


def hear_out(reader: Reader, turn: str) -> list[int]:
    """The numbers of all events up to the end of the turn."""
    return [frame.data["number"] for frame in reader.until("event", kind="turn_ended", turn=turn)]


def test_disconnected_clients_leave_nothing_behind(path: Place) -> None:
    with run_server(path, AGENTS) as server, server.client() as client:
        session = new_session(client)
        for _ in range(5):
            readers = [Reader(server.port, server.token(), f"sessions={session}&feed=true") for _ in range(40)]
            for reader in readers:
                reader.close()
        until(lambda: "backstay_streams 0\n" in client.get("/metrics").text, "no stream of clients who left is counted")
