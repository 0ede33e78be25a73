"""The directories in which clients may have an agent of the server work."""

import shlex
from pathlib import Path

import httpx2
import pytest

from backstay.model.addresses.address import Address
from tests.agents.acp.test_acp import PROGRAM
from tests.server.api_calls import answered
from tests.server.server_process import ServerProcess, serving

AGENT = ("--agent", f"acp:{shlex.join(PROGRAM)}")


@pytest.fixture
def work(tmp_path: Path) -> Path:
    """A folder with a project in it; beside it are the database's folder and one with secrets."""
    for name in ("work/project", "secret", "data"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "work/link").symlink_to(tmp_path / "secret")
    (tmp_path / "work/data").symlink_to(tmp_path / "data")
    return tmp_path / "work"


def spelling(path: Path) -> str:
    """An address with this path as it is written, links included."""
    return Address.workspace("/here", scope="main").spelling.replace("/here", str(path), 1)


def resolve(client: httpx2.Client, path: Path) -> httpx2.Response:
    return client.post("/api/sessions", json={"address": spelling(path)})


def worked_in(served: ServerProcess, path: Path) -> str:
    """The directory that the agent reports in the session of this directory."""
    with served.client() as client:
        session = resolve(client, path).raise_for_status().json()["id"]
        answered(client, session, "tell where")
        page = client.get(f"/api/sessions/{session}/messages").json()
        said = page["messages"][-1]["parts"][0]["text"]
    return str(said.partition('"process": "')[2].partition('"')[0])


def refused(served: ServerProcess, *paths: Path) -> None:
    """Assert that no address of these is accepted, that the answers are alike, and that nothing was stored."""
    with served.client() as client:
        target = client.post("/api/sessions", json={}).json()["id"]
        before = client.get("/api/sessions").json()
        for path in paths:
            pointed = client.put(f"/api/sessions/{target}/address", json={"address": spelling(path)})
            for answer in (resolve(client, path), pointed):
                assert (answer.status_code, answer.json()["code"]) == (403, "forbidden"), path
                assert answer.json()["title"] == f"{path} is outside the directories in which agents may work"
                assert "agent_roots" in answer.json()["hint"]
        assert client.get("/api/sessions").json() == before


def test_an_address_outside_the_agent_directory_is_refused_over_http(tmp_path: Path, work: Path) -> None:
    given = ("--db", "data/chat.db", "--agent-directory", str(work), *AGENT)
    with serving(tmp_path, *given) as served:
        secret, data = tmp_path / "secret", tmp_path / "data"
        outside = (Path("/"), Path("/etc"), tmp_path, secret, secret / "missing", data)
        refused(served, *outside, work / "link", work / "link/missing", work / "data", Path(f"{work}2"))

        assert worked_in(served, work / "project") == str(work / "project")
        assert worked_in(served, work) == str(work)


def test_agents_work_under_every_root_that_is_named(tmp_path: Path, work: Path) -> None:
    given = ("--db", "data/chat.db", "--agent-root", str(work / "project"), "--agent-root", "secret", *AGENT)
    with serving(tmp_path, *given) as served:
        refused(served, work, tmp_path, tmp_path / "data")

        assert worked_in(served, work / "project") == str(work / "project")
        assert worked_in(served, tmp_path / "secret") == str(tmp_path / "secret")


def test_without_roots_agents_work_under_the_current_directory(tmp_path: Path, work: Path) -> None:
    home = {"HOME": str(tmp_path)}
    with serving(work, "--db", str(tmp_path / "data/chat.db"), *AGENT, environment=home) as served:
        refused(served, tmp_path / "secret", tmp_path)

        assert worked_in(served, work / "project") == str(work / "project")


def test_the_database_folder_is_not_a_default_root(tmp_path: Path, work: Path) -> None:
    with serving(work, "--db", "chat.db", *AGENT, environment={"HOME": str(tmp_path)}) as served:
        refused(served, work, work / "project")


def test_a_server_whose_agents_work_in_no_directory_takes_every_address(tmp_path: Path, work: Path) -> None:
    with serving(work, "--db", "chat.db", "--agent", "scripted") as served, served.client() as client:
        assert resolve(client, tmp_path / "secret").status_code == 201


def test_an_address_of_another_machine_is_not_a_local_directory(tmp_path: Path, work: Path) -> None:
    with serving(tmp_path, "--db", "data/chat.db", "--agent-directory", str(work), *AGENT) as served:
        far = Address.workspace("/etc", scope="main", host="elsewhere").spelling
        with served.client() as client:
            session = client.post("/api/sessions", json={"address": far}).raise_for_status().json()["id"]
            answered(client, session, "tell where")
            page = client.get(f"/api/sessions/{session}/messages").json()

        assert f'"process": "{work}"' in page["messages"][-1]["parts"][0]["text"]


def test_an_imported_address_outside_the_roots_is_refused(tmp_path: Path, work: Path) -> None:
    given = ("--db", "data/chat.db", "--agent-directory", str(work), *AGENT)
    with serving(tmp_path, *given) as served, served.client() as client:
        client.headers["content-type"] = "application/json"
        session = resolve(client, work / "project").raise_for_status().json()["id"]
        inside = client.get(f"/api/sessions/{session}/export").text
        outside = inside.replace(str(work / "project"), str(tmp_path / "secret"))
        client.delete(f"/api/sessions/{session}").raise_for_status()
        before = client.get("/api/sessions").json()

        refused = client.post("/api/imports?addresses=true", content=outside)
        assert (refused.status_code, client.get("/api/sessions").json()) == (403, before)
        assert client.post("/api/imports", content=outside).status_code == 201
        taken = client.post("/api/imports?addresses=true", content=inside)
        assert (taken.status_code, len(taken.json()["addresses"])) == (201, 1)


@pytest.mark.parametrize(
    "setting", [{"BACKSTAY_AGENT_ROOTS": "/no/such/place"}, {"BACKSTAY_AGENT_ENVIRONMENT": "BACKSTAY_TOKEN"}]
)
def test_an_invalid_setting_is_rejected_at_the_start(tmp_path: Path, setting: dict[str, str]) -> None:
    with (
        pytest.raises(AssertionError, match=r"no/such/place|BACKSTAY_TOKEN"),
        serving(tmp_path, "--db", "chat.db", *AGENT, environment=setting),
    ):
        pass
