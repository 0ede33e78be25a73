"""The program of an agent's process: it serves turns until its standard input ends, or kills itself."""

import asyncio
import os
import signal
import sys
from collections.abc import Callable
from typing import Literal

import msgspec

from backstay.agents.selection.agent_specs import parse_agent_specs
from backstay.errors import BackstayError
from backstay.model.content import ToolCall
from backstay.model.turn import OpenTurn
from backstay.runtime.app import open_app
from backstay.runtime.observer import Observer


class ChildSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The agent that the process serves, and the point at which it kills itself."""

    where: str
    agent: str
    on_interrupt: Literal["leave", "resume"]
    lease_seconds: float
    kill_before_tool: str | None
    kill_after_tool: str | None
    kill_after_writes: int | None


class ChildReport(msgspec.Struct, frozen=True):
    """The report of the process when its app is open, or could not be opened."""

    error: str = ""
    hint: str = ""


class FatalObserver(Observer):
    """Kills this process at the point that the settings name."""

    def __init__(self, settings: ChildSettings) -> None:
        self._settings = settings
        self._writes = 0

    def wrote(self, verb: str, seconds: float) -> None:
        self._writes += 1
        if self._writes == self._settings.kill_after_writes:
            _die()

    def tool_started(self, opened: OpenTurn, call: ToolCall) -> None:
        if call.name == self._settings.kill_before_tool:
            _die()

    def tool_ended(self, opened: OpenTurn, call: ToolCall) -> None:
        if call.name == self._settings.kill_after_tool:
            _die()


def main() -> None:
    """Serve until standard input ends. The settings are its first line, and the report is the only output."""
    # The prints of an agent go to standard error: standard output is the pipe of the test.
    reports = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)
    settings = msgspec.json.decode(sys.stdin.buffer.readline(), type=ChildSettings)
    try:
        asyncio.run(_serve(settings, lambda report: reports.write(msgspec.json.encode(report) + b"\n")))
    except BackstayError as error:
        reports.write(msgspec.json.encode(ChildReport(str(error.args[0]), error.hint or "")) + b"\n")


async def _serve(settings: ChildSettings, report: Callable[[ChildReport], object]) -> None:
    agents = parse_agent_specs([settings.agent])
    app = open_app(
        settings.where, agents=agents, on_interrupt=settings.on_interrupt, lease_seconds=settings.lease_seconds
    )
    over = asyncio.Event()
    async with app:
        app.observe_with(FatalObserver(settings))
        report(ChildReport())
        asyncio.get_running_loop().add_reader(sys.stdin.fileno(), over.set)
        await over.wait()
        asyncio.get_running_loop().remove_reader(sys.stdin.fileno())


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)
