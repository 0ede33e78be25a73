"""The programs of child processes: an app on the test's store, with the in-process wake-up turned off."""

import asyncio
import logging
import signal
import threading
from collections.abc import Iterator
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import msgspec

import backstay
from backstay import Address, App, Text, Timing
from backstay.agents.adapters import AgentLike
from backstay.agents.blocking_agent import BlockingAgentTurn
from backstay.model.content import Body
from backstay.runtime.app import OnInterrupt
from tests.runtime_processes.child_pipe import ChildPipe
from tests.runtime_processes.directed_agent import DirectedAgent
from tests.runtime_processes.shared_clock import SharedClock

CHAT = Address.chat("telegram", "dm", chat="42")
# No test may depend on the end of a lease.
LONG = 3600.0


class Setting(msgspec.Struct, frozen=True, kw_only=True):
    """How a child opens its app."""

    lease_seconds: float = LONG
    timing: Timing = Timing()
    on_interrupt: OnInterrupt = "leave"
    idempotent: bool = False
    payments: Path | None = None
    clock: Path | None = None


PLAIN = Setting()


def block(pipe: "Connection[Any, Any]", path: Path | str) -> None:
    """Serve an agent that sends a word and then blocks its thread forever, until SIGTERM."""
    line = ChildPipe(pipe)

    def agent(turn: BlockingAgentTurn) -> Iterator[Body]:
        yield Text("one ")
        line.report("stuck")
        threading.Event().wait()

    asyncio.run(_serve(line, path, agent, Setting(timing=Timing(grace=0.1))))


def work(pipe: "Connection[Any, Any]", path: Path | str, setting: Setting = PLAIN) -> None:
    """Serve a directed agent as the default agent until SIGTERM; execute orders to `app`."""
    # A process that a shell started in the background ignores Ctrl-C, and so would its children.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    line = ChildPipe(pipe)
    agent = DirectedAgent(line, payments=setting.payments, idempotent=setting.idempotent)
    asyncio.run(_serve(line, path, agent, setting))


async def _serve(line: ChildPipe, path: Path | str, agent: AgentLike, setting: Setting) -> None:
    line.listen()
    report_trouble(line)
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    async with backstay.open(
        path,
        agent=agent,
        notify=False,
        lease_seconds=setting.lease_seconds,
        timing=setting.timing,
        on_interrupt=setting.on_interrupt,
        clock=None if setting.clock is None else SharedClock(setting.clock),
    ) as app:
        line.report("open")
        obeying = asyncio.create_task(_obey(app, line))
        await stop.wait()
        obeying.cancel()
        line.report("closing")
    line.report("closed")


def report_trouble(line: ChildPipe) -> None:
    """Report uncaught errors, and those that are logged as warnings or errors."""

    class Operator(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            line.report("trouble", self.format(record))

    logging.getLogger().addHandler(Operator(logging.ERROR))
    asyncio.get_running_loop().set_exception_handler(lambda _, context: line.report("trouble", str(context)))


async def _obey(app: App, line: ChildPipe) -> None:
    """Send the inputs of the test; report the events of the chat as this process sees them."""
    reporting = asyncio.create_task(_report(app, line))
    try:
        while True:
            match await line.next_order("app"):
                case ("send", str(text)):
                    session = await app.session(CHAT)
                    await session.send(text, request_id=text)
                    line.report("sent", text)
                case ("steer", str(text)):
                    session = await app.session(CHAT)
                    await session.steer(text, request_id=text)
                    line.report("sent", text)
                case other:
                    raise ValueError(f"{other} is no order")
    finally:
        reporting.cancel()


async def _report(app: App, line: ChildPipe) -> None:
    """Report every event of the chat that was seen: it is stored then."""
    await line.next_order("report")
    session = await app.session(CHAT)
    async for event in session.follow():
        line.report("stored", str(event.body.__struct_config__.tag), event.number)
