"""The inspection of a document accepts a valid one, and names the location and the cause of each fault."""

import re
from typing import Any

import msgspec
import pytest

from backstay.errors import InvalidPayload, TooLarge
from backstay.model.documents.document import Export
from backstay.model.documents.inspection import inspect
from backstay.model.documents.inspection.ranges import cover, joined_ranges
from backstay.model.limits import Limits
from tests.model.memory_document import BLOB, FIRST, SECOND, TURN, MemoryDocument, ids, small_export


def changed(*path: str | int, to: Any) -> Export:  # Any: the value of any field of the document
    """The small document with one value replaced, or removed if `to` is `...`."""
    document: Any = msgspec.json.decode(small_export().to_json())  # Any: JSON
    inner = document
    for step in path[:-1]:
        inner = inner[step]
    if to is ...:
        del inner[path[-1]]
    else:
        inner[path[-1]] = to
    return Export.from_json(msgspec.json.encode(document))


def test_a_valid_document_passes() -> None:
    inspect(MemoryDocument(small_export()), Limits())


FAULTS: dict[str, tuple[Export, str]] = {
    # the session
    "an invalid session id": (changed("session", "id", to="ses_1"), "$.ancestors: 'ses_1' is not a session id"),
    "a window of another session": (
        changed("session", "window", to=ids.window()),
        "$.session.window is not a window of the session",
    ),
    "revision 0": (changed("session", "revision", to=0), "$.session.revision must be 1 or more"),
    "an end without a time": (changed("session", "state", to="ended"), "$.session.ended_at does not match the state"),
    "unsorted tags": (changed("session", "tags", to=["b", "a"]), "$.session.tags are not sorted"),
    "a title of nobody": (changed("session", "title", to="Sky"), "$.session.title_by does not match the title"),
    "too many turns": (changed("session", "turns", to=2), "$.session.turns is 2, not 1"),
    "a read mark beyond the log": (changed("marks", to={"read_to": 7}), "$.marks.read_to is not an event"),
    # the windows
    "an open segment of another window": (
        changed("windows", 1, "segments", 1, to={"start": 1, "source": FIRST, "low": 3}),
        "$.windows[1].segments[1] is open",
    ),
    "a gap between segments": (
        changed("windows", 1, "segments", 1, "start", to=2),
        "$.windows[1].segments[1] begins at 2, not at 1",
    ),
    "a segment of messages that are not there": (
        changed("windows", 1, "segments", 1, "high", to=9),
        f"$.windows[1].segments[1] reads messages that {FIRST} does not have",
    ),
    "a summary of too many messages": (
        changed("windows", 1, "behind", "until", to=5),
        f"$.windows[1] needs 5 messages of {FIRST}, which has 4",
    ),
    "a compaction without a parent": (
        changed("windows", 1, "parent", to=None),
        "$.windows[1].parent is not a window of the session",
    ),
    "a first window with a parent": (
        changed("windows", 0, "parent", to=SECOND),
        "$.windows[0].parent is before the first window",
    ),
    "windows out of order": (changed("windows", 1, "event", to=0), "$.windows[1] comes after a later one"),
    "messages out of order": (
        changed("windows", 0, "messages", 1, "position", to=0),
        "$.windows[0].messages are not in order",
    ),
    "a message that no window reads": (
        changed("windows", 1, "messages", 0, "position", to=1),
        "$.windows[1].segments[0] reads messages",
    ),
    "a call in a message of a person": (
        changed("windows", 0, "messages", 1, "role", to="user"),
        "$.windows[0].messages[1]: a message with role user cannot contain tool calls",
    ),
    "a message of another turn": (
        changed("windows", 0, "messages", 0, "turn", to=ids.turn()),
        "$.windows[0].messages[0] belongs to a turn of another session",
    ),
    # the results
    "a result without a call": (
        changed("windows", 0, "messages", 2, "parts", 0, "id", to="c9"),
        "$.windows[0].messages[2] contains a result of call 'c9', which no earlier message made",
    ),
    "a result event without a call": (
        changed("events", 3, "body", "result", "id", to="c9"),
        "$.events[3].body.result answers call 'c9', which its turn did not make",
    ),
    # the turns
    "an ended turn without an outcome": (changed("turns", 0, "outcome", to=...), "$.turns[0].outcome does not match"),
    "a root that is not there": (changed("turns", 0, "root", to=ids.turn()), "$.turns[0].root is not a root turn"),
    "a turn that took itself": (changed("turns", 0, "taken_by", to=TURN), "$.turns[0].taken_by is not another turn"),
    "a held turn that has ended": (changed("turns", 0, "held", to=True), "$.turns[0].held does not match the state"),
    "an ended turn with an input": (
        changed("turns", 0, "input", to=[{"type": "text", "text": "x"}]),
        "$.turns[0] has an input but does not wait",
    ),
    "a turn with the event of another": (changed("turns", 0, "event", to=6), "$.turns[0].event refers to another"),
    "a start that is none": (changed("turns", 0, "first_event", to=3), "$.turns[0].first_event is not its start"),
    "a call with a wrong ordinal": (changed("calls", 0, "ordinal", to=1), "$.calls[0].ordinal is not 0"),
    "a call of no turn": (changed("calls", 0, "turn", to=ids.turn()), "$.calls[0] does not belong to a turn"),
    "an invalid hash": (changed("calls", 0, "arguments_hash", to="xyz"), "$.calls[0].arguments_hash is not a hash"),
    # the events
    "a gap in the log": (changed("events", 3, "number", to=5), "$.events[3].number is 5, not 4"),
    "a log that ends too early": (changed("session", "last_event", to=7), "$.session.last_event is not 6"),
    "a fence that shrinks": (changed("events", 2, "fence", to=0), "$.events[2].fence is earlier"),
    "a fence ahead of the session": (changed("session", "fence", to=0), "$.session.fence is behind the last event"),
    "an event of an unknown turn": (changed("events", 4, "turn", to=ids.turn()), "$.events[4].turn is not a turn"),
    "a start without its input": (changed("events", 1, "said", to=...), "$.events[1].said is missing"),
    "an end with too few messages": (changed("events", 4, "said", "high", to=3), "$.events[4].said does not match"),
    "messages that are not there": (changed("events", 4, "said", "high", to=9), "$.events[4].said names messages"),
    "a call that is not in the ledger": (
        changed("events", 2, "body", "key", to=f"{TURN}.1"),
        "$.events[2].body.key is not in the ledger",
    ),
    "a window that another event opened": (
        changed("windows", 1, "event", to=5),
        "$.windows[1].event refers to another event",
    ),
    # the attachments
    "changed bytes": (changed("attachments", 0, "data", to="AAAA"), "$.attachments[0] does not match its hash"),
    "a missing attachment": (changed("attachments", to=[]), f"$.attachments do not contain {BLOB}"),
}


@pytest.mark.parametrize(("export", "problem"), FAULTS.values(), ids=FAULTS)
def test_a_fault_is_named_with_its_location(export: Export, problem: str) -> None:
    with pytest.raises(InvalidPayload, match=re.escape(problem)):
        inspect(MemoryDocument(export), Limits())


@pytest.mark.parametrize(
    ("limits", "problem"),
    [
        (Limits(blob_bytes=11), "$.attachments[0] has 12 bytes; at most 11 are accepted"),
        (Limits(message_bytes=60), "$.windows[0].messages[0]: the message has"),
        (Limits(name_bytes=2), "$.turns[0]: the agent's name has 3 bytes"),
    ],
)
def test_a_document_over_a_limit_is_too_large(limits: Limits, problem: str) -> None:
    with pytest.raises(TooLarge, match=re.escape(problem)):
        inspect(MemoryDocument(small_export()), limits)


@pytest.mark.parametrize(
    ("ranges", "joined"),
    [
        ([], []),
        ([(0, 2), (2, 4)], [(0, 4)]),
        ([(3, 4), (0, 2)], [(0, 2), (3, 4)]),
        ([(0, 5), (1, 2)], [(0, 5)]),
    ],
)
def test_adjacent_and_overlapping_ranges_are_joined(
    ranges: list[tuple[int, int]], joined: list[tuple[int, int]]
) -> None:
    assert joined_ranges(ranges) == joined


@pytest.mark.parametrize(
    ("low", "high", "covered"), [(0, 2, True), (1, 2, True), (0, 3, False), (2, 3, False), (3, 5, True), (4, 6, False)]
)
def test_a_range_is_covered_by_one_that_contains_it(low: int, high: int, covered: bool) -> None:
    assert cover([(0, 2), (3, 5)], low, high) is covered
