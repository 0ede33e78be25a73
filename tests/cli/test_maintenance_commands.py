"""Whole stores: copied, tidied, moved; and sessions that travel as documents."""

import json
import re
import stat
from collections.abc import Callable
from functools import partial
from html.parser import HTMLParser
from pathlib import Path

import apsw
import pytest

from backstay import Address, open_blocking, open_store
from backstay.store import Store
from tests.cli.database_damage import ME, a_store
from tests.cli.installed_command import Tell, on_terminal, tell
from tests.cli.sample_agents import ESCAPES
from tests.databases import Place

HOSTILE = ("--agent", "sample_agents:hostile")
TAGS = '<script>alert(1)</script><img src="https://evil.example/x.png" onerror=alert(2)>"\'&amp;'


def exported(store: Store) -> list[bytes]:
    return [store.export(one.id, owner=ME).to_json() for one in store.list(owner=ME, limit=1000).sessions]


def test_a_backup_is_the_store_at_one_moment_and_overwrites_nothing(
    told_file: Tell, file: Path, tmp_path: Path
) -> None:
    a_store(file)
    with open_store(file) as store:  # somebody uses it meanwhile
        made = told_file("backup", "copy.db", "--json").json
        assert made["size"] == (tmp_path / "copy.db").stat().st_size
        with open_store(tmp_path / "copy.db") as copy:
            assert exported(copy) == exported(store)
    assert stat.S_IMODE((tmp_path / "copy.db").stat().st_mode) == 0o600
    for target in ("copy.db", ".", "no/such/place.db", str(file)):
        answer = told_file("backup", target)
        assert (answer.code, "\nhint: " in answer.err) == (1, True), target
    assert told_file("backup", "copy.db", "--replace").code == 0
    assert not list(tmp_path.glob("*.part"))


def test_a_copy_takes_nothing_over_from_the_log_of_the_file_it_replaces(
    told_file: Tell, file: Path, tmp_path: Path
) -> None:
    copy = tmp_path / "copy.db"
    kept = a_store(file, sessions=1)
    a_store(copy, sessions=3)
    leave_log(copy)

    assert told_file("backup", "copy.db", "--replace").code == 0

    assert {one["id"] for one in tell(tmp_path, copy, "list", "--json").json["sessions"]} == set(kept)
    assert tell(tmp_path, copy, "doctor").code == 0


def leave_log(path: Path) -> None:
    """Write, and leave the log beside the file, as a process does that is killed."""
    log = Path(f"{path}-wal")
    connection = apsw.Connection(str(path))
    connection.wal_autocheckpoint(0)
    connection.execute("UPDATE sessions SET title = 'of another store'")
    written = log.read_bytes()
    connection.close()
    log.write_bytes(written)


def test_a_copy_does_not_replace_a_store_in_which_somebody_works(told_file: Tell, file: Path, tmp_path: Path) -> None:
    a_store(file, sessions=1)
    with open_blocking(tmp_path / "copy.db") as app:
        session = app.session()
        answer = told_file("backup", "copy.db", "--replace")
        assert (answer.code, "is in use" in answer.err) == (1, True)
        assert session.messages() == ()
    assert told_file("backup", "copy.db", "--replace").code == 0


def test_a_server_is_backed_up_with_its_own_tools(tmp_path: Path, empty_database: str) -> None:
    answer = tell(tmp_path, empty_database, "backup", "copy.db")

    assert (answer.code, "pg_dump" in answer.err) == (1, True)
    assert not (tmp_path / "copy.db").exists()


def test_what_would_go_is_shown_before_it_goes(told: Tell, place: Place) -> None:
    sessions = a_store(place, sessions=3)
    told("end", sessions[1], sessions[2])
    would = told("retain", "--closed-for", "0", "--fold-after", "0", "--json").json

    assert (would["would"]["deleted"], would["did"]) == (2, None)
    assert len(told("list", "--json").json["sessions"]) == 4
    done = told("retain", "--closed-for", "0", "--apply", "--json").json
    assert (done["did"]["deleted"], done["did"]["messages"]) == (2, 16)
    assert len(told("list", "--json").json["sessions"]) == 2
    assert told("retain", "--closed-for", "-1").code == 2
    assert "Nothing was changed" in told("retain").out


def test_deltas_are_folded_and_the_words_stay(told: Tell) -> None:
    session = told("send", "--agent", "sample_agents:echo", "--json", "hello").json["session"]
    before = told("show", session, "--json").json["messages"]

    assert told("retain", "--fold-after", "0", "--json").json["would"]["folded"] == 1
    assert told("retain", "--fold-after", "0", "--apply", "--json").json["folded_rows"] > 0
    assert told("show", session, "--json").json["messages"] == before
    assert "turn_folded" in told("follow", session, "--once").out


def test_a_vacuum_gives_room_back_and_only_when_told_to(told: Tell, place: Place) -> None:
    sessions = a_store(place)
    told("delete", "--yes", *sessions)
    before = told("vacuum", "--json").json

    assert before["after"] is None
    after = told("vacuum", "--apply", "--json").json["after"]
    if isinstance(place, Path):
        assert before["before"]["unused"] > 0
        assert after["unused"] == 0
        assert after["size"] < before["before"]["size"]
    assert told("doctor").code == 0


def test_a_store_moves_with_everything_and_stays_behind_closed(
    bare_places: Callable[[], Place], tmp_path: Path
) -> None:
    place = bare_places()
    told = partial(tell, tmp_path, place)
    a_store(place)
    with open_store(place) as store:
        before = exported(store)
    target = tmp_path / "moved.db"
    moved = told("move", str(place), str(target), "--json").json
    assert {table["name"]: table["rows"] for table in moved["tables"]}["sessions"] == 5

    with open_store(target) as store:
        assert exported(store) == before
    refused = told("send", "--agent", "sample_agents:echo", "more")
    assert (refused.code, "moved.db" in refused.err) == (1, True)
    assert told("move", str(place)).code == 2
    assert told("move", str(place), "--call-off").code == 1
    assert told("move", str(place), str(target)).out.endswith("The move was already complete.\n")


def test_a_session_travels_as_a_document(told: Tell, tmp_path: Path) -> None:
    session = told("send", *HOSTILE, "--json", "hello").json["session"]
    document = told("export", session)
    assert told("export", session, "-o", "session.jsonl").code == 0
    written = (tmp_path / "session.jsonl").read_text()
    assert [json.loads(line) for line in document.lines] == [json.loads(line) for line in written.split("\n") if line]
    assert stat.S_IMODE((tmp_path / "session.jsonl").stat().st_mode) == 0o600
    assert told("export", session, "-o", "session.jsonl").code == 1
    assert told("export", session, "-o", "session.jsonl", "--force").code == 0

    other = tmp_path / "other.db"
    assert tell(tmp_path, other, "import", "session.jsonl").out == f"{session}\n"
    assert tell(tmp_path, other, "export", session).out == document.out
    copy = tell(tmp_path, other, "import", "-", "--json", stdin=document.out.encode()).json
    assert (copy["copied"], copy["session"]["id"] != session) == (True, True)


CHAT = "chat://telegram/dm/42"


def test_held_turns_are_listed_and_released_or_withdrawn(told: Tell, place: Place, tmp_path: Path) -> None:
    with open_store(place) as store:
        turn, _ = (store.submit(Address.parse(CHAT), text, owner="local").turn.id for text in ("one", "two"))
        session = store.turn(turn, owner="local").session
    told("export", session, "-o", "session.jsonl")
    other = tmp_path / "other.db"

    imported = tell(tmp_path, other, "import", "--json", "session.jsonl").json
    assert (imported["dropped"], len(imported["held"])) == ([CHAT], 2)
    assert "held 2" in tell(tmp_path, other, "list").out
    assert tell(tmp_path, other, "release", session, "--turn", "trn_unknown").code == 1
    assert tell(tmp_path, other, "release", session, "--turn", turn).out == f"{turn}\n"
    assert "held 1, waiting 1" in tell(tmp_path, other, "list").out
    (gone,) = tell(tmp_path, other, "release", session, "--withdraw", "--json").json["turns"]
    assert (gone["id"] != turn, gone["outcome"]["type"]) == (True, "cancelled")
    assert tell(tmp_path, other, "import", "--addresses", "session.jsonl").code == 0
    assert tell(tmp_path, other, "show", CHAT).code == 0


@pytest.mark.parametrize("nonsense", [b"", b"{", b"[]", b'{"backstay": "session", "format": 99}', b"\xff\x00", b"null"])
def test_a_document_that_is_none_is_refused(told: Tell, place: Place, nonsense: bytes) -> None:
    open_store(place).close()
    answer = told("import", "-", stdin=nonsense)

    assert (answer.code, answer.err.startswith("error: ")) == (1, True)
    assert told("list", "--json").json["sessions"] == []


@pytest.mark.engines("sqlite")
@pytest.mark.parametrize("way", ["file", "pipe"])
@pytest.mark.parametrize("broken", [b"garbage", b"", "cut off", "unsound"])
def test_a_document_that_is_refused_makes_no_store(told: Tell, tmp_path: Path, broken: bytes | str, way: str) -> None:
    if isinstance(broken, str):
        session = told("send", *HOSTILE, "--json", "hello").json["session"]
        lines = told("export", session).out.splitlines(keepends=True)
        other = session[:-1] + ("1" if session.endswith("0") else "0")
        edited = lines[:-1] if broken == "cut off" else [lines[0].replace(session, other), *lines[1:]]
        broken = "".join(edited).encode()
    new = tmp_path / "folder" / "new.db"
    new.parent.mkdir()
    (tmp_path / "document.jsonl").write_bytes(broken)
    source, stdin = ("document.jsonl", None) if way == "file" else ("-", broken)
    answer = tell(tmp_path, new, "import", source, stdin=stdin)

    assert (answer.code, answer.err.startswith("error: ")) == (1, True)
    assert list(new.parent.iterdir()) == []


def test_files_that_cannot_be_read_or_written_are_named(told_file: Tell, file: Path) -> None:
    (session, *_) = a_store(file, sessions=1)

    for command in (["import", "missing.json"], ["import", "."], ["export", session, "-o", "no/such/dir/x.json"]):
        answer = told_file(*command)
        assert (answer.code, "\nhint: " in answer.err) == (1, True), command


class Page(HTMLParser):
    """Everything on a page that a browser would act on, and its words."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.words = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.words += data


def test_a_page_is_safe_to_open_and_asks_nobody_for_anything(told: Tell) -> None:
    session = told("send", *HOSTILE, "--json", TAGS).json["session"]
    told("rename", session, f"</title>{TAGS}")
    page = Page()
    page.feed(told("export", session, "--format", "html").out)

    known = {"html", "head", "meta", "title", "style", "body", "header", "h1", "dl", "dt", "dd", "article", "h2", "div"}
    assert {tag for tag, _ in page.tags} <= known | {"pre"}
    for tag, attributes in page.tags:
        assert not {name for name in attributes if name.startswith("on") or name in ("src", "href", "action")}, tag
    policy = [attributes.get("content") or "" for tag, attributes in page.tags if "http-equiv" in attributes]
    assert policy[0].startswith("default-src 'none'")
    assert TAGS in page.words
    assert not set(page.words) & {"\x1b", "\x07", "\x9b", "\u202e"}
    assert "url(" not in page.words
    assert "@import" not in page.words


def test_a_conversation_can_be_read_as_markdown(told: Tell) -> None:
    session = told("send", *HOSTILE, "--json", "a ````fence```` here").json["session"]
    text = told("export", session, "--format", "markdown").out

    assert re.findall(r"^## (\w+)", text, re.MULTILINE) == ["you", "agent", "tool", "agent"]
    assert "a ````fence```` here" in text
    assert not set(text) & set("\x1b\x07\x9b\u202e")
    assert ESCAPES not in text


def test_long_work_shows_how_far_it_is_on_a_terminal_only(tmp_path: Path, file: Path, told_file: Tell) -> None:
    a_store(file)
    assert told_file("backup", "quiet.db").err == ""

    seen = on_terminal(tmp_path, file, "backup", "copy.db")
    assert (seen.code, "copying" in seen.out) == (0, True)
