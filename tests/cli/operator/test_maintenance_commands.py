"""Whole stores: copied, maintained, moved; and sessions as documents."""

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
from tests.cli.installed_command import RunCli, on_terminal, run_cli_in
from tests.cli.operator.database_damage import ME, a_store
from tests.cli.sample_agents import ESCAPES
from tests.databases import Place

HOSTILE = ("--agent", "sample_agents:hostile")
TAGS = '<script>alert(1)</script><img src="https://evil.example/x.png" onerror=alert(2)>"\'&amp;'


def exported(store: Store) -> list[bytes]:
    return [store.export(one.id, owner=ME).to_json() for one in store.list(owner=ME, limit=1000).sessions]


def test_a_backup_is_the_store_at_one_moment_and_overwrites_nothing(
    run_cli_file: RunCli, file: Path, tmp_path: Path
) -> None:
    a_store(file)
    with open_store(file) as store:  # another handle uses it meanwhile
        made = run_cli_file("backup", "copy.db", "--json").json
        assert made["size"] == (tmp_path / "copy.db").stat().st_size
        with open_store(tmp_path / "copy.db") as copy:
            assert exported(copy) == exported(store)
    assert stat.S_IMODE((tmp_path / "copy.db").stat().st_mode) == 0o600
    for target in ("copy.db", ".", "no/such/place.db", str(file)):
        answer = run_cli_file("backup", target)
        assert (answer.code, "\nhint: " in answer.err) == (1, True), target
    assert run_cli_file("backup", "copy.db", "--replace").code == 2
    assert not list(tmp_path.glob("*.part"))


def test_a_restored_store_takes_nothing_over_from_the_log_of_the_one_before(
    run_cli_file: RunCli, file: Path, tmp_path: Path
) -> None:
    copy = tmp_path / "copy.db"
    kept = a_store(copy, sessions=1)
    a_store(file, sessions=3)
    leave_log(file)

    assert run_cli_file("restore", "copy.db", "--yes").code == 0

    assert {one["id"] for one in run_cli_file("list", "--json").json["sessions"]} == set(kept)
    assert run_cli_file("doctor").code == 0


def test_a_restore_asks_and_replaces_nothing_without_a_yes(run_cli_file: RunCli, file: Path, tmp_path: Path) -> None:
    a_store(tmp_path / "copy.db", sessions=1)
    present = set(a_store(file, sessions=3))

    for answer in (b"n\n", b""):
        asked = run_cli_file("restore", "copy.db", stdin=answer)
        assert (asked.code, "4 sessions, last active" in asked.err, "2 sessions" in asked.err) == (1, True, True)
        assert {one["id"] for one in run_cli_file("list", "--json").json["sessions"]} == present
    assert run_cli_file("restore", "copy.db", stdin=b"y\n").code == 0
    assert len(run_cli_file("list", "--json").json["sessions"]) == 2


def test_a_restore_makes_a_missing_store_and_takes_no_file_of_another_program(
    run_cli_file: RunCli, file: Path, tmp_path: Path
) -> None:
    kept = a_store(tmp_path / "copy.db", sessions=1)
    (tmp_path / "notes.txt").write_text("buy milk\n" * 100)

    assert run_cli_file("restore", "notes.txt").code == 1
    assert not file.exists()
    assert run_cli_file("restore", "copy.db").code == 0
    assert {one["id"] for one in run_cli_file("list", "--json").json["sessions"]} == set(kept)


def leave_log(path: Path) -> None:
    """Write, and leave the log beside the file, as a process does that is killed."""
    log = Path(f"{path}-wal")
    connection = apsw.Connection(str(path))
    connection.wal_autocheckpoint(0)
    connection.execute("UPDATE sessions SET title = 'of another store'")
    written = log.read_bytes()
    connection.close()
    log.write_bytes(written)


def test_a_restore_does_not_replace_a_store_in_use(run_cli_file: RunCli, file: Path, tmp_path: Path) -> None:
    a_store(tmp_path / "copy.db", sessions=1)
    with open_blocking(file) as app:
        session = app.session()
        answer = run_cli_file("restore", "copy.db", "--yes")
        assert (answer.code, "is in use" in answer.err) == (1, True)
        assert session.messages() == ()
    assert run_cli_file("restore", "copy.db", "--yes").code == 0


def test_a_server_is_backed_up_with_its_own_tools(tmp_path: Path, empty_database: str) -> None:
    answer = run_cli_in(tmp_path, empty_database, "backup", "copy.db")

    assert (answer.code, "pg_dump" in answer.err) == (1, True)
    assert not (tmp_path / "copy.db").exists()


def test_a_forecast_shows_what_would_be_deleted(run_cli: RunCli, place: Place) -> None:
    sessions = a_store(place, sessions=3)
    run_cli("end", sessions[1], sessions[2])
    would = run_cli("retain", "--closed-for", "0", "--fold-after", "0", "--json").json

    assert (would["would"]["deleted"], would["did"]) == (2, None)
    assert len(run_cli("list", "--json").json["sessions"]) == 4
    done = run_cli("retain", "--closed-for", "0", "--apply", "--json").json
    assert (done["did"]["deleted"], done["did"]["messages"]) == (2, 16)
    assert len(run_cli("list", "--json").json["sessions"]) == 2
    assert run_cli("retain", "--closed-for", "-1").code == 2
    assert "Nothing was changed" in run_cli("retain").out


def test_deltas_are_folded_and_the_text_stays(run_cli: RunCli) -> None:
    session = run_cli("send", "--agent", "sample_agents:echo", "--json", "hello").json["session"]
    before = run_cli("show", session, "--json").json["messages"]

    assert run_cli("retain", "--fold-after", "0", "--json").json["would"]["folded"] == 1
    assert run_cli("retain", "--fold-after", "0", "--apply", "--json").json["folded_rows"] > 0
    assert run_cli("show", session, "--json").json["messages"] == before
    assert "turn_folded" in run_cli("follow", session, "--once").out


def test_only_a_vacuum_returns_disk_space(run_cli: RunCli, place: Place) -> None:
    sessions = a_store(place)
    run_cli("delete", "--yes", *sessions)
    before = run_cli("vacuum", "--json").json

    assert before["after"] is None
    after = run_cli("vacuum", "--apply", "--json").json["after"]
    if isinstance(place, Path):
        assert before["before"]["unused"] > 0
        assert after["unused"] == 0
        assert after["size"] < before["before"]["size"]
    assert run_cli("doctor").code == 0


def test_a_store_moves_completely_and_its_source_is_closed(bare_places: Callable[[], Place], tmp_path: Path) -> None:
    place = bare_places()
    run_cli = partial(run_cli_in, tmp_path, place)
    a_store(place)
    with open_store(place) as store:
        before = exported(store)
    target = tmp_path / "moved.db"
    moved = run_cli("move", str(place), str(target), "--json").json
    assert {table["name"]: table["rows"] for table in moved["tables"]}["sessions"] == 5

    with open_store(target) as store:
        assert exported(store) == before
    refused = run_cli("send", "--agent", "sample_agents:echo", "more")
    assert (refused.code, "moved.db" in refused.err) == (1, True)
    assert run_cli("move", str(place)).code == 2
    assert run_cli("move", str(place), "--call-off").code == 1
    assert run_cli("move", str(place), str(target)).out.endswith("The move was already complete.\n")


def test_a_session_travels_as_a_document(run_cli: RunCli, tmp_path: Path) -> None:
    session = run_cli("send", *HOSTILE, "--json", "hello").json["session"]
    document = run_cli("export", session)
    assert run_cli("export", session, "-o", "session.jsonl").code == 0
    written = (tmp_path / "session.jsonl").read_text()
    assert [json.loads(line) for line in document.lines] == [json.loads(line) for line in written.split("\n") if line]
    assert stat.S_IMODE((tmp_path / "session.jsonl").stat().st_mode) == 0o600
    assert run_cli("export", session, "-o", "session.jsonl").code == 1
    assert run_cli("export", session, "-o", "session.jsonl", "--force").code == 0

    other = tmp_path / "other.db"
    assert run_cli_in(tmp_path, other, "import", "session.jsonl").out == f"{session}\n"
    assert run_cli_in(tmp_path, other, "export", session).out == document.out
    copy = run_cli_in(tmp_path, other, "import", "-", "--json", stdin=document.out.encode()).json
    assert (copy["copied"], copy["session"]["id"] != session) == (True, True)


CHAT = "chat://telegram/dm/42"


def test_held_turns_are_listed_and_released_or_withdrawn(run_cli: RunCli, place: Place, tmp_path: Path) -> None:
    with open_store(place) as store:
        turn, _ = (store.submit(Address.parse(CHAT), text, owner="local").turn.id for text in ("one", "two"))
        session = store.turn(turn, owner="local").session
    run_cli("export", session, "-o", "session.jsonl")
    other = tmp_path / "other.db"

    imported = run_cli_in(tmp_path, other, "import", "--json", "session.jsonl").json
    assert (imported["dropped"], len(imported["held"])) == ([CHAT], 2)
    assert "held 2" in run_cli_in(tmp_path, other, "list").out
    assert run_cli_in(tmp_path, other, "release", session, "--turn", "trn_unknown").code == 1
    assert run_cli_in(tmp_path, other, "release", session, "--turn", turn).out == f"{turn}\n"
    assert "held 1, waiting 1" in run_cli_in(tmp_path, other, "list").out
    (gone,) = run_cli_in(tmp_path, other, "release", session, "--withdraw", "--json").json["turns"]
    assert (gone["id"] != turn, gone["outcome"]["type"]) == (True, "cancelled")
    assert run_cli_in(tmp_path, other, "import", "--addresses", "session.jsonl").code == 0
    assert run_cli_in(tmp_path, other, "show", CHAT).code == 0


@pytest.mark.parametrize("nonsense", [b"", b"{", b"[]", b'{"backstay": "session", "format": 99}', b"\xff\x00", b"null"])
def test_an_invalid_document_is_rejected(run_cli: RunCli, place: Place, nonsense: bytes) -> None:
    open_store(place).close()
    answer = run_cli("import", "-", stdin=nonsense)

    assert (answer.code, answer.err.startswith("error: ")) == (1, True)
    assert run_cli("list", "--json").json["sessions"] == []


@pytest.mark.engines("sqlite")
@pytest.mark.parametrize("way", ["file", "pipe"])
@pytest.mark.parametrize("broken", [b"garbage", b"", "cut off", "unsound"])
def test_a_document_that_is_refused_makes_no_store(
    run_cli: RunCli, tmp_path: Path, broken: bytes | str, way: str
) -> None:
    if isinstance(broken, str):
        session = run_cli("send", *HOSTILE, "--json", "hello").json["session"]
        lines = run_cli("export", session).out.splitlines(keepends=True)
        other = session[:-1] + ("1" if session.endswith("0") else "0")
        edited = lines[:-1] if broken == "cut off" else [lines[0].replace(session, other), *lines[1:]]
        broken = "".join(edited).encode()
    new = tmp_path / "folder" / "new.db"
    new.parent.mkdir()
    (tmp_path / "document.jsonl").write_bytes(broken)
    source, stdin = ("document.jsonl", None) if way == "file" else ("-", broken)
    answer = run_cli_in(tmp_path, new, "import", source, stdin=stdin)

    assert (answer.code, answer.err.startswith("error: ")) == (1, True)
    assert list(new.parent.iterdir()) == []


def test_files_that_cannot_be_read_or_written_are_named(run_cli_file: RunCli, file: Path) -> None:
    (session, *_) = a_store(file, sessions=1)

    for command in (["import", "missing.json"], ["import", "."], ["export", session, "-o", "no/such/dir/x.json"]):
        answer = run_cli_file(*command)
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


@pytest.mark.engines("sqlite")
@pytest.mark.parametrize("name", ["x.pdf", "x.txt", "x.md.gz"])
def test_an_export_to_a_suffix_of_no_format_is_refused(run_cli: RunCli, tmp_path: Path, name: str) -> None:
    session = run_cli("send", "--agent", "scripted", "hello", "--json").json["session"]

    answer = run_cli("export", session, "-o", name)

    assert answer.code == 1
    assert ".jsonl, .md, .html" in answer.err
    assert not (tmp_path / name).exists()
    assert run_cli("export", session, "-o", name, "--format", "markdown").code == 0


@pytest.mark.engines("sqlite")
def test_a_dash_as_the_file_of_an_export_is_standard_output(run_cli: RunCli, tmp_path: Path) -> None:
    session = run_cli("send", "--agent", "scripted", "hello", "--json").json["session"]

    answer = run_cli("export", session, "-o", "-")

    assert (answer.code, answer.out) == (0, run_cli("export", session).out)
    assert not (tmp_path / "-").exists()


def test_an_exported_page_is_safe_and_makes_no_requests(run_cli: RunCli) -> None:
    session = run_cli("send", *HOSTILE, "--json", TAGS).json["session"]
    run_cli("rename", session, f"</title>{TAGS}")
    page = Page()
    page.feed(run_cli("export", session, "--format", "html").out)

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


def test_a_conversation_can_be_read_as_markdown(run_cli: RunCli) -> None:
    session = run_cli("send", *HOSTILE, "--json", "a ````fence```` here").json["session"]
    text = run_cli("export", session, "--format", "markdown").out

    assert re.findall(r"^## (\w+)", text, re.MULTILINE) == ["you", "agent", "tool", "agent"]
    assert "a ````fence```` here" in text
    assert not set(text) & set("\x1b\x07\x9b\u202e")
    assert ESCAPES not in text


def test_long_work_shows_how_far_it_is_on_a_terminal_only(tmp_path: Path, file: Path, run_cli_file: RunCli) -> None:
    a_store(file)
    assert run_cli_file("backup", "quiet.db").err == ""

    seen = on_terminal(tmp_path, file, "backup", "copy.db")
    assert (seen.code, "copying" in seen.out) == (0, True)
