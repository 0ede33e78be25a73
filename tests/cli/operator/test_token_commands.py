"""`backstay tokens` and `backstay link`: who may access a server, and how a browser is signed in."""

from pathlib import Path

import httpx2
import pytest

from backstay.server.auth.first_token import record_origins
from tests.cli.installed_command import RunCli

DAY = 86_400_000


def test_a_token_may_be_read_only_and_expire(run_cli: RunCli) -> None:
    usual = run_cli("tokens", "add", "robot", "--json").json["token"]
    made = run_cli("tokens", "add", "dashboard", "--read-only", "--expires-in", "90d", "--json").json["token"]
    listed = run_cli("tokens", "list")

    assert (usual["access"], usual["expires_at"]) == ("full", None)
    assert (made["access"], made["expires_at"] - made["created_at"]) == ("read", 90 * DAY)
    assert listed.lines[0].split() == ["TOKEN", "MADE", "EXPIRES", "KIND", "ACCESS", "OWNER", "NAME"]
    assert [line.split()[-3:] for line in listed.lines[1:]] == [
        ["full", "local", "robot"],
        ["read", "local", "dashboard"],
    ]
    assert "never" in listed.lines[1]


@pytest.mark.parametrize(("written", "seconds"), [("45s", 45), ("30m", 1_800), ("1.5h", 5_400), ("2w", 1_209_600)])
def test_how_long_it_holds_is_written_with_a_unit(run_cli_file: RunCli, written: str, seconds: float) -> None:
    made = run_cli_file("tokens", "add", "robot", "--expires-in", written, "--json").json["token"]

    assert made["expires_at"] - made["created_at"] == seconds * 1000


@pytest.mark.parametrize("written", ["90", "-1d", "0d", "soon", "1y", "1e9d", ""])
def test_an_invalid_duration_is_rejected(run_cli_file: RunCli, written: str) -> None:
    answer = run_cli_file("tokens", "add", "robot", "--expires-in", written)

    assert (answer.code, answer.out) == (2, "")
    assert "90d" in answer.err


def test_tokens_of_all_owners_are_listed_with_their_ids_unless_one_is_named(run_cli: RunCli) -> None:
    ours = run_cli("tokens", "add", "robot", "--json").json["token"]["id"]
    hers = run_cli("tokens", "add", "robot", "--owner", "anna", "--json").json["token"]["id"]

    assert [line.split()[0] for line in run_cli("tokens", "list").lines[1:]] == [ours, hers]
    assert [one["id"] for one in run_cli("tokens", "list", "--owner", "anna", "--json").json["tokens"]] == [hers]
    assert [one["id"] for one in run_cli("tokens", "list", "--json", BACKSTAY_OWNER="anna").json["tokens"]] == [hers]


def test_a_token_is_revoked_by_its_name_or_by_its_id(run_cli_file: RunCli) -> None:
    for name, owner in (("robot", "local"), ("robot", "anna"), ("phone", "anna"), ("phone", "local")):
        run_cli_file("tokens", "add", name, "--owner", owner)
    ids = [one["id"] for one in run_cli_file("tokens", "list", "--json").json["tokens"]]

    unclear = run_cli_file("tokens", "revoke", "robot")
    assert unclear.code == 1
    assert all(one in unclear.err for one in ids[:2])
    assert run_cli_file("tokens", "revoke", "robot", "--owner", "anna", "--json").json["revoked"]["id"] == ids[1]
    assert run_cli_file("tokens", "revoke", "robot", "--json").json["revoked"]["id"] == ids[0]
    assert run_cli_file("tokens", "revoke", ids[2], "--json").json["revoked"]["owner"] == "anna"
    assert run_cli_file("tokens", "revoke", "nobody").code == 1
    assert [one["id"] for one in run_cli_file("tokens", "list", "--json").json["tokens"]] == ids[3:]


def test_a_link_is_a_whole_url_of_the_server_that_last_started(run_cli_file: RunCli, file: Path) -> None:
    run_cli_file("tokens", "add", "robot")
    from_settings = httpx2.URL(run_cli_file("link", BACKSTAY_PORT="9000").out.strip())
    record_origins(file.with_name(f"{file.name}.token"), ["https://chat.example.org"])
    from_server = httpx2.URL(run_cli_file("link", "--json").json["url"])

    assert (from_settings.scheme, from_settings.host, from_settings.port) == ("http", "127.0.0.1", 9000)
    assert (from_server.scheme, from_server.host, from_server.path) == ("https", "chat.example.org", "/login")
    assert len(from_server.fragment) > 20


def test_a_link_to_a_missing_store_is_refused_and_creates_nothing(run_cli_file: RunCli, file: Path) -> None:
    answer = run_cli_file("link")

    assert (answer.code, answer.out) == (1, "")
    assert not file.exists()
