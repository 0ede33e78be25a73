"""Agno: `SqliteDb`.

A turn is one `upsert_run`. An agent also writes the session row after each run; that second write is left out here.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any
from uuid import uuid4

from agno.agent import Agent  # type: ignore[import-not-found]  # only in the peer's environment
from agno.db.base import SessionType  # type: ignore[import-not-found]  # as above
from agno.db.sqlite import SqliteDb  # type: ignore[import-not-found]  # as above
from agno.models.message import Message  # type: ignore[import-not-found]  # as above
from agno.run.agent import RunOutput, RunStatus  # type: ignore[import-not-found]  # as above
from agno.session import AgentSession  # type: ignore[import-not-found]  # as above

from benchmarks.peers.adapter import Adapter
from benchmarks.peers.workload.content import Said

AGENT = "bench"


class AgnoSqlite(Adapter):
    missing = {  # noqa: RUF012
        "delta": "A run is stored when it ends or pauses; streamed text is not stored.",
    }

    async def open(self, directory: Path) -> None:
        self._db = SqliteDb(db_file=str(directory / "agno.db"))
        self._agent = Agent(id=AGENT, db=self._db, telemetry=False)

    async def close(self) -> None:
        self._db.close()

    async def create(self, name: str) -> None:
        self._db.upsert_session(AgentSession(session_id=name, agent_id=AGENT))

    async def record(self, name: str, turn: Sequence[Said]) -> None:
        self._db.upsert_run(_run(name, str(uuid4()), turn), session_id=name)

    async def load(self, name: str) -> list[str]:
        return self._texts(name, None)

    async def last(self, name: str, count: int) -> list[str]:
        return self._texts(name, count // 2)

    async def resolve(self, name: str) -> object:
        return self._db.get_session(name, SessionType.AGENT, runs_limit=0)

    async def newest(self, count: int) -> int:
        return len(
            self._db.get_sessions(
                session_type=SessionType.AGENT,
                limit=count,
                page=1,
                sort_by="updated_at",
                sort_order="desc",
                include_runs=False,
            )
        )

    async def fork(self, name: str, new: str) -> None:
        self._agent.fork_session(source_session_id=name)

    async def undo(self, name: str) -> None:
        newest = self._db.get_session(name, SessionType.AGENT, runs_limit=1)
        self._db.delete_run(newest.runs[-1].run_id)

    async def tool_step(self, name: str, call: str, result: str) -> None:
        run = str(uuid4())
        self._db.upsert_run(_run(name, run, [Said("assistant", call)]), session_id=name)
        self._db.upsert_run(_run(name, run, [Said("assistant", call), Said("tool", result)]), session_id=name)

    def _texts(self, name: str, runs: int | None) -> list[str]:
        session = self._db.get_session(name, SessionType.AGENT, runs_limit=runs)
        return [message.content for run in session.runs or [] for message in run.messages]


def _run(session: str, run: str, turn: Sequence[Said]) -> Any:
    return RunOutput(
        run_id=run,
        agent_id=AGENT,
        session_id=session,
        messages=[Message(role=said.role, content=said.text) for said in turn],
        status=RunStatus.completed,
    )


ADAPTER = AgnoSqlite
