"""`backstay doctor` finds problems, repairs safe ones, and saves readable data."""

import json
import os
import stat
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import apsw
import pytest

from backstay import open_store
from backstay.errors import BackstayError, CorruptRecord
from backstay.model.limits import Limits
from backstay.model.operations.findings import Rescue
from backstay.store import database_upkeep
from backstay.store.sqlite.maintenance.checkup import checkup
from backstay.store.sqlite.migrations import shipped
from tests.cli.installed_command import RunCli, on_terminal, run_cli_in, running
from tests.cli.operator.database_damage import ME, a_store, damaged, execute, messages_in
from tests.databases import Place, let_leases_lapse
from tests.open_sqlite import open_sqlite

# Ways to damage a file that every run tries.
DAMAGES = 60


def quiet(what: str, done: int, total: int) -> None:
    """There is no observer."""


def wrong(answer: Any) -> list[tuple[str, str]]:
    return [(one["about"], one["detail"]) for one in answer["findings"] if one["level"] == "wrong"]


@pytest.fixture
def fresh(bare_places: Callable[[], Place]) -> Place:
    """An empty store that a test may damage, on each engine."""
    return bare_places()


def test_a_sound_store_is_found_sound(tmp_path: Path, fresh: Place) -> None:
    a_store(fresh)
    answer = run_cli_in(tmp_path, fresh, "doctor", "--json")

    assert (answer.code, answer.json["sound"], wrong(answer.json)) == (0, True, [])
    seen = {one["about"] for one in answer.json["findings"]}
    assert seen >= {
        "Backstay",
        "schema",
        "permissions",
        "integrity",
        "invariants",
        "leases",
        "search index",
        "sessions",
    }
    assert run_cli_in(tmp_path, fresh, "doctor", "--quick").out.endswith("Nothing is wrong.\n")


def test_a_store_that_was_made_with_other_limits_is_found_sound(tmp_path: Path, fresh: Place) -> None:
    plenty = Limits(**dict.fromkeys(Limits.__struct_fields__, 1 << 24))
    with open_store(fresh, limits=plenty) as store:
        session = store.create(owner=ME, metadata={f"note {number}": "x" * 5_000 for number in range(40)}).id
        store.rename(session, "x" * 5_000, owner=ME)
        store.tag(session, owner=ME, add=[f"{'x' * 500} {number}" for number in range(100)])

    answer = run_cli_in(tmp_path, fresh, "doctor", "--json")

    assert wrong(answer.json) == []


def test_an_attachment_that_lost_some_of_its_bytes_is_never_taken_for_a_shorter_one(fresh: Place) -> None:
    with open_store(fresh) as store:
        going = store.begin_upload(owner=ME)
        for start in range(0, 3_000, 1_000):
            store.upload_chunk(going, start, b"x" * 1_000, owner=ME)
        photo = store.finish_upload(going, owner=ME).hash
    execute(fresh, "DELETE FROM chunks WHERE start = 1000")

    with open_store(fresh) as store:
        assert store.read_blob(photo, owner=ME, length=1_000) == b"x" * 1_000
        with pytest.raises(CorruptRecord, match=photo):
            store.read_blob(photo, owner=ME)


GATEWAY = (
    "INSERT INTO gateways (owner, name, cursor, feed, fence, created_at) VALUES ('local', 'telegram/7', '', 0, 0, 0)"
)
DELIVERIES = """INSERT INTO deliveries (id, owner, gateway, destination, session_id, cursor)
    SELECT s.id, 'local', 'telegram/7', '42', s.id, {} FROM sessions s"""

BROKEN = {
    "the events are not numbered": ["DELETE FROM events WHERE number = 3"],
    "the event log is empty": ["DELETE FROM events"],
    "two turns run": [
        "DROP INDEX turns_run_alone",
        "UPDATE turns SET state = 'running', outcome = NULL, ended_at = NULL WHERE state = 'ended'",
    ],
    "the waiting turns are miscounted": ["UPDATE sessions SET waiting = 7"],
    "the messages are miscounted": ["UPDATE sessions SET length = length + 1"],
    "the current window is missing": ["UPDATE sessions SET window_id = 'win_elsewhere'"],
    "a turn runs that is not the session's running turn": [
        """UPDATE turns SET state = 'running', outcome = NULL, ended_at = NULL
        WHERE id IN (SELECT max(id) FROM turns GROUP BY session_id)"""
    ],
    "a chat got events that do not exist": [GATEWAY, DELIVERIES.format(9999)],
    "a deleted session is delivered to a chat": [
        GATEWAY,
        DELIVERIES.format(0),
        "UPDATE sessions SET state = 'deleted'",
    ],
}


@pytest.mark.parametrize("sentence", BROKEN)
def test_a_broken_invariant_is_named_and_never_repaired_by_guessing(
    tmp_path: Path, fresh: Place, sentence: str
) -> None:
    sessions = a_store(fresh, sessions=2)
    execute(fresh, *BROKEN[sentence])
    answer = run_cli_in(tmp_path, fresh, "doctor", "--fix", "--json")

    assert answer.code == 6
    assert any(about == "invariants" and said.startswith(sentence) for about, said in wrong(answer.json))
    assert any(session in said for session in sessions for _, said in wrong(answer.json))
    assert wrong(run_cli_in(tmp_path, fresh, "doctor", "--json").json) == wrong(answer.json)


@pytest.mark.parametrize(
    ("statement", "sentence"),
    [
        ("DELETE FROM schedule_log", "the newest entry is missing in the log of"),
        ("DELETE FROM schedules", "the log remains of a deleted schedule:"),
    ],
)
def test_a_schedule_and_its_log_are_found_only_together(
    tmp_path: Path, fresh: Place, statement: str, sentence: str
) -> None:
    session = a_store(fresh, sessions=1)[0]
    with open_store(fresh) as store:
        made = store.create_schedule("day 9:00", session, "tea?", owner=ME)
    assert run_cli_in(tmp_path, fresh, "doctor", "--json").code == 0
    execute(fresh, statement)
    assert wrong(run_cli_in(tmp_path, fresh, "doctor", "--json").json) == [("invariants", f"{sentence} {made.id}")]


def test_a_record_that_cannot_be_read_is_named_with_its_session(tmp_path: Path, fresh: Place) -> None:
    sessions = a_store(fresh, sessions=2)
    execute(fresh, f"UPDATE sessions SET tags = 'not json' WHERE id = '{sessions[1]}'")
    answer = run_cli_in(tmp_path, fresh, "doctor", "--json")

    assert answer.code == 6
    assert [sessions[1] in said for about, said in wrong(answer.json) if about == "sessions"] == [True]


def test_a_dead_holder_is_noted_as_no_problem_and_its_turn_ended(tmp_path: Path, place: Place) -> None:
    with running(tmp_path, place, "send", "--agent", "sample_agents:endless", "hello") as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "I am here\n"
        assert run_cli_in(tmp_path, place, "doctor", "--json").code == 0
        process.kill()
        process.wait(60)
    let_leases_lapse(place, process.pid)

    found = run_cli_in(tmp_path, place, "doctor", "--json")
    assert (found.code, found.json["sound"], wrong(found.json)) == (0, True, [])
    (leases,) = [one for one in found.json["findings"] if one["about"] == "leases"]
    assert (leases["level"], leases["repair"]) == ("note", "reap")
    assert leases["detail"].startswith("1 turn held by dead processes")
    fixed = run_cli_in(tmp_path, place, "doctor", "--fix", "--json")
    assert (fixed.code, "reap" in fixed.json["fixed"]) == (0, True)
    with open_store(place) as store:
        (session,) = store.list(owner=ME).sessions
        assert session.running is None


def test_an_index_with_surplus_entries_is_rebuilt(tmp_path: Path, place: Place) -> None:
    sessions = a_store(place, sessions=1)
    with open_store(place) as store:
        hits = len(store.search("question", owner=ME).hits)
    execute(place, "UPDATE indexed SET key = key + 1000000")
    assert [about for about, _ in wrong(run_cli_in(tmp_path, place, "doctor", "--json").json)] == ["search index"]

    assert run_cli_in(tmp_path, place, "doctor", "--fix").code == 0
    with open_store(place) as store:
        assert len(store.search("question", owner=ME).hits) == hits
        assert store.search("question", owner=ME).lag == 0
    assert sessions


# --- files ------------------------------------------------------------------------------------------------------------


def test_files_that_others_may_read_are_made_private(tmp_path: Path, file: Path, run_cli_file: RunCli) -> None:
    a_store(file, sessions=1)
    file.chmod(0o644)
    assert [about for about, _ in wrong(run_cli_file("doctor", "--json").json)] == ["permissions"]

    assert run_cli_file("doctor", "--fix").code == 0
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_a_network_file_system_is_wrong(tmp_path: Path, file: Path) -> None:
    a_store(file, sessions=1)
    mounts = tmp_path / "mounts"
    mounts.write_text(f"36 35 98:0 / {tmp_path} rw,noatime - nfs4 server:/x rw\n")
    found = list(checkup(file, quick=True, progress=quiet, mounts=mounts))
    assert [one.about for one in found if one.level == "wrong"] == ["file system"]


def make_foreign(path: Path) -> None:
    connection = apsw.Connection(str(path))
    connection.execute("CREATE TABLE theirs (a); INSERT INTO theirs VALUES (1)")
    connection.close()


STRANGE: dict[str, Callable[[Path], object]] = {
    "missing": lambda path: None,
    "a directory": lambda path: path.mkdir(),
    "text": lambda path: path.write_text("Dear diary, this is no database at all.\n" * 100),
    "short": lambda path: path.write_bytes(b"x"),
    "foreign": make_foreign,
    "a fifo": os.mkfifo,
}


@pytest.mark.parametrize("kind", STRANGE)
def test_a_file_that_is_not_a_store_is_reported_and_left_alone(
    tmp_path: Path, file: Path, run_cli_file: RunCli, kind: str
) -> None:
    file.parent.mkdir()
    STRANGE[kind](file)
    before = file.read_bytes() if file.is_file() else None

    doctor = run_cli_file("doctor", "--fix")
    assert (doctor.code, "--fix" in doctor.out) == (6, False)
    for command in (
        ["list"],
        ["backup", "copy.db"],
        ["vacuum"],
        ["vacuum", "--apply"],
        ["migrate"],
        ["doctor", "--rescue", "saved"],
    ):
        answer = run_cli_file(*command)
        assert (answer.code, answer.err.startswith("error: ")) == (1, True), command
    assert (file.read_bytes() if file.is_file() else None) == before
    assert list(file.parent.iterdir()) == ([] if kind == "missing" else [file])


def test_a_file_that_cannot_be_opened_is_not_taken_for_a_damaged_one(file: Path, run_cli_file: RunCli) -> None:
    a_store(file, sessions=1)
    log = Path(f"{file}-wal")
    log.unlink(missing_ok=True)
    log.mkdir(mode=0o700)

    answer = run_cli_file("doctor", "--json")

    assert (answer.code, [about for about, _ in wrong(answer.json)]) == (6, ["file"])
    assert "rescue" not in answer.out


def test_a_newer_schema_is_reported_and_an_older_one_can_be_migrated(
    tmp_path: Path, file: Path, run_cli_file: RunCli
) -> None:
    a_store(file, sessions=1)
    connection = apsw.Connection(str(file))
    newest = int(str(connection.execute("PRAGMA user_version").fetchall()[0][0]))
    connection.execute("PRAGMA user_version = 9999")
    connection.close()
    assert run_cli_file("doctor").code == 6
    assert "schema 9999" in run_cli_file("list").err

    file.unlink()
    open_sqlite(file, steps=shipped()[:-1]).close()
    older = run_cli_file("doctor", "--json")
    assert (older.code, [one["level"] for one in older.json["findings"] if one["about"] == "schema"]) == (0, ["note"])
    done = run_cli_file("migrate", "--json").json
    assert (done["from"], done["to"], len(done["applied"])) == (newest - 1, newest, 1)
    assert run_cli_file("migrate").out == f"schema {newest} is the newest: nothing to do\n"
    assert run_cli_file("doctor").code == 0
    assert Path(f"{file}.before-{newest:04}").exists()


def test_a_store_whose_log_is_gone_is_not_taken_for_a_new_one(tmp_path: Path, file: Path, run_cli_file: RunCli) -> None:
    a_store(file, sessions=1)
    file.write_bytes(b"")
    answer = run_cli_file("doctor", "--json")

    assert (answer.code, [about for about, _ in wrong(answer.json)]) == (6, ["schema"])
    assert "log" in wrong(answer.json)[0][1]


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> tuple[bytes, set[str]]:
    """The bytes of a sound store, and the ids of its messages."""
    path = tmp_path_factory.mktemp("sound") / "chat.db"
    a_store(path)
    return path.read_bytes(), messages_in(path)


@pytest.mark.parametrize("number", range(DAMAGES))
def test_no_readable_row_is_lost_silently_for_any_damage(
    tmp_path: Path, sound: tuple[bytes, set[str]], number: int
) -> None:
    path = tmp_path / "chat.db"
    path.write_bytes(damaged(sound[0], number))
    path.chmod(0o600)
    before = path.read_bytes()

    found = list(database_upkeep.checkup(path, quick=False, progress=quiet))
    rescued: Rescue | None = None
    with suppress(BackstayError):
        rescued = database_upkeep.rescue(path, tmp_path / "saved", progress=quiet)
    if rescued is None:
        # Only a file that is too short to hold data leaves nothing to save.
        assert number % 5 == 4
        assert [one for one in found if one.level == "wrong"]
        return

    saved = saved_messages(tmp_path / "saved")
    whole = not rescued.unreadable and not rescued.loose and all(one.whole for one in rescued.sessions)
    assert whole <= (len(saved) == len(sound[1]))
    assert len(saved) == len(sound[1]) or any(one.table == "messages" for one in rescued.unreadable)
    assert (saved >= sound[1]) or any(one.level == "wrong" for one in found)
    assert path.read_bytes() == before
    with open_store(tmp_path / "other.db") as store:
        for one in rescued.sessions:
            if one.whole:
                with (tmp_path / "saved" / one.file).open("rb") as file:
                    assert store.import_session(file, owner=ME).session.id


def saved_messages(folder: Path) -> set[str]:
    found: set[str] = set()
    for one in folder.glob("*.json"):
        document = json.loads(one.read_text())
        found |= {said["id"] for said in document.get("messages", [])}
    for one in folder.glob("*.jsonl"):
        lines = [json.loads(line) for line in one.read_text().split("\n") if line]
        found |= {line["message"]["message"]["id"] for line in lines if "message" in line}
    return found


def test_a_rescue_reports_saved_and_lost_rows(
    tmp_path: Path, file: Path, run_cli_file: RunCli, sound: tuple[bytes, set[str]]
) -> None:
    file.parent.mkdir()
    data = bytearray(sound[0])
    for page in range(4_096, len(data), 4_096):
        # Wherever a migration moves them: every page that names a message is gone.
        if any(said.encode() in data[page : page + 4_096] for said in sound[1]):
            data[page : page + 4_096] = bytes(4_096)
    file.write_bytes(data)
    assert run_cli_file("doctor").code == 6

    answer = run_cli_file("doctor", "--rescue", "saved", "--json")
    assert answer.code == 6
    report = json.loads((tmp_path / "saved" / "rescue.json").read_text())
    assert report == answer.json
    assert report["unreadable"]
    assert all((tmp_path / "saved" / one["file"]).exists() for one in report["sessions"])
    again = run_cli_file("doctor", "--rescue", "saved")
    assert (again.code, "not empty" in again.err) == (1, True)
    shown = run_cli_file("doctor", "--rescue", "more")
    assert (shown.code, "unreadable: " in shown.out) == (6, True)


def test_findings_are_shown_with_a_hint(tmp_path: Path, file: Path) -> None:
    a_store(file, sessions=1)
    file.chmod(0o666)
    seen = on_terminal(tmp_path, file, "doctor")

    assert seen.code == 6
    assert "WRONG" in seen.out
    assert "--fix" in seen.out
    assert partial(on_terminal, tmp_path, file)("doctor", "--fix").code == 0
