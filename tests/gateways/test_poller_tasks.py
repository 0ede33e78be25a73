"""The tasks of a poller end together."""

import asyncio
from pathlib import Path

import pytest

import backstay
from backstay.gateways.gateway_options import GatewayOptions
from backstay.gateways.poller_tasks import PollerTasks
from backstay.runtime.app import App
from backstay.store.commands import gateway_commands


async def test_work_that_was_asked_for_again_is_not_started_when_the_tasks_end(tmp_path: Path) -> None:
    runs: list[str] = []
    async with backstay.open(tmp_path / "chat.db") as app:
        with pytest.raises(ExceptionGroup):
            await _poll_until_failure(app, runs)

    assert runs == ["delivery"]


async def _poll_until_failure(app: App, runs: list[str]) -> None:
    started = asyncio.Event()

    async def deliver() -> None:
        runs.append("delivery")
        started.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return  # It ends in good order while the other tasks are cancelled.

    proof = await app.run(gateway_commands.open_gateway("telegram/7", owner=app.owner))
    assert proof is not None
    async with asyncio.TaskGroup() as group:
        tasks = PollerTasks(app, proof, GatewayOptions(), group)
        tasks.start("delivery", deliver)
        tasks.start("delivery", deliver, again=True)
        await started.wait()
        raise ConnectionError("the poller stops")
