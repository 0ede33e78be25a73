"""New ids for an exported session: consistent everywhere, and nothing else changes."""

import re
from collections.abc import Iterator

import msgspec
import pytest

from backstay.model.content import Text
from backstay.model.documents.document import Export, ExportedEvent, ExportedRequest
from backstay.model.documents.inspection import inspect
from backstay.model.documents.reid import ReId
from backstay.model.event import EventBody, SessionCreated, SteeringTaken, TextDelta, TurnsReordered
from backstay.model.ids import IdSource, message_of
from backstay.model.limits import Limits
from backstay.testing import ManualClock
from tests.model.memory_document import FIRST, SECOND, SESSION, TURN, MemoryDocument, ids, small_export

_ID = re.compile(r"(?:ses|win|trn|msg)_[0-9a-z]{26}")


def renewed(export: Export, source: IdSource | None) -> Export:
    """The document with new ids from this source."""
    document = MemoryDocument(export)
    reid = ReId(document.header, [window.id for window in export.windows], document, source)
    header = reid.header(document.header)
    return msgspec.structs.replace(
        export,
        session=header.session,
        ancestors=header.ancestors,
        windows=tuple(
            msgspec.structs.replace(reid.window(window), messages=tuple(map(reid.message, window.messages)))
            for window in export.windows
        ),
        events=tuple(map(reid.event, export.events)),
        turns=tuple(map(reid.turn, export.turns)),
        calls=tuple(map(reid.call, export.calls)),
    )


@pytest.fixture
def source() -> IdSource:
    return IdSource(ManualClock(now=1_900_000_000_000))


def ids_in(export: Export) -> Iterator[str]:
    return (found[0] for found in _ID.finditer(export.to_json().decode()))


def test_without_a_source_every_id_stays() -> None:
    assert renewed(small_export(), None) == small_export()


def test_no_old_id_remains(source: IdSource) -> None:
    old, new = set(ids_in(small_export())), set(ids_in(renewed(small_export(), source)))

    assert not old & new
    assert len(old) == len(new)


def test_each_old_id_becomes_the_same_new_id_everywhere(source: IdSource) -> None:
    pairs = set(zip(ids_in(small_export()), ids_in(renewed(small_export(), source)), strict=True))

    assert len(pairs) == len({old for old, _ in pairs}) == len({new for _, new in pairs})


def test_the_document_stays_valid(source: IdSource) -> None:
    inspect(MemoryDocument(renewed(small_export(), source)), Limits())


def test_the_messages_of_a_turn_follow_from_its_new_id(source: IdSource) -> None:
    new = renewed(small_export(), source)
    answer = [message.id for message in new.windows[0].messages[1:]]

    assert answer == [message_of(new.turns[0].id, index) for index in range(3)]


def test_a_request_id_is_no_longer_recognised(source: IdSource) -> None:
    export = small_export()
    asked = msgspec.structs.replace(export.turns[0], request=ExportedRequest(id="r1", hash="0" * 32, scope="session"))
    (turn,) = renewed(msgspec.structs.replace(export, turns=(asked,)), source).turns

    assert turn.request == ExportedRequest(id="r1", hash="0" * 32, scope=None)


def test_ancestors_get_new_ids_in_their_order(source: IdSource) -> None:
    export = msgspec.structs.replace(small_export(), ancestors=(ids.session(), ids.session()))
    new = renewed(export, source)

    assert len({new.session.id, *new.ancestors}) == 3
    assert not {*new.ancestors} & {SESSION, *export.ancestors}


def test_a_window_outside_of_the_document_keeps_its_id(source: IdSource) -> None:
    document, elsewhere = MemoryDocument(small_export()), ids.window()
    reid = ReId(document.header, [FIRST, SECOND], document, source)

    assert reid.window_id(elsewhere) == elsewhere
    assert reid.window_id(FIRST) != FIRST


@pytest.mark.parametrize(
    "body",
    [SteeringTaken(TURN, (Text("left"),)), TurnsReordered((TURN,)), SessionCreated(SESSION), TextDelta(f"see {TURN}")],
)
def test_ids_in_events_are_renewed_and_texts_are_not(source: IdSource, body: EventBody) -> None:
    document = MemoryDocument(small_export())
    reid = ReId(document.header, [FIRST, SECOND], document, source)
    new = reid.event(ExportedEvent(number=1, last=1, fence=0, at=1, body=body)).body

    match new:
        case SteeringTaken(steer=turn) | TurnsReordered(turns=(turn,)):
            assert turn == reid.turn_id(TURN) != TURN
        case SessionCreated(source=session):
            assert session == reid.session(SESSION) != SESSION
        case _:
            assert new == body
