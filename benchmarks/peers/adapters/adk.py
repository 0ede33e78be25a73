"""Google ADK: `SqliteSessionService`, or `DatabaseSessionService` on SQLite as variant `database`.

A turn is two calls of `append_event`, one per message. The session object stays in memory between turns; the Runner
would read the session again before each turn.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from google.adk.events import Event  # type: ignore[import-not-found]  # only in the peer's environment
from google.adk.sessions.base_session_service import GetSessionConfig  # type: ignore[import-not-found]  # as above
from google.genai import types  # type: ignore[import-not-found]  # as above

from benchmarks.peers.adapter import Adapter
from benchmarks.peers.workload.content import Said

APP, USER = "bench", "local"


class Adk(Adapter):
    callers = "tasks"
    missing = {  # noqa: RUF012
        "fork": "A session service has no fork.",
        "undo": "A session service has no undo; the Runner appends an event that rewinds.",
        "delta": "Partial events are not stored.",
    }

    async def open(self, directory: Path) -> None:
        self._service = _service(self.variant, directory / "adk.db")
        self._sessions: dict[str, Any] = {}
        self._events = 0

    async def close(self) -> None:
        await self._service.close()

    async def create(self, name: str) -> None:
        self._sessions[name] = await self._service.create_session(app_name=APP, user_id=USER, session_id=name)

    async def record(self, name: str, turn: Sequence[Said]) -> None:
        session = await self._session(name)
        for said in turn:
            await self._append(session, said)

    async def load(self, name: str) -> list[str]:
        return _texts(await self._get(name, None))

    async def last(self, name: str, count: int) -> list[str]:
        return _texts(await self._get(name, count))

    async def resolve(self, name: str) -> object:
        return await self._get(name, 0)

    async def newest(self, count: int) -> int:
        found = await self._service.list_sessions(app_name=APP, user_id=USER)
        return len(found.sessions[-count:])

    async def refresh(self, name: str) -> None:
        self._sessions.pop(name, None)

    async def tool_step(self, name: str, call: str, result: str) -> None:
        session = await self._session(name)
        await self._append(session, Said("assistant", call))
        await self._append(session, Said("tool", result))

    async def _append(self, session: Any, said: Said) -> None:
        self._events += 1
        role = "model" if said.role == "assistant" else "user"
        content = types.Content(role=role, parts=[types.Part(text=said.text)])
        author = "agent" if said.role == "assistant" else "user"
        await self._service.append_event(session, Event(author=author, invocation_id="bench", content=content))

    async def _get(self, name: str, count: int | None) -> Any:
        config = None if count is None else GetSessionConfig(num_recent_events=count)
        return await self._service.get_session(app_name=APP, user_id=USER, session_id=name, config=config)

    async def _session(self, name: str) -> Any:
        if name not in self._sessions:
            self._sessions[name] = await self._get(name, 0)
        return self._sessions[name]


def _service(variant: str, path: Path) -> Any:
    # Each service is imported alone: the other one may need packages of an extra.
    if variant == "database":
        from google.adk.sessions import DatabaseSessionService  # type: ignore[import-not-found]  # noqa: PLC0415

        return DatabaseSessionService(db_url=f"sqlite+aiosqlite:///{path}")
    from google.adk.sessions.sqlite_session_service import (  # type: ignore[import-not-found]  # noqa: PLC0415
        SqliteSessionService,
    )

    return SqliteSessionService(str(path))


def _texts(session: Any) -> list[str]:
    return [event.content.parts[0].text for event in session.events]


ADAPTER = Adk
