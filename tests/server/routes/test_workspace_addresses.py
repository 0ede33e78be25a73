"""Workspace addresses of clients: one session per directory, and no information about the disk."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest

from backstay import Address, open_store
from tests.server.running_server import RunningServer

# These tests are about code above the store, or about rules of its contract: the engine cannot matter.
pytestmark = pytest.mark.engines("sqlite")


def spelling(path: str | Path) -> str:
    """An address with this path as it is written."""
    return Address.workspace("/here", scope="main").spelling.replace("/here", str(path), 1)


def resolved(client: httpx2.Client, path: str | Path) -> tuple[str, str]:
    """The session of the address, and its place."""
    session = client.post("/api/sessions", json={"address": spelling(path)}).raise_for_status().json()
    return session["id"], session["place"]


@pytest.fixture
def home() -> Iterator[Path]:
    """A folder with a project, and links. It lies on a disk: links below /dev are not followed."""
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder, "home")
        (home / "project").mkdir(parents=True)
        (home / "link").symlink_to(home / "project")
        (home / "loop").symlink_to(home / "loop")
        yield home


WAYS = ["project", "link", "./project", "/project", "link/../project", "link/.", "missing/../project", "project/"]


@pytest.mark.parametrize("way", WAYS)
def test_an_address_over_http_leads_to_the_same_session_as_through_the_library(
    server: RunningServer, home: Path, way: str
) -> None:
    with open_store(server.place) as store, server.client() as client:
        ours = store.resolve(Address.workspace(f"{home}/{way}", scope="main"), owner="local").session

        assert resolved(client, f"{home}/{way}") == (ours.id, f"{home}/project")


def test_an_address_through_a_link_can_be_pointed_to_a_session_over_http(server: RunningServer, home: Path) -> None:
    with server.client() as client:
        session = client.post("/api/sessions", json={}).json()["id"]
        client.put(f"/api/sessions/{session}/address", json={"address": spelling(home / "link")}).raise_for_status()

        assert resolved(client, home / "project")[0] == session


@pytest.mark.parametrize("written", ["/loop", "/loop/inside", "/missing", "/missing/inside"])
def test_a_path_that_cannot_be_followed_is_taken_as_it_is_written(
    server: RunningServer, home: Path, written: str
) -> None:
    with server.client() as client:
        assert resolved(client, f"{home}{written}")[1] == f"{home}{written}"


@pytest.mark.parametrize("written", ["/proc/self/cwd", "/proc/1/root", "/dev/fd/0"])
def test_the_target_of_a_kernel_link_is_not_revealed(server: RunningServer, written: str) -> None:
    with server.client() as client:
        assert resolved(client, written)[1] == written


def test_the_target_of_a_link_is_not_revealed_to_other_owners(server: RunningServer, home: Path) -> None:
    with server.client("anna") as stranger:
        for name in ("link", "project", "loop", "missing"):
            assert resolved(stranger, home / name)[1] == f"{home}/{name}"
        assert resolved(stranger, f"{home}//x/../link/.") == resolved(stranger, home / "link")


@pytest.mark.parametrize("written", ["~", "~root/x", "project", ""])
def test_a_path_that_is_not_absolute_is_refused(server: RunningServer, written: str) -> None:
    with server.client() as client:
        answer = client.post("/api/sessions", json={"address": spelling(written)})

        assert (answer.status_code, "absolute" in answer.text or "empty" in answer.text) == (422, True)


def test_a_path_of_another_machine_is_not_looked_at(server: RunningServer, home: Path) -> None:
    far = spelling(home / "link") + "&host=elsewhere"
    with server.client() as client:
        session = client.post("/api/sessions", json={"address": far}).raise_for_status().json()

    assert session["place"] == f"{home}/link"
