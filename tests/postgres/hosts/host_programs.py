"""The programs of child processes in these tests: hosts with an app on the test's database."""

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
from backstay.model.ids import TurnId
from tests.runtime_processes.app_programs import report_trouble
from tests.runtime_processes.child_pipe import ChildPipe
from tests.runtime_processes.directed_agent import DirectedAgent

CHAT = Address.chat("telegram", "dm", chat="42")
ME = "local"
WORDS = ("one ", "two ", "three ", "four ", "five")


def perform(pipe: "Connection[Any, Any]", url: str, lease_seconds: float) -> None:
    """Run as a host with a directed agent until SIGTERM; execute orders to `app`."""
    asyncio.run(_perform(ChildPipe(pipe), url, lease_seconds))


async def _perform(line: ChildPipe, url: str, lease_seconds: float) -> None:
    line.listen()
    report_trouble(line)
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    async with backstay.open(url, agent=StopReporter(line), notify=False, lease_seconds=lease_seconds) as app:
        line.report("open")
        obeying = asyncio.create_task(_obey(app, line))
        await stop.wait()
        obeying.cancel()
    line.report("closed")


class StopReporter(DirectedAgent):
    """A directed agent that reports when it is stopped before its `end`."""

    def __init__(self, line: ChildPipe) -> None:
        super().__init__(line)
        self._line = line

    async def stream(self, turn: AgentTurn) -> AsyncIterator[Body]:
        try:
            async for body in super().stream(turn):
                yield body
        except BaseException as error:
            self._line.report("stopped", turn.input.text, type(error).__name__)
            raise


async def _obey(app: App, line: ChildPipe) -> None:
    while True:
        _, text = await line.next_order("app")
        try:
            session = await app.session(CHAT)
            await session.send(text, request_id=text)
            line.report("sent", text)
        except BackstayError as error:
            line.report("not sent", text, str(error))


def hold(pipe: "Connection[Any, Any]", url: str, lease_seconds: float) -> None:
    """A holder that ignores its lease time: opens a turn, and writes to it on request as long as possible."""
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


class TurnRecord:
    """The record of the turns that hosts on one folder begin, and one request at a time to hold a turn."""

    def __init__(self, folder: Path) -> None:
        self._begun, self._hold = folder / "begun", folder / "hold"

    def begin(self, turn: TurnId) -> None:
        """Note a turn, in one write, so that hosts can share the record."""
        record = os.open(self._begun, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        try:
            os.write(record, f"{turn}\n".encode())
        finally:
            os.close(record)

    def begun(self) -> list[TurnId]:
        """Every turn that was begun, in order."""
        return [TurnId(line) for line in self._begun.read_text().splitlines()]

    def ask_to_hold(self) -> None:
        """Ask one host, the first that checks, to hold a turn."""
        self._hold.touch()

    def is_asked_to_hold(self) -> bool:
        """Whether this process is asked to hold a turn: if so, it is the only one."""
        try:
            self._hold.unlink()
        except FileNotFoundError:
            return False
        return True


def toil(pipe: "Connection[Any, Any]", url: str, record: TurnRecord, lease_seconds: float) -> None:
    """Run as a host that answers waiting turns slowly until it is killed, and record every turn that it begins."""
    asyncio.run(_toil(ChildPipe(pipe), url, record, lease_seconds))


async def _toil(line: ChildPipe, url: str, record: TurnRecord, lease_seconds: float) -> None:
    async def agent(turn: AgentTurn) -> AsyncIterator[Body]:
        record.begin(turn.id)
        for word in WORDS:
            yield Text(word)
            if record.is_asked_to_hold():
                line.report("holds", turn.id)
                await asyncio.Event().wait()
            await asyncio.sleep(0.05)

    line.listen()
    async with backstay.open(url, agent=agent, lease_seconds=lease_seconds):
        line.report("open")
        await asyncio.Event().wait()
