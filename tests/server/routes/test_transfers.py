"""Exports and imports of whole sessions: few at once, checked by their length first, and sent from a file."""

import asyncio
import json
import socket

import httpx2
import pytest

from backstay import open_store
from backstay.model import message
from backstay.model.documents.records import MEDIA_TYPE
from backstay.model.ids import SessionId
from backstay.server.http.problems import Refused
from backstay.server.transfers import Transfers
from tests.databases import Place
from tests.server.agents import AGENTS
from tests.server.api_calls import answered, new_session
from tests.server.running_server import PATIENCE, RunningServer, run_server

JSON = {"content-type": "application/json"}
LINES = {"content-type": MEDIA_TYPE}


def test_no_more_transfers_run_at_once_than_are_allowed() -> None:
    async def scenario() -> None:
        transfers, free, begun = Transfers(2, 2, 0.0), asyncio.Event(), asyncio.Semaphore(0)

        async def work() -> str:
            begun.release()
            await free.wait()
            return "done"

        running = [asyncio.create_task(transfers.run("me", work)) for _ in range(2)]
        for _ in running:
            await begun.acquire()
        with pytest.raises(Refused) as refused:
            await transfers.run("me", work)
        assert (refused.value.status, refused.value.headers["retry-after"]) == (503, "5")

        # A caller that stops waiting does not free the slot: the work still runs.
        running[0].cancel()
        await asyncio.wait(running[:1])
        with pytest.raises(Refused):
            await transfers.run("me", work)
        free.set()
        assert await running[1] == "done"
        assert await Transfers(1, 1, PATIENCE).run("me", work) == "done"

    asyncio.run(scenario())


def test_one_owner_does_not_take_the_room_of_others() -> None:
    async def scenario() -> None:
        transfers, free, begun = Transfers(2, 1, 0.0), asyncio.Event(), asyncio.Semaphore(0)

        async def work() -> str:
            begun.release()
            await free.wait()
            return "done"

        first = asyncio.create_task(transfers.run("greedy", work))
        await begun.acquire()
        with pytest.raises(Refused):
            await transfers.run("greedy", work)
        other = asyncio.create_task(transfers.run("modest", work))
        await begun.acquire()
        free.set()
        assert [await first, await other, await transfers.run("greedy", work)] == ["done"] * 3

    asyncio.run(scenario())


@pytest.mark.parametrize("method", ["GET", "POST"])
def test_a_transfer_over_the_limit_gets_a_retry_after(path: Place, method: str) -> None:
    with run_server(path, AGENTS, transfers=0, transfer_wait_seconds=0.01) as server, server.client() as client:
        where = f"/api/sessions/{new_session(client)}/export" if method == "GET" else "/api/imports"

        refused = client.request(method, where, content=b"{}", headers=JSON)

        assert (refused.status_code, refused.json()["code"], refused.headers["retry-after"]) == (503, "transfers", "5")


def test_a_document_that_is_too_long_is_refused_before_it_is_sent(path: Place) -> None:
    with (
        run_server(path, AGENTS, import_bytes=1_000) as server,
        socket.create_connection(("127.0.0.1", server.port)) as raw,
    ):
        raw.settimeout(PATIENCE)
        raw.sendall(
            b"POST /api/imports HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
            b"Authorization: Bearer %s\r\nContent-Length: 1001\r\n\r\n" % server.token().encode()
        )
        assert raw.recv(100).startswith(b"HTTP/1.1 413 ")


def test_a_document_of_unknown_length_is_refused_when_it_gets_too_long(path: Place) -> None:
    with run_server(path, AGENTS, import_bytes=1_000) as server, server.client() as client:
        answer = client.post("/api/imports", content=(b" " * 100 for _ in range(11)), headers=JSON)
        assert answer.status_code == 413


def test_an_exported_document_comes_whole_and_can_be_imported(server: RunningServer, client: httpx2.Client) -> None:
    session = new_session(client)
    answered(client, session, "many 500")

    exported = client.get(f"/api/sessions/{session}/export")

    assert exported.headers["content-length"] == str(len(exported.content))
    assert exported.headers["content-type"] == MEDIA_TYPE
    assert f"{session}.jsonl" in exported.headers["content-disposition"]
    assert json.loads(exported.content.partition(b"\n")[0])["session"]["id"] == session
    imported = client.post("/api/imports", content=exported.content, headers=LINES).json()
    again = client.get(f"/api/sessions/{imported['session']['id']}/export")
    assert len(again.content.splitlines()) == len(exported.content.splitlines())


def test_a_document_longer_than_may_be_in_memory_can_be_imported_again(path: Place) -> None:
    with run_server(path, AGENTS, import_line_bytes=20_000) as server, server.client() as client:
        session = SessionId(new_session(client))
        with open_store(path) as store:
            store.record(session, [message.user("x" * 1_000) for _ in range(60)], owner="local")

        exported = client.get(f"/api/sessions/{session}/export").content

        assert len(exported) > 2 * 20_000
        imported = client.post("/api/imports", content=exported, headers=LINES)
        assert imported.status_code == 201, imported.text
        # One JSON object, as older versions wrote it, is read as a whole.
        with open_store(path) as store:
            whole = store.export(session, owner="local").to_json()
        refused = client.post("/api/imports", content=whole, headers=JSON)
        assert (refused.status_code, "Export the session again" in refused.json()["hint"]) == (413, True)


def test_a_document_that_an_older_version_exported_can_be_imported(
    server: RunningServer, client: httpx2.Client
) -> None:
    session = new_session(client)
    answered(client, session, "one two")
    with open_store(server.place) as store:
        whole = store.export(SessionId(session), owner="local").to_json()

    imported = client.post("/api/imports", content=whole, headers=JSON)

    assert (imported.status_code, imported.json()["copied"]) == (201, True)


def test_one_owner_sends_one_document_at_a_time() -> None:
    async def scenario() -> None:
        transfers = Transfers(2, 1, 0.0)
        async with transfers.receiving("greedy"):
            with pytest.raises(Refused) as refused:
                async with transfers.receiving("greedy"):
                    pass
            assert refused.value.status == 503
            async with transfers.receiving("modest"):
                pass
        async with transfers.receiving("greedy"):
            pass

    asyncio.run(scenario())
