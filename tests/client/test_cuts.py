"""Cuts, killed servers and foreign hosts: a client loses nothing, repeats nothing, and keeps its token."""

import asyncio
import io
import socket
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path

import pytest

import backstay
from backstay.client import api_calls
from backstay.errors import AccessDenied, ConfigError, StoreUnavailable
from backstay.model.event import START, Event
from backstay.model.turn import Completed
from tests.client.conftest import client_of
from tests.databases import Place
from tests.server.agents import AGENTS
from tests.server.running_server import run_server
from tests.server.server_process import agent_options, serving

pytestmark = pytest.mark.engines("sqlite")
BOTH = pytest.mark.engines("sqlite", "postgres")


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


class Cutter:
    """A proxy that forwards bytes. It cuts some answers to requests for a path off, after so many bytes."""

    def __init__(self, port: int) -> None:
        self.target = port
        self.path, self.after, self.times = b"", 0, 0
        self._budget: int | None = None
        self.tasks = set[asyncio.Task[object]]()

    def cut(self, path: bytes, *, after: int, times: int) -> None:
        """Cut the next answers to requests for this path."""
        self.path, self.after, self.times = path, after, times

    async def forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if (task := asyncio.current_task()) is not None:
            self.tasks.add(task)
        ours, theirs = await asyncio.open_connection("127.0.0.1", self.target)
        upwards = asyncio.create_task(self._send(reader, theirs))
        await self._answer(ours, writer)
        upwards.cancel()
        await asyncio.gather(upwards, return_exceptions=True)
        for end in (theirs, writer):
            end.close()

    async def _send(self, source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        while data := await source.read(65_536):
            if self.times > 0 and self.path in data:
                self._budget, self.times = self.after, self.times - 1
            target.write(data)
            await target.drain()
        target.close()

    async def _answer(self, source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        while data := await source.read(65_536):
            if self._budget is not None:
                whole, self._budget = len(data) <= self._budget, self._budget - len(data)
                if not whole:
                    target.write(data[: self._budget])
                    await target.drain()
                    self._budget = None
                    return
            target.write(data)
            await target.drain()


@asynccontextmanager
async def cutting(port: int) -> AsyncIterator[tuple[str, Cutter]]:
    """The URL of a proxy before this port."""
    cutter = Cutter(port)
    listening = await asyncio.start_server(cutter.forward, "127.0.0.1", 0)
    async with listening:
        yield f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}", cutter
        await asyncio.gather(*cutter.tasks, return_exceptions=True)


@pytest.mark.parametrize("after", [1, 40, 200, 700, 3_000])
async def test_answers_that_are_cut_off_anywhere_are_asked_for_again(place: Place, after: int) -> None:
    with run_server(place, AGENTS) as server:
        async with client_of(server) as plain:
            wanted = await plain.session()
            turn = await wanted.send("many 60")
            await turn.outcome()
            for number in range(20):
                await wanted.record([{"role": "user", "content": f"note {number}"}])
            events = list((await plain.run(api_calls.events_after(wanted.id, START))).events)
        async with (
            cutting(server.port) as (url, cutter),
            backstay.connect(url, token=server.token()) as client,
        ):
            session = client.handle(wanted.id)
            cutter.cut(b"POST /api/turns", after=min(after, 200), times=2)
            again = await session.send("hello")
            assert await again.outcome() == Completed()
            cutter.cut(b"/api/events", after=after, times=3)
            got: list[Event] = []
            async with aclosing(session.follow()) as following:
                async for event in following:
                    got.append(event)
                    if len(got) == len(events):
                        break
            assert cutter.times < 3
            cutter.cut(b"/export", after=after, times=2)
            file = io.BytesIO()
            await session.export_to(file)
            assert cutter.times < 2
            messages = await session.messages()
    assert got == events
    assert [message.text for message in messages if message.text in ("many 60", "hello")] == ["many 60", "hello"]
    assert file.getvalue().endswith(b"\n")


async def test_a_message_whose_answer_was_lost_begins_one_session(place: Place) -> None:
    with run_server(place, AGENTS) as server:
        async with cutting(server.port) as (url, cutter), backstay.connect(url, token=server.token()) as client:
            cutter.cut(b"POST /api/turns", after=1, times=2)
            turn = await client.send("new", "hello")
            assert await turn.outcome() == Completed()
            assert cutter.times == 0
            assert [session.id for session in (await client.sessions()).sessions] == [turn.session]


@BOTH
async def test_a_follower_and_a_sender_survive_a_killed_server(place: Place, tmp_path: Path) -> None:
    port, agents = free_port(), agent_options("scripted")
    options = ("--db", str(place), "--port", str(port), *agents)
    numbers: list[int] = []
    with serving(tmp_path, *options) as first:
        token, url = first.token, first.url
        client = backstay.connect(url, token=token, retry_seconds=120)
        async with client:
            session = await client.session()
            seen = asyncio.Event()

            async def follow() -> None:
                async for event in session.follow():
                    numbers.extend(range(event.number, event.last + 1))
                    seen.set()
                    if event.body.__struct_config__.tag == "session_ended":
                        return

            async with asyncio.TaskGroup() as tasks:
                following = tasks.create_task(follow())
                await (await session.send("one", request_id="a/1")).outcome()
                await seen.wait()
                await asyncio.to_thread(first.kill)
                # Sent while no server runs: the client repeats it under one request id.
                sending = tasks.create_task(session.send("two"))
                with serving(tmp_path, *options):
                    turn = await sending
                    assert await turn.outcome() == Completed()
                    assert (await session.send("one", request_id="a/1")).repeated
                    users = [message.text for message in await session.messages() if message.role == "user"]
                    await session.end()
                    await following
    assert users == ["one", "two"]
    assert numbers == list(range(1, len(numbers) + 1))


async def test_a_change_that_may_not_be_repeated_is_sent_once(place: Place) -> None:
    with run_server(place, AGENTS) as server:
        async with cutting(server.port) as (url, cutter):
            async with backstay.connect(url, token=server.token()) as client:
                session = await client.session()
                await session.record([{"role": "user", "content": "a"}])
            # Each request of the next client has a connection of its own, and only the last one is cut.
            async with backstay.connect(url, token=server.token()) as client:
                cutter.cut(b"/fork", after=0, times=1)
                with pytest.raises(StoreUnavailable) as raised:
                    await client.handle(session.id).fork()
                assert "check before you repeat" in raised.value.hint
                assert len((await client.sessions()).sessions) == 2


async def test_a_token_does_not_follow_a_redirect() -> None:
    received: list[bytes] = []

    async def redirect(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        received.append(await reader.readuntil(b"\r\n\r\n"))
        target = elsewhere.sockets[0].getsockname()[1]
        writer.write(b"HTTP/1.1 307 x\r\nlocation: http://127.0.0.1:%d/\r\ncontent-length: 0\r\n\r\n" % target)
        await writer.drain()
        writer.close()

    async def listen(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        raise AssertionError("the client followed the redirect")

    elsewhere = await asyncio.start_server(listen, "127.0.0.1", 0)
    here = await asyncio.start_server(redirect, "127.0.0.1", 0)
    async with elsewhere, here:
        url = f"http://127.0.0.1:{here.sockets[0].getsockname()[1]}"
        with pytest.raises(ConfigError, match="redirects"):
            async with backstay.connect(url, token="secret"):
                raise AssertionError("it opened")
    assert len(received) == 1


async def test_a_wrong_token_is_denied_when_the_client_opens(place: Place) -> None:
    with run_server(place, AGENTS) as server, pytest.raises(AccessDenied):
        async with backstay.connect(server.url, token="wrong"):
            raise AssertionError("it opened")


@pytest.mark.parametrize("url", ["", "127.0.0.1:8642", "ftp://host", "http://user:secret@host", "http://host?x=1"])
def test_an_address_that_is_not_a_server_is_rejected(url: str) -> None:
    with pytest.raises(ConfigError):
        backstay.connect(url, token="secret")


async def test_a_server_that_is_away_is_reported_with_advice() -> None:
    with pytest.raises(StoreUnavailable, match="cannot be reached"):
        async with backstay.connect(f"http://127.0.0.1:{free_port()}", token="secret", retry_seconds=0):
            raise AssertionError("it opened")


def test_a_blocking_client_answers_like_an_async_one(place: Place) -> None:
    with run_server(place, AGENTS) as server, backstay.connect_blocking(server.url, token=server.token()) as client:
        turn = client.session().send("hello")
        kinds = [event.body.__struct_config__.tag for event in turn.events()]
        assert (turn.outcome(), kinds[0], kinds[-1]) == (Completed(), "turn_started", "turn_ended")
