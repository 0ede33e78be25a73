"""Finds calls that block an event loop: a test during which Backstay makes one fails.

Files, processes, sockets and locks are seen through Python's audit events, SQL through a trace of each SQLite
connection. The code above the engines is the same for PostgreSQL. The innermost coroutine is responsible. Tests,
and their agents and clocks, may block a loop.
"""

import asyncio
import inspect
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

import apsw
import pytest

_TESTS = str(Path(__file__).parents[1])
SOURCES = str(Path(__file__).parents[2] / "src" / "backstay")
_COROUTINE = inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR
_BLOCKING = frozenset(
    {
        "fcntl.flock",
        "fcntl.lockf",
        "open",
        "os.link",
        "os.listdir",
        "os.mkdir",
        "os.remove",
        "os.rename",
        "os.rmdir",
        "os.scandir",
        "os.truncate",
        "shutil.rmtree",
        "socket.connect",
        "socket.getaddrinfo",
        "subprocess.Popen",
    }
)
# A module is imported once, where it is first needed. A log record shows the lines of a traceback. asyncio starts
# processes on its loop, and has no other way. A short read has a budget and waits for no lock.
_ALLOWED = ("<frozen importlib", "importlib/", "linecache.py", "asyncio/unix_events.py", "sqlite/short_reader.py")

found: list[str] = []


def _on_audit_event(event: str, args: tuple[object, ...], blocking: frozenset[str] = _BLOCKING) -> None:
    # The interpreter clears the names of this module before it makes its last calls.
    if event in blocking and asyncio is not None and asyncio._get_running_loop() is not None:  # noqa: SLF001  # the public one raises
        _note(f"{event} {args[:1]}")


def _on_statement(cursor: apsw.Cursor, statement: str, bindings: object) -> bool:
    if asyncio._get_running_loop() is not None:  # noqa: SLF001
        _note(statement)
    return True


def _on_connection(connection: apsw.Connection) -> None:
    connection.exec_trace = _on_statement


def _note(what: str) -> None:
    frame: FrameType | None = sys._getframe(2)  # noqa: SLF001
    while frame is not None:
        code = frame.f_code
        if code.co_filename.startswith(_TESTS) or any(part in code.co_filename for part in _ALLOWED):
            return
        if code.co_flags & _COROUTINE:
            if not code.co_filename.startswith(SOURCES):
                return
            stack = "".join(traceback.format_stack(sys._getframe(2), limit=12))  # noqa: SLF001
            found.append(f"{what}\n{stack}")
            return
        frame = frame.f_back


def pytest_configure() -> None:
    """Watch this process."""
    sys.addaudithook(_on_audit_event)
    apsw.connection_hooks.append(_on_connection)


@pytest.fixture(autouse=True)
def no_blocking_calls() -> Iterator[None]:
    """Fail a test during which a call of ours blocked an event loop."""
    found.clear()
    yield
    if found:
        pytest.fail(f"{len(found)} calls blocked the event loop; the first:\n{found[0]}", pytrace=False)
