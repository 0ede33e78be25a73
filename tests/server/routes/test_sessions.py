"""Sessions over HTTP: made, listed, filed, read, searched, ended and deleted."""

import json
from pathlib import Path
from typing import Any

import httpx2
import pytest

from backstay.model.documents.records import MEDIA_TYPE
from tests.databases import Place
from tests.server.agents import AGENTS
from tests.server.api_calls import accepted, answered, new_session, read, say, until, until_ended
from tests.server.running_server import RunningServer, run_server

JsonObject = dict[str, Any]


def test_a_session_is_made_and_read_back(client: httpx2.Client) -> None:
    made = client.post("/api/sessions", json={})

    assert made.status_code == 201
    session = made.json()
    assert client.get(made.headers["location"]).json() == session
    assert (session["owner"], session["state"], session["turns"]) == ("local", "open", 0)


def test_the_same_address_leads_to_the_same_session(client: httpx2.Client) -> None:
    first = client.post("/api/sessions", json={"address": "chat://slack/dm/U1"})
    again = client.post("/api/sessions", json={"address": "chat://slack/dm/U1"})

    assert (first.status_code, again.status_code) == (201, 200)
    assert first.json()["id"] == again.json()["id"]


def test_an_address_can_be_pointed_to_another_session(client: httpx2.Client) -> None:
    address = {"address": "chat://slack/dm/U1"}
    client.post("/api/sessions", json=address)
    other = new_session(client)

    led = client.put(f"/api/sessions/{other}/address", json=address)

    assert (led.status_code, led.json()["id"]) == (200, other)
    assert client.post("/api/sessions", json=address).json()["id"] == other
    assert client.put(f"/api/sessions/{other}/address", json={"address": "nonsense"}).status_code == 422


def test_the_list_is_read_page_by_page(client: httpx2.Client) -> None:
    made = {new_session(client) for _ in range(7)}
    seen: list[str] = []
    after: str | None = None
    while True:
        query = {"limit": 3} | ({} if after is None else {"after": after})
        page = client.get("/api/sessions", params=query).json()
        seen += [session["id"] for session in page["sessions"]]
        after = page["next"]
        if after is None:
            break

    assert len(seen) == 7
    assert set(seen) == made


def test_the_list_can_be_narrowed(client: httpx2.Client) -> None:
    pinned, tagged = new_session(client), new_session(client)
    client.patch(f"/api/sessions/{pinned}", json={"pinned": True})
    client.patch(f"/api/sessions/{tagged}", json={"add_tags": ["home"]})

    def listed(**query: str) -> list[str]:
        return [session["id"] for session in client.get("/api/sessions", params=query).json()["sessions"]]

    assert listed(pinned="true") == [pinned]
    assert listed(tag="home") == [tagged]
    assert listed(state="ended") == []


def test_organising_changes_only_the_given_fields(client: httpx2.Client) -> None:
    session = new_session(client)
    filed = client.patch(f"/api/sessions/{session}", json={"title": "Dinner", "pinned": True, "add_tags": ["home"]})
    assert filed.status_code == 200

    then = client.patch(f"/api/sessions/{session}", json={"archived": True, "remove_tags": ["home"]}).json()

    assert (then["title"], then["pinned"], then["archived"], then["tags"]) == ("Dinner", True, True, [])
    assert client.patch(f"/api/sessions/{session}", json={"title": None}).json()["title"] is None


def test_an_edit_of_a_changed_session_is_rejected_with_its_current_state(client: httpx2.Client) -> None:
    session = new_session(client)
    seen = client.get(f"/api/sessions/{session}").headers["etag"]
    now = client.patch(f"/api/sessions/{session}", json={"title": "Theirs"}).headers["etag"]

    refused = client.patch(f"/api/sessions/{session}", json={"title": "Mine"}, headers={"if-match": seen})

    assert refused.status_code == 412
    assert refused.headers["content-type"] == "application/problem+json"
    problem = refused.json()
    assert (problem["code"], f'"{problem["expected"]}"', f'"{problem["actual"]}"') == ("revision_mismatch", seen, now)
    assert problem["hint"]
    kept = client.patch(f"/api/sessions/{session}", json={"title": "Mine"}, headers={"if-match": now})
    assert kept.json()["title"] == "Mine"


@pytest.mark.engines("sqlite")
@pytest.mark.parametrize("tag", ["7", 'W/"7"', '"x"', '""', '"-1"', '"1", "2"', '"' + "9" * 40 + '"'])
def test_an_invalid_revision_is_rejected(client: httpx2.Client, tag: str) -> None:
    session = new_session(client)

    assert client.post(f"/api/sessions/{session}/undo", headers={"if-match": tag}).status_code == 422


def test_a_client_with_the_current_revision_gets_304(client: httpx2.Client) -> None:
    session = new_session(client)
    tag = client.get(f"/api/sessions/{session}").headers["etag"]

    known = client.get(f"/api/sessions/{session}", headers={"if-none-match": tag})

    assert (known.status_code, known.content) == (304, b"")
    client.patch(f"/api/sessions/{session}", json={"title": "New"})
    assert client.get(f"/api/sessions/{session}", headers={"if-none-match": tag}).status_code == 200


def test_an_ended_session_is_readable_and_takes_nothing_more(client: httpx2.Client) -> None:
    session = new_session(client)
    answered(client, session, "hello")

    assert client.post(f"/api/sessions/{session}/end").json()["state"] == "ended"

    assert len(read(client, session)) == 2
    refused = client.post(f"/api/sessions/{session}/turns", json={"text": "more"})
    assert (refused.status_code, refused.json()["code"]) == (409, "session_ended")


def test_a_deletion_returns_the_counts_and_the_session_is_gone(client: httpx2.Client) -> None:
    session = new_session(client)
    answered(client, session, "hello")

    deleted = client.delete(f"/api/sessions/{session}").json()

    assert (deleted["messages"], deleted["turns"]) == (2, 1)
    assert client.get(f"/api/sessions/{session}").status_code == 404
    assert client.delete(f"/api/sessions/{session}").status_code == 404


def test_messages_are_read_from_the_end_backwards(client: httpx2.Client) -> None:
    session = new_session(client)
    for number in range(5):
        answered(client, session, f"question {number}")

    last = client.get(f"/api/sessions/{session}/messages", params={"last": 4}).json()
    before = client.get(
        f"/api/sessions/{session}/messages", params={"last": 4, "before": last["messages"][0]["position"]}
    ).json()

    assert last["length"] == 10
    assert [message["position"] for message in before["messages"] + last["messages"]] == list(range(2, 10))


def test_stored_text_is_found(client: httpx2.Client) -> None:
    session, other = new_session(client), new_session(client)
    answered(client, session, "the heron stands in the reeds")
    answered(client, other, "nothing of the kind")

    found = client.get("/api/search", params={"q": "heron"}).json()

    assert {hit["session"] for hit in found["hits"]} == {session}
    assert client.get("/api/search", params={"q": "heron", "session": other}).json()["hits"] == []


def test_events_can_be_read_in_pages_without_following(client: httpx2.Client) -> None:
    session = new_session(client)
    answered(client, session, "one two three")
    whole = client.get(f"/api/sessions/{session}/events").json()["events"]

    numbers, after = [], 0
    while True:
        page = client.get(f"/api/sessions/{session}/events", params={"after": after, "limit": 2}).json()
        numbers += [event["number"] for event in page["events"]]
        after = page["next"]["number"]
        if not page["more"]:
            break

    assert numbers == [event["number"] for event in whole] == list(range(1, len(whole) + 1))


def test_the_lineage_shows_every_window(client: httpx2.Client) -> None:
    session = new_session(client)
    answered(client, session, "hello")
    client.post(f"/api/sessions/{session}/undo")

    windows = client.get(f"/api/sessions/{session}/lineage").json()["windows"]

    assert [window["reason"] for window in windows] == ["first", "undo"]


def test_drafts_and_read_marks_are_kept(client: httpx2.Client) -> None:
    session = new_session(client)

    client.put(f"/api/sessions/{session}/draft", json={"text": "Dear…"})
    client.put(f"/api/sessions/{session}/read", json={"number": 1})

    assert client.get(f"/api/sessions/{session}/marks").json() == {"draft": "Dear…", "read_to": 1}
    assert client.put(f"/api/sessions/{session}/read", json={"number": 10**6}).status_code == 422


def test_a_session_survives_export_deletion_and_import_unchanged(client: httpx2.Client) -> None:
    session = new_session(client)
    answered(client, session, "one two")
    answered(client, session, "three")
    client.post(f"/api/sessions/{session}/undo")
    client.patch(f"/api/sessions/{session}", json={"title": "Kept", "add_tags": ["home"]})
    seen = [client.get(f"/api/sessions/{session}/{what}").json() for what in ("messages", "events", "lineage")]
    document = client.get(f"/api/sessions/{session}/export")
    assert document.headers["content-disposition"].startswith("attachment")
    client.delete(f"/api/sessions/{session}")

    imported = client.post("/api/imports", content=document.content, headers={"content-type": MEDIA_TYPE})

    assert imported.status_code == 201, imported.text
    there = imported.json()["session"]["id"]
    again = client.get(f"/api/sessions/{there}").json()
    assert (again["title"], again["tags"], again["length"]) == ("Kept", ["home"], 2)
    messages = client.get(f"/api/sessions/{there}/messages").json()["messages"]
    assert [(one["role"], one["parts"]) for one in messages] == [
        (one["role"], one["parts"]) for one in seen[0]["messages"]
    ]
    events = client.get(f"/api/sessions/{there}/events").json()["events"]
    assert [one["number"] for one in events] == [one["number"] for one in seen[1]["events"]]
    windows = client.get(f"/api/sessions/{there}/lineage").json()["windows"]
    assert [one["reason"] for one in windows] == [one["reason"] for one in seen[2]["windows"]]


def test_imported_waiting_turns_are_held_and_addresses_dropped_until_asked_for(path: Place) -> None:
    with run_server(path, AGENTS) as server, server.client() as client, server.client("kim") as kim:
        session = client.post("/api/sessions", json={"address": "chat://telegram/dm/42"}).json()["id"]
        accepted(client, session, "wait", agent="patient")
        waiting = accepted(client, session, "is anybody there?")
        document, lines = client.get(f"/api/sessions/{session}/export").content, {"content-type": MEDIA_TYPE}

        imported = kim.post("/api/imports", content=document, headers=lines).json()
        asked_for = kim.post("/api/imports?addresses=true", content=document, headers=lines).json()

        there, (held,) = imported["session"]["id"], imported["held"]
        assert (imported["addresses"], imported["dropped"]) == ([], ["chat://telegram/dm/42"])
        assert (asked_for["addresses"], asked_for["dropped"]) == (["chat://telegram/dm/42"], [])
        assert held != waiting
        answered(kim, there, "hello")
        assert kim.get(f"/api/turns/{held}").json()["held"]
        assert {one["held"] for one in kim.get("/api/sessions").json()["sessions"]} == {1}
        assert client.post(f"/api/turns/{held}/release").status_code == 404
        assert kim.post(f"/api/turns/{held}/release").json()["held"] is False
        until_ended(kim, there, held)
        assert kim.delete(f"/api/turns/{asked_for['held'][0]}").json()["outcome"]["type"] == "cancelled"


def test_a_document_not_made_by_a_store_is_rejected(client: httpx2.Client) -> None:
    session = new_session(client)
    header, *lines = client.get(f"/api/sessions/{session}/export").text.splitlines(keepends=True)

    broken: dict[str, Any]
    for broken in ({}, json.loads(header) | {"format": 99}, json.loads(header) | {"nonsense": 1}):
        document = "".join([json.dumps(broken), "\n", *lines])
        answer = client.post("/api/imports", content=document, headers={"content-type": MEDIA_TYPE})
        assert answer.status_code == 422


@pytest.mark.engines("sqlite")
@pytest.mark.parametrize(
    ("method", "where", "body", "status"),
    [
        ("POST", "/api/sessions", b"{", 400),
        ("POST", "/api/sessions", b'{"nonsense": 1}', 422),
        ("POST", "/api/sessions", b'{"ttl": {"idle": -1}}', 422),
        ("POST", "/api/sessions", b"[" * 100_000, 422),
        ("POST", "/api/sessions", b'{"address": "nowhere"}', 422),
        ("GET", "/api/sessions?limit=0", None, 422),
        ("GET", "/api/sessions?limit=2000", None, 422),
        ("GET", "/api/sessions?nonsense=1", None, 422),
        ("GET", "/api/sessions?limit=1&limit=2", None, 422),
        ("GET", "/api/sessions?after=nonsense", None, 422),
        ("GET", "/api/search", None, 422),
        ("GET", "/api/nowhere", None, 404),
        ("PUT", "/api/sessions", b"{}", 405),
        ("GET", "/api/sessions/ses_nonsense", None, 404),
        ("GET", "/api/sessions/../../etc/passwd", None, 404),
    ],
)
def test_an_invalid_request_is_rejected_with_a_hint(
    client: httpx2.Client, method: str, where: str, body: bytes | None, status: int
) -> None:
    headers = {} if body is None else {"content-type": "application/json"}

    refused = client.request(method, where, content=body, headers=headers)

    assert refused.status_code == status
    assert refused.headers["content-type"] == "application/problem+json"
    assert refused.json()["hint"]


def test_a_body_of_another_kind_is_refused(client: httpx2.Client) -> None:
    form = client.post("/api/sessions", data={"title": "x"})
    plain = client.post("/api/sessions", content=b"{}", headers={"content-type": "text/plain"})

    assert (form.status_code, plain.status_code) == (415, 415)


def test_a_body_that_is_too_large_is_rejected_with_or_without_a_length(server: RunningServer) -> None:
    with server.client() as client:
        session = new_session(client)
        large = b'{"text": "' + b"x" * (1 << 20) + b'"}'
        headers = {"content-type": "application/json"}

        announced = client.put(f"/api/sessions/{session}/draft", content=large, headers=headers)
        streamed = client.put(
            f"/api/sessions/{session}/draft", content=iter([large[:1000], large[1000:]]), headers=headers
        )

    assert (announced.status_code, streamed.status_code) == (413, 413)


def test_a_message_that_is_too_large_is_refused_before_it_is_stored(client: httpx2.Client) -> None:
    session = new_session(client)

    too_large = say(client, session, "é" * (1 << 19))

    assert too_large.status_code == 413
    assert client.get(f"/api/sessions/{session}").json()["last_event"] == 1


@pytest.mark.parametrize(
    ("said", "title"),
    [
        ("a plan\nfor Saturday", "a plan for Saturday"),
        ("word " * 40, "word " * 11 + "word…"),
        ("x" * 90, "x" * 60 + "…"),
    ],
)
def test_a_session_without_a_title_is_shown_by_its_first_words(tmp_path: Path, said: str, title: str) -> None:
    with run_server(tmp_path / "chat.db", AGENTS, titles=True) as server, server.client() as client:
        session = new_session(client)
        answered(client, session, said)

        until(lambda: client.get(f"/api/sessions/{session}").json()["title"] == title, "it has its name")
        assert client.get(f"/api/sessions/{session}").json()["title_by"] == "agent"
