"""What the child processes of these tests run: hosts with an app on the test's database."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import backstay
from backstay import Address, App, BackstayError, Text, open_store
from backstay.agents.port import AgentTurn
from backstay.errors import LeaseLost
from backstay.model.content import Body
from tests.runtime_processes.line import Line
from tests.runtime_processes.programs import report_trouble
from tests.runtime_processes.puppet import Puppet

CHAT = Address.chat("telegram", "dm", chat="42")
ME = "local"
WORDS = ("one ", "two ", "three ", "four ", "five")


def perform(pipe: "Connection[Any, Any]", url: str, lease_seconds: float) -> None:
    """Be a host whose agent is a puppet, until SIGTERM; obey orders to `app`."""
    asyncio.run(_perform(Line(pipe), url, lease_seconds))


async def _perform(line: Line, url: str, lease_seconds: float) -> None:
    line.listen()
    report_trouble(line)
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    async with backstay.open(url, agent=Witness(line), prompt=False, lease_seconds=lease_seconds) as app:
        line.say("open")
        obeying = asyncio.create_task(_obey(app, line))
        await stop.wait()
        obeying.cancel()
    line.say("closed")


class Witness(Puppet):
    """A puppet that says so when it is stopped before it was told to end."""

    def __init__(self, line: Line) -> None:
        super().__init__(line)
        self._told = line

    async def stream(self, turn: AgentTurn) -> AsyncIterator[Body]:
        try:
            async for body in super().stream(turn):
                yield body
        except BaseException as error:
            self._told.say("stopped", turn.input.text, type(error).__name__)
            raise


async def _obey(app: App, line: Line) -> None:
    while True:
        _, text = await line.order("app")
        try:
            session = await app.session(CHAT)
            await session.send(text, request_id=text)
            line.say("sent", text)
        except BackstayError as error:
            line.say("not sent", text, str(error))


def hold(pipe: "Connection[Any, Any]", url: str, lease_seconds: float) -> None:
    """Be a holder that does not look at the time: open a turn, and write to it whenever told to, as long as it can."""
    with open_store(url, lease_seconds=lease_seconds) as store:
        proof = store.submit(CHAT, "first", owner=ME, start=True).opened
        assert proof is not None, "nobody else speaks here"
        pipe.send(("holds", proof.session))
        try:
            while True:
                proof = store.checkpoint(proof, [Text(pipe.recv()[1])]).open
                pipe.send(("wrote",))
        except LeaseLost:
            pipe.send(("refused",))


def toil(pipe: "Connection[Any, Any]", url: str, diary: Path, lease_seconds: float) -> None:
    """Be a host that answers whatever waits, slowly, until it is killed; keep a diary of every turn that was begun."""
    asyncio.run(_toil(Line(pipe), url, diary, lease_seconds))


async def _toil(line: Line, url: str, diary: Path, lease_seconds: float) -> None:
    async def agent(turn: AgentTurn) -> AsyncIterator[Body]:
        _note(diary, f"{os.getpid()} {turn.id}")
        for word in WORDS:
            yield Text(word)
            await asyncio.sleep(0.05)

    line.listen()
    async with backstay.open(url, agent=agent, lease_seconds=lease_seconds):
        line.say("open")
        await asyncio.Event().wait()


def _note(diary: Path, line: str) -> None:
    """Add a line in one write, so that hosts can share the book."""
    book = os.open(diary, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    try:
        os.write(book, f"{line}\n".encode())
    finally:
        os.close(book)
