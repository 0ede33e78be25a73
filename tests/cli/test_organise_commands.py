"""Sessions are listed, shown, named in several ways, filed and deleted."""

from pathlib import Path

import pytest

from backstay import Address, open_store
from backstay.model import message
from backstay.model.content import ToolCall, ToolResult
from backstay.model.turn import Interrupted
from backstay.store import Store
from backstay.testing import ManualClock
from tests.cli.installed_command import RunCli, on_terminal
from tests.databases import Place

ME = "local"

# Verbs are tested on every engine by the contract; most tests of their output need one engine.
pytestmark = pytest.mark.engines("sqlite")
BOTH = pytest.mark.engines("sqlite", "postgres")


def talk(store: Store, *words: str) -> str:
    """A session with these messages, each answered."""
    session = store.create(owner=ME).id
    for one in words:
        store.record(session, [message.user(one), message.assistant(f"re: {one}")], owner=ME)
    return session


@pytest.fixture
def three(place: Place) -> list[str]:
    """Three sessions, the newest last."""
    with open_store(place) as store:
        return [talk(store, f"question {number}") for number in range(3)]


def test_a_list_shows_every_session_newest_first_and_cuts_nothing_in_a_pipe(run_cli: RunCli, three: list[str]) -> None:
    listed = run_cli("list")

    assert listed.code == 0
    assert [line.split()[0] for line in listed.lines] == ["SESSION", *reversed(three)]
    assert "“re: question 2”" in listed.lines[1] or "“question 2”" in listed.lines[1]
    assert "\x1b" not in listed.out


@BOTH
def test_a_list_is_read_in_pages(run_cli: RunCli, three: list[str]) -> None:
    first = run_cli("list", "--limit", "2", "--json").json
    second = run_cli("list", "--limit", "2", "--after", first["next"], "--json").json

    assert [one["id"] for one in first["sessions"] + second["sessions"]] == three[::-1]
    assert second["next"] is None
    assert [one["id"] for one in run_cli("list", "--limit", "1", "--all", "--json").json["sessions"]] == three[::-1]


@BOTH
def test_organised_sessions_are_shown_in_the_list(run_cli: RunCli, three: list[str], tmp_path: Path) -> None:
    one, two, three_ = three
    assert run_cli("rename", one, "Holiday plans").code == 0
    assert run_cli("pin", one, two).code == 0
    assert run_cli("unpin", two).code == 0
    assert run_cli("tag", two, "work", "urgent").code == 0
    assert run_cli("tag", two, "--remove", "urgent").code == 0
    assert run_cli("archive", three_).code == 0

    def ids(*filters: str) -> list[str]:
        return [found["id"] for found in run_cli("list", "--json", *filters).json["sessions"]]

    assert ids("--pinned") == [one]
    assert ids("--tag", "work") == [two]
    assert ids("--tag", "urgent") == []
    assert three_ not in ids()
    assert ids("--archived") == [three_]
    assert set(ids("--with-archived")) == set(three)
    assert run_cli("unarchive", three_).code == 0
    assert set(ids()) == set(three)
    assert "[pinned] Holiday plans" in run_cli("list").out
    assert "[#work]" in run_cli("list").out
    assert run_cli("rename", one, "--none").code == 0
    assert "Holiday" not in run_cli("list").out
    assert run_cli("end", two).code == 0
    assert ids("--state", "ended") == [two]
    assert run_cli("list", "--workspace", str(tmp_path)).out == ""


def test_a_session_is_found_by_id_prefix_or_address(run_cli: RunCli, place: Place) -> None:
    with open_store(place) as store:
        address = Address.chat("matrix", "group", chat="kitchen")
        session = store.resolve(address, owner=ME).session.id

    for name in (session, session[:20], session.removeprefix("ses_")[:20], "ses", address.spelling):
        assert run_cli("show", name, "--json").json["session"]["id"] == session, name


@pytest.mark.parametrize(
    "name", ["nonsense", "", "ses_zzz", "ses_01m7j8v9xbefa98mt527k3sfdq", "chat://a/b/c", "chat://a", "x://y", "☃"]
)
def test_an_unknown_session_is_an_error_with_a_hint(run_cli: RunCli, three: list[str], name: str) -> None:
    answer = run_cli("show", "--", name)

    assert (answer.code, answer.out) == (1, "")
    assert answer.err.startswith("error: ")
    assert "\nhint: " in answer.err


def test_a_name_that_fits_several_sessions_lists_them(run_cli: RunCli, three: list[str]) -> None:
    answer = run_cli("delete", "--yes", "ses_0")

    assert answer.code == 1
    for session in three:
        assert session in answer.err
    assert len(run_cli("list", "--json").json["sessions"]) == 3


@BOTH
def test_a_conversation_is_shown_with_all_messages(run_cli: RunCli, place: Place) -> None:
    with open_store(place) as store:
        session = talk(store, "one", "two", "three")
    shown = run_cli("show", session)

    said = [line.strip() for line in shown.lines if line.startswith("  ")]
    assert said == ["one", "re: one", "two", "re: two", "three", "re: three"]
    last = run_cli("show", session, "--last", "2")
    assert [line.strip() for line in last.lines if line.startswith("  ")] == ["three", "re: three"]
    assert "4 not shown" in last.out
    assert [one["role"] for one in run_cli("show", session, "--json").json["messages"]] == ["user", "assistant"] * 3


def test_a_list_shows_the_sessions_in_which_an_agent_was_asked_last(run_cli: RunCli, place: Place) -> None:
    with open_store(place) as store:
        one, two = (store.create(owner=ME).id for _ in range(2))
        for session, agent in ((one, "writer"), (two, "writer"), (two, "reviewer")):
            store.submit(session, "hello", owner=ME, agent=agent)

    for agent, wanted in (("writer", [one]), ("reviewer", [two]), ("nobody", [])):
        found = run_cli("list", "--agent", agent, "--json").json["sessions"]
        assert [(session["id"], session["agent"]) for session in found] == [(session, agent) for session in wanted]


def test_a_tool_is_shown_with_how_long_it_took(run_cli: RunCli, place: Place) -> None:
    clock = ManualClock()
    with open_store(place, clock=clock) as store:
        session = store.create(owner=ME).id
        proof = store.submit(session, "look", owner=ME, agent="elsewhere", start=True).opened
        assert proof is not None
        proof = store.checkpoint(proof, [ToolCall("c1", "look"), ToolCall("c2", "pay")]).open
        clock.advance(1.25)
        store.finish(proof, Interrupted(), bodies=[ToolResult("c1", "seen")])

    said = [line.strip() for line in run_cli("show", session).lines if line.startswith("  ")]
    calls = run_cli("show", session, "--json").json["calls"]

    assert said == ["look", "→ look {}", "→ pay {}", "← seen  (1.2 s)"]
    assert [call["ended_at"] and call["ended_at"] - call["started_at"] for call in calls] == [1250, None]


def test_an_older_window_is_shown_by_its_number(run_cli: RunCli, place: Place) -> None:
    with open_store(place) as store:
        session = talk(store, "one", "two")
        store.undo(session, owner=ME)  # type: ignore[arg-type]

    assert "two" not in run_cli("show", session).out
    assert "re: two" in run_cli("show", session, "--window", "1").out
    assert run_cli("show", session, "--window", "3").code == 1
    assert run_cli("show", session, "--window", "win_nonsense").code == 1


def test_a_deletion_asks_first_and_reports_the_deleted_rows(
    run_cli: RunCli, tmp_path: Path, place: Place, three: list[str]
) -> None:
    assert run_cli("delete", three[0]).code == 1
    assert on_terminal(tmp_path, place, "delete", three[0], typed=b"n\n").code == 1
    assert len(run_cli("list", "--json").json["sessions"]) == 3

    answer = on_terminal(tmp_path, place, "delete", three[0], typed=b"y\n")
    assert answer.code == 0
    assert f"deleted {three[0]}: 2 messages, 1 turn" in answer.out
    removed = run_cli("delete", "--yes", "--json", three[1], three[2]).json["deleted"]
    assert [one["removed"]["messages"] for one in removed] == [2, 2]
    assert run_cli("list", "--json").json["sessions"] == []


def test_when_one_of_several_is_unknown_nothing_happens_to_the_others(run_cli: RunCli, three: list[str]) -> None:
    assert run_cli("delete", "--yes", three[0], "ses_unknown").code == 1
    assert len(run_cli("list", "--json").json["sessions"]) == 3


def test_another_owner_sees_nothing_of_it(run_cli: RunCli, three: list[str]) -> None:
    assert run_cli("list", "--owner", "anna", "--json").json["sessions"] == []
    assert run_cli("show", three[0], "--owner", "anna").code == 1


def test_a_session_is_named_by_its_last_letters_its_place_in_the_list_or_last(run_cli: RunCli, place: Place) -> None:
    with open_store(place) as store:
        first, _, third = (store.create(owner=ME).id for _ in range(3))
    listed = [one["id"] for one in run_cli("list", "--json").json["sessions"]]

    def named(name: str) -> str:
        return str(run_cli("show", name, "--json").json["session"]["id"])

    assert [named(name) for name in ("last", "1", "2", "3")] == [listed[0], *listed]
    assert [named(name) for name in (first[-8:], third[-8:], third)] == [first, third, third]
    for missing in ("4", "999", "zzzzzzzz"):
        assert run_cli("show", missing).code == 1


def test_the_list_of_a_person_has_the_numbers_and_that_of_a_script_does_not(
    run_cli: RunCli, tmp_path: Path, place: Place
) -> None:
    with open_store(place) as store:
        talk(store, "one")
        talk(store, "two")

    drawn = on_terminal(tmp_path, place, "list", NO_COLOR="1").out.splitlines()
    assert [line.split()[0] for line in drawn[:3]] == ["#", "1", "2"]
    assert on_terminal(tmp_path, place, "list", "--tag", "x", NO_COLOR="1").out.split()[0] != "#"
    assert run_cli("list").out.split()[0] == "SESSION"


@pytest.mark.parametrize("name", ["last", "1"])
def test_delete_without_a_question_takes_no_place_in_a_list(run_cli: RunCli, place: Place, name: str) -> None:
    with open_store(place) as store:
        talk(store, "one")

    assert run_cli("delete", "--yes", name).code == 2
    assert run_cli("delete", name, stdin=b"y\n").code == 0
    assert run_cli("list", "--json").json["sessions"] == []


def test_show_says_how_a_turn_ended_and_which_call_may_have_run(run_cli: RunCli, place: Place) -> None:
    with open_store(place) as store:
        session = store.create(owner=ME).id
        accepted = store.submit(session, "pay", owner=ME, agent="default", start=("default",), allow_unserved=True)
        assert accepted.opened is not None
        proof = store.checkpoint(accepted.opened, [ToolCall("c1", "pay", {"euros": 5})]).open
        store.finish(proof, Interrupted("the process died"))

    shown = run_cli("show", session)
    assert "The last turn was interrupted: the process died" in shown.lines
    assert "pay (c1) may have run: it has no result." in shown.lines
    [turn] = run_cli("show", session, "--json").json["turns"]
    assert turn["outcome"] == {"type": "interrupted", "reason": "the process died"}
