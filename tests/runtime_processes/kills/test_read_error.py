"""The disk cannot be read for a while: the turn continues if that passes; otherwise it ends and keeps its output."""

import asyncio
import logging
from collections.abc import AsyncIterator
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import apsw
import pytest

import backstay
from backstay import Text, Timing, open_store
from backstay.agents.port import AgentTurn
from backstay.model.content import Body
from tests.runtime_processes.child_process import Child
from tests.simulated_disk import Disk, Read, Step

# A lease that never lapses: no other process ends the turn.
LEASE_SECONDS = 3600.0


class ReadError(logging.Handler):
    """Once armed no file can be read, so many times, or until the log says that a turn could not be written."""

    def __init__(self, times: int, *, damaged: bool) -> None:
        super().__init__()
        self._times, self._damaged = times, damaged
        self._left = 0

    def arm(self) -> None:
        self._left = self._times

    def __call__(self, step: Step) -> None:
        if self._left and isinstance(step, Read):
            self._left -= 1
            if self._damaged:
                raise apsw.CorruptError("injected: damaged")
            error = apsw.IOError("injected: EIO")
            # SQLite reports the file as damaged after EIO.
            error.extendedresult = apsw.SQLITE_IOERR_CORRUPTFS  # type: ignore[attr-defined]  # missing in its stub
            raise error

    def emit(self, record: logging.LogRecord) -> None:
        if record.getMessage() == "turn could not be written":
            self._left = 0


def speak_on_a_faulty_disk(pipe: "Connection[Any, Any]", path: Path, times: int, damaged: bool) -> None:
    fault = ReadError(times, damaged=damaged)
    logging.getLogger("backstay.runtime").addHandler(fault)

    async def agent(turn: AgentTurn) -> AsyncIterator[Body]:
        yield Text("one ")
        await turn.steering()
        if turn.input.text == "stop":
            pipe.send(("waits",))
            await asyncio.to_thread(pipe.recv)
            fault.arm()
        yield Text("two")
        await turn.steering()

    async def scenario() -> None:
        timing = Timing(retry=0.005)
        async with backstay.open(path, agent=agent, timing=timing, lease_seconds=LEASE_SECONDS) as app:
            session = await app.session()
            for words in ("stop", "go on"):
                turn = await session.send(words)
                outcome = await turn.outcome()
                text = (await session.messages())[-1].text
                pipe.send(("said", type(outcome).__name__, getattr(outcome, "reason", "") or "", text))

    with Disk(fault) as disk:
        apsw.set_default_vfs(disk.name)
        asyncio.run(scenario())


@pytest.mark.parametrize(
    ("times", "damaged", "outcome", "reason"),
    [
        (1, False, "Completed", ""),
        (100, False, "Completed", ""),
        (1_000_000, True, "Interrupted", "the store failed: "),
    ],
    ids=["a read error", "many read errors", "a file that is damaged"],
)
def test_a_turn_whose_store_cannot_be_read_continues_or_ends_at_once(
    tmp_path: Path, times: int, damaged: bool, outcome: str, reason: str
) -> None:
    path = tmp_path / "chat.db"
    with Child(speak_on_a_faulty_disk, path, times, damaged) as child:
        child.receive("waits")
        with open_store(path) as store:
            store.create(owner="somebody")  # The cached pages of the child are out of date now.
        child.send_order("go")
        ended, why, text = child.receive("said")
        assert (ended, text) == (outcome, "one two")
        assert why.startswith(reason)
        assert path.name not in why
        assert child.receive("said") == ("Completed", "", "one two")
