"""`backstay tokens`: what a token may do, and how long."""

import pytest

from tests.cli.installed_command import Tell

DAY = 86_400_000


def test_a_token_may_be_read_only_and_expire(told: Tell) -> None:
    usual = told("tokens", "add", "robot", "--json").json["token"]
    made = told("tokens", "add", "dashboard", "--read-only", "--expires-in", "90d", "--json").json["token"]
    listed = told("tokens", "list")

    assert (usual["access"], usual["expires_at"]) == ("full", None)
    assert (made["access"], made["expires_at"] - made["created_at"]) == ("read", 90 * DAY)
    assert listed.lines[0].split() == ["TOKEN", "MADE", "EXPIRES", "KIND", "ACCESS", "NAME"]
    assert [line.split()[-2:] for line in listed.lines[1:]] == [["full", "robot"], ["read", "dashboard"]]
    assert "never" in listed.lines[1]


@pytest.mark.parametrize(("written", "seconds"), [("45s", 45), ("30m", 1_800), ("1.5h", 5_400), ("2w", 1_209_600)])
def test_how_long_it_holds_is_written_with_a_unit(told_file: Tell, written: str, seconds: float) -> None:
    made = told_file("tokens", "add", "robot", "--expires-in", written, "--json").json["token"]

    assert made["expires_at"] - made["created_at"] == seconds * 1000


@pytest.mark.parametrize("written", ["90", "-1d", "0d", "soon", "1y", "1e9d", ""])
def test_what_is_no_length_of_time_is_refused(told_file: Tell, written: str) -> None:
    answer = told_file("tokens", "add", "robot", "--expires-in", written)

    assert (answer.code, answer.out) == (2, "")
    assert "90d" in answer.err
