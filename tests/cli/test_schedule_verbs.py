"""Schedules on the command line: created, listed, shown, paused, run and deleted."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from backstay import Address, open_store
from backstay.testing import ManualClock
from tests.cli.installed_command import RunCli
from tests.databases import Place

ME = "local"
CHAT = "chat://telegram/dm/42"

# Verbs are tested on every engine by the contract; most tests of their output need one engine.
pytestmark = pytest.mark.engines("sqlite")
BOTH = pytest.mark.engines("sqlite", "postgres")


@BOTH
def test_a_schedule_is_created_listed_paused_run_and_deleted(run_cli: RunCli, place: Place) -> None:
    made = run_cli(
        "every", "weekday 9:00 Europe/Zurich", "--address", CHAT, "--if-missed", "ask", "tea", "or", "coffee?"
    )
    assert made.code == 0, made.err
    schedule = made.out.strip()

    (listed,) = run_cli("schedules", "list", "--json").json["schedules"]
    assert (listed["id"], listed["when"], listed["to"]) == (schedule, "weekday 09:00 Europe/Zurich", CHAT)
    assert (listed["text"], listed["if_missed"], listed["agent"]) == ("tea or coffee?", "ask", None)
    line = run_cli("schedules", "list").lines[1]
    assert line.startswith(schedule)
    assert "weekday 09:00 Europe/Zurich" in line
    assert run_cli("schedules", "pause", schedule[-8:]).lines == [f"paused {schedule}  tea or coffee?"]
    assert run_cli("schedules", "resume", schedule[4:], "--json").json["schedule"]["state"] == "active"
    assert run_cli("schedules", "run", schedule).code == 0
    shown = run_cli("schedules", "show", schedule)
    assert [line.split()[2] for line in shown.lines[-4:]] == ["fired", "resumed", "paused", "created"]
    assert run_cli("schedules", "show", schedule, "--json").json["log"][0]["step"] == "fired"
    with open_store(place) as store:
        (turn,) = store.waiting(store.at(Address.parse(CHAT), owner=ME).id, owner=ME)
        assert (turn.request_id or "").startswith(f"{schedule}/now/")
    assert run_cli("schedules", "delete", schedule).code == 0
    assert run_cli("schedules", "list").lines == []


def test_a_single_moment_is_in_the_named_zone_or_that_of_the_machine(run_cli: RunCli, place: Place) -> None:
    for arguments in (
        ("2090-01-01 9:00 Asia/Tokyo",),
        ("2090-01-01 9:00", "--zone", "Asia/Tokyo"),
        ("2090-01-01 9:00",),
    ):
        assert run_cli("at", *arguments, "--address", CHAT, "tea?").code == 0
    found = run_cli("schedules", "list", "--json").json["schedules"]
    assert [one["when"] for one in found] == ["2090-01-01 09:00 Asia/Tokyo"] * 2 + ["2090-01-01 09:00 UTC"]
    assert found[2]["next_due"] == round(datetime(2090, 1, 1, 9, tzinfo=UTC).timestamp() * 1000)


def test_a_schedule_without_a_session_makes_one_unless_it_is_invalid(run_cli: RunCli, place: Place) -> None:
    made = run_cli("every", "day 9:00", "--json", "tea?").json["schedule"]
    refused = run_cli("every", "day 9:00", "--agent", "", "tea?")

    assert refused.code == 1
    assert refused.err.startswith("error: ")
    with open_store(place) as store:
        assert [session.id for session in store.list(owner=ME).sessions] == [made["to"]]


def test_a_repeated_request_makes_one_schedule(run_cli: RunCli, place: Place) -> None:
    twice = [run_cli("every", "day 9:00", "--address", CHAT, "--request-id", "r1", "tea?").out for _ in range(2)]
    assert twice[0] == twice[1]


@pytest.mark.parametrize(
    ("arguments", "code", "problem"),
    [
        (("at", "day 9:00", "tea?"), 2, "use `backstay every`"),
        (("every", "2090-01-01 9:00", "tea?"), 2, "use `backstay at`"),
        (("every", "often", "tea?"), 1, "'often' is not a time of a schedule"),
        (("at", "2020-01-01 9:00", "tea?"), 1, "is in the past"),
        (("every", "day 9:00", "--zone", "Nowhere", "tea?"), 1, "is not a time zone"),
        (("every", "day 9:00", "--last", "--address", CHAT, "tea?"), 2, "Give only one of"),
        (("every", "day 9:00", "--request-id", "r1", "tea?"), 2, "--request-id needs a session"),
        (("schedules", "pause", "zzz"), 1, "there is no schedule"),
        (("schedules", "pause", "sch_"), 1, "matches several schedules"),
    ],
)
def test_a_mistake_is_named_and_changes_nothing(
    run_cli: RunCli, place: Place, arguments: tuple[str, ...], code: int, problem: str
) -> None:
    with open_store(place) as store:
        made = [store.create_schedule("day 9:00", Address.parse(CHAT), "tea?", owner=ME) for _ in range(2)]
    answer = run_cli(*arguments)
    assert (answer.code, problem in answer.err) == (code, True), answer.err
    with open_store(place) as store:
        assert store.schedules(owner=ME) == tuple(made)
        assert store.list(owner=ME).sessions == ()


def test_a_list_without_a_store_creates_none(run_cli: RunCli, tmp_path: Path) -> None:
    answer = run_cli("schedules", "list", "--db", str(tmp_path / "none.db"))
    assert answer.code == 1
    assert "there is no store" in answer.err
    assert not (tmp_path / "none.db").exists()


def test_a_question_is_shown_and_answered(run_cli: RunCli, place: Place) -> None:
    clock = ManualClock(now=round((datetime.now(UTC) - timedelta(days=3)).timestamp() * 1000))
    with open_store(place, clock=clock) as store:
        made = store.create_schedule("1 hour", Address.parse(CHAT), "tea?", owner=ME, if_missed="ask")
        clock.advance(2 * 86_400 + 600)
        store.fire_due(["default"])
    assert run_cli("schedules", "list").lines[1].split()[3] == "asks"
    assert "asks about" in run_cli("schedules", "show", made.id).out
    assert run_cli("schedules", "skip", made.id, "--json").json["schedule"]["asked_due"] is None
    assert run_cli("schedules", "skip", made.id).code == 1
