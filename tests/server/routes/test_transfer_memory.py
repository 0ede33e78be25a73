"""Memory of exports and imports: it does not grow with the session, by any route."""

import subprocess
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import NamedTuple

import httpx2
import pytest

from backstay import open_store
from backstay.model import message
from backstay.model.documents.records import MEDIA_TYPE
from backstay.model.ids import SessionId
from tests.cli.forked_command import PATIENCE
from tests.server.server_process import serving

ME = "local"
MIB = 1 << 20
# The number and length of messages in a short and in a long session, and the factor between their documents.
SHAPES = {
    "long messages": ((16, 1 << 17), (160, 1 << 17), 17 * MIB),
    "many messages": ((8_000, 20), (24_000, 20), 4 * MIB),
}
# The additional memory allowed for the long one.
MORE = 3 * MIB

# Each program reports its peak memory at its end: the count of the system begins with that of its parent.
MEASURE = """
import atexit, sys
from pathlib import Path

def tell():
    Path("peak").write_text(next(line for line in open("/proc/self/status") if line.startswith("VmHWM:")))

atexit.register(tell)
"""
EXPORT = """
from backstay import open_store
with open_store(sys.argv[1]) as store, open(sys.argv[2], "w+b") as file:
    store.export_to(sys.argv[3], file, owner="local")
"""
IMPORT = """
from backstay import open_store
with open_store(sys.argv[1]) as store, open(sys.argv[2], "rb") as file:
    store.import_session(file, owner="local", new_ids=True)
"""
COMMAND_LINE = """
from backstay.cli.main import main
main()
"""


class StoredSession(NamedTuple):
    """A session, and the file of its store."""

    path: Path
    id: SessionId


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Callable[[int, int], StoredSession]:
    """Gives a session with this number of messages of this length. It is only read, so it is made once."""

    @cache
    def stored(count: int, length: int) -> StoredSession:
        path = tmp_path_factory.mktemp("stored") / "chat.db"
        return StoredSession(path, a_session(path, count, length))

    return stored


def a_session(path: Path, count: int, length: int) -> SessionId:
    """A session with this number of messages of this length."""
    with open_store(path) as store:
        session = store.create(owner=ME).id
        at_once = max(1, min(1_000, 4 * MIB // length))
        for place in range(0, count, at_once):
            said = [message.user(f"{number} {'x' * length}") for number in range(place, min(count, place + at_once))]
            store.record(session, said, owner=ME)
        return session


def peak(folder: Path, program: str, *arguments: str | Path) -> int:
    """The most memory that a program took, in bytes."""
    command = [sys.executable, "-c", MEASURE + program, *map(str, arguments)]
    done = subprocess.run(command, cwd=folder, capture_output=True, timeout=PATIENCE, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return _bytes((folder / "peak").read_text())


def exported(way: str, folder: Path, path: Path, session: SessionId, file: Path) -> int:
    """Export a session to a file; how much memory that took."""
    if way == "library":
        return peak(folder, EXPORT, path, file, session)
    return peak(folder, COMMAND_LINE, "export", session, "-o", file, "--db", path, "--owner", ME)


def imported(way: str, folder: Path, path: Path, file: Path) -> int:
    """Import a file into a new store; how much memory that took."""
    open_store(path).close()
    if way == "library":
        return peak(folder, IMPORT, path, file)
    return peak(folder, COMMAND_LINE, "import", file, "--db", path, "--owner", ME)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("way", ["library", "command line"])
def test_a_longer_session_takes_no_more_memory_to_export_and_import(
    tmp_path: Path, stored: Callable[[int, int], StoredSession], shape: str, way: str
) -> None:
    *shapes, longer = SHAPES[shape]
    taken: list[tuple[int, int, int]] = []
    for number, (count, length) in enumerate(shapes):
        path, session = stored(count, length)
        file = tmp_path / f"{number}.jsonl"
        out = exported(way, tmp_path, path, session, file)
        into = imported(way, tmp_path, tmp_path / f"copy-{number}.db", file)
        taken.append((out, into, file.stat().st_size))

    (first_out, first_in, short), (out, into, long) = taken
    assert long - short > longer
    assert out - first_out < MORE
    assert into - first_in < MORE


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("kind", ["markdown", "html"])
def test_a_longer_session_takes_no_more_memory_to_read_as_a_page(
    tmp_path: Path, stored: Callable[[int, int], StoredSession], kind: str, shape: str
) -> None:
    *shapes, _ = SHAPES[shape]
    taken: list[int] = []
    for number, (count, length) in enumerate(shapes):
        path, session = stored(count, length)
        file = tmp_path / f"{number}.page"
        taken.append(
            peak(tmp_path, COMMAND_LINE, "export", session, "--format", kind, "-o", file, "--db", path, "--owner", ME)
        )

    assert taken[1] - taken[0] < MORE


def test_a_longer_session_takes_no_more_memory_over_http(tmp_path: Path) -> None:
    database = tmp_path / "data" / "chat.db"
    database.parent.mkdir(mode=0o700)
    *shapes, longer = SHAPES["long messages"]
    short, long = (a_session(database, count, length) for count, length in shapes)
    with serving(tmp_path, "--db", str(database)) as served, served.client() as client:
        client.timeout = httpx2.Timeout(PATIENCE)
        _there_and_back(client, short, tmp_path / "document")
        before = most_memory(served.pid)
        size = _there_and_back(client, long, tmp_path / "document")
        after = most_memory(served.pid)

    assert size > longer
    assert after - before < 2 * MORE


def _there_and_back(client: httpx2.Client, session: SessionId, document: Path) -> int:
    """Export a session and import it again; how long the document is."""
    with client.stream("GET", f"/api/sessions/{session}/export") as answer, document.open("wb") as file:
        assert answer.status_code == 200
        for piece in answer.iter_bytes():
            file.write(piece)
    with document.open("rb") as file:
        pieces = iter(lambda: file.read(MIB), b"")
        sent = client.post("/api/imports", content=pieces, headers={"content-type": MEDIA_TYPE})
    assert sent.status_code == 201, sent.text
    return document.stat().st_size


def most_memory(pid: int) -> int:
    """The most memory that a process took so far, in bytes."""
    return _bytes(next(line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if "VmHWM:" in line))


def _bytes(line: str) -> int:
    return int(line.split()[1]) << 10
