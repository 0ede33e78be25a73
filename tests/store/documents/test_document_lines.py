"""Files of lines that were cut off, edited or mixed up: rejected with the line, and nothing is stored."""

import json
import re
from collections.abc import Callable, Iterator
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest

from backstay import Store, open_store
from backstay.errors import InvalidPayload, Rejected, TooLarge
from backstay.model import message
from backstay.model.limits import Limits
from backstay.testing import ManualClock
from tests.contract.sample_histories import HISTORIES
from tests.crash.sql_audit import audit

ME = "me"
Lines = list[bytes]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with open_store(tmp_path / "store.db", limits=Limits(document_bytes=100_000)) as store:
        store.record(store.create(owner=ME).id, [message.user("before")], owner=ME)
        yield store


def exported(folder: Path, history: str) -> Lines:
    """A history as the lines of a file."""
    clock, file = ManualClock(), BytesIO()
    with open_store(folder / "origin.db", clock=clock) as origin:
        origin.export_to(HISTORIES[history](origin, clock), file, owner=ME)
    return file.getvalue().splitlines(keepends=True)


def refused(store: Store, lines: Lines) -> Rejected:
    """Import these lines; returns the reason for their rejection. Nothing is stored."""
    before = store.list(owner=ME), store.feed(0, owner=ME), store.usage(owner=ME)
    with pytest.raises(Rejected) as error:
        store.import_session(BytesIO(b"".join(lines)), owner=ME)
    assert (store.list(owner=ME), store.feed(0, owner=ME), store.usage(owner=ME)) == before
    assert error.value.hint
    return error.value


def test_a_file_that_is_cut_off_after_any_line_is_refused(store: Store, tmp_path: Path) -> None:
    lines = exported(tmp_path, "attached")

    for count in range(1, len(lines)):
        error = refused(store, lines[:count])
        assert f"cut off: it ends after line {count}" in str(error), count


def test_a_file_that_is_cut_off_inside_of_any_line_is_refused(store: Store, tmp_path: Path) -> None:
    lines = exported(tmp_path, "conversation")

    for count, line in enumerate(lines, 1):
        error = refused(store, [*lines[: count - 1], line[: len(line) // 2]])
        assert count == 1 or f"line {count} is not a line" in str(error)


def test_the_last_line_needs_no_line_end(store: Store, tmp_path: Path) -> None:
    document = b"".join(exported(tmp_path, "conversation")).rstrip(b"\n")

    assert store.import_session(BytesIO(document), owner=ME).session.id


def _line(lines: Lines, kind: str) -> int:
    """The first line with a record of this kind."""
    return next(number for number, line in enumerate(lines) if line.startswith(b'{"%s"' % kind.encode()))


def _counted(lines: Lines, **more: int) -> Lines:
    """The lines with other counts at the end."""
    end: dict[str, Any] = json.loads(lines[-1])
    end["end"] |= {name: end["end"].get(name, 0) + count for name, count in more.items()}
    return [*lines[:-1], json.dumps(end).encode()]


def _swap(lines: Lines, one: str, other: str) -> Lines:
    first, second = _line(lines, one), _line(lines, other)
    lines[first], lines[second] = lines[second], lines[first]
    return lines


def _twice(kind: str) -> Callable[[Lines], Lines]:
    def edit(lines: Lines) -> Lines:
        number = _line(lines, kind)
        return _counted([*lines[: number + 1], *lines[number:]], **{f"{kind}s": 1})

    return edit


def _insert(kind: str, line: bytes) -> Callable[[Lines], Lines]:
    def edit(lines: Lines) -> Lines:
        number = _line(lines, kind)
        return [*lines[:number], line, *lines[number:]]

    return edit


EDITS: dict[str, tuple[Callable[[Lines], Lines], str]] = {
    "no lines": (lambda _: [], "not an exported session"),
    "garbage": (_insert("turn", b"garbage\n"), r"line \d+ is not a line"),
    "a blank line": (_insert("turn", b"\n"), r"line \d+ is not a line"),
    "bytes that are no text": (_insert("turn", b'{"turn": "\xff"}\n'), r"line \d+ is not a line"),
    "an unknown record": (_insert("turn", b'{"pony": {}}\n'), r"line \d+ is not a line .*pony"),
    "an empty record": (_insert("turn", b"{}\n"), r"line \d+ holds 0 records"),
    "two records on a line": (
        lambda lines: [
            *lines[:1],
            lines[1].rstrip()[:-1] + b"," + lines[1][1:].replace(b"window", b"end", 1),
            *lines[2:],
        ],
        r"line 2 (holds 2 records|is not a line)",
    ),
    "a line that is too long": (_insert("turn", b'{"turn": "%s"}\n' % (b"x" * 100_000)), r"line \d+ .*100,000 bytes"),
    "a count that is wrong": (lambda lines: _counted(lines, messages=1), r"counts \d+ messages, but there are"),
    "a message too few": (
        lambda lines: [line for number, line in enumerate(lines) if number != _line(lines, "message")],
        r"counts \d+ messages, but there are",
    ),
    "something after the end": (lambda lines: [*lines, lines[-1]], r"line \d+ follows the last line"),
    "an event before a turn": (lambda lines: _swap(lines, "turn", "event"), r"line \d+ has a"),
    "a window after a message": (lambda lines: _swap(lines, "window", "message"), r"line \d+"),
    "a header in the middle": (lambda lines: [lines[0], *lines], r"line 2 is not a line"),
    "a window twice": (_twice("window"), r"line \d+ names win_\w+ twice"),
    "a message twice": (_twice("message"), r"line \d+ names msg_\w+ twice"),
    "a turn twice": (_twice("turn"), r"line \d+ names trn_\w+ twice"),
    "an event twice": (_twice("event"), r"line \d+.number is 1, not 2"),
    "an attachment twice": (_twice("attachment"), r"line \d+ names \w+ twice"),
    "a chunk too few": (
        lambda lines: [line for line in lines if not line.startswith(b'{"chunk"')],
        r"line \d+ does not match its hash",
    ),
    "a chunk of nothing": (
        lambda lines: [line for line in lines if not line.startswith(b'{"attachment"')],
        r"line \d+ has a chunk without an attachment",
    ),
    "a message of no window": (
        lambda lines: [
            line.replace(b'"window":"win_', b'"window":"wim_') if b'{"message"' in line else line for line in lines
        ],
        r"line \d+ is a message of wim_\w+",
    ),
    "messages inside of a window": (
        lambda lines: [lines[0], lines[1].rstrip()[:-2] + b',"messages":[' + _said(lines) + b"]}}\n", *lines[2:]],
        r"line 2 holds messages",
    ),
    "another format": (lambda lines: [lines[0].replace(b'"format":2', b'"format":3'), *lines[1:]], "newer|format 3"),
}


def _said(lines: Lines) -> bytes:
    said: dict[str, Any] = json.loads(lines[_line(lines, "message")])
    return json.dumps(said["message"]["message"]).encode()


@pytest.mark.parametrize("edit", EDITS)
def test_a_file_that_no_store_wrote_is_refused_with_the_line(store: Store, tmp_path: Path, edit: str) -> None:
    change, place = EDITS[edit]

    error = refused(store, change(exported(tmp_path, "attached")))

    assert isinstance(error, TooLarge if "too long" in edit else InvalidPayload)
    assert re.search(place, str(error)), error


def test_a_refused_file_leaves_no_row_in_the_store(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    with open_store(path) as store:
        for change, _ in EDITS.values():
            with pytest.raises(Rejected):
                store.import_session(BytesIO(b"".join(change(exported(tmp_path, "attached")))), owner=ME)
    assert audit(0, path) == []
