"""The stream: replay that has caught up, resumable at every event, for several sessions and the list at once."""

import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx2
import psycopg
import pytest

from backstay import open_store
from tests.databases import Place
from tests.server.agents import AGENTS
from tests.server.api_calls import accepted, answered, log_of, new_session, until, until_ended, until_said
from tests.server.running_server import RunningServer, run_server
from tests.server.stream_reader import Frame, Reader


@pytest.fixture
def server(path: Place, notify: bool) -> Iterator[RunningServer]:
    """With and without the shortcut inside the process."""
    with run_server(path, AGENTS, notify=notify, heartbeat_seconds=0.2) as server:
        yield server


@contextmanager
def reading(server: RunningServer, query: str, last_id: str | None = None, **more: Any) -> Iterator[Reader]:
    with Reader(server.port, server.token(), query, last_id, **more) as reader:
        assert reader.status == 200, reader.body()
        yield reader


def events_in(frames: list[Frame], session: str | None = None) -> list[dict[str, Any]]:
    return [
        frame.data
        for frame in frames
        if frame.name == "event" and (session is None or frame.data["session"] == session)
    ]


def test_the_stream_is_the_log_first_replayed_then_live(server: RunningServer, client: httpx2.Client) -> None:
    session = new_session(client)
    answered(client, session, "before")
    with reading(server, f"sessions={session}") as reader:
        heard = reader.until("event", kind="turn_ended")
        turn = accepted(client, session, "while you listen")
        heard += reader.until("event", kind="turn_ended", turn=turn)

    assert events_in(heard) == log_of(server, client, session)
    assert all(frame.id for frame in heard)


def test_cut_after_every_event_and_resumed_the_pieces_are_the_log(server: RunningServer, client: httpx2.Client) -> None:
    sessions = [new_session(client), new_session(client)]
    for session in sessions:
        answered(client, session, "one two three four")
    query = f"sessions={','.join(sessions)}"
    logs = {session: log_of(server, client, session) for session in sessions}
    total = sum(len(log) for log in logs.values())

    for cut in range(1, total):
        with reading(server, query) as first:
            heard = [next(first.frames()) for _ in range(cut)]
        with reading(server, query, heard[-1].id) as second:
            rest = second.frames()
            heard += [next(rest) for _ in range(total - cut)]
        for session in sessions:
            assert events_in(heard, session) == logs[session]


def test_cut_at_random_bytes_again_and_again_the_pieces_are_the_log(
    server: RunningServer, client: httpx2.Client
) -> None:
    chance = random.Random(11)
    sessions = [new_session(client) for _ in range(3)]
    turns = [accepted(client, session, "many 60") for session in sessions]
    heard: list[Frame] = []
    last: str | None = None
    ended: set[str] = set()
    while ended != set(turns):
        with reading(server, f"sessions={','.join(sessions)}", last) as reader:
            for frame in reader.frames(most_bytes=chance.randrange(1, 12_000)):
                heard.append(frame)
                last = frame.id
                if frame.data["body"]["kind"] == "turn_ended":
                    ended.add(frame.data["turn"])
                if ended == set(turns):
                    break

    for session in sessions:
        assert events_in(heard, session) == log_of(server, client, session)


def test_a_cursor_in_the_address_does_as_well_and_the_header_is_newer(
    server: RunningServer, client: httpx2.Client
) -> None:
    session = new_session(client)
    answered(client, session, "one two three")
    log = log_of(server, client, session)
    with reading(server, f"sessions={session}") as reader:
        frames = reader.frames()
        first, second, third = (next(frames) for _ in range(3))

    with reading(server, f"sessions={session}&after={first.id}") as reader:
        assert next(reader.frames()).data == log[1]
    with reading(server, f"sessions={session}&after={first.id}", second.id) as reader:
        assert next(reader.frames()) == third
    with reading(server, f"sessions={session}:2") as reader:
        assert next(reader.frames()).data == log[2]


def test_a_turn_of_another_process_streams_here(server: RunningServer, client: httpx2.Client) -> None:
    session = new_session(client)
    with reading(server, f"sessions={session}") as reader, run_server(server.place, AGENTS) as other:
        with other.client() as there:
            turn = accepted(there, session, "from over there")
        heard = reader.until("event", kind="turn_ended", turn=turn)

    assert events_in(heard) == log_of(server, client, session)


def test_the_feed_begins_with_a_snapshot_and_has_the_rows_of_the_list(
    server: RunningServer, client: httpx2.Client
) -> None:
    old = new_session(client)
    with reading(server, "feed=true") as reader:
        [snapshot] = reader.until("snapshot")
        assert [session["id"] for session in snapshot.data["feed"]["sessions"]] == [old]

        made = new_session(client)
        client.patch(f"/api/sessions/{made}", json={"title": "Dinner"})
        heard = reader.until("listed", title="Dinner")
        assert {frame.name for frame in heard} == {"listed"}
        assert heard[-1].data == client.get(f"/api/sessions/{made}").json()

        client.delete(f"/api/sessions/{made}")
        assert reader.until("unlisted", id=made)[-1].data == {"id": made}


def test_the_feed_resumes_at_its_cursor(server: RunningServer, client: httpx2.Client) -> None:
    with reading(server, "feed=true") as reader:
        left = reader.until("snapshot")[-1].id
    made = [new_session(client) for _ in range(5)]

    with reading(server, "feed=true", left) as reader:
        frames = reader.frames()
        assert [next(frames).data["id"] for _ in made] == made


def test_a_place_in_the_feed_that_does_not_exist_starts_over_with_a_snapshot(server: RunningServer) -> None:
    with reading(server, "feed=true", "99999999") as reader:
        assert next(reader.frames()).name == "snapshot"


def test_sessions_and_the_list_share_one_stream_and_one_cursor(server: RunningServer, client: httpx2.Client) -> None:
    followed, other = new_session(client), new_session(client)
    query = f"sessions={followed}&feed=true"
    with reading(server, query) as reader:
        turn = accepted(client, followed, "hello")
        heard = reader.until("event", kind="turn_ended", turn=turn)
    client.patch(f"/api/sessions/{other}", json={"title": "Meanwhile"})
    again = accepted(client, followed, "hello again")
    with reading(server, query, heard[-1].id) as reader:
        rest = reader.until("event", kind="turn_ended", turn=again)

    assert events_in(heard + rest) == log_of(server, client, followed)
    assert "Meanwhile" in [frame.data["title"] for frame in rest if frame.name == "listed"]


def test_signs_of_life_carry_no_id(server: RunningServer, client: httpx2.Client) -> None:
    session = new_session(client)
    with reading(server, f"sessions={session}") as reader:
        frames = reader.frames()
        assert next(frames).data["number"] == 1
        reader.wait_for_bytes(b": still here")
        client.patch(f"/api/sessions/{session}", json={"title": "wake up"})
        assert next(frames).data["number"] == 2

    assert ": still here" in reader.comments


def test_a_cursor_inside_folded_events_gets_a_snapshot_frame_and_the_fold(
    server: RunningServer, client: httpx2.Client
) -> None:
    session = new_session(client)
    answered(client, session, "one two three four five")
    with reading(server, f"sessions={session}") as reader:
        frames = reader.frames()
        inside = [next(frames) for _ in range(4)][-1]
    with open_store(server.place) as store:
        assert store.fold(older_than=-1) > 0

    with reading(server, f"sessions={session}", inside.id) as reader:
        frames = reader.frames()
        gap, fold = next(frames), next(frames)

    assert (gap.name, gap.id, gap.data) == ("snapshot", None, {"session": session, "seen": inside.data["number"]})
    assert fold.data["body"]["kind"] == "turn_folded"
    assert fold.data["number"] <= inside.data["number"] <= fold.data["last"]


def test_a_cursor_of_missing_events_gets_a_resync_and_all_events(server: RunningServer, client: httpx2.Client) -> None:
    session = new_session(client)
    answered(client, session, "hello")
    log = log_of(server, client, session)

    for forged in (f"_{session[4:]}-99-3", f"_{session[4:]}-1-999"):
        with reading(server, f"sessions={session}", forged) as reader:
            frames = reader.frames()
            assert next(frames).name == "resync"
            assert [next(frames).data for _ in log] == log


def test_a_live_reader_gets_a_resync_after_a_crash_shortened_the_log(empty_database: str) -> None:
    with run_server(empty_database, AGENTS) as server, server.client() as client:
        session = new_session(client)
        answered(client, session, "hello")
        log = log_of(server, client, session)
        with reading(server, f"sessions={session}") as reader:
            frames = reader.frames()
            assert [next(frames).data for _ in log] == log
            with psycopg.connect(empty_database) as database:
                last = {"session": session, "number": log[-1]["number"]}
                database.execute("DELETE FROM events WHERE session_id = %(session)s AND number = %(number)s", last)
                database.execute("UPDATE sessions SET last_event = %(number)s - 1 WHERE id = %(session)s", last)
                database.execute(_LOSE_MARKS)

            assert next(frames).name == "resync"
            assert [next(frames).data for _ in log[:-1]] == log[:-1]


def test_a_live_reader_of_an_event_that_was_replaced_after_a_crash_gets_a_resync(empty_database: str) -> None:
    with run_server(empty_database, AGENTS) as server, server.client() as client:
        session = new_session(client)
        answered(client, session, "hello")
        log = log_of(server, client, session)
        with reading(server, f"sessions={session}") as reader:
            frames = reader.frames()
            assert [next(frames).data for _ in log] == log
            # The last event is lost, and another one gets its number before the next read.
            with psycopg.connect(empty_database) as database:
                database.execute(_REPLACE_EVENT, {"session": session, "number": log[-1]["number"]})
                database.execute(_LOSE_MARKS)

            assert next(frames).name == "resync"
            fence = log[-1]["fence"] + 1
            assert [next(frames).data for _ in log] == [*log[:-1], log[-1] | {"fence": fence}]


# A crash takes the marks of the lost commits back with them.
_LOSE_MARKS = "UPDATE commits SET number = number - 1"
_REPLACE_EVENT = """
WITH lost AS (DELETE FROM events WHERE session_id = %(session)s AND number = %(number)s RETURNING *)
INSERT INTO events (session_id, number, last, fence, turn_id, kind, format, body, source_id, low, high, at)
SELECT session_id, number, last, fence + 1, turn_id, kind, format, body, source_id, low, high, at FROM lost
"""


@pytest.mark.engines("sqlite")
@pytest.mark.parametrize(
    "forged",
    [
        "nonsense",
        "-1",
        "1_",
        "_x-1-1",
        "1_01m7hf33ssedraszne8qbw8z4p-1",
        "0x10",
        "1\u0662",
        "9" * 19,
        "1" * 9_000,
        "1 ",
    ],
)
def test_an_invalid_stream_cursor_is_rejected(server: RunningServer, forged: str, client: httpx2.Client) -> None:
    session = new_session(client)
    headers = {"last-event-id": forged}

    refused = client.get("/api/events", params={"sessions": session, "after": forged})
    assert refused.status_code in (400, 422)
    if forged.isascii() and forged.strip() == forged:
        assert client.get("/api/events", params={"sessions": session}, headers=headers).status_code == 400


@pytest.mark.engines("sqlite")
@pytest.mark.parametrize("query", ["", "sessions=", "sessions=nonsense", "sessions=ses_1,ses_1", "feed=maybe"])
def test_a_stream_of_nothing_is_refused(client: httpx2.Client, query: str) -> None:
    assert client.get(f"/api/events?{query}").status_code == 422


def test_the_stream_reports_a_deleted_session_and_continues_with_the_others(
    server: RunningServer, client: httpx2.Client
) -> None:
    doomed, other = new_session(client), new_session(client)
    with reading(server, f"sessions={doomed},{other}") as reader:
        reader.until("event", kind="session_created", session=other)
        client.delete(f"/api/sessions/{doomed}")
        tombstone = reader.until("event", kind="session_deleted", session=doomed)[-1]
        client.patch(f"/api/sessions/{other}", json={"title": "still here"})
        reader.until("event", kind="session_renamed", session=other)

    with reading(server, f"sessions={doomed},{other}", tombstone.id) as reader:
        assert next(reader.frames()).data["body"]["kind"] == "session_renamed"


def test_a_client_that_stops_reading_is_disconnected(path: Place, notify: bool) -> None:
    with run_server(path, AGENTS, notify=notify, slow_reader_seconds=1.0) as server, server.client() as client:
        session = new_session(client)
        for _ in range(12):
            client.post(
                f"/api/sessions/{session}/record",
                json={"messages": [{"role": "user", "parts": [{"type": "text", "text": "x" * 900_000}]}]},
            )
        with reading(server, f"sessions={session}", receive_buffer=4_096):
            until_metric(client, "backstay_streams", 0)


def until_metric(client: httpx2.Client, name: str, value: int) -> None:
    """Poll until the metric has this value: the test waits for a timeout of the server."""
    until(lambda: f"{name} {value}\n" in client.get("/metrics").text, f"{name} {value}")


def test_a_client_that_leaves_is_noticed(server: RunningServer, client: httpx2.Client) -> None:
    session = new_session(client)
    with reading(server, f"sessions={session}") as reader:
        next(reader.frames())
        assert "backstay_streams 1\n" in client.get("/metrics").text
    until_metric(client, "backstay_streams", 0)


def test_a_revoked_token_ends_its_streams_cleanly(server: RunningServer, client: httpx2.Client) -> None:
    session = new_session(client)
    given = client.post("/api/tokens", json={"name": "guest"}).json()
    with Reader(server.port, given["secret"], f"sessions={session}") as reader:
        frames = reader.frames()
        next(frames)
        client.delete(f"/api/tokens/{given['token']['id']}")
        assert list(frames) == []
    assert reader.comments[-1] == ": bye"


def test_more_streams_than_allowed_are_refused(path: Place) -> None:
    with run_server(path, AGENTS, streams_per_token=2, streams_per_owner=3) as server, server.client() as client:
        session = new_session(client)
        token, other = server.token(), server.token(name="another")
        query = f"sessions={session}"
        with Reader(server.port, token, query), Reader(server.port, token, query):
            with Reader(server.port, token, query) as third:
                assert (third.status, third.headers["retry-after"]) == (429, "5")
            with Reader(server.port, other, query) as another:
                assert another.status == 200
                with Reader(server.port, other, query) as fourth:
                    assert fourth.status == 429


def test_a_stopping_server_ends_its_streams_and_the_next_one_resumes_them(path: Place, notify: bool) -> None:
    with run_server(path, AGENTS, notify=notify) as first:
        token = first.token()
        with first.client() as client:
            session = new_session(client)
            turn = accepted(client, session, "hello", agent="patient")
            until_said(client, session, "listening ")
        with Reader(first.port, token, f"sessions={session}") as reader:
            heard = reader.until("event", kind="text_delta")
            first.stop()
            heard += list(reader.frames())
    assert reader.comments[-1] == ": bye"

    with run_server(path, AGENTS, notify=notify) as second, second.client() as client:
        with Reader(second.port, token, f"sessions={session}", heard[-1].id) as again:
            heard += again.until("event", kind="turn_ended", turn=turn)
        assert events_in(heard) == log_of(second, client, session)
        assert client.get(f"/api/turns/{turn}").json()["outcome"]["type"] == "interrupted"
        until_ended(client, session, turn)
