"""Reads that run on the event loop leave room for other tasks."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

import backstay
from backstay import Text
from backstay.agents import AgentTurn
from backstay.model.content import Body


async def agent(turn: AgentTurn) -> AsyncIterator[Body]:
    yield Text("ok")


@pytest.mark.engines("sqlite")
async def test_a_task_that_only_reads_lets_other_tasks_run(tmp_path: Path) -> None:
    others = 0

    async def count() -> None:
        nonlocal others
        while True:
            others += 1
            await asyncio.sleep(0)

    async with backstay.open(tmp_path / "store.db", agent=agent) as app:
        session = await app.session()
        counting = asyncio.create_task(count())
        for _ in range(400):
            await session.read()
        counting.cancel()
    assert others >= 40
