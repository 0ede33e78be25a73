"""Edited documents: rejected with the location, or consistent; never imported in part."""

import json
import random
import tempfile
from collections.abc import Callable, Iterator
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backstay import Store, Text, open_store
from backstay.errors import BackstayError, Conflict, InvalidPayload, NotFound, Rejected
from backstay.model import message
from backstay.model.documents.document import Export
from backstay.model.ids import SessionId
from backstay.model.turn import Completed
from backstay.testing import ManualClock
from tests.contract.sample_histories import HISTORIES
from tests.crash.sql_audit import audit
from tests.effort import tries

ME = "me"

# A document as plain JSON: what a person edits.
Json = Any


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def store(tmp_path: Path, clock: ManualClock) -> Iterator[Store]:
    with open_store(tmp_path / "store.db", clock=clock) as store:
        yield store


@pytest.mark.parametrize("history", HISTORIES)
def test_a_document_has_the_messages_of_the_sessions_window(store: Store, clock: ManualClock, history: str) -> None:
    session = HISTORIES[history](store, clock)

    assert store.export(session, owner=ME).conversation() == store.messages(session, owner=ME).messages


def test_a_document_has_the_messages_of_a_window_of_many_segments(store: Store) -> None:
    session = store.create(owner=ME).id
    for _ in range(70):  # more often than a window is cut before it gets a base
        store.record(session, [message.user("once"), message.assistant("more")], owner=ME)
        session = store.fork(session, owner=ME).id

    read = store.messages(session, owner=ME).messages
    assert (len(read), store.export(session, owner=ME).conversation()) == (140, read)


@cache
def exported(history: str) -> bytes:
    """The document of a history."""
    clock = ManualClock()
    with tempfile.TemporaryDirectory() as folder, open_store(Path(folder) / "store.db", clock=clock) as store:
        session = HISTORIES[history](store, clock) if history != "running" else _running(store)
        return store.export(session, owner=ME).to_json()


def _running(store: Store) -> SessionId:
    session = store.create(owner=ME).id
    opened = store.submit(session, "tell me", owner=ME, start=True).opened
    assert opened is not None
    store.submit(session, "shorter", owner=ME, if_busy="steer")
    store.checkpoint(opened, [Text("Once")], take_steering=True)
    store.submit(session, "later", owner=ME)
    return session


def state(store: Store) -> object:
    """The values that change with every write to a session."""
    page = store.list(owner=ME, limit=1000)
    return page, store.feed(0, owner=ME, limit=1000), [store.messages(one.id, owner=ME) for one in page.sessions]


# --- one edit each ----------------------------------------------------------------------------------------------------


def _set(*path: str | int, to: Json) -> Callable[[Json], None]:
    def edit(document: Json) -> None:
        *outer, last = path
        for step in outer:
            document = document[step]
        document[last] = to(document[last]) if callable(to) else to

    return edit


def _drop(*path: str | int) -> Callable[[Json], None]:
    def edit(document: Json) -> None:
        *outer, last = path
        for step in outer:
            document = document[step]
        del document[last]

    return edit


def _repeat(*path: str | int) -> Callable[[Json], None]:
    return _set(*path, to=lambda items: [*items, items[-1]])


def _run_twice(document: Json) -> None:
    document["turns"][2].update(
        state="running", input=None, started_at=1, first_event=document["turns"][0]["first_event"]
    )


EDITS: dict[str, tuple[str, Callable[[Json], None], str]] = {
    "an unknown field": ("conversation", _set("session", "colour", to="red"), "colour"),
    "a number that is text": ("conversation", _set("events", 2, "number", to="three"), r"\$\.events\[2\]\.number"),
    "a negative number": ("conversation", _set("session", "fence", to=-1), r"\$\.session\.fence"),
    "a number no engine holds": ("conversation", _set("session", "activity", to=1 << 70), r"\$\.session\.activity"),
    "an id that is none": ("conversation", _set("session", "id", to="ses_me"), "ses_me"),
    "a message twice": ("conversation", _repeat("windows", 0, "messages"), "twice"),
    "a gap in the story": ("conversation", _drop("events", 2), r"\$\.events\[2\]\.number is 4, not 3"),
    "a story that is cut short": ("conversation", _drop("events", -1), r"\$\.session\.last_event"),
    "a gap between messages": ("conversation", _drop("windows", 0, "messages", 1), r"\$\.windows\[0\]\.messages"),
    "a message that was told of": ("undone", _drop("windows", 0, "messages", -1), r"\$\.events\[\d\]\.said"),
    "a window that is not here": ("undone", _drop("windows", 0), r"\$\.windows\[0\]"),
    "a window of nobody": ("forked", _set("windows", 0, "session", to="ses_01mcc5rm00ef2sqkw1mced116s"), "ancestor"),
    "more of an ancestor than is read": ("forked", _drop("windows", 1, "segments", 0), r"\$\.windows"),
    "an ancestor too few": ("forked", _set("ancestors", to=[]), r"\$\.windows\[0\]\.session"),
    "a base that comes later": (
        "undone_often",
        lambda document: document["windows"].reverse(),
        r"does not come before it|not in order",
    ),
    "a window of an ancestor that came later": (
        "forked_from_forks",
        _set("windows", 0, "event", to=8),
        r"\$\.windows\[1\] comes after",
    ),
    "a second compaction": (
        "compacted",
        lambda document: document["windows"][2].update(parent=document["windows"][0]["id"]),
        "second time",
    ),
    "a turn that ended and did not": ("streamed", _set("turns", 0, "state", to="running"), r"\$\.turns\[0\]"),
    "two turns that run": ("running", _run_twice, "at the same time"),
    "a waiting turn without input": ("queued", _set("turns", 1, "input", to=None), r"\$\.turns\[1\]"),
    "a count that is wrong": ("streamed", _set("session", "turns", to=7), r"\$\.session\.turns is 7, not 2"),
    "a queue that is not counted": ("queued", _set("session", "queued", to=0), r"\$\.session\.queued"),
    "steering nobody took": ("running", _set("events", 4, "body", to={"kind": "cancel_requested"}), "never took"),
    "steering that calls a tool": (
        "running",
        _set("events", 4, "body", "parts", to=[{"type": "tool_call", "id": "c", "name": "rm"}]),
        r"\$\.events\[4\]\.body",
    ),
    "a window that is told of later": ("running", _set("windows", 0, "event", to=9), r"\$\.windows\[0\]\.event"),
    "a call that is not counted": ("endings", _set("calls", 0, "ordinal", to=3), r"\$\.calls\[0\]\.ordinal"),
    "a result of no call": (
        "approvals",
        _set("windows", 0, "messages", 2, "parts", 0, "id", to="other"),
        r"\$\.windows\[0\]\.messages\[2\] contains a result of call 'other'",
    ),
    "a result whose call was taken out": (
        "approvals",
        _drop("windows", 0, "messages", 1, "parts", 0),
        r"\$\.windows\[0\]\.messages\[2\] contains a result of call 'yes'",
    ),
    "a second result": (
        "approvals",
        _repeat("windows", 0, "messages", 2, "parts"),
        r"\$\.windows\[0\]\.messages\[2\] contains a second result",
    ),
    "a result that waits for no call": (
        "queued",
        lambda document: next(turn for turn in document["turns"] if turn.get("record")).update(
            record=[{"role": "tool", "parts": [{"type": "tool_result", "id": "c", "output": 1}]}]
        ),
        r"\$\.turns\[\d\]\.record\[0\] contains a result",
    ),
    "an event with a result of no call": (
        "approvals",
        _set("events", 7, "body", "result", "id", to="no such call"),
        r"\$\.events\[7\]\.body\.result",
    ),
    "a call of no turn": ("streamed", _drop("calls", 0), r"\$\.events\[5\]\.body\.key"),
    "a start that is none": ("streamed", _set("turns", 0, "first_event", to=3), r"\$\.turns\[0\]\.first_event"),
    "a session that is gone": (
        "conversation",
        _set("events", -1, "body", to={"kind": "session_deleted"}),
        r"\$\.events\[\d\]\.(body says|said)",
    ),
    "a session that ended and did not": ("ended", _set("session", "state", to="expired"), r"\$\.session\.state"),
    "other bytes": ("attached", _set("attachments", 0, "data", to="AAAA"), r"\$\.attachments\[0\]"),
    "bytes too few": ("attached", _drop("attachments", 0), "do not contain"),
    "bytes too many": (
        "attached",
        lambda document: document["attachments"].append({"hash": sha256(b"x").hexdigest(), "data": "eA=="}),
        "is not referenced",
    ),
    "an address that is none": ("filed", _set("addresses", 0, "spelling", to="hall"), r"\$\.addresses\[0\]"),
    "a request to nowhere": ("requested", _set("turns", 0, "request", "scope", to="porch"), r"\$\.turns\[0\]\.request"),
    "a request twice": (
        "requested",
        lambda document: document["turns"][1].update(request=document["turns"][0]["request"]),
        r"\$\.turns\[1\]\.request",
    ),
    "a person who calls tools": (
        "conversation",
        _set("windows", 0, "messages", 0, "parts", to=[{"type": "tool_call", "id": "c", "name": "rm"}]),
        r"\$\.windows\[0\]\.messages\[0\]",
    ),
    "tags without order": ("filed", _set("session", "tags", to=["b", "a"]), r"\$\.session\.tags"),
    "a fold of too much": ("folded", _set("events", 1, "body", "last", to=900), r"\$\.events\[1\]"),
}


@pytest.mark.parametrize("edit", EDITS)
def test_an_invalid_document_is_rejected_with_its_location_and_changes_nothing(store: Store, edit: str) -> None:
    history, change, place = EDITS[edit]
    store.record(store.create(owner=ME).id, [message.user("before")], owner=ME)
    before = state(store)
    document = json.loads(exported(history))
    change(document)

    with pytest.raises(Rejected, match=place) as refused:
        store.import_session(Export.from_json(json.dumps(document)), owner=ME)

    assert refused.value.hint
    assert state(store) == before


# --- any edit ---------------------------------------------------------------------------------------------------------


def places(value: Json, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """Every location of a document at which a value can be changed."""
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in inside:
        yield (*path, key)
        yield from places(inner, (*path, key))


def mutate(document: Json, dice: random.Random) -> None:
    """Change one value, anywhere, to one that is likely to look valid."""
    *outer, last = dice.choice(list(places(document)))
    for step in outer:
        document = document[step]
    old = document[last]
    match dice.randrange(8):
        case 0:
            del document[last]
        case 1:
            document[last] = dice.choice([None, True, False, 0, 1, -1, 1 << 60, 1 << 70, 0.5, "", "x", [], {}, "\0"])
        case 2 if isinstance(old, int):
            document[last] = old + dice.choice([-1, 1, 2, 64])
        case 3 if isinstance(old, list) and old:
            old.insert(dice.randrange(len(old) + 1), dice.choice(old))
        case 4 if isinstance(old, list) and old:
            del old[dice.randrange(len(old))]
        case 5 if isinstance(old, list):
            dice.shuffle(old)
        case 6 if isinstance(last, int):
            document[last] = json.loads(json.dumps(dice.choice(document)))
        case _:
            document[last] = _something_like(old, dice)


def _something_like(old: Json, dice: random.Random) -> Json:
    """Another value of the same kind, from anywhere in any document."""
    alike = [value for value in _values() if type(value) is type(old)]
    return json.loads(json.dumps(dice.choice(alike))) if alike else old


@cache
def _values() -> list[Json]:
    found: list[Json] = []
    for history in ("streamed", "forked", "running", "queued", "compacted"):
        document = json.loads(exported(history))
        for path in places(document):
            value: Json = document
            for step in path:
                value = value[step]
            found.append(value)
    return found


@given(
    history=st.sampled_from(sorted({*HISTORIES, "running"} - {"undone_often", "forked_from_bases"})),
    seed=st.integers(0, 1 << 32),
    edits=st.integers(1, 3),
)
@settings(max_examples=tries(60, 300, 20_000), deadline=None)
def test_an_edited_document_is_refused_whole_or_as_sound_as_any(history: str, seed: int, edits: int) -> None:
    document, dice = json.loads(exported(history)), random.Random(seed)
    for _ in range(edits):
        mutate(document, dice)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "store.db"
        with open_store(path, clock=ManualClock()) as store:
            before = state(store)
            try:
                imported = store.import_session(Export.from_json(json.dumps(document)), owner=ME)
            except Rejected:
                assert state(store) == before
                return
            live_on(store, imported.session.id)
        assert audit(0, path) == []


def live_on(store: Store, session: SessionId) -> None:
    """Every verb on the imported session succeeds or is rejected with a reason."""
    document = store.export(session, owner=ME)
    assert store.import_session(document, owner=ME).copied
    for verb in (
        lambda: store.undo(session, owner=ME),
        lambda: store.redo(session, owner=ME),
        lambda: store.search("question", owner=ME),
        lambda: store.fork(session, owner=ME),
        lambda: store.claim(["default"], session=session, owner=ME),
        lambda: store.record(session, [message.user("more")], owner=ME),
        lambda: store.events_after(session, owner=ME),
        lambda: store.rotate(
            session,
            [message.summary("so far")],
            owner=ME,
            parent=store.session(session, owner=ME).window,
            keep_from=1,
        ),
        lambda: [store.messages(session, owner=ME, window=one.id) for one in store.lineage(session, owner=ME)],
        lambda: store.fold(older_than=-1_000_000_000.0),
    ):
        try:
            verb()
        except (Conflict, InvalidPayload):
            continue
    while waiting := store.waiting(session, owner=ME):
        store.withdraw(waiting[0].id, owner=ME)
    opened = store.submit(session, "on", owner=ME, start=True).opened if _open(store, session) else None
    if opened is not None:
        store.finish(opened, Completed(), bodies=[Text("and on")])
    assert store.delete(session, owner=ME).events > 0


def _open(store: Store, session: SessionId) -> bool:
    found = store.session(session, owner=ME)
    return found.state == "open" and found.running is None


# --- the content of the file ------------------------------------------------------------------------------------------


def test_deletions_of_imported_sessions_leave_no_orphan_in_the_file(tmp_path: Path, clock: ManualClock) -> None:
    path = tmp_path / "store.db"
    with open_store(path, clock=clock) as store:
        for number, history in enumerate(sorted(HISTORIES)):
            document = Export.from_json(exported(history))
            first, copy = (store.import_session(document, owner=ME).session for _ in range(2))
            fork = store.fork(copy.id, owner=ME)
            if number % 2:
                store.delete(first.id, owner=ME)
                store.delete(copy.id, owner=ME)
            else:
                store.delete(fork.id, owner=ME)
    assert audit(0, path) == []


def test_a_deleted_family_is_not_found_by_its_ids(store: Store) -> None:
    document = Export.from_json(exported("forked_from_forks"))
    session = store.import_session(document, owner=ME).session.id
    store.delete(session, owner=ME)

    for one in (session, *document.ancestors):
        with pytest.raises(NotFound):
            store.messages(one, owner=ME)
    with pytest.raises(BackstayError):
        store.export(session, owner=ME)
