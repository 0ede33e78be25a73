"""Sessions are listed, shown, named in several ways, filed and deleted."""

from pathlib import Path

import pytest

from backstay import Address, open_store
from backstay.model import message
from backstay.model.content import ToolCall, ToolResult
from backstay.model.turn import Interrupted
from backstay.store import Store
from backstay.testing import ManualClock
from tests.cli.installed_command import Tell, on_terminal
from tests.databases import Place

ME = "local"

# Verbs of a store that every engine keeps, and what is written about them: most facts need one engine.
pytestmark = pytest.mark.engines("sqlite")
BOTH = pytest.mark.engines("sqlite", "postgres")


def talk(store: Store, *words: str) -> str:
    """A session in which these were said, each answered."""
    session = store.create(owner=ME).id
    for one in words:
        store.record(session, [message.user(one), message.assistant(f"re: {one}")], owner=ME)
    return session


@pytest.fixture
def three(place: Place) -> list[str]:
    """Three sessions, the newest last."""
    with open_store(place) as store:
        return [talk(store, f"question {number}") for number in range(3)]


def test_a_list_shows_every_session_newest_first_and_cuts_nothing_in_a_pipe(told: Tell, three: list[str]) -> None:
    listed = told("list")

    assert listed.code == 0
    assert [line.split()[0] for line in listed.lines] == ["SESSION", *reversed(three)]
    assert "“re: question 2”" in listed.lines[1] or "“question 2”" in listed.lines[1]
    assert "\x1b" not in listed.out


@BOTH
def test_a_list_is_read_in_pages(told: Tell, three: list[str]) -> None:
    first = told("list", "--limit", "2", "--json").json
    second = told("list", "--limit", "2", "--after", first["next"], "--json").json

    assert [one["id"] for one in first["sessions"] + second["sessions"]] == three[::-1]
    assert second["next"] is None
    assert [one["id"] for one in told("list", "--limit", "1", "--all", "--json").json["sessions"]] == three[::-1]


@BOTH
def test_filing_is_seen_in_the_list(told: Tell, three: list[str], tmp_path: Path) -> None:
    one, two, three_ = three
    assert told("rename", one, "Holiday plans").code == 0
    assert told("pin", one, two).code == 0
    assert told("unpin", two).code == 0
    assert told("tag", two, "work", "urgent").code == 0
    assert told("tag", two, "--remove", "urgent").code == 0
    assert told("archive", three_).code == 0

    def ids(*filters: str) -> list[str]:
        return [found["id"] for found in told("list", "--json", *filters).json["sessions"]]

    assert ids("--pinned") == [one]
    assert ids("--tag", "work") == [two]
    assert ids("--tag", "urgent") == []
    assert three_ not in ids()
    assert ids("--archived") == [three_]
    assert set(ids("--with-archived")) == set(three)
    assert told("unarchive", three_).code == 0
    assert set(ids()) == set(three)
    assert "[pinned] Holiday plans" in told("list").out
    assert "[#work]" in told("list").out
    assert told("rename", one, "--none").code == 0
    assert "Holiday" not in told("list").out
    assert told("end", two).code == 0
    assert ids("--state", "ended") == [two]
    assert told("list", "--workspace", str(tmp_path)).out == ""


def test_a_session_is_known_by_its_id_the_beginning_of_it_or_an_address(told: Tell, place: Place) -> None:
    with open_store(place) as store:
        address = Address.chat("matrix", "group", chat="kitchen")
        session = store.resolve(address, owner=ME).session.id

    for name in (session, session[:20], session.removeprefix("ses_")[:20], "ses", address.spelling):
        assert told("show", name, "--json").json["session"]["id"] == session, name


@pytest.mark.parametrize(
    "name", ["nonsense", "", "ses_zzz", "ses_01m7j8v9xbefa98mt527k3sfdq", "chat://a/b/c", "chat://a", "x://y", "☃"]
)
def test_what_names_no_session_is_an_error_with_a_hint(told: Tell, three: list[str], name: str) -> None:
    answer = told("show", "--", name)

    assert (answer.code, answer.out) == (1, "")
    assert answer.err.startswith("error: ")
    assert "\nhint: " in answer.err


def test_a_name_that_fits_several_sessions_lists_them(told: Tell, three: list[str]) -> None:
    answer = told("delete", "--yes", "ses_0")

    assert answer.code == 1
    for session in three:
        assert session in answer.err
    assert len(told("list", "--json").json["sessions"]) == 3


@BOTH
def test_a_conversation_is_shown_with_all_that_was_said(told: Tell, place: Place) -> None:
    with open_store(place) as store:
        session = talk(store, "one", "two", "three")
    shown = told("show", session)

    said = [line.strip() for line in shown.lines if line.startswith("  ")]
    assert said == ["one", "re: one", "two", "re: two", "three", "re: three"]
    last = told("show", session, "--last", "2")
    assert [line.strip() for line in last.lines if line.startswith("  ")] == ["three", "re: three"]
    assert "4 not shown" in last.out
    assert [one["role"] for one in told("show", session, "--json").json["messages"]] == ["user", "assistant"] * 3


def test_a_list_shows_the_sessions_in_which_an_agent_was_asked_last(told: Tell, place: Place) -> None:
    with open_store(place) as store:
        one, two = (store.create(owner=ME).id for _ in range(2))
        for session, agent in ((one, "writer"), (two, "writer"), (two, "reviewer")):
            store.submit(session, "hello", owner=ME, agent=agent)

    for agent, wanted in (("writer", [one]), ("reviewer", [two]), ("nobody", [])):
        found = told("list", "--agent", agent, "--json").json["sessions"]
        assert [(session["id"], session["agent"]) for session in found] == [(session, agent) for session in wanted]


def test_a_tool_is_shown_with_how_long_it_took(told: Tell, place: Place) -> None:
    clock = ManualClock()
    with open_store(place, clock=clock) as store:
        session = store.create(owner=ME).id
        proof = store.submit(session, "look", owner=ME, agent="elsewhere", start=True).opened
        assert proof is not None
        proof = store.checkpoint(proof, [ToolCall("c1", "look"), ToolCall("c2", "pay")]).open
        clock.advance(1.25)
        store.finish(proof, Interrupted(), bodies=[ToolResult("c1", "seen")])

    said = [line.strip() for line in told("show", session).lines if line.startswith("  ")]
    calls = told("show", session, "--json").json["calls"]

    assert said == ["look", "→ look {}", "→ pay {}", "← seen  (1.2 s)"]
    assert [call["ended_at"] and call["ended_at"] - call["started_at"] for call in calls] == [1250, None]


def test_an_older_window_is_shown_by_its_number(told: Tell, place: Place) -> None:
    with open_store(place) as store:
        session = talk(store, "one", "two")
        store.undo(session, owner=ME)  # type: ignore[arg-type]

    assert "two" not in told("show", session).out
    assert "re: two" in told("show", session, "--window", "1").out
    assert told("show", session, "--window", "3").code == 1
    assert told("show", session, "--window", "win_nonsense").code == 1


def test_a_deletion_asks_and_says_what_went(told: Tell, tmp_path: Path, place: Place, three: list[str]) -> None:
    assert told("delete", three[0]).code == 1
    assert on_terminal(tmp_path, place, "delete", three[0], typed=b"n\n").code == 1
    assert len(told("list", "--json").json["sessions"]) == 3

    answer = on_terminal(tmp_path, place, "delete", three[0], typed=b"y\n")
    assert answer.code == 0
    assert f"deleted {three[0]}: 2 messages, 1 turn" in answer.out
    removed = told("delete", "--yes", "--json", three[1], three[2]).json["deleted"]
    assert [one["removed"]["messages"] for one in removed] == [2, 2]
    assert told("list", "--json").json["sessions"] == []


def test_when_one_of_several_is_unknown_nothing_happens_to_the_others(told: Tell, three: list[str]) -> None:
    assert told("delete", "--yes", three[0], "ses_unknown").code == 1
    assert len(told("list", "--json").json["sessions"]) == 3


def test_another_owner_sees_nothing_of_it(told: Tell, three: list[str]) -> None:
    assert told("list", "--owner", "anna", "--json").json["sessions"] == []
    assert told("show", three[0], "--owner", "anna").code == 1
