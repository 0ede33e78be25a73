"""Every task of the server has an owner, which ends it also when it is cancelled itself."""

import asyncio
import json
import subprocess
import sys
from pathlib import Path

import pytest
from starlette.requests import ClientDisconnect, Request
from starlette.types import Message

from backstay.config import Settings
from backstay.server.application import Server
from backstay.server.auth.authenticator import Caller
from backstay.server.http.api_request import ApiRequest, NoInput
from backstay.server.openai.encoding.response_stream import until_over
from backstay.server.process.readiness import WorkersWaiting
from backstay.server.process.worker import web_server
from backstay.server.sse.event_stream import EventStream
from backstay.server.sse.stream_cursor import StreamPosition
from backstay.store import commands
from tests.runtime.controlled_agents import Gate
from tests.server.open_state import open_state


def other_tasks() -> set[str]:
    return {task.get_name() for task in asyncio.all_tasks() if task is not asyncio.current_task()}


def test_a_cancelled_supervisor_leaves_neither_workers_nor_tasks(tmp_path: Path) -> None:
    # In a process of its own: the supervisor may block its event loop, which serves no clients.
    command = [sys.executable, "-m", "tests.server.process.cancelled_supervisor", str(tmp_path / "chat.db")]
    output = subprocess.run(command, check=True, capture_output=True, cwd=Path(__file__).parents[3]).stdout

    left = json.loads(output)
    assert left == {"answer": "HTTP/1.1 200 OK", "cancelled": True, "children": False, "tasks": []}


class HeldOpening:
    """Observes the opening of a store, and holds it when the store is open."""

    def __init__(self) -> None:
        self.gate = Gate()

    async def waiting(self, waiting: WorkersWaiting) -> None:
        """Ignore it."""

    async def opened(self) -> None:
        await self.gate.stop_here()


async def test_a_cancelled_start_of_the_server_closes_its_store(tmp_path: Path) -> None:
    settings, observer = Settings(db=str(tmp_path / "chat.db"), port=0), HeldOpening()
    server = web_server(settings, Server(settings, {}), observer=observer)
    starting = asyncio.create_task(server.startup())
    await observer.gate.reached()

    starting.cancel()
    await asyncio.wait({starting})

    assert starting.cancelled()
    assert not other_tasks()


class SlowToStop(HeldOpening):
    """Holds the opening also while it is cancelled, until the test opens the second gate."""

    def __init__(self) -> None:
        super().__init__()
        self.stopping = Gate()

    async def opened(self) -> None:
        try:
            await self.gate.stop_here()
        finally:
            await self.stopping.stop_here()


async def test_a_start_that_is_cancelled_while_it_stops_closes_its_store(tmp_path: Path) -> None:
    settings, observer = Settings(db=str(tmp_path / "chat.db"), port=0), SlowToStop()
    server = web_server(settings, Server(settings, {}), observer=observer)
    starting = asyncio.create_task(server.startup())
    await observer.gate.reached()
    server.should_exit = True
    await observer.stopping.reached()

    starting.cancel()
    observer.stopping.open()
    await asyncio.wait({starting})

    assert starting.cancelled()
    assert not other_tasks()


class Lifespan:
    """The lifespan of an application, as a web server would run it."""

    def __init__(self, application: Server) -> None:
        self._messages: asyncio.Queue[Message] = asyncio.Queue()
        self._answers: asyncio.Queue[Message] = asyncio.Queue()
        self._task = asyncio.create_task(
            application({"type": "lifespan", "state": {}}, self._messages.get, self._answers.put)
        )

    async def start(self) -> None:
        self._messages.put_nowait({"type": "lifespan.startup"})
        assert (await self._answers.get())["type"] == "lifespan.startup.complete"

    async def stop(self) -> None:
        self._messages.put_nowait({"type": "lifespan.shutdown"})
        await self._task


async def test_a_transfer_without_a_caller_ends_before_the_store_closes(tmp_path: Path) -> None:
    settings = Settings(db=str(tmp_path / "chat.db"), port=0)
    application, gate, ended = Server(settings, {}), Gate(), []

    async def work() -> None:
        try:
            await gate.stop_here()
        finally:
            owned = application.service.app.owned_by("anna")
            ended.append(await owned.run(commands.list_sessions(owner="anna")))

    lifespan = Lifespan(application)
    await lifespan.start()
    caller = asyncio.create_task(application.service.transfers.run("anna", work))
    await gate.reached()
    caller.cancel()
    await asyncio.wait({caller})
    assert not ended

    await lifespan.stop()

    assert len(ended) == 1
    assert not other_tasks()


CALLER = Caller(owner="anna", operator=False)


async def silent() -> Message:
    """The client neither sends anything nor leaves."""
    await Gate().stop_here()
    raise AssertionError


async def send(message: Message) -> None:
    """Accept everything at once."""


async def test_a_stream_that_ends_no_longer_waits_for_its_client(tmp_path: Path) -> None:
    async with open_state(tmp_path) as service:
        before = asyncio.all_tasks()
        stream = EventStream(service, CALLER, StreamPosition(sessions={}), feed=False)

        await stream({"type": "http"}, silent, send)

        assert asyncio.all_tasks() <= before


async def test_a_request_that_waits_for_a_turn_leaves_no_task_when_its_client_leaves(tmp_path: Path) -> None:
    async def disconnected() -> Message:
        return {"type": "http.disconnect"}

    async with open_state(tmp_path) as service:
        turn = await (await service.app.owned_by("anna").session()).send("hello")
        request = Request({"type": "http", "caller": CALLER}, disconnected)
        before = asyncio.all_tasks()

        with pytest.raises(ClientDisconnect):
            await until_over(ApiRequest(request, service, NoInput(), NoInput()), turn)

        assert asyncio.all_tasks() <= before
